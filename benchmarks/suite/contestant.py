"""One side of a race, in a process of its own: an emitted kernel, a library, or the core's peak.

`python -m benchmarks.suite.contestant` reads one JSON request a line and answers with one. Every
side makes the same inputs from the same seed, is called once, compared with the reference, and
then timed in blocks when asked to.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.peer_types import Array
from benchmarks.peers import numpy_peer, numpy_variants
from benchmarks.suite.cases import Case
from benchmarks.suite.registry import every_case, workload_of
from benchmarks.suite.shelf import Shelf
from tilewright.peers.library_peers import torch_peer
from tilewright.peers.library_versions import numpy_libraries
from tilewright.peers.shrunken import SHRUNKEN_EXTENTS
from tilewright.peers.variants import NoPeerError, choose, dispatch_secs, seconds_a_call
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.process.linux import die_with_parent

TOLERANCE = 1e-4
"""Of the largest element. This only guards against timing something else: what a kernel may
answer is decided far more strictly by `tilewright verify`, which every best has passed."""
BURST_SECS, LEAST_BURSTS = 1e-3, 10
SLOW_SECS = 0.3
"""A first call that takes so long is not repeated before the race."""


class Side(Protocol):
    """Something that can be timed."""

    def result(self) -> Array | None:
        """What the last call computed, None for a side that computes nothing."""
        ...

    def time(self, calls: int, rounds: int) -> list[float]:
        """Seconds a call in each of `rounds` rounds of `calls`, an empty call's taken off."""
        ...


def make_inputs(tensors: Sequence[Tensor], seed: int, shelf: Shelf) -> list[Array]:
    """Standard normal float32 values, the same in every process."""
    rng = np.random.default_rng(seed)
    made = []
    for tensor in tensors:
        array = shelf.array(tensor.shape)
        array[...] = rng.standard_normal(tensor.shape, dtype=np.float32)
        made.append(array)
    return made


class KernelSide:
    """A shared library made of an emitted object and `timer.c`."""

    def __init__(self, library: Path, inputs: list[Array], output: Array, shelf: Shelf) -> None:
        self._library = ctypes.CDLL(str(library))
        self._arrays = [*inputs, output, self._memory("kernel_workspace_bytes", shelf)]
        self._pointers = _pointers(self._arrays)
        self._output = output

    def _memory(self, size: str, shelf: Shelf) -> Array:
        """As many bytes as the function `size` says."""
        function = getattr(self._library, size)
        function.restype = ctypes.c_size_t
        return shelf.array([function()], np.uint8)

    def result(self) -> Array:
        return self._output

    def time(self, calls: int, rounds: int) -> list[float]:
        secs = (ctypes.c_double * rounds)()
        failed = self._library.tw_time(
            self._pointers, ctypes.c_int64(calls), ctypes.c_int64(rounds), secs
        )
        if failed:
            raise RuntimeError(f"the kernel returned error {failed}")
        return list(secs)


class PrepackedSide(KernelSide):
    """The same, timed in calls that find the constant inputs (their positions) packed."""

    def __init__(
        self, library: Path, inputs: list[Array], output: Array, shelf: Shelf, constants: list[int]
    ) -> None:
        super().__init__(library, inputs, output, shelf)
        packed = self._memory("kernel_packed_bytes", shelf)
        prepack = self._library.kernel_prepack
        prepack.argtypes = [ctypes.c_void_p] * (len(constants) + 1)
        failed = prepack(*_pointers([*(inputs[n] for n in constants), packed]))
        if failed:
            raise RuntimeError(f"packing ahead returned error {failed}")
        others = [each for n, each in enumerate(inputs) if n not in constants]
        workspace = self._memory("kernel_prepacked_workspace_bytes", shelf)
        self._arrays = [*others, output, packed, workspace]
        self._pointers = _pointers(self._arrays)


def _pointers(arrays: Sequence[Array]) -> Any:
    """Their addresses as an array of C, NULL for those without a byte."""
    addresses = [each.ctypes.data if each.size else None for each in arrays]
    return (ctypes.c_void_p * len(addresses))(*addresses)


class CallSide:
    """A Python callable; what Python's loop and a call of nothing cost is taken off.

    `said` is what goes with the row: which way of several it is, what calling it costs, and of
    which library.
    """

    def __init__(
        self, call: Callable[[], object], result: Callable[[], Array], said: dict[str, Any]
    ) -> None:
        self._call, self._result, self.said = call, result, said

    def result(self) -> Array:
        return self._result()

    def time(self, calls: int, rounds: int) -> list[float]:
        return seconds_a_call(self._call, calls, rounds)


class PeakSide:
    """The core's (or cores') multiply-add peak: a "call" is 1e9 operations on every thread.

    It runs the burst that probes run, so what a kernel reaches and what could be reached are
    seen at the same clock.
    """

    def __init__(self, target_document: dict[str, Any], threads: int) -> None:
        from llvmlite import binding as llvm

        from tilewright.schedules.dtypes import DType
        from tilewright.schedules.target import Target
        from tilewright.tuner.backend.cpu.probing.kernels import arithmetic_kernel

        target = Target.from_json(target_document)
        kernel = arithmetic_kernel(target, DType.F32, "tw_fma_burst")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=",".join(f"+{f}" for f in target.features), opt=3, jit=True
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(kernel.text), machine)
        self._engine.finalize_object()
        self._burst = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(
            self._engine.get_function_address(kernel.symbol)
        )
        self._ops = kernel.ops_per_iteration
        self._cpus = sorted(os.sched_getaffinity(0))[-threads:]
        shelf = Shelf()
        self._scratch = [shelf.array([1024]) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)
        self._iterations = 1000
        while (secs := self._on_one(0)) < BURST_SECS:
            self._iterations = int(self._iterations * max(2.0, 1.1 * BURST_SECS / max(secs, 1e-6)))

    def result(self) -> None:
        return None

    def _on_one(self, i: int) -> float:
        os.sched_setaffinity(0, {self._cpus[i]})
        start = time.perf_counter()
        self._burst(self._iterations, self._scratch[i].ctypes.data, 0)
        return time.perf_counter() - start

    def time(self, calls: int, rounds: int) -> list[float]:
        """Seconds for 1e9 operations a thread; the burst's length is fixed, whatever `calls`."""
        samples = []
        for _ in range(max(rounds, LEAST_BURSTS)):
            secs = list(self._pool.map(self._on_one, range(len(self._cpus))))
            rate = sum(self._iterations * self._ops / s for s in secs) / len(secs)
            samples.append(1e9 / rate)
        return samples


def _open(request: dict[str, Any]) -> Side | str:
    """The side asked for, or why there is none."""
    threads = int(request["threads"])
    if request["side"] == "peak":
        return PeakSide(request["target"], threads)
    case = every_case()[request["case"]]
    workload = workload_of(case)
    shelf = Shelf()
    inputs = make_inputs(workload.inputs, request["seed"], shelf)
    output = shelf.array(workload.output_tensors[0].shape)
    if request.get("prepacked"):
        constants = [n for n, each in enumerate(workload.inputs) if each.constant]
        return PrepackedSide(Path(request["library"]), inputs, output, shelf, constants)
    if "library" in request:
        return KernelSide(Path(request["library"]), inputs, output, shelf)
    if request["side"] == "tvm":
        from benchmarks.tvm_peer import TvmSide

        return TvmSide(request["tvm_library"], inputs, output)
    try:
        if request["side"] == "numpy":
            return _numpy_side(case, inputs, output, _reference(request))
        return _torch_side(workload, inputs, threads, request.get("compile_secs", 0.0))
    except NoPeerError as error:
        return str(error)


def _numpy_side(case: Case, inputs: list[Array], output: Array, expected: Array) -> CallSide:
    variants = numpy_variants(
        case.peer, case.epilogue, inputs, output, case.sizes, constant=bool(case.constants)
    )

    def check(_: object) -> str | None:
        problem = _problem(output, expected)
        output.fill(np.nan)  # what the next way leaves out must not be this one's
        return problem

    choice = choose(variants, check)
    said = {
        **choice.to_json(),
        "dispatch_secs": _numpy_dispatch_secs(case, choice.name),
        "libraries": numpy_libraries(),
    }
    return CallSide(choice.call, lambda: output, said)


def _numpy_dispatch_secs(case: Case, name: str) -> float:
    """Of the same way on next to nothing."""
    sizes = tiny_sizes(case)
    workload = workload_of(case, sizes)
    inputs = make_inputs(workload.inputs, 0, Shelf())
    output = np.empty(workload.output_tensors[0].shape, np.float32)
    constant = bool(case.constants)
    variants = numpy_variants(case.peer, case.epilogue, inputs, output, sizes, constant=constant)
    (variant,) = (variant for variant in variants if variant.name == name)
    return dispatch_secs(variant.prepare())


def tiny_sizes(case: Case) -> dict[str, int]:
    """The sizes that may be anything, cut to a window's span, a vector's length or 2."""
    inner_extent, others = SHRUNKEN_EXTENTS[1]
    sizes = dict(case.sizes)
    taps = [value for name, value in sizes.items() if name in ("K", "KH", "KW", "KD", "KL")]
    is_windowed = any(name.startswith(("stride", "pad")) for name in sizes) or len(taps) > 1
    reach = (max(taps, default=1) - 1) * sizes.get("dilation", 1) + 1 if is_windowed else 2
    for name in case.axes:
        inner = name in ("C", "CI", "CO", "N", "K", "dim")
        if "groups" not in sizes or name not in ("CI", "CO"):
            sizes[name] = min(sizes[name], inner_extent if inner else max(reach, others))
    return sizes


def _torch_side(
    workload: Workload, inputs: list[Array], threads: int, compile_secs: float
) -> CallSide:
    """Every way that `tilewright bench` has. NoPeerError without PyTorch."""
    peer = torch_peer(workload.normalised(), inputs, threads, compile_secs, copy=False)
    return CallSide(peer.call, lambda: peer.outputs()[0], peer.details)


def _problem(found: Array, expected: Array) -> str | None:
    difference = _difference(found, expected)
    if difference <= TOLERANCE:
        return None
    return f"wrong result: off by {difference:.3g} of the largest element"


def reference(case: Case, seed: int) -> Array:
    """NumPy's answer in float64."""
    workload = workload_of(case)
    inputs = [a.astype(np.float64) for a in make_inputs(workload.inputs, seed, Shelf())]
    output = np.empty(workload.output_tensors[0].shape)
    numpy_peer(case.peer, case.epilogue, inputs, output, case.sizes)()
    return output


def _reference(request: dict[str, Any]) -> Array:
    """The reference that was computed beforehand for all sides, or now."""
    if "reference" in request:
        known: Array = np.load(request["reference"])
        return known
    return _last_reference(request["case"], request["seed"])


@lru_cache(maxsize=1)
def _last_reference(case: str, seed: int) -> Array:
    return reference(every_case()[case], seed)


def _difference(found: Array, expected: Array) -> float:
    """The largest difference, in units of the largest expected element."""
    scale = float(np.abs(expected).max()) or 1.0
    worst = float(np.abs(found - expected).max()) / scale
    return worst if np.isfinite(found).all() else float("inf")


def _opened(request: dict[str, Any]) -> tuple[Side | None, dict[str, Any]]:
    """A side that was called and whose result is right, with the seconds a call takes."""
    side = _open(request)
    if isinstance(side, str):
        return None, {"missing": side}
    (first_secs,) = side.time(1, 1)[:1]
    found = side.result()
    difference = 0.0
    if found is not None:
        expected = _reference(request)
        problem = _problem(found, expected)
        if problem is not None:
            return None, {"missing": problem}
        difference = _difference(found, expected)
    slow = first_secs > SLOW_SECS
    call_secs = first_secs if slow else min(side.time(1, 3))
    said = side.said if isinstance(side, CallSide) else {}
    return side, {"call_secs": call_secs, "difference": difference, **said}


def _answer(request: dict[str, Any], side: Side | None) -> tuple[Side | None, dict[str, Any]]:
    match request["op"]:
        case "time":
            assert side is not None
            return side, {"samples": side.time(request["calls"], request["rounds"])}
        case "close":
            kept = isinstance(side, PeakSide)
            return side if kept else None, {}
        case _:
            if isinstance(side, PeakSide):
                return side, {"call_secs": BURST_SECS, "difference": 0.0}
            return _opened(request)


def main() -> None:
    """Serve until stdin ends. Libraries may write to stdout, so answers go to a copy of it."""
    die_with_parent(os.getppid())  # it may be stopped when the benchmark is killed
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side: Side | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "open" and request["threads"] == 1:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        side, answer = _answer(request, side)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
