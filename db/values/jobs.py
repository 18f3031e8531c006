"""Values of jobs and of keys of the API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .job_states import JobState

JsonObject = dict[str, Any]

TICKET_PRIORITY = -100
"""The priority of a ticket, a job that a lookup created: submitted jobs go first."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as it was when it was read.

    `epoch` counts leases; every write names it. A higher `priority` goes first. `failures` counts
    the workers that died in a row while they worked on the job without a new trial; a worker is
    counted before it begins to work, and subtracted when it stops.
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
    """A job without a worker. `trials` is its budget, 0 if it has none; `lost`: its worker
    disappeared; `failures` is as in `StoredJob`; `fleet`: the machines of a fleet measure it, not
    the worker's own machine. `owner` is one of the job's owners, "" if there is none."""

    id: str
    trials: int
    priority: int = 0
    lost: bool = False
    failures: int = 0
    fleet: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job. `id` increases over all jobs: it is the event id of the stream."""

    id: int
    job_id: str
    kind: str
    data: JsonObject
    created_at: datetime


@dataclass(frozen=True, slots=True)
class JobQuota:
    """Limits on the open work of one owner: jobs, trials of these jobs that are not measured yet,
    and tickets, which are jobs of `TICKET_PRIORITY` or less."""

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
    """An API key without its secret. `id` is the part of the secret that may be shown. The key sees
    the jobs of `owner`, which stays the same when the key is replaced."""

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
