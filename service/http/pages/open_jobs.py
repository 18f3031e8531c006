"""Unfinished jobs in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.db.values.job_states import JobState
from tilewright.service.http.pages.views import ACTIVE, JobListing, in_run_order, job_row
from tilewright.service.http.state import ServiceState
from tilewright.service.jobs.queue import order


def active_jobs(
    state: ServiceState, owner: str | None, counts: Mapping[str, int], most: int, text: str = ""
) -> list[JobListing]:
    """Return the unfinished jobs of `owner` (None: of all owners) whose id, workload or CPU
    contains `text`. `counts` is the number of jobs in each state; at most `most` jobs of a state
    are read."""
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
    return in_run_order(map(job_row, lines), [job.id for job in order(queue)])


def job_counts(state: ServiceState, owner: str | None) -> dict[str, int]:
    counts = state.store.catalogue.job_counts(owner)
    return {str(name): count for name, count in counts.items()}
