"""A workload computed by another library, with the details that are reported with its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.workload.workload import Workload

from .library_versions import numpy_libraries, torch_libraries
from .numpy_peer.peer import NumpyPeer
from .shrunken import shrunken
from .variants import Call, ChosenVariants, NoPeerError, dispatch_secs

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class LibraryPeer:
    """A workload in a library. `call` computes it, and `outputs` returns the results of the last
    call. `details` has:

    - `way`: the name of the chosen variant
    - `ways_secs`: the seconds of each variant that was raced
    - `dropped`: the variants that did not work, with reasons
    - `dispatch_secs`: the seconds of a call of the chosen variant on the shrunken workload, or None
    - `libraries`: the versions of the libraries
    - `compiled_secs` (PyTorch only): the seconds with and without `torch.compile`
    """

    call: Call
    outputs: Callable[[], Sequence[Array]]
    details: dict[str, Any]


def numpy_peer(workload: Workload, inputs: Sequence[Array]) -> LibraryPeer:
    """Return the workload in NumPy. Raise NoPeerError if NumPy cannot compute it."""
    peer = NumpyPeer(workload, inputs)

    def small(cut: Workload, few: Sequence[Array], chosen: ChosenVariants) -> Call:
        return NumpyPeer(cut, few, like=chosen).call

    details = {
        "way": peer.variant,
        "ways_secs": peer.ways_secs,
        "dropped": peer.dropped,
        "dispatch_secs": _dispatch_secs(workload, peer.chosen, small),
        "libraries": numpy_libraries(),
    }
    return LibraryPeer(peer.call, lambda: peer.outputs, details)


def torch_peer(
    workload: Workload,
    inputs: Sequence[Array],
    threads: int,
    compile_secs: float,
    *,
    copy: bool = True,
) -> LibraryPeer:
    """Return the workload in PyTorch. Raise NoPeerError without PyTorch, or if PyTorch cannot
    compute the workload. `torch.compile` may take `compile_secs`; 0 excludes it. Without `copy`,
    PyTorch reads the memory of `inputs`."""
    from .torch_peer.peer import TorchPeer  # Start-up: PyTorch takes seconds or is absent

    peer = TorchPeer(workload, inputs, threads, copy=copy, compile_secs=compile_secs)

    def small(cut: Workload, few: Sequence[Array], chosen: ChosenVariants) -> Call:
        secs = 0.0 if chosen.whole is None else compile_secs
        return TorchPeer(cut, few, threads, compile_secs=secs, like=chosen).call

    details = {
        "way": peer.variant,
        "ways_secs": peer.ways_secs,
        "compiled_secs": peer.compiled_secs,
        "dropped": peer.dropped,
        "dispatch_secs": _dispatch_secs(workload, peer.chosen, small),
        "libraries": torch_libraries(),
    }
    return LibraryPeer(peer.call, peer.outputs, details)


def _dispatch_secs(
    workload: Workload,
    chosen: ChosenVariants,
    small: Callable[[Workload, Sequence[Array], ChosenVariants], Call],
) -> float | None:
    """Return the seconds of a call of the variants `chosen` on the shrunken workload. Return None
    if the workload cannot be shrunk or a variant does not work on it."""
    cut = shrunken(workload)
    if cut is None:
        return None
    rng = np.random.default_rng(0)
    inputs = [np.asarray(rng.integers(1, 5, t.shape)).astype(t.dtype.numpy) for t in cut.inputs]
    try:
        return dispatch_secs(small(cut, inputs, chosen))
    except NoPeerError:
        return None
