"""Scheduling: which waiting job starts next, and the queue positions shown to users.

A few jobs are open (started, not finished) at a time, and share the machine in time slices, so a
short job ends soon. A higher priority comes first, then owners with the fewest open jobs. An owner
without an open job may start one even if all slots are taken, so the jobs of other owners do not
delay it. One slot is reserved for the oldest job, so that no job waits forever; the others go to
the job with the fewest trials, the last one only to a short job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.db.values.jobs import WaitingJob

if TYPE_CHECKING:
    from tilewright.db import Store

SHORT_TRIALS = 64
"""The default budget. Jobs with at most this many trials are short."""

SUSPECT_FAILURES = 5
"""From this number of failures on, a job must wait: see `rest_secs`."""


def rest_secs(failures: int) -> float:
    """Return how many seconds a worker must have lived before it may lease a job with this number
    of failures. A worker that dies earlier was not killed by this job."""
    return 0.0 if failures < SUSPECT_FAILURES else 2.0 ** (failures - SUSPECT_FAILURES)


def order(waiting: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Return the order in which jobs will start if no other job arrives. `waiting` is sorted by
    priority and age. Resumed jobs are first, the fewest failures first. Then for each priority: the
    first new job of each owner, then the second of each, and so on; the oldest job is first, the
    others follow by number of trials."""
    lost = sorted((job for job in waiting if job.lost), key=lambda job: job.failures)
    new = [job for job in waiting if not job.lost]
    lined_up = [*new[:1], *sorted(new[1:], key=_shortest)]
    counts: Counter[str] = Counter()
    rounds: dict[str, tuple[int, int]] = {}
    for job in lined_up:
        rounds[job.id] = (-job.priority, counts[job.owner])
        counts[job.owner] += 1
    return [*lost, *sorted(lined_up, key=lambda job: rounds[job.id])]


def _shortest(job: WaitingJob) -> tuple[int, int, str]:
    return -job.priority, job.trials, job.id


def choose(
    waiting: Sequence[WaitingJob],
    *,
    slots: int,
    open_owners: Sequence[str],
    has_oldest: bool,
) -> WaitingJob | None:
    """Return the job to start now, or None if all must wait. `open_owners` has the owner of each
    open job. `has_oldest` states whether an open job has the slot reserved for the oldest job. At
    most `slots` jobs are open, but an owner without an open job may start one, up to 2 * `slots` in
    total."""
    counts = Counter(open_owners)
    if len(open_owners) >= slots:
        alone = [job for job in waiting if not counts[job.owner]]
        return order(alone)[0] if alone and len(open_owners) < 2 * slots else None
    lost = [job for job in waiting if job.lost]
    if lost or not waiting:
        return order(lost)[0] if lost else None
    highest = max(job.priority for job in waiting)
    first = [job for job in waiting if job.priority == highest]
    fewest = min(counts[job.owner] for job in first)
    fair = [job for job in first if counts[job.owner] == fewest]
    if not has_oldest:
        return order(fair)[0]
    shortest = min(fair, key=_shortest)
    is_last = slots > 1 and len(open_owners) == slots - 1 and counts[shortest.owner] > 0
    return None if is_last and shortest.trials > SHORT_TRIALS else shortest


def position_of(waiting: Sequence[WaitingJob], job_id: str) -> tuple[int, str] | None:
    """Return the job's position in the queue, from 1, and why it waits, or None if it does not
    wait. Jobs of the fleet and of this machine have separate queues."""
    fleet = any(job.fleet for job in waiting if job.id == job_id)
    same = [job for job in waiting if job.fleet == fleet]
    for position, job in enumerate(order(same), start=1):
        if job.id == job_id:
            before = position - 1
            if not before:
                return position, "next: starts as soon as a slot is free"
            more = "1 job is" if before == 1 else f"{before} jobs are"
            return position, (
                f"{more} before it: owners take turns; the oldest job is first, then those with"
                " the fewest trials"
            )
    return None


def open_jobs(store: Store) -> dict[str, int]:
    return {str(state): n for state, n in store.job_counts().items() if not state.final}
