"""Values of preparations: answers for tasks that were not tuned.

WANTED -> CHOSEN -> READY   the schedule is chosen, then its files and the result of its check
WANTED -> FAILED            no schedule is possible; the document has the reason
WANTED -> deleted           a stored record passed its check and is now the best
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tilewright.schedules.canonical import canonical_bytes

from .records import Artefact

LEASE_SECS = 15.0
"""The duration of the lease of a preparation, in seconds."""

MAX_CLAIMS = 3
"""The number of claims of a task that are checked, the fastest ones first."""


class PreparationState(StrEnum):
    """The state of a preparation."""

    WANTED = "WANTED"
    CHOSEN = "CHOSEN"
    READY = "READY"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        return self in (PreparationState.READY, PreparationState.FAILED)


@dataclass(frozen=True, slots=True)
class Demand:
    """A task to prepare. `job` is the request, body hash and flight key of the job that tunes it
    (see `create_job`), or None. `again` repeats a finished preparation."""

    workload_key: str
    workload_document: dict[str, Any]
    name: str
    flops: int
    target_key: str
    target_document: dict[str, Any]
    job: tuple[dict[str, Any], str, str] | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Preparation:
    """A leased preparation, with the documents that a process needs to work on it."""

    key: str
    workload_key: str
    target_key: str
    state: PreparationState
    document: dict[str, Any]
    workload_document: dict[str, Any]
    target_document: dict[str, Any]
    owner: str
    attempts: int


@dataclass(frozen=True, slots=True)
class PreparationQuota:
    """The quota of one owner: at most `waiting` tasks wait to be prepared, and the newest `kept`
    finished preparations are stored."""

    waiting: int
    kept: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of a preparation. `job_id` is the job that tunes the task, or None."""

    key: str
    state: PreparationState
    document: dict[str, Any]
    files: tuple[Artefact, ...]
    job_id: str | None

    @property
    def trace(self) -> list[Any] | None:
        """The trace of the chosen schedule as JSON data, or None."""
        trace: list[Any] | None = self.document.get("trace")
        return trace


def preparation_key(workload_key: str, target_key: str, toolchain: str) -> str:
    """Return the key of a preparation."""
    return hashlib.sha256(canonical_bytes([workload_key, target_key, toolchain])).hexdigest()
