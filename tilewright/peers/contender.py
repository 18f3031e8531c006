"""One side of a benchmark in its own process: a kernel, or a peer in another library.

Thread pools spin for a while after a call, so sides in one process would slow each other.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import timeouts
from tilewright.tuner.arrays import as_array, as_bytes
from tilewright.tuner.backend.protocol import Clock, Launch, LoadError
from tilewright.tuner.backend.registry import backend_for
from tilewright.tuner.codegen.abi import Needs
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.process import linux
from tilewright.tuner.process.frames import Frame, FrameReader, refusal, write_frame
from tilewright.tuner.process.serving import take_over_pipes

from .library_peers import numpy_peer, torch_peer
from .variants import NoPeerError, seconds_a_call

Array = NDArray[Any]

ROUNDING = 1e-4
"""Tolerance relative to the largest element: float32 sums of a million terms differ by that much if
their orders differ."""


class Contender(Protocol):
    """A callable computation of the workload that can be timed."""

    def outputs(self) -> Sequence[Array]:
        """Return the result of the last call."""
        ...

    def time(self, calls: int, rounds: int) -> list[float]:
        """Return the seconds per call in each of `rounds` rounds of `calls` calls."""
        ...


@dataclass(frozen=True)
class KernelContender:
    """A compiled kernel on buffers like those of tuning. Constant inputs are already packed."""

    launch: Launch
    clock: Clock
    pointers: Sequence[int]
    results: tuple[Array, ...]

    def outputs(self) -> Sequence[Array]:
        return self.results

    def time(self, calls: int, rounds: int) -> list[float]:
        samples = self.clock.samples(self.launch, self.pointers, calls, rounds)
        return [float(s) for s in samples]


@dataclass(frozen=True)
class CallContender:
    """A Python callable. Its time includes the library's dispatch; the time of an empty Python call
    is subtracted. `details` (the fields of `LibraryPeer.details`) is reported with the time."""

    call: Callable[[], object]
    results: Callable[[], Sequence[Array]]
    details: Mapping[str, Any]

    def outputs(self) -> Sequence[Array]:
        return self.results()

    def time(self, calls: int, rounds: int) -> list[float]:
        return seconds_a_call(self.call, calls, rounds)


def _kernel(document: dict[str, Any], blob: bytes, workload: Workload, case: Case) -> Contender:
    tensors = workload.arguments
    needs = Needs(**(document["needs"] | {"constants": tuple(document["needs"]["constants"])}))
    target = Target.from_json(document["target"])
    backend = backend_for(target)
    loaded = backend.load(blob, document["symbol"], needs, len(tensors))
    launch = loaded.whole if document["with_packing"] else loaded.timed
    behind = [document["bytes_behind_line"] // t.dtype.bytes * t.dtype.bytes for t in tensors]
    memory = backend.buffers([t.bytes + skip for t, skip in zip(tensors, behind, strict=True)])
    addresses = [a + skip for a, skip in zip(memory.addresses, behind, strict=True)]
    views = [memory.view(n)[skip:] for n, skip in enumerate(behind)]
    for view, array in zip(views, case.inputs, strict=False):
        view[:] = as_bytes(array)
    scratch = backend.buffers([launch.workspace_bytes, launch.packed_bytes], skip_bytes=2048)
    workspace, packed = scratch.addresses
    launch.pack(addresses, packed)
    pointers = launch.pointers(addresses, packed, workspace)
    first = len(case.inputs)
    return KernelContender(
        launch=launch,
        clock=backend.clock(len(pointers), target),
        pointers=pointers,
        results=tuple(map(as_array, tensors[first:], views[first:])),
    )


def _peer(document: dict[str, Any], workload: Workload, case: Case) -> Contender:
    name, threads = document["name"], document["threads"]
    if name == "numpy":
        peer = numpy_peer(workload, case.inputs)
    else:
        peer = torch_peer(workload, case.inputs, threads, document["compile_secs"])
    return CallContender(peer.call, peer.outputs, peer.details)


def _open(document: dict[str, Any], blob: bytes) -> tuple[Contender | None, dict[str, Any]]:
    """Return the contender and a reply with the seconds of one call, or None and the reason."""
    workload = Workload.from_json(document["workload"])
    rewrites = Trace.from_json(document["rewrites"]).rewrites
    case = Oracle(workload, document["seed"], rewrites, timeouts.REFERENCE_SECS).quick
    try:
        if document["name"] == "kernel":
            contender = _kernel(document, blob, workload, case)
        else:
            contender = _peer(document, workload, case)
        contender.time(1, 1)
    except (NoPeerError, LoadError) as error:
        return None, {"detail": str(error)}
    problem = case.check(contender.outputs())
    details: dict[str, Any] = {}
    if isinstance(contender, CallContender):
        details = {**contender.details, "rounding": problem or ""}
        if problem is not None and rounds_otherwise(case, contender.outputs()):
            problem = None
    if problem is not None:
        return None, {"detail": f"gives another result: {problem}"}
    return contender, {"call_secs": min(contender.time(1, 3)), **details}


def rounds_otherwise(case: Case, outputs: Sequence[Array]) -> bool:
    """Return whether a library's float results differ by rounding only: by at most ROUNDING of the
    largest element. The error bound of kernels does not apply to the algorithms of libraries."""
    for expected, output in zip(case.expected, outputs, strict=True):
        if output.dtype.kind != "f" or not np.isfinite(output).all():
            return False
        largest = float(np.abs(expected.values).max(initial=0.0))
        if not expected.largest_error(output) <= ROUNDING * largest:
            return False
    return True


def _serve(requests: int, answers: int) -> None:
    contender: Contender | None = None
    reader = FrameReader(requests)
    while (frame := reader.read_frame()) is not None:
        document = frame.document
        if document["op"] == "open":
            try:
                contender, answer = _open(document, frame.blob)
            except WorkloadError as error:
                write_frame(answers, refusal(error))
                continue
        else:
            assert contender is not None
            answer = {"samples": contender.time(document["calls"], document["rounds"])}
        write_frame(answers, Frame(answer))


def main() -> None:
    """Run `python -m tilewright.peers.contender PARENT_PID CPU,CPU,...`."""
    requests, answers = take_over_pipes()
    if int(sys.argv[1]):
        linux.die_with_parent(int(sys.argv[1]))
    if sys.argv[2]:
        os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2].split(",")})
    np.seterr(all="ignore")
    done = False
    try:
        _serve(requests, answers)
        done = True
    finally:
        if not done:
            write_frame(answers, Frame({"bug": traceback.format_exc()}))


if __name__ == "__main__":
    main()
