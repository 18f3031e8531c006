"""How many jobs are not finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.db import Store


def open_jobs(store: Store) -> dict[str, int]:
    """Jobs that are not finished, by state."""
    return {str(state): n for state, n in store.job_counts().items() if not state.final}
