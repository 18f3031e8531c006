"""Scheduling: which waiting job starts next, and the queue positions shown to users.

A few jobs are open concurrently and share the machine in time slices (`time_slices`), so a short
job ends soon whatever other jobs run. Of the waiting jobs, those of owners with the fewest open
jobs come first, and an owner without an open job gets a slot even if all are taken: the number and
declared cost of other owners' jobs delay no owner. Among these jobs, one slot always goes to the
oldest job, so that none starves; the others go to the job with the fewest trials; the last slot is
reserved for short jobs. A higher priority precedes all of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.db.values.jobs import WaitingJob

if TYPE_CHECKING:
    from tilewright.db import Store

SHORT_TRIALS = 64
"""The default budget: jobs with at most this many trials are short."""

SUSPECT_FAILURES = 5
"""A job with this many failures rests before it is tried again: see `rest_secs`."""


def rest_secs(failures: int) -> float:
    """Return the seconds that a worker must live before it takes a job with this many failures.

    This separates jobs that kill their worker from workers killed by something else: a worker that
    dies during the rest did not die of this job, which is then not counted.
    """
    return 0.0 if failures < SUSPECT_FAILURES else 2.0 ** (failures - SUSPECT_FAILURES)


def order(waiting: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Return the order in which jobs will start if no other arrives: resumed jobs first, those with
    most failures last; then the oldest new job, then the new jobs with the fewest trials, each
    group by priority, as `waiting` is ordered; one job of each owner, then a second of each, and so
    on."""
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
    """Return the job to start now, given the owners of open jobs and whether the slot of the oldest
    is taken, or None if all must wait. Up to `slots` additional jobs may be open if each is its
    owner's only one."""
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
    wait. Jobs of a fleet and of this machine wait in separate queues."""
    fleet = any(job.fleet for job in waiting if job.id == job_id)
    same = [job for job in waiting if job.fleet == fleet]
    for position, job in enumerate(order(same), start=1):
        if job.id == job_id:
            before = position - 1
            if not before:
                return position, "next: taken as soon as a worker has a place"
            more = "1 job is" if before == 1 else f"{before} jobs are"
            return position, (
                f"{more} taken before: owners in turn, of each the oldest first, then those with"
                " fewest trials"
            )
    return None


def open_jobs(store: Store) -> dict[str, int]:
    """Return the number of unfinished jobs by state."""
    return {str(state): n for state, n in store.job_counts().items() if not state.final}
