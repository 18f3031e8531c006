"""Jobs and keys of the API as callers of the store hold them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .job_states import JobState

JsonObject = dict[str, Any]

TICKET_PRIORITY = -100
"""The priority of a ticket, a job that a lookup asked for: submitted jobs go first."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as it was when read.

    `epoch` counts leases; writers hand it back. `priority`: higher goes first. `failures` counts
    workers that ended while at work on it, one after the other without a new trial; one that is at
    work now is counted beforehand, and taken off when it is not.
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
    """A job nobody works on. `trials` is its budget, 0 where it has none; `lost`: its worker
    disappeared; `failures` is that of `StoredJob`; `fleet`: the machines of a fleet measure it, not
    the one its worker runs on. `owner` asked for it, one of them where there are several; "" where
    nobody is known."""

    id: str
    trials: int
    priority: int = 0
    lost: bool = False
    failures: int = 0
    fleet: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One thing that happened. `id` grows over all jobs: the event id of the stream."""

    id: int
    job_id: str
    kind: str
    data: JsonObject
    created_at: datetime


@dataclass(frozen=True, slots=True)
class JobQuota:
    """What one owner may have open at once: jobs, trials of all of them that are not measured yet,
    and tickets, which are jobs of `TICKET_PRIORITY` or less."""

    jobs: int
    trials: int
    tickets: int = 0


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who wants a job: the owners that asked and have not withdrawn, and those that have. Both are
    empty for a job that was asked for without a key."""

    asking: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret. `id` is the part of the secret that may be shown; `owner` is whose
    jobs it sees, and stays the same when a key is replaced."""

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
    """Every sound key by its id, and how many rows there are, damaged ones among them: a damaged
    key opens nothing, and does not make a service open either."""

    by_id: dict[str, ApiKey]
    rows: int
