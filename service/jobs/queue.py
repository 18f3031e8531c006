"""Which waiting job is taken next, and how a job that waits is told so. Pure.

A few jobs are open at once and take turns on the machine, a batch of trials each (`turns`), so a
short job ends soon whatever else is going on. Of those that wait, one place is always the oldest
job's, so that none waits for ever; the others go to the job with the fewest trials; the last place
is kept for short jobs. A higher priority goes before all of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from db.job_rows import WaitingJob

SHORT_TRIALS = 64
"""The default budget: a job up to it is short."""

SUSPECT_FAILURES = 5
"""A job with as many rests before it is taken up again: see `rest_secs`."""


def rest_secs(failures: int) -> float:
    """How long a worker lives before it takes up a job with so many failures.

    Whether a job ends its workers, or something else ends them while it is there, is told by
    leaving it alone: a worker that ends meanwhile did not end by this job, which is not counted
    then. Those that end again and again only when they take it up do.
    """
    return 0.0 if failures < SUSPECT_FAILURES else 2.0 ** (failures - SUSPECT_FAILURES)


def order(waiting: Sequence[WaitingJob]) -> list[WaitingJob]:
    """The order in which jobs will be taken, if no other comes: those that were at work before,
    those whose workers ended most often last; the oldest of the rest, then the ones with the fewest
    trials; each by priority first, as which `waiting` is ordered."""
    lost = sorted((job for job in waiting if job.lost), key=lambda job: job.failures)
    new = [job for job in waiting if not job.lost]
    return [*lost, *new[:1], *sorted(new[1:], key=_shortest)]


def _shortest(job: WaitingJob) -> tuple[int, int, str]:
    return -job.priority, job.trials, job.id


def choose(
    waiting: Sequence[WaitingJob], *, places: int, open_jobs: int, has_oldest: bool
) -> WaitingJob | None:
    """The job to open now, given how many are open and whether the place of the oldest is taken;
    None if all that wait have to go on waiting."""
    if not waiting or open_jobs >= places:
        return None
    lined_up = order(waiting)
    if lined_up[0].lost or not has_oldest:
        return lined_up[0]
    shortest = min(waiting, key=_shortest)
    if places > 1 and open_jobs == places - 1 and shortest.trials > SHORT_TRIALS:
        return None
    return shortest


def place(waiting: Sequence[WaitingJob], job_id: str) -> tuple[int, str] | None:
    """The job's position in the queue, from 1, and why it waits; None if it does not. Jobs of a
    fleet and of this machine wait in two queues."""
    fleet = any(job.fleet for job in waiting if job.id == job_id)
    same = [job for job in waiting if job.fleet == fleet]
    for position, job in enumerate(order(same), start=1):
        if job.id == job_id:
            before = position - 1
            if not before:
                return position, "next: taken as soon as a worker has a place"
            more = "1 job is" if before == 1 else f"{before} jobs are"
            return position, f"{more} taken before: the oldest first, then those with fewest trials"
    return None
