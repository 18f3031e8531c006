"""Values of jobs and API keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .job_states import JobState

JsonObject = dict[str, Any]

TICKET_PRIORITY = -100
"""The priority of a ticket, a job that a lookup created. Submitted jobs run first."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A snapshot of a job.

    `epoch` counts leases, and every write states it. Higher `priority` runs first. `failures`
    counts workers in succession that died while they worked on the job, without a new trial. It is
    incremented before a worker begins to work, and decremented when the worker stops.
    """

    id: str
    state: JobState
    request: JsonObject
    progress: JsonObject
    result: JsonObject | None
    error: JsonObject | None
    owner: str | None
    epoch: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    priority: int = 0
    failures: int = 0

    @property
    def done(self) -> bool:
        return self.state.final


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job without a worker. `trials` is its budget, or 0 if it has none. `lost` is true if its
    worker disappeared, `fleet` if a fleet measures it. `owner` is one of its owners, or ""."""

    id: str
    trials: int
    priority: int = 0
    lost: bool = False
    failures: int = 0
    fleet: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job. `id` increases over all jobs, and identifies the event in streams."""

    id: int
    job_id: str
    kind: str
    data: JsonObject
    created_at: datetime


@dataclass(frozen=True, slots=True)
class JobQuota:
    """The limits of one owner: open jobs, open tickets (jobs of `TICKET_PRIORITY` or less), and
    trials of both that are not measured yet."""

    jobs: int
    trials: int
    tickets: int = 0


@dataclass(frozen=True, slots=True)
class Sharing:
    """The owners of a job that have not withdrawn, and the owners that have. Both are empty for a
    job that was submitted without a key."""

    asking: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret. `id` is the public part of the secret. The key gives access to
    the jobs of `owner`; a replacement of the key has the same owner."""

    id: str
    owner: str
    note: str
    scopes: tuple[str, ...]
    secret_sha256: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """Every intact key by its id, and the number of rows, including damaged ones. A damaged key
    grants no access, and a service whose only key is damaged still requires a key."""

    by_id: dict[str, ApiKey]
    rows: int
