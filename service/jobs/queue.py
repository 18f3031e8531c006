"""Which waiting job is taken next, and how a job that waits is told so.

A few jobs are open at once and take turns on the machine, a batch of trials each (`turns`), so a
short job ends soon whatever else is going on. Of those that wait, the owners with fewest open jobs
come first, and one who has none finds a place also where all are taken: what the jobs of others
claim to cost, and how many they are, holds up nobody. Among these, one place is always the oldest
job's, so that none waits for ever; the others go to the job with the fewest trials; the last place
is kept for short jobs. A higher priority goes before all of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.db.values.jobs import WaitingJob

if TYPE_CHECKING:
    from tilewright.db import Store

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
    trials, each by priority first, as which `waiting` is ordered; of every owner one, then of
    every owner a second, and so on."""
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
    places: int,
    open_owners: Sequence[str],
    has_oldest: bool,
) -> WaitingJob | None:
    """The job to open now, given whose jobs are open and whether the place of the oldest is taken;
    None if all that wait have to go on waiting. Up to as many again as there are `places` may be
    open where each is the only one of its owner."""
    counts = Counter(open_owners)
    if len(open_owners) >= places:
        alone = [job for job in waiting if not counts[job.owner]]
        return order(alone)[0] if alone and len(open_owners) < 2 * places else None
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
    is_last = places > 1 and len(open_owners) == places - 1 and counts[shortest.owner] > 0
    return None if is_last and shortest.trials > SHORT_TRIALS else shortest


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
            return position, (
                f"{more} taken before: owners in turn, of each the oldest first, then those with"
                " fewest trials"
            )
    return None


def open_jobs(store: Store) -> dict[str, int]:
    """Jobs that are not finished, by state."""
    return {str(state): n for state, n in store.job_counts().items() if not state.final}
