"""`torch.compile` of a whole workload.

The plain calls are traced once to a graph of PyTorch's operations, and only this graph is compiled;
convolutions remain calls of the library. Compiling is not timed, but has a time limit.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import which
from typing import Any

from tilewright.schedules.workload.workload import Workload

from ..variants import Call, NoPeerError, PeerVariant
from .plain import PlainTorch

MODES = ("default", "max-autotune-no-cudagraphs")
"""Modes of `torch.compile`. The second tunes only products of matrices on a CPU."""

COMPILERS = ("g++", "c++", "clang++")


class TorchCompileError(ValueError):
    """A compiled variant does not exist: `variants.choose` drops it with this reason."""


def compiled_variants(
    workload: Workload,
    values: Mapping[str, Any],
    threads: int,
    limit_secs: float,
    modes: Sequence[str] = MODES,
) -> list[PeerVariant]:
    """Return a variant per mode; its call returns the outputs. `values` has the inputs by name."""
    end: list[float] = []

    def variant(mode: str) -> PeerVariant:
        def prepare() -> Call:
            end[:] = end or [time.monotonic() + limit_secs]
            return _compiled(workload, values, threads, mode, end[0], limit_secs)

        return PeerVariant(f"torch.compile ({mode})", prepare)

    return [variant(mode) for mode in modes]


def _compiled(
    workload: Workload,
    values: Mapping[str, Any],
    threads: int,
    mode: str,
    end: float,
    limit_secs: float,
) -> Call:
    import torch
    from torch._inductor import config
    from torch.fx.experimental.proxy_tensor import make_fx

    if not any(map(which, COMPILERS)):
        raise TorchCompileError(f"no C++ compiler was found ({', '.join(COMPILERS)})")
    inputs = [values[tensor.name] for tensor in workload.inputs]
    function = _Traced(workload, values)
    with (
        _limited(end, limit_secs),
        config.patch({"compile_threads": 1, "cpp.threads": threads, "cpp.dynamic_threads": False}),
    ):
        graph = make_fx(function)(*inputs)
        made = torch.compile(graph, fullgraph=True, dynamic=False, mode=mode)
        made(*inputs)
    return lambda: made(*inputs)


class _Traced:
    """The workload as a function of its inputs that writes to no existing tensor."""

    def __init__(self, workload: Workload, values: Mapping[str, Any]) -> None:
        self._workload = workload
        self._values = dict(values)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        import torch

        names = [tensor.name for tensor in self._workload.inputs]
        now = self._values | dict(zip(names, inputs, strict=True))
        plainly = PlainTorch(torch, now, (), traced=True)
        try:
            for stage in self._workload.stages:
                now[stage.name] = plainly.stage(stage)()
        except NoPeerError as error:
            raise TorchCompileError(str(error)) from error
        return tuple(now[name].contiguous() for name in self._workload.outputs)


@contextmanager
def _limited(end: float, limit_secs: float) -> Iterator[None]:
    """Raise TorchCompileError if the block still runs at `end`, a monotonic time."""
    left_secs = end - time.monotonic()
    late = f"compiling takes more than the limit of {limit_secs:g} s"
    if left_secs <= 0:
        raise TorchCompileError(late)
    if threading.current_thread() is not threading.main_thread():
        raise TorchCompileError("the time of compiling can be limited only in the main thread")
    passed = []

    def interrupt(*_: object) -> None:
        passed.append(True)
        raise TorchCompileError(late)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, left_secs)
    try:
        yield
    except RuntimeError as error:  # PyTorch wraps exceptions raised in its compiler
        if passed:
            raise TorchCompileError(late) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
