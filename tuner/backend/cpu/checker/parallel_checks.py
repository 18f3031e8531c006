"""Checks of parallel kernels. The threads' shares run in both orders, and the bytes that they write
are observed.

The share of a thread is the part of a parallel region that it executes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tilewright.schedules.record import MeasureStatus

from ..loading.entries import Entry
from ..loading.store_watch import StoreWatch
from ..memory.guarded import Flush, GuardedBuffer
from . import races
from .guarded_run import Checks, Guarded, WrongError, check, guarded_run, same
from .job import CheckJob

# a kernel that was checked thoroughly on another case has one run if that takes longer than this
_SLOW_VERIFY_SECS = 0.05
_SLOW_WATCH_SECS = 0.02  # a kernel is slow if both orders take more CPU time than this
# bytes observed per call if the regions were observed in another case
_SETTLED_WATCH_BYTES = 16 << 20


def verify_parallel(job: CheckJob, checks: Checks, entry: Entry) -> Guarded:
    """Run the shares in both orders, observe their writes, and return the buffers of the first run.

    Shares then also run on random memory, which reveals writes of unchanged values. That takes
    longer than all other checks. Therefore a slow kernel does it only if `job.thorough`, or if it
    has more regions than could be observed. A kernel that was checked in this way on another case
    does not repeat it. If it is slow, it runs in one order only, in turns from case to case: its
    order cannot matter, but its values are checked.
    """
    start, start_wall = time.process_time(), time.perf_counter()
    openmp = checks.openmp
    most_bytes = _SETTLED_WATCH_BYTES if job.settled else races.WATCH_BYTES
    turned = job.settled and job.case % 2 == 1
    first = races.Observer(races.reverse if turned else races.forward, most_bytes=most_bytes)
    second = races.Observer(
        races.forward if turned else races.reverse, first, most_bytes=most_bytes
    )
    sides = (Flush.LEFT, Flush.RIGHT) if turned else (Flush.RIGHT, Flush.LEFT)
    run = guarded_run(checks, entry, sides[0], observer=first)
    check(checks.arena, run.results())
    if job.settled and time.perf_counter() - start_wall > _SLOW_VERIFY_SECS:
        return run
    regions = openmp.regions
    again = guarded_run(checks, entry, sides[1], observer=second)
    same(
        checks.arena.outputs, run.results(), again.results(), "depends on the order of its threads"
    )
    alike = run.lies_as(again)
    again.free()
    if not regions or openmp.threads == 1:
        return run
    _refuse(races.first_conflict(first, second, alike=alike))
    slow = time.process_time() - start > _SLOW_WATCH_SECS
    if job.thorough or not (job.settled or (slow and first.complete)):
        # The borders between shares are one formula of the team size, so two sizes suffice.
        closely = job.thorough and openmp.threads in (2, job.threads)
        _watch_on_noise(checks, entry, regions, checks.stores if closely else None)
    return run


def _watch_on_noise(
    checks: Checks, entry: Entry, regions: Sequence[races.ParallelRegion], stores: StoreWatch | None
) -> None:
    """Raise WrongError if two shares, each run on random memory, write the same byte.

    With `stores`, also raise it if a share stores to bytes of another share, even if the value
    stays the same.
    """
    openmp = checks.openmp
    buffers = Guarded(checks, entry, Flush.RIGHT)
    checks.note(buffers.frame())
    if entry.prepack is None:
        _refuse_conflict(buffers.compute, buffers.writable, openmp, regions, stores)
    else:
        # Neither call can write the other's memory: `compute` finds packed memory read-only, and
        # `pack` has no pointer to outputs.
        halves = (
            (buffers.pack, [buffers.packed]),
            (buffers.compute, [*buffers.outputs, buffers.workspace]),
        )
        for call, written in halves:
            openmp.watch(races.forward)
            call()
            _refuse_conflict(call, written, openmp, openmp.regions, stores)
    buffers.free()


def _refuse_conflict(
    call: Callable[[], int],
    written: Sequence[GuardedBuffer],
    openmp: races.SerialOpenMP,
    regions: Sequence[races.ParallelRegion],
    stores: StoreWatch | None,
) -> None:
    """Raise WrongError if two shares of the same region write the same byte. `call` enters the
    `regions`, and the kernel may write the buffers `written`."""
    if not regions:
        return
    writable = [(b.name, b.view()) for b in written]
    size = sum(view.size for _, view in writable)
    watched = races.regions_to_watch(regions, size, openmp.threads)
    _refuse(races.find_conflict(call, openmp, writable, watched, stores))


def _refuse(conflict: races.Conflict | None) -> None:
    if conflict is not None:
        raise WrongError(MeasureStatus.WRONG_RESULT, f"race: {conflict}")
