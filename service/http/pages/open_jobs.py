"""Jobs that have not ended, in the order in which they are at work or will be."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.db.values.job_states import JobState
from tilewright.service.http.pages.views import ACTIVE, JobListing, in_turn, job_row
from tilewright.service.http.state import ServiceState
from tilewright.service.jobs.queue import order


def active_jobs(
    state: ServiceState, owner: str | None, counts: Mapping[str, int], most: int, text: str = ""
) -> list[JobListing]:
    """Those of `owner` (None: of all) whose id, workload or cpu holds `text`; `counts` says how
    many there are of each state, at most `most` of each are looked at."""
    names = [name for name in ACTIVE if counts[name]]
    if not names:
        return []
    catalogue = state.store.catalogue
    lines = [
        line
        for name in names
        for line in catalogue.jobs(text, (JobState(name),), None, most, owner).items
    ]
    queue = state.store.job_queue() if "QUEUED" in names else []
    return in_turn(map(job_row, lines), [job.id for job in order(queue)])


def job_counts(state: ServiceState, owner: str | None) -> dict[str, int]:
    """How many jobs are in each state."""
    counts = state.store.catalogue.job_counts(owner)
    return {str(name): count for name, count in counts.items()}
