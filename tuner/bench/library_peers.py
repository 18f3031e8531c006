"""A workload in another library, with all that goes with its figures: for `bench` and the suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.workload.workload import Workload

from .libraries import numpy_libraries, torch_libraries
from .numpy_peer import NumpyPeer
from .tiny import tiny
from .ways import Asked, Call, NoPeerError, dispatch_secs

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class LibraryPeer:
    """`call` computes it, `outputs` gives what the last call did. `said`: which `way` it is,
    `ways_secs` of what was raced, what was `dropped` and why, `dispatch_secs` (of the same calls on
    next to nothing, None if they are not possible there), the `libraries` and their versions; of
    PyTorch `compiled_secs`, steps and compiler beside each other."""

    call: Call
    outputs: Callable[[], Sequence[Array]]
    said: dict[str, Any]


def numpy_peer(workload: Workload, inputs: Sequence[Array]) -> LibraryPeer:
    """NoPeerError where NumPy has no way."""
    peer = NumpyPeer(workload, inputs)

    def small(cut: Workload, few: Sequence[Array], asked: Asked) -> Call:
        return NumpyPeer(cut, few, like=asked).call

    said = {
        "way": peer.way,
        "ways_secs": peer.ways_secs,
        "dropped": peer.dropped,
        "dispatch_secs": _dispatch_secs(workload, peer.asked, small),
        "libraries": numpy_libraries(),
    }
    return LibraryPeer(peer.call, lambda: peer.outputs, said)


def torch_peer(
    workload: Workload,
    inputs: Sequence[Array],
    threads: int,
    compile_secs: float,
    *,
    copy: bool = True,
) -> LibraryPeer:
    """NoPeerError without PyTorch, and where it has no way. `torch.compile` has `compile_secs` to
    take part, none at 0; unless `copy`, inputs stay where they lie."""
    from .torch_peer import TorchPeer  # Start-up: PyTorch takes seconds, and may not be there

    peer = TorchPeer(workload, inputs, threads, copy=copy, compile_secs=compile_secs)

    def small(cut: Workload, few: Sequence[Array], asked: Asked) -> Call:
        secs = 0.0 if asked.whole is None else compile_secs
        return TorchPeer(cut, few, threads, compile_secs=secs, like=asked).call

    said = {
        "way": peer.way,
        "ways_secs": peer.ways_secs,
        "compiled_secs": peer.compiled_secs,
        "dropped": peer.dropped,
        "dispatch_secs": _dispatch_secs(workload, peer.asked, small),
        "libraries": torch_libraries(),
    }
    return LibraryPeer(peer.call, peer.outputs, said)


def _dispatch_secs(
    workload: Workload, asked: Asked, small: Callable[[Workload, Sequence[Array], Asked], Call]
) -> float | None:
    """Seconds of the ways `asked` on next to nothing; None where one does not work on that, or
    there is no such thing."""
    cut = tiny(workload)
    if cut is None:
        return None
    rng = np.random.default_rng(0)
    inputs = [np.asarray(rng.integers(1, 5, t.shape)).astype(t.dtype.numpy) for t in cut.inputs]
    try:
        return dispatch_secs(small(cut, inputs, asked))
    except NoPeerError:
        return None
