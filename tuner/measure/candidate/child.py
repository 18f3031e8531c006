"""What happens to one candidate in its own forked process: load, verify, time.

Verification comes before any timing and cannot be left out: two guarded runs on differently
poisoned memory, stacks included (for parallel kernels with the shares of each region in opposite
order), compared with the known answer and each other. What parallel shares write is seen in these
runs; for fast kernels, and in the full check, also in further ones, on noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.record import MeasureStatus
from schedules.workload.tensors import Tensor

from ...codegen.abi import Needs
from ...loading import elf, loader
from ...loading.entries import Entry, argument_vector, timed_entry, whole_entry
from ...loading.native import Helpers
from ...loading.together import call_beside
from ...process.frames import Frame
from ..memory.arena import (
    WORKSPACE_ALIGN_BYTES,
    Arena,
    FlatBuffers,
    as_array,
    as_bytes,
    flat_buffers,
)
from ..memory.guarded import Flush, GuardedBuffer, GuardedPool, same_bytes
from ..memory.stacks import Stacks
from ..timing.quiet import Quiet
from ..timing.rungs import Race
from ..verify import races

# Bytes outputs and workspace are filled with. 0xFF in every byte is a NaN in each float type;
# 0x55 and 0xAA are plausible numbers in all, which a maximum or a select lets through.
_NAN_FILL, _INT_FILL, _SECOND_FILL = 0xFF, 0xAA, 0x55
_WARM_SECS = 2e-3
_SLOW_VERIFY_SECS = 0.05  # a serial kernel slower than this is run guarded once only
_SLOW_WATCH_SECS = 0.02  # processor time of both orders: slower kernels' shares run on noise later
_SETTLED_WATCH_BYTES = 16 << 20  # watched of a call whose regions were watched in another case
_SLOW_WARM_SECS = 5e-3  # one call of a kernel slower than this tells well enough how slow it is


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to check and time. `threads` is the most it may use.

    `team_sizes` are the thread counts the stand-in verifies with. `incumbent_secs` and
    `final_secs` are the race's; `timed=False` stops after verification. `repeats` runs on the
    real runtime must all give the first result; with `misaligned`, also one on tensors that are
    aligned to their elements and no more; with `together`, also those of two callers at the same
    time. `left_first` is for kernels so slow that one guarded run
    must do: its buffers then begin, rather than end, at a guard. `thorough` finds what shares
    write in calls of their own as well. `settled`: a thorough check of another case has passed,
    so shares, whose addresses do not depend on values, are watched where that costs little.

    A kernel with `constants` is checked and timed by its prepacked entry, with `every_entry` also
    by the one that packs in the call.
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
    together: bool = False
    left_first: bool = False
    thorough: bool = False
    settled: bool = False
    constants: tuple[int, ...] = ()
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0
    every_entry: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(
            self.workspace_bytes, self.constants, self.packed_bytes, self.prepacked_workspace_bytes
        )

    @property
    def parallel(self) -> bool:
        """Whether the object enters parallel regions."""
        return loader.wants_openmp(self.object_bytes)


@dataclass(frozen=True)
class Equipment:
    """What the measuring process has ready for every child: helpers and the clock reference.

    A reference burst of `burst_steps` steps takes `burst_secs` at the session's clock, and
    `team_burst_secs` on all threads at once; None until a parallel kernel was timed. Children of
    one check use `scratch`, memory that they share, one after the other.
    """

    helpers: Helpers
    stacks: Stacks
    burst_steps: int
    burst_secs: float
    team_burst_secs: float | None = None
    scratch: tuple[GuardedBuffer, ...] = ()


@dataclass(frozen=True)
class _Checks:
    """What guarded runs of one child share. `send` tells where their buffers are."""

    arena: Arena
    openmp: races.SerialOpenMP
    send: Callable[[Frame], None]
    pool: GuardedPool


class _WrongError(Exception):
    """The kernel did something a right one does not; carries status and one line for people."""

    def __init__(self, status: MeasureStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def run_job(
    job: Job,
    arena: Arena,
    equipment: Equipment,
    send: Callable[[Frame], None],
    be_alone: Callable[[], object],
) -> None:
    """Check `job` on the arena's case and time it; the last frame sent is the result.

    `be_alone` waits until nobody computes beside this process: it is called before timing.

    Frames: `{"buffers": ...}` before each guarded run, for whoever explains a fault, then
    `{"status": ...}` with the fields of a result.
    """
    start = time.perf_counter()
    try:
        document = _check_and_time(job, arena, equipment, send, be_alone)
    except _WrongError as wrong:
        document = {"status": wrong.status, "detail": str(wrong)}
        document["verify_secs"] = time.perf_counter() - start
    except loader.MissingLibraryError as error:
        # Not the candidate's failure: measured again once the library is there.
        document = {"status": MeasureStatus.LOST, "detail": str(error)}
    except elf.LoadError as error:
        document = {"status": MeasureStatus.COMPILE_ERROR, "detail": str(error)}
    send(Frame(document))


def _check_and_time(
    job: Job,
    arena: Arena,
    equipment: Equipment,
    send: Callable[[Frame], None],
    be_alone: Callable[[], object],
) -> dict[str, Any]:
    clock = time.perf_counter
    start = clock()
    openmp = races.SerialOpenMP(equipment.helpers.stand_in, equipment.stacks)
    checks = _Checks(arena, openmp, send, GuardedPool(equipment.scratch))
    found: list[_Guarded] = []
    if job.parallel:
        teams = job.team_sizes or (job.threads,)
        loader.load_openmp()  # a missing runtime is told before anything else runs
        loader.use_openmp(openmp.addresses)
        entries = _load(job, arena)
        loaded = clock()
        for team in teams:
            for guarded in found:
                guarded.free()
            openmp.threads = team
            found = [_verify_parallel(job, checks, entry) for entry in entries]
        loader.use_openmp(None)
        entries = _load(job, arena)
    else:
        entries = _load(job, arena)
        loaded = clock()
        found = [_verify_serial(job, checks, entry) for entry in entries]
    expected = found[0].results()
    for other in found[1:]:
        _same(arena.outputs, expected, other.results(), "differs between its entries")
    sides = [_flat(job, checks, entry) for entry in entries]
    for flat in sides:
        for _ in range(job.repeats):
            flat.warm()
            flat.compare(expected)
        for flush in Flush if job.misaligned else ():
            moved = _guarded_run(checks, flat.entry, flush, misaligned=True)
            _compare(arena, expected, moved.results())
            moved.free()
        if job.together:
            _call_together(checks, flat, equipment.helpers, expected, parallel=job.parallel)
    verified = clock()
    document: dict[str, Any] = {
        "status": MeasureStatus.OK,
        "error_found": arena.case.error(_arrays(arena, expected)),
        "load_secs": loaded - start,
        "verify_secs": verified - loaded,
    }
    if job.timed:
        be_alone()
        start = clock()
        quiet = Quiet(
            equipment.helpers,
            equipment.burst_steps,
            equipment.burst_secs,
            threads=job.threads if job.parallel else 1,
            team_burst_secs=equipment.team_burst_secs,
        )
        for flat, prefix in zip(sides, ("", "with_packing_"), strict=False):
            race = _race(job, flat, equipment, quiet, timed_first=not prefix)
            flat.compare(expected)
            if not prefix:
                document["run_secs"] = race.samples
            document[f"{prefix}run_secs_estimate"] = race.estimate_secs
        document["team_burst_secs"] = quiet.team_burst_secs
        document["measure_secs"] = clock() - start
    return document


def _load(job: Job, arena: Arena) -> list[Entry]:
    """The kernel in this process: the entry that is timed, and others that are to be checked."""
    kernel = loader.load_object(job.object_bytes, job.symbol)
    entries = [timed_entry(kernel, job.symbol, job.needs, len(arena.tensors))]
    if job.every_entry and job.constants:
        entries.append(whole_entry(kernel, job.needs, len(arena.tensors)))
    return entries


def _verify_serial(job: Job, checks: _Checks, entry: Entry) -> _Guarded:
    """Two guarded runs, or one of a slow kernel; the first one's buffers."""
    start = time.perf_counter()
    first, second = Flush.RIGHT, Flush.LEFT
    if job.left_first:
        first, second = second, first
    run = _guarded_run(checks, entry, first)
    _check(checks.arena, run.results())
    if time.perf_counter() - start <= _SLOW_VERIFY_SECS:
        again = _guarded_run(checks, entry, second)
        _same(
            checks.arena.outputs, run.results(), again.results(), "reads memory it has not written"
        )
        again.free()
    return run


def _verify_parallel(job: Job, checks: _Checks, entry: Entry) -> _Guarded:
    """Both orders of shares, and what each share writes in them; the first one's buffers.

    Shares then run on noise, too, which shows writes of what was there before. That takes longer
    than all the rest, so a slow kernel is left to `job.thorough`, unless it has so many regions
    that not all were watched. Once is enough for all cases.
    """
    start = time.process_time()
    openmp = checks.openmp
    most_bytes = _SETTLED_WATCH_BYTES if job.settled else races.WATCH_BYTES
    forward = races.Observer(races.forward, most_bytes=most_bytes)
    reverse = races.Observer(races.reverse, forward, most_bytes=most_bytes)
    run = _guarded_run(checks, entry, Flush.RIGHT, observer=forward)
    _check(checks.arena, run.results())
    regions = openmp.regions
    again = _guarded_run(checks, entry, Flush.LEFT, observer=reverse)
    _same(
        checks.arena.outputs, run.results(), again.results(), "depends on the order of its threads"
    )
    again.free()
    if not regions or openmp.threads == 1:
        return run
    _refuse(races.first_conflict(forward, reverse))
    slow = time.process_time() - start > _SLOW_WATCH_SECS
    if job.thorough or not (job.settled or (slow and forward.complete)):
        _watch_alone(checks, entry, regions)
    return run


def _watch_alone(checks: _Checks, entry: Entry, regions: Sequence[races.Region]) -> None:
    """_WrongError if write sets of shares, each run on noise, meet."""
    openmp = checks.openmp
    buffers = _Guarded(checks, entry, Flush.RIGHT)
    checks.send(buffers.frame())
    if entry.prepack is None:
        _refuse_conflict(buffers.compute, buffers.writable, openmp, regions)
    else:
        # Each half writes nothing of the other's: it does not have it, or it is sealed above.
        halves = (
            (buffers.pack, [buffers.packed]),
            (buffers.compute, [*buffers.outputs, buffers.workspace]),
        )
        for call, written in halves:
            openmp.watch(races.forward)
            call()
            _refuse_conflict(call, written, openmp, openmp.regions)
    buffers.free()


def _refuse_conflict(
    call: Callable[[], int],
    written: Sequence[GuardedBuffer],
    openmp: races.SerialOpenMP,
    regions: Sequence[races.Region],
) -> None:
    """_WrongError if two shares of one of the regions that `call` enters write the same byte."""
    if not regions:
        return
    writable = [(b.name, b.view()) for b in written]
    size = sum(view.size for _, view in writable)
    watched = races.regions_to_watch(regions, size, openmp.threads)
    _refuse(races.find_conflict(call, openmp, writable, watched))


def _refuse(conflict: races.Conflict | None) -> None:
    if conflict is not None:
        raise _WrongError(MeasureStatus.WRONG_RESULT, f"race: {conflict}")


class _Guarded:
    """The buffers of one guarded run: the arena's inputs, outputs, workspace and packed memory of
    its own. Calls are made by `openmp`, on its stacks.

    `misaligned`: every tensor, inputs in copies, lies one element away from its guard. Shapes of
    whole cache lines are aligned everywhere else, so code for other tensors runs only there.
    """

    def __init__(
        self, checks: _Checks, entry: Entry, flush: Flush, *, misaligned: bool = False
    ) -> None:
        arena, self._pool = checks.arena, checks.pool
        self.entry = entry
        self._openmp = openmp = checks.openmp
        self.inputs: Sequence[GuardedBuffer] = arena.guarded_inputs[flush]
        self._copies: list[GuardedBuffer] = []
        if misaligned:
            self.inputs = self._copies = [self._moved(t, flush) for t in arena.inputs]
            for buffer, array in zip(self.inputs, arena.case.inputs, strict=True):
                buffer.view()[:] = as_bytes(array)
                buffer.protect(writable=False)
        place = self._moved if misaligned else self._flush
        self.outputs = [place(t, flush) for t in arena.outputs]
        first = flush is Flush.RIGHT
        for tensor, buffer in zip(arena.outputs, self.outputs, strict=True):
            fill = _NAN_FILL if tensor.dtype.is_float else _INT_FILL
            buffer.view().fill(fill if first else _SECOND_FILL)
        sizes = {"the workspace": entry.workspace_bytes}
        if entry.prepack is not None:
            sizes["packed memory"] = entry.packed_bytes
        take = self._pool.take
        scratch = [take(n, size, flush, WORKSPACE_ALIGN_BYTES) for n, size in sizes.items()]
        openmp.fill = _NAN_FILL if first else _SECOND_FILL
        for buffer in scratch:
            buffer.view().fill(openmp.fill)
        self.workspace, self.packed = scratch[0], scratch[-1]
        self.writable: list[GuardedBuffer] = [*self.outputs, *scratch]
        for buffer in self.writable:
            buffer.set_canary()

    def run(self, *, seal: bool = False) -> int:
        """Pack if the entry is a prepacked one, and call it; the first status that is not 0.

        With `seal`, a call that writes what was packed ends in a fault.
        """
        code = self.pack()
        if code:
            return code
        if seal and self.entry.prepack is not None:
            self.packed.protect(writable=False)
        return self.compute()

    def pack(self) -> int:
        """The first half of a prepacked entry, nothing for another."""
        entry = self.entry
        if entry.prepack is None:
            return 0
        pointers = entry.packing_pointers(self._arguments, self.packed.address)
        return self._openmp.call(entry.prepack_address, pointers)

    def compute(self) -> int:
        """The call itself."""
        entry = self.entry
        return self._openmp.call(
            entry.address,
            entry.pointers(self._arguments, self.packed.address, self.workspace.address),
        )

    @property
    def _arguments(self) -> list[int]:
        return [b.address for b in (*self.inputs, *self.outputs)]

    def frame(self) -> Frame:
        """Where the buffers are, for whoever has to explain a fault."""
        buffers = [
            [b.name, b.address, b.size_bytes, b.start, b.pages_bytes, b.guard_bytes]
            for b in (*self.inputs, *self.writable)
        ]
        return Frame({"buffers": buffers, "stacks": self._openmp.stack_ranges})

    def free(self) -> None:
        """Leave the memory to later runs; nothing of this one is looked at again."""
        for buffer in (*self.writable, *self._copies):
            self._pool.give(buffer)

    def results(self) -> list[NDArray[np.uint8]]:
        """The outputs' bytes, not copied."""
        return [b.view() for b in self.outputs]

    def _flush(self, tensor: Tensor, flush: Flush) -> GuardedBuffer:
        return self._pool.take(tensor.name, tensor.bytes, flush)

    def _moved(self, tensor: Tensor, flush: Flush) -> GuardedBuffer:
        return self._pool.take(tensor.name, tensor.bytes, flush, skip_bytes=tensor.dtype.bytes)


def _guarded_run(
    checks: _Checks,
    entry: Entry,
    flush: Flush,
    *,
    observer: races.Observer | None = None,
    misaligned: bool = False,
) -> _Guarded:
    """One call on poisoned, guarded buffers and stacks, which are the caller's to free."""
    buffers = _Guarded(checks, entry, flush, misaligned=misaligned)
    checks.send(buffers.frame())
    if observer is not None:
        observer.begin([(b.name, b.view()) for b in buffers.writable], checks.openmp)
    code = buffers.run(seal=True)
    if code:
        raise _WrongError(MeasureStatus.WRONG_RESULT, f"the kernel returned error code {code}")
    for buffer in buffers.writable:
        broken = buffer.broken_canary()
        if broken:
            raise _WrongError(MeasureStatus.OUT_OF_BOUNDS, f"wrote {broken}")
    return buffers


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
        if not same_bytes(a, b):
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
    elif not all(same_bytes(a, b) for a, b in zip(expected, outputs, strict=True)):
        _check(arena, outputs)


def _call_together(
    checks: _Checks,
    flat: _Flat,
    helpers: Helpers,
    expected: Sequence[NDArray[np.uint8]],
    *,
    parallel: bool,
) -> None:
    """Two callers at the same time, on other inputs, must each get what they get alone."""
    arena, pool = checks.arena, checks.pool
    align = WORKSPACE_ALIGN_BYTES  # skipped as well: such buffers are there from misaligned runs
    buffers = [pool.take(t.name, t.bytes, Flush.LEFT, align, align) for t in arena.tensors]
    for buffer, tensor, array in zip(buffers, arena.inputs, arena.case.inputs, strict=False):
        as_array(tensor, buffer.view()).reshape(-1)[:] = array.reshape(-1)[::-1]
    other = _Flat(arena, flat.entry, _side_by_side(buffers))
    other.run()
    alone = []
    for tensor, output in zip(arena.outputs, other.outputs(), strict=True):
        buffers.append(pool.take(tensor.name, tensor.bytes, Flush.LEFT, align, align))
        alone.append(buffers[-1].view())
        alone[-1][:] = output
    flat.call_beside(other, helpers, lambda: flat.compare(expected))
    # Two teams at once may be given fewer threads each, and then round differently.
    if arena.case.exact or not parallel:
        other.call_beside(flat, helpers, lambda: other.compare_bits(alone))
    for buffer in buffers:
        pool.give(buffer)


def _flat(job: Job, checks: _Checks, entry: Entry) -> _Flat:
    """Where an entry is called on the real runtime: where it is timed, if it is, with the inputs
    of the case; else on the guarded inputs, which need no copy."""
    arena = checks.arena
    if job.timed or arena.flat_is_filled:
        if not arena.flat_is_filled:
            for i, array in enumerate(arena.case.inputs):
                arena.flat.view(i)[:] = as_bytes(array)
        return _Flat(arena, entry, arena.flat)
    outputs = [
        checks.pool.take(t.name, t.bytes, Flush.LEFT, WORKSPACE_ALIGN_BYTES) for t in arena.outputs
    ]
    return _Flat(arena, entry, _side_by_side([*arena.guarded_inputs[Flush.LEFT], *outputs]))


def _side_by_side(buffers: Sequence[GuardedBuffer]) -> FlatBuffers:
    return FlatBuffers(tuple(b.address for b in buffers), tuple(b.size_bytes for b in buffers))


class _Flat:
    """The buffers of all arguments that an entry is called on outside of the stand-in, with a
    workspace of its own, and packed memory that is filled once."""

    def __init__(self, arena: Arena, entry: Entry, flat: FlatBuffers) -> None:
        self._arena = arena
        self.entry = entry
        self._flat = flat
        self._first_output = len(arena.case.inputs)
        scratch = flat_buffers([entry.workspace_bytes, entry.packed_bytes], skip_bytes=2048)
        self._workspace = scratch.view(0)
        workspace, packed = scratch.addresses
        scratch.view(1).fill(_SECOND_FILL)
        entry.pack(self._flat.addresses, packed)
        self.pointers = entry.pointers(self._flat.addresses, packed, workspace)
        self.argv = argument_vector(self.pointers, len(arena.tensors) + 1)
        self.warm_secs = 0.0

    def outputs(self) -> list[NDArray[np.uint8]]:
        flat = self._flat
        return [flat.view(i) for i in range(self._first_output, len(flat.addresses))]

    def poison(self) -> None:
        """Forget what earlier calls wrote."""
        for output in self.outputs():
            output.fill(_SECOND_FILL)
        self._workspace.fill(_SECOND_FILL)

    def run(self) -> None:
        """One call."""
        self.entry.call(*self.pointers)

    def warm(self) -> None:
        """Poison, touch every page, run; `warm_secs` is the fastest call after the first.

        A few calls of a fast kernel: one could have been disturbed.
        """
        self.poison()
        secs: list[float] = []
        while (
            not secs
            or (len(secs) == 1 and secs[0] < _SLOW_WARM_SECS)
            or (len(secs) < 4 and sum(secs) < _WARM_SECS)
        ):
            start = time.perf_counter()
            self.run()
            secs.append(time.perf_counter() - start)
        self.warm_secs = min(secs[1:] or secs)

    def call_beside(self, other: _Flat, helpers: Helpers, check: Callable[[], None]) -> None:
        """Calls here, checked now and then, while a thread makes calls there."""
        self.poison()
        secs = max(self.warm_secs, other.warm_secs)  # of the same kernel, and one may be unknown
        call_beside(helpers, self.entry, other.argv, self.pointers, secs, check)

    def compare_bits(self, expected: Sequence[NDArray[np.uint8]]) -> None:
        """Hold the outputs against those of a call that was alone."""
        what = "is disturbed by another call of it"
        _same(self._arena.outputs, expected, self.outputs(), what)

    def compare(self, expected: Sequence[NDArray[np.uint8]]) -> None:
        """Hold the outputs against those of the guarded run."""
        _compare(self._arena, expected, self.outputs())


def _race(job: Job, flat: _Flat, equipment: Equipment, quiet: Quiet, *, timed_first: bool) -> Race:
    """Time the kernel rung by rung until it has lost or is known well enough; an entry that is
    not the one that counts races against nobody."""
    incumbent_secs = job.incumbent_secs if timed_first else None
    race = Race(flat.warm_secs, equipment.burst_secs, incumbent_secs, job.final_secs)
    while (plan := race.plan()) is not None:
        samples, bursts = equipment.helpers.time(
            flat.entry.address, flat.argv, plan.calls, plan.rounds, equipment.burst_steps
        )
        round_secs = float(samples.sum()) * plan.calls + float(bursts.sum())
        if quiet.counts(float(bursts.min()), round_secs):
            race = race.add(tuple(samples.tolist()), tuple(bursts.tolist()))
    return race
