"""The history of jobs: their events, in the order of the commits, and the records of their
trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewright.schedules.record import TuningRecord

from ..core.engine import insert_ignore
from ..core.models import JobEventRow, JobRow, JobTrialRow, RecordRow
from ..core.parts import StorePart, reading
from ..errors import NotRegistered
from ..records.rows import from_row
from ..values.jobs import JobEvent, JsonObject, StoredJob
from ..values.moments import rfc3339
from ..values.pages import MAX_PAGE
from .rows import events_of, hash_of, is_intact_row, job_of, text_of

Event = tuple[str, JsonObject]
"""The kind of an event, and its data."""


class HistoryStore(StorePart):
    """The methods of a store that read the events and trials of jobs."""

    @reading
    def events_after(
        self, session: Session, job_id: str, event_id: int = 0, limit: int = 100
    ) -> list[JobEvent]:
        """Return up to `limit` events after `event_id`, in order; `limit` is clamped to 1000."""
        limit = min(limit, MAX_PAGE)
        while True:
            statement = (
                select(JobEventRow)
                .where(JobEventRow.job_id == job_id, JobEventRow.id > event_id)
                .order_by(JobEventRow.id)
                .limit(limit)
            )
            rows = session.scalars(statement).all()
            found = events_of(rows)
            if found or len(rows) < limit:
                return found
            event_id = rows[-1].id  # every row of the page is damaged: read the next page

    @reading
    def changes_since(self, session: Session, event_id: int) -> tuple[set[str], int]:
        """Return the jobs with events after `event_id`, and the id of the newest event, or 0 if
        there is no event."""
        newest = session.scalar(select(func.max(JobEventRow.id))) or 0
        if newest <= event_id:
            return set(), newest
        later = select(JobEventRow.job_id).where(JobEventRow.id > event_id).distinct()
        return set(session.scalars(later)), newest

    @reading
    def begun_trials(self, session: Session, job_id: str) -> list[tuple[tuple[int, ...], str]]:
        """Return (candidate, record key) of the first trials of the job, in order. The list ends
        before the first trial that is missing, damaged, or stored without its candidate."""
        statement = (
            select(JobTrialRow).where(JobTrialRow.job_id == job_id).order_by(JobTrialRow.trial)
        )
        found: list[tuple[tuple[int, ...], str]] = []
        for row in session.scalars(statement).all():
            if row.trial != len(found) + 1 or row.candidate is None or not is_intact_row(row):
                break
            found.append((tuple(json.loads(row.candidate)), row.record_key))
        return found

    @reading
    def job_trials(
        self,
        session: Session,
        job_id: str,
        after: int = 0,
        limit: int = MAX_PAGE,
        workload_key: str = "",
    ) -> list[tuple[int, TuningRecord]]:
        """Return the job's trials numbered above `after`, in order, with their records; with a
        `workload_key`, only those of this workload."""
        statement = (
            select(JobTrialRow, RecordRow)
            .join(RecordRow, RecordRow.key == JobTrialRow.record_key)
            .where(
                JobTrialRow.job_id == job_id,
                JobTrialRow.trial > after,
                *of_workload(workload_key),
            )
            .order_by(JobTrialRow.trial)
            .limit(min(limit, MAX_PAGE))
        )
        pairs = [
            (link.trial, from_row(record))
            for link, record in session.execute(statement)
            if is_intact_row(link)
        ]
        return [(trial, record) for trial, record in pairs if record is not None]


def of_workload(workload_key: str) -> list[ColumnElement[bool]]:
    """Return the condition that a record is of this workload; none for ""."""
    return [RecordRow.workload_key == workload_key] if workload_key else []


def note_trials(
    session: Session,
    row: JobRow,
    trials: Sequence[tuple[int, str]],
    candidates: Mapping[int, Sequence[int]],
) -> int:
    """Store the record keys and the proposed candidates of trials; return how many are new."""
    rows: list[dict[str, Any]] = [
        {
            "job_id": row.id,
            "trial": trial,
            "record_key": key,
            "epoch": row.epoch,
            "candidate": json.dumps(list(candidates[trial])) if trial in candidates else None,
        }
        for trial, key in trials
    ]
    for link in rows:
        link["row_sha256"] = hash_of(JobTrialRow, link)
    try:
        return insert_ignore(session, JobTrialRow, rows)
    except IntegrityError as error:
        raise NotRegistered(
            f"job {row.id!r}: one of the records {[key for _, key in trials][:3]} is not stored"
        ) from error


def note_state(session: Session, row: JobRow, now: datetime) -> int:
    """Store the state of a job as an event; return the event's id."""
    return note_event(session, row, "state", {"state": str(row.state), "epoch": row.epoch}, now)


def note_event(session: Session, row: JobRow, kind: str, data: JsonObject, now: datetime) -> int:
    """Store an event and return its id. The caller has locked the job's row, so the ids of a job's
    events follow the order of commits."""
    event = JobEventRow(
        job_id=row.id, epoch=row.epoch, kind=kind, data=text_of(data), created_at=rfc3339(now)
    )
    event.row_sha256 = hash_of(JobEventRow, event)
    session.add(event)
    session.flush()
    return event.id


def saved(session: Session, row: JobRow) -> StoredJob:
    """Write a changed row with its new hash; return its job."""
    row.row_sha256 = hash_of(JobRow, row)
    session.flush()
    return served(row)


def served(row: JobRow) -> StoredJob:
    job = job_of(row)
    assert job is not None, "a row that was just checked or written"
    return job
