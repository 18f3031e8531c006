"""Jobs, their events and trials as rows and back, and the hashes that guard the rows."""

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

# In canonical JSON; a whole request, read for this number alone, would cost a hundred times it.
_TRIALS = re.compile(r'"budget":\{[^{}]*"trials":(\d+)')
_FLEET = '"measurer":"dask'  # within a string of the request quotes would be escaped

AnyJobRow = JobRow | JobRequestRow | JobEventRow | JobTrialRow

# Everything of a row but what orders it and the hash itself, in this order.
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
"""Columns that came later. They are hashed where they have a value: rows that were written before
keep the hash they have."""


def text_of(document: JsonObject) -> str:
    """Canonical JSON; ValueError or TypeError here, not from deep within, if it is not JSON."""
    return canonical_bytes(document).decode()


def hash_of(kind: type[AnyJobRow], row: Any) -> str:
    """The hash over everything `row`, of table `kind`, says: attributes, or items of a dict."""
    names = (*HASHED[kind], *LATER.get(kind, ()))
    values = row if isinstance(row, dict) else {name: getattr(row, name) for name in names}
    later = [values[name] for name in LATER.get(kind, ()) if values.get(name) is not None]
    return row_hash([*(values[name] for name in HASHED[kind]), *later])


def is_intact_row(row: AnyJobRow) -> bool:
    """Whether the row is what was once written."""
    try:
        return hash_of(type(row), row) == row.row_sha256
    except (TypeError, ValueError):  # damage can turn a number into bytes
        return False


def job_of(row: JobRow | None) -> StoredJob | None:
    """The job of an intact row. A damaged one is not served: None, and a warning in the log."""
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
    """The events of the intact rows, in order."""
    found = []
    for row in rows:
        if is_intact_row(row):
            data = json.loads(row.data)
            found.append(JobEvent(row.id, row.job_id, row.kind, data, moment_of(row.created_at)))
        else:
            log.warning("event %s of job %s is damaged and left out", row.id, row.job_id)
    return found


def waiting_of(row: JobRow, owner: str = "") -> WaitingJob:
    """What a queue is ordered by."""
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
