"""How many jobs are not finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from db import Store


def open_jobs(store: Store) -> dict[str, int]:
    """Jobs by state, up to a thousand each: more are refused before."""
    from db.job_states import JobState

    states = (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING)
    return {str(state): len(store.list_jobs(page_size=1000, state=state).items) for state in states}
