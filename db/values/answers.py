"""Answers to works that were not tuned, as callers of the store hold them: preparations.

WANTED -> CHOSEN -> READY        a schedule, then its files and how its check ended
WANTED -> FAILED                 there can be no schedule; the document says why
WANTED -> gone                   a stored record passed its check and is the best now
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tilewright.schedules.canonical import canonical_bytes

from .records import Artefact

LEASE_SECS = 15.0
"""How long a process has a preparation without renewing its lease."""

MAX_CLAIMS = 3
"""How many of the fastest records of others are worth a check."""


class PreparationState(StrEnum):
    """How far a preparation is."""

    WANTED = "WANTED"
    CHOSEN = "CHOSEN"
    READY = "READY"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        return self in (PreparationState.READY, PreparationState.FAILED)


@dataclass(frozen=True, slots=True)
class Demand:
    """A work to prepare, described, and the job that would tune it (None: no such job).

    `job` is its request, its body hash and its flight key, as `create_job` takes them. `again`:
    records came that a finished preparation does not know.
    """

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
    """A row as it was when read, with what a process needs to work on it."""

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
    """Of one owner: works that may wait to be prepared, and prepared ones that are kept. What is
    above the latter takes the place of the owner's oldest."""

    waiting: int
    kept: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was found without tuning. `job_id` is the job that tunes the work, if there is one."""

    key: str
    state: PreparationState
    document: dict[str, Any]
    files: tuple[Artefact, ...]
    job_id: str | None

    @property
    def trace(self) -> list[Any] | None:
        """The schedule as JSON data, None before one is chosen."""
        trace: list[Any] | None = self.document.get("trace")
        return trace


def preparation_key(workload_key: str, target_key: str, toolchain: str) -> str:
    """The name of a preparation."""
    return hashlib.sha256(canonical_bytes([workload_key, target_key, toolchain])).hexdigest()
