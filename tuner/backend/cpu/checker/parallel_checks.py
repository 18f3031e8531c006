"""Parallel kernels, guarded: both orders of their shares, and what each share writes."""

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

_SLOW_WATCH_SECS = 0.02  # processor time of both orders: slower kernels' shares run on noise later
_SETTLED_WATCH_BYTES = 16 << 20  # watched of a call whose regions were watched in another case


def verify_parallel(job: CheckJob, checks: Checks, entry: Entry) -> Guarded:
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
    run = guarded_run(checks, entry, Flush.RIGHT, observer=forward)
    check(checks.arena, run.results())
    regions = openmp.regions
    again = guarded_run(checks, entry, Flush.LEFT, observer=reverse)
    same(
        checks.arena.outputs, run.results(), again.results(), "depends on the order of its threads"
    )
    alike = run.lies_as(again)
    again.free()
    if not regions or openmp.threads == 1:
        return run
    _refuse(races.first_conflict(forward, reverse, alike=alike))
    slow = time.process_time() - start > _SLOW_WATCH_SECS
    if job.thorough or not (job.settled or (slow and forward.complete)):
        # Borders of shares follow from one formula in the number of threads.
        closely = job.thorough and openmp.threads in (2, job.threads)
        _watch_alone(checks, entry, regions, checks.stores if closely else None)
    return run


def _watch_alone(
    checks: Checks, entry: Entry, regions: Sequence[races.ParallelRegion], stores: StoreWatch | None
) -> None:
    """WrongError if write sets of shares, each run on noise, meet, or with `stores`, if one puts
    back what is in another's."""
    openmp = checks.openmp
    buffers = Guarded(checks, entry, Flush.RIGHT)
    checks.send(buffers.frame())
    if entry.prepack is None:
        _refuse_conflict(buffers.compute, buffers.writable, openmp, regions, stores)
    else:
        # Each half writes nothing of the other's: it does not have it, or it is sealed above.
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
    """WrongError if two shares of one of the regions that `call` enters write the same byte."""
    if not regions:
        return
    writable = [(b.name, b.view()) for b in written]
    size = sum(view.size for _, view in writable)
    watched = races.regions_to_watch(regions, size, openmp.threads)
    _refuse(races.find_conflict(call, openmp, writable, watched, stores))


def _refuse(conflict: races.Conflict | None) -> None:
    if conflict is not None:
        raise WrongError(MeasureStatus.WRONG_RESULT, f"race: {conflict}")
