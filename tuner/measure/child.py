"""What happens to one candidate in its own forked process: load, verify, time.

Verification comes before any timing and cannot be left out: two guarded runs on differently
poisoned memory (for parallel kernels with the shares of each region in opposite order), compared
with the known answer and each other, then the write sets of parallel shares.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.record import MeasureStatus
from schedules.workload import Tensor

from . import loader, races
from .arena import WORKSPACE_ALIGN_BYTES, Arena, as_array, as_bytes, flat_buffers
from .frames import Frame
from .guarded import Flush, GuardedBuffer, guarded
from .native import Helpers
from .timing import Race

# Bytes outputs and workspace are filled with. 0xFF in every byte is a NaN in each float type;
# 0x55 and 0xAA are plausible numbers in all, which a maximum or a select lets through.
_NAN_FILL, _INT_FILL, _SECOND_FILL = 0xFF, 0xAA, 0x55
_WARM_SECS = 2e-3
_SLOW_VERIFY_SECS = 0.05  # a serial kernel slower than this is run guarded once only
_SLOW_WARM_SECS = 5e-3  # one call of a kernel slower than this tells well enough how slow it is


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to check and time. `threads` is the most it may use.

    `team_sizes` are the thread counts the stand-in verifies with. `incumbent_secs` and
    `final_secs` are the race's; `timed=False` stops after verification. `repeats` runs on the
    real runtime must all give the first result; with `misaligned`, also one on tensors that are
    aligned to their elements and no more. `left_first` is for kernels so slow that one guarded run
    must do: its buffers then begin, rather than end, at a guard.
    """

    object_bytes: bytes
    symbol: str
    workspace_bytes: int
    threads: int = 1
    team_sizes: tuple[int, ...] = ()
    incumbent_secs: float | None = None
    final_secs: float = 0.05
    timed: bool = True
    repeats: int = 1
    misaligned: bool = False
    left_first: bool = False

    @property
    def parallel(self) -> bool:
        """Whether the object enters parallel regions."""
        wanted = loader.undefined_symbols(self.object_bytes)
        return any(name in wanted for name in loader.OPENMP_SYMBOLS)


@dataclass(frozen=True)
class Equipment:
    """What the measuring process has ready for every child: helpers and the clock reference.

    A reference burst of `burst_steps` steps takes `burst_secs` at the session's clock.
    """

    helpers: Helpers
    burst_steps: int
    burst_secs: float


class _WrongError(Exception):
    """The kernel did something a right one does not; carries status and one line for people."""

    def __init__(self, status: MeasureStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def run_job(job: Job, arena: Arena, equipment: Equipment, send: Callable[[Frame], None]) -> None:
    """Check `job` on the arena's case and time it; the last frame sent is the result.

    Frames: `{"buffers": ...}` before each guarded run, for whoever explains a fault, then
    `{"status": ...}` with the fields of a result.
    """
    start = time.perf_counter()
    try:
        document = _check_and_time(job, arena, equipment, send)
    except _WrongError as wrong:
        document = {"status": wrong.status, "detail": str(wrong)}
        document["verify_secs"] = time.perf_counter() - start
    except loader.MissingLibraryError as error:
        # Not the candidate's failure: measured again once the library is there.
        document = {"status": MeasureStatus.LOST, "detail": str(error)}
    except loader.LoadError as error:
        document = {"status": MeasureStatus.COMPILE_ERROR, "detail": str(error)}
    send(Frame(document))


def _check_and_time(
    job: Job, arena: Arena, equipment: Equipment, send: Callable[[Frame], None]
) -> dict[str, Any]:
    clock = time.perf_counter
    start = clock()
    arguments = len(arena.tensors) + 1
    if job.parallel:
        teams = job.team_sizes or (job.threads,)
        loader.load_openmp()  # a missing runtime is told before anything else runs
        openmp = races.SerialOpenMP(teams[-1])
        loader.use_openmp(openmp.addresses)
        kernel = loader.load_object(job.object_bytes, job.symbol)
        loaded = clock()
        for team in teams:
            openmp.threads = team
            expected = _verify_parallel(job, arena, kernel.caller(arguments), openmp, send)
        loader.use_openmp(None)
        kernel = loader.load_object(job.object_bytes, job.symbol)
    else:
        kernel = loader.load_object(job.object_bytes, job.symbol)
        loaded = clock()
        expected = _verify_serial(job, arena, kernel.caller(arguments), send)
    flat = _Flat(job, arena)
    for _ in range(job.repeats):
        warm_secs = flat.warm(kernel.caller(arguments))
        flat.compare(expected)
    if job.misaligned:
        _compare(arena, expected, _misaligned_run(job, arena, kernel.caller(arguments)))
    verified = clock()
    document: dict[str, Any] = {
        "status": MeasureStatus.OK,
        "error_found": arena.case.error(_arrays(arena, expected)),
        "load_secs": loaded - start,
        "verify_secs": verified - loaded,
    }
    if job.timed:
        race = _race(job, kernel.address, flat.argv, equipment, warm_secs)
        flat.compare(expected)
        document["run_secs"] = race.samples
        document["run_secs_estimate"] = race.estimate_secs
        document["measure_secs"] = clock() - verified
    return document


def _verify_serial(
    job: Job, arena: Arena, call: Callable[..., int], send: Callable[[Frame], None]
) -> list[NDArray[np.uint8]]:
    """Two guarded runs, or one of a slow kernel; the outputs' bytes."""
    start = time.perf_counter()
    first, second = Flush.RIGHT, Flush.LEFT
    if job.left_first:
        first, second = second, first
    outputs = _guarded_run(job, arena, call, first, send)
    _check(arena, outputs)
    if time.perf_counter() - start <= _SLOW_VERIFY_SECS:
        again = _guarded_run(job, arena, call, second, send)
        _same(arena.outputs, outputs, again, "reads memory it has not written")
    return outputs


def _verify_parallel(
    job: Job,
    arena: Arena,
    call: Callable[..., int],
    openmp: races.SerialOpenMP,
    send: Callable[[Frame], None],
) -> list[NDArray[np.uint8]]:
    """Both orders of shares, then their write sets; the outputs' bytes."""
    openmp.watch(races.forward)
    outputs = _guarded_run(job, arena, call, Flush.RIGHT, send)
    _check(arena, outputs)
    regions = openmp.regions
    openmp.watch(races.reverse)
    again = _guarded_run(job, arena, call, Flush.LEFT, send)
    _same(arena.outputs, outputs, again, "depends on the order of its threads")
    if not regions or openmp.threads == 1:
        return outputs
    buffers = _Guarded(job, arena, Flush.RIGHT)
    writable = [(b.name, b.view()) for b in buffers.writable]
    watched = races.regions_to_watch(
        regions, sum(view.size for _, view in writable), openmp.threads
    )
    send(buffers.frame())
    conflict = races.find_conflict(lambda: call(*buffers.pointers), openmp, writable, watched)
    buffers.free()
    if conflict is not None:
        raise _WrongError(MeasureStatus.WRONG_RESULT, f"race: {conflict}")
    return outputs


class _Guarded:
    """The buffers of one guarded call: the arena's inputs, outputs and workspace of its own."""

    def __init__(self, job: Job, arena: Arena, flush: Flush) -> None:
        self.inputs = arena.guarded_inputs[flush]
        outputs = [guarded(t.name, t.bytes, flush) for t in arena.outputs]
        workspace = guarded("the workspace", job.workspace_bytes, flush, WORKSPACE_ALIGN_BYTES)
        self.writable: list[GuardedBuffer] = [*outputs, workspace]
        first = flush is Flush.RIGHT
        for tensor, buffer in zip(arena.outputs, outputs, strict=True):
            fill = _NAN_FILL if tensor.dtype.is_float else _INT_FILL
            buffer.view().fill(fill if first else _SECOND_FILL)
        workspace.view().fill(_NAN_FILL if first else _SECOND_FILL)
        for buffer in self.writable:
            buffer.set_canary()
        self.pointers = [b.address for b in (*self.inputs, *self.writable)]
        if not job.workspace_bytes:
            self.pointers[-1] = 0

    def frame(self) -> Frame:
        """Where the buffers are, for whoever has to explain a fault."""
        buffers = [
            [b.name, b.address, b.size_bytes, b.start, b.pages_bytes, b.guard_bytes]
            for b in (*self.inputs, *self.writable)
        ]
        return Frame({"buffers": buffers})

    def free(self) -> None:
        for buffer in self.writable:
            buffer.free()


def _guarded_run(
    job: Job,
    arena: Arena,
    call: Callable[..., int],
    flush: Flush,
    send: Callable[[Frame], None],
) -> list[NDArray[np.uint8]]:
    """One call on poisoned, guarded buffers; copies of the outputs' bytes."""
    buffers = _Guarded(job, arena, flush)
    send(buffers.frame())
    code = call(*buffers.pointers)
    if code:
        raise _WrongError(MeasureStatus.WRONG_RESULT, f"the kernel returned error code {code}")
    for buffer in buffers.writable:
        broken = buffer.broken_canary()
        if broken:
            raise _WrongError(MeasureStatus.OUT_OF_BOUNDS, f"wrote {broken}")
    outputs = [b.view().copy() for b in buffers.writable[:-1]]
    buffers.free()
    return outputs


def _check(arena: Arena, outputs: Sequence[NDArray[np.uint8]]) -> None:
    """Compare with the known answer."""
    problem = arena.case.check(_arrays(arena, outputs))
    if problem is not None:
        raise _WrongError(MeasureStatus.WRONG_RESULT, problem)


def _arrays(arena: Arena, outputs: Sequence[NDArray[np.uint8]]) -> list[NDArray[Any]]:
    return [as_array(t, o) for t, o in zip(arena.outputs, outputs, strict=True)]


def _same(
    tensors: Sequence[Tensor],
    first: Sequence[NDArray[np.uint8]],
    second: Sequence[NDArray[np.uint8]],
    what: str,
) -> None:
    """Compare two runs bit for bit; `what` explains a difference."""
    for tensor, a, b in zip(tensors, first, second, strict=True):
        if not np.array_equal(a, b):
            at = int((a != b).argmax()) // tensor.dtype.bytes
            index = tuple(int(i) for i in np.unravel_index(at, tensor.shape))
            values = as_array(tensor, a)[index], as_array(tensor, b)[index]
            raise _WrongError(
                MeasureStatus.WRONG_RESULT,
                f"{tensor.name}{list(index)} is {values[0]} in one run and {values[1]} in "
                f"another: the kernel {what}",
            )


def _compare(
    arena: Arena, expected: Sequence[NDArray[np.uint8]], outputs: Sequence[NDArray[np.uint8]]
) -> None:
    """Hold outputs against those of the guarded run.

    Another thread count may round differently where the result is not exact; then the known
    answer decides.
    """
    if arena.case.exact:
        _same(arena.outputs, expected, outputs, "is not the same each time it runs")
    elif not all(np.array_equal(a, b) for a, b in zip(expected, outputs, strict=True)):
        _check(arena, outputs)


def _misaligned_run(job: Job, arena: Arena, call: Callable[..., int]) -> list[NDArray[np.uint8]]:
    """One call on tensors one element past a cache line: shapes of whole lines, flush with a page
    at either end, are aligned everywhere else."""
    tensors = arena.tensors
    flat = flat_buffers([*(t.dtype.bytes + t.bytes for t in tensors), job.workspace_bytes])
    views = [flat.view(i)[t.dtype.bytes :] for i, t in enumerate(tensors)]
    inputs, outputs = views[: len(arena.inputs)], views[len(arena.inputs) :]
    for view, array in zip(inputs, arena.case.inputs, strict=True):
        view[:] = as_bytes(array)
    for view in outputs:
        view.fill(_SECOND_FILL)
    workspace = flat.addresses[-1] if job.workspace_bytes else 0
    call(*(view.ctypes.data for view in views), workspace)
    return outputs


class _Flat:
    """The buffers a kernel is timed on, with a workspace of its own."""

    def __init__(self, job: Job, arena: Arena) -> None:
        self._arena = arena
        self._first_output = len(arena.case.inputs)
        if not arena.flat_is_filled:
            for i, array in enumerate(arena.case.inputs):
                arena.flat.view(i)[:] = as_bytes(array)
        workspace = flat_buffers([job.workspace_bytes], skip_bytes=2048)
        self._workspace = workspace.view(0)
        pointers = [*arena.flat.addresses, workspace.addresses[0] if job.workspace_bytes else 0]
        self.argv = (ctypes.c_void_p * len(pointers))(*pointers)

    def outputs(self) -> list[NDArray[np.uint8]]:
        flat = self._arena.flat
        return [flat.view(i) for i in range(self._first_output, len(flat.addresses))]

    def warm(self, call: Callable[..., int]) -> float:
        """Poison, touch every page, run; seconds of the fastest call after the first.

        A few calls of a fast kernel: one could have been disturbed.
        """
        for output in self.outputs():
            output.fill(_SECOND_FILL)
        self._workspace.fill(_SECOND_FILL)
        secs: list[float] = []
        while (
            not secs
            or (len(secs) == 1 and secs[0] < _SLOW_WARM_SECS)
            or (len(secs) < 4 and sum(secs) < _WARM_SECS)
        ):
            start = time.perf_counter()
            call(*self.argv)
            secs.append(time.perf_counter() - start)
        return min(secs[1:] or secs)

    def compare(self, expected: Sequence[NDArray[np.uint8]]) -> None:
        """Hold the outputs against those of the guarded run."""
        _compare(self._arena, expected, self.outputs())


def _race(job: Job, address: int, argv: Any, equipment: Equipment, warm_secs: float) -> Race:
    """Time the kernel rung by rung until it has lost or is known well enough."""
    race = Race(warm_secs, equipment.burst_secs, job.incumbent_secs, job.final_secs)
    while (plan := race.plan()) is not None:
        samples, bursts = equipment.helpers.time(
            address, argv, plan.calls, plan.rounds, equipment.burst_steps
        )
        race = race.add(tuple(samples.tolist()), tuple(bursts.tolist()))
    return race
