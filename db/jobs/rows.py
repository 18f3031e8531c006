"""Conversion between rows and jobs or their events and trials, and the hashes of the rows."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from tilewright.schedules.canonical import canonical_bytes

from ..core.hashes import row_hash
from ..core.models import JobEventRow, JobRequestRow, JobRow, JobTrialRow
from ..values.job_states import JobState
from ..values.jobs import JobEvent, JsonObject, StoredJob, WaitingJob
from ..values.moments import moment_of

log = logging.getLogger("tilewright.db")

# In canonical JSON. To parse the whole request would take a hundred times as long.
_TRIALS = re.compile(r'"budget":\{[^{}]*"trials":(\d+)')
_FLEET = '"measurer":"dask'  # inside a string of the request, quotes would be escaped

AnyJobRow = JobRow | JobRequestRow | JobEventRow | JobTrialRow

# Every column of a row except its order and the hash itself, in this order.
HASHED: dict[type[AnyJobRow], tuple[str, ...]] = {
    JobRow: (
        "id",
        "state",
        "priority",
        "arrival",
        "request",
        "flight_key",
        "progress",
        "result",
        "error",
        "owner",
        "lease_until",
        "lease_secs",
        "epoch",
        "failures",
        "created_at",
        "started_at",
        "finished_at",
    ),
    JobRequestRow: ("idempotency_key", "body_sha256", "job_id", "created_at"),
    JobEventRow: ("job_id", "epoch", "kind", "data", "created_at"),
    JobTrialRow: ("job_id", "trial", "record_key", "epoch"),
}
LATER: dict[type[AnyJobRow], tuple[str, ...]] = {JobTrialRow: ("candidate",)}
"""Columns that were added later. They are hashed only if they have a value, so that the hashes of
older rows remain valid."""


def text_of(document: JsonObject) -> str:
    """Return canonical JSON. Raise ValueError or TypeError if `document` is not JSON data."""
    return canonical_bytes(document).decode()


def hash_of(kind: type[AnyJobRow], row: Any) -> str:
    """Return the hash of `row` of the table `kind`: an object, or a dict of columns."""
    names = (*HASHED[kind], *LATER.get(kind, ()))
    values = row if isinstance(row, dict) else {name: getattr(row, name) for name in names}
    later = [values[name] for name in LATER.get(kind, ()) if values.get(name) is not None]
    return row_hash([*(values[name] for name in HASHED[kind]), *later])


def is_intact_row(row: AnyJobRow) -> bool:
    """Return whether the row is unchanged since it was written."""
    try:
        return hash_of(type(row), row) == row.row_sha256
    except (TypeError, ValueError):  # damage can turn a number into bytes
        return False


def job_of(row: JobRow | None) -> StoredJob | None:
    """Return the job of an intact row. For a damaged row, return None and log a warning."""
    if row is None:
        return None
    if not is_intact_row(row):
        log.warning("job %s is damaged and not served; run `tilewright db check`", row.id)
        return None
    return StoredJob(
        id=row.id,
        state=JobState(row.state),
        request=json.loads(row.request),
        progress=json.loads(row.progress),
        result=None if row.result is None else json.loads(row.result),
        error=None if row.error is None else json.loads(row.error),
        owner=row.owner,
        epoch=row.epoch,
        created_at=moment_of(row.created_at),
        started_at=None if row.started_at is None else moment_of(row.started_at),
        finished_at=None if row.finished_at is None else moment_of(row.finished_at),
        priority=row.priority,
        failures=row.failures,
    )


def events_of(rows: Sequence[JobEventRow]) -> list[JobEvent]:
    """Return the events of the intact rows, in order."""
    found = []
    for row in rows:
        if is_intact_row(row):
            data = json.loads(row.data)
            found.append(JobEvent(row.id, row.job_id, row.kind, data, moment_of(row.created_at)))
        else:
            log.warning("event %s of job %s is damaged and omitted", row.id, row.job_id)
    return found


def waiting_of(row: JobRow, owner: str = "") -> WaitingJob:
    """Return the fields by which a queue orders the job."""
    found = _TRIALS.search(row.request)
    trials = int(found[1]) if found else 0
    return WaitingJob(
        row.id,
        trials,
        row.priority,
        lost=row.state != JobState.QUEUED,
        failures=row.failures,
        fleet=_FLEET in row.request,
        owner=owner,
    )
