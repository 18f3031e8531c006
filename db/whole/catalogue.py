"""Read-only queries for the dashboard: jobs and bests by a search text, trials of one job.

The queries read only the displayed columns, and are fast enough to run every second. Damaged rows
are omitted; `check` reports them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Text, and_, cast, func, or_, select
from sqlalchemy.orm import Session

from tilewright.schedules.trace_document import trace_key

from ..core.hashes import RECORD, is_intact
from ..core.models import (
    BestRow,
    JobRow,
    JobTrialRow,
    RecordRow,
    TargetRow,
    WithdrawnRow,
    WorkloadRow,
)
from ..core.parts import StorePart, reading
from ..jobs.history import of_workload
from ..jobs.jobs import count_jobs
from ..jobs.owners import of_owner
from ..records.rows import from_row
from ..records.works import target_document, workload_entry
from ..values.job_states import JobState
from ..values.moments import moment_of, rfc3339
from ..values.pages import Page, bad_token, check_job_token, clamp_page_size
from ..values.whole import JobLine, KnownBest, TrialLine

_CHUNK = 200
_MOST_CHUNKS = 10
"""A search with few matches ends after this many chunks of rows; the page's token continues it."""


class Catalogue(StorePart):
    """Read-only queries for the dashboard."""

    @reading
    def jobs(
        self,
        session: Session,
        text: str = "",
        states: Collection[JobState] = (),
        page_token: str | None = None,
        page_size: int = 50,
        owner: str | None = None,
    ) -> Page[JobLine]:
        """Return jobs (of `owner`, if given) whose id, workload or CPU contains `text`, in one of
        `states` (any if empty), newest first.

        Raise BadPageToken if this list did not issue `page_token`.
        """
        check_job_token(page_token)
        text, size = text.strip().lower(), clamp_page_size(page_size)
        found: list[JobLine] = []
        last, more = page_token, True
        for _ in range(_MOST_CHUNKS if text else 1):
            limit = _CHUNK if text else size + 1
            rows = list(_job_rows(session, text, states, last, limit, owner))
            more = len(rows) == limit
            for identity, line in rows:
                if line is not None and _matches(line, text):
                    if len(found) == size:
                        return Page(tuple(found), last)
                    found.append(line)
                last = identity
            if not more:
                break
        return Page(tuple(found), last if more else None)

    @reading
    def job_counts(self, session: Session, owner: str | None = None) -> dict[JobState, int]:
        """Return the number of jobs (of `owner`, if given) in every state."""
        return count_jobs(session, owner)

    @reading
    def bests(
        self,
        session: Session,
        text: str = "",
        cpu: str = "",
        page_token: str | None = None,
        page_size: int = 50,
    ) -> Page[KnownBest]:
        """Return a page of bests, last moved first. `text` is the key of the workload or a part of
        its name. `cpu` is a part of the target's CPU name. Raise BadPageToken if `page_token` is
        invalid."""
        return _search_bests(
            session, text.strip(), cpu.strip().lower(), page_token, clamp_page_size(page_size)
        )

    @reading
    def trial_counts(self, session: Session, job_id: str) -> dict[str, int]:
        """Return the number of trials of the job by status."""
        statement = (
            select(RecordRow.status, func.count())
            .join(JobTrialRow, JobTrialRow.record_key == RecordRow.key)
            .where(JobTrialRow.job_id == job_id)
            .group_by(RecordRow.status)
        )
        return {str(status): int(count) for status, count in session.execute(statement)}

    @reading
    def fastest_trials(self, session: Session, job_id: str, count: int) -> list[TrialLine]:
        """Return the `count` fastest trials of the job."""
        timed = _trials_of(job_id).where(RecordRow.status == "ok")
        fastest = timed.order_by(RecordRow.estimate_secs, JobTrialRow.trial).limit(count)
        return [TrialLine(*row) for row in session.execute(fastest)]

    @reading
    def trials(
        self, session: Session, job_id: str, after: int, count: int, workload_key: str = ""
    ) -> list[TrialLine]:
        """Return up to `count` trials of the job with numbers above `after`, in order; with a
        `workload_key`, only those of this workload."""
        later = _trials_of(job_id).where(JobTrialRow.trial > after, *of_workload(workload_key))
        ordered = later.order_by(JobTrialRow.trial).limit(count)
        return [TrialLine(*row) for row in session.execute(ordered)]

    @reading
    def fastest_records(
        self,
        session: Session,
        workload_key: str,
        target_key: str,
        count: int,
        *,
        besides: list[Any],
    ) -> list[TrialLine]:
        """Return the `count` fastest records of exactly this task, verified records first. Each
        trace occurs once; the trace `besides` is omitted."""
        statement = (
            select(RecordRow)
            .where(
                RecordRow.workload_key == workload_key,
                RecordRow.target_key == target_key,
                RecordRow.status == "ok",
            )
            .order_by(RecordRow.verified_level, RecordRow.estimate_secs, RecordRow.id)
            .limit(2 * count + 2)  # a trace has up to two records: searched, verified in full
        )
        found: list[TrialLine] = []
        met = {trace_key(besides)}
        for row in session.scalars(statement):
            record = from_row(row)
            if record is not None and (trace := record.trace_key) not in met:
                met.add(trace)
                found.append(
                    TrialLine(
                        row.trial,
                        row.key,
                        row.status,
                        row.estimate_secs,
                        row.verified_level,
                        row.workload_key,
                    )
                )
        return found[:count]

    @reading
    def withdrawn(self, session: Session, record_key: str) -> str | None:
        """Return why this record is never served again, or None if it may be served."""
        return session.scalar(select(WithdrawnRow.reason).filter_by(record_key=record_key))


# Jobs


def _trials_of(job_id: str) -> Select[*tuple[Any, ...]]:
    """Return a query of a job's trials, with the columns of `TrialLine`."""
    return (
        select(
            JobTrialRow.trial,
            RecordRow.key,
            RecordRow.status,
            RecordRow.estimate_secs,
            RecordRow.verified_level,
            RecordRow.workload_key,
        )
        .join(RecordRow, RecordRow.key == JobTrialRow.record_key)
        .where(JobTrialRow.job_id == job_id)
    )


def _job_rows(
    session: Session,
    text: str,
    states: Collection[JobState],
    before: str | None,
    limit: int,
    owner: str | None,
) -> Iterator[tuple[str, JobLine | None]]:
    # Documents are read as text, so that a damaged document does not fail the query.
    columns: list[Any] = [
        JobRow.id,
        JobRow.state,
        cast(JobRow.request, Text),
        cast(JobRow.progress, Text),
        cast(JobRow.error, Text),
        JobRow.created_at,
        JobRow.started_at,
        JobRow.finished_at,
    ]
    statement = select(*columns).order_by(JobRow.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(JobRow.id < before)
    if owner is not None:
        statement = statement.where(of_owner(owner))
    if states:
        statement = statement.where(JobRow.state.in_(states))
    if text:
        # The whole document contains the text of its parts; `_matches` then compares the parts.
        written = json.dumps(text)[1:-1]
        document = func.lower(cast(JobRow.request, Text))
        statement = statement.where(
            or_(
                document.contains(written, autoescape=True),
                func.lower(JobRow.id).contains(text, autoescape=True),
            )
        )
    for row in session.execute(statement):
        job_id: str = row[0]
        yield job_id, _job_line(*row)


def _job_line(
    job_id: str, state: str, request: str, progress: str, error: str | None, *moments: Any
) -> JobLine | None:
    try:
        form = json.loads(request)
        created, started, finished = moments
        return JobLine(
            id=job_id,
            state=JobState(state),
            workload=form["workload_summary"],
            target=form["target_summary"],
            threads=form["threads"],
            trials=form["budget"]["trials"],
            measurer=form["measurer"],
            progress=json.loads(progress),
            error=json.loads(error) if error else None,
            created_at=moment_of(created),
            started_at=moment_of(started) if started else None,
            finished_at=moment_of(finished) if finished else None,
        )
    except (ValueError, TypeError, KeyError):
        return None


def _matches(line: JobLine, text: str) -> bool:
    places = (line.id, line.workload.get("name"), line.workload.get("key"), line.target.get("cpu"))
    return not text or any(text in str(place).lower() for place in places)


# Bests


def _search_bests(
    session: Session, text: str, cpu: str, token: str | None, size: int
) -> Page[KnownBest]:
    statement = (
        select(BestRow.moved_at, WorkloadRow, TargetRow, RecordRow)
        .join(WorkloadRow, WorkloadRow.key == BestRow.workload_key)
        .join(TargetRow, TargetRow.key == BestRow.target_key)
        .join(RecordRow, RecordRow.key == BestRow.record_key)
        .order_by(BestRow.moved_at.desc(), BestRow.record_key)
        .limit(size + 1)
    )
    if token is not None:
        moved_at, record_key = _best_token(token)
        earlier = BestRow.moved_at < moved_at
        same = and_(BestRow.moved_at == moved_at, BestRow.record_key > record_key)
        statement = statement.where(or_(earlier, same))
    if text:
        name = func.lower(WorkloadRow.name).contains(text.lower(), autoescape=True)
        statement = statement.where(or_(name, WorkloadRow.key == text.removeprefix("sha256:")))
    if cpu:
        document = func.lower(TargetRow.document)
        written = json.dumps(cpu)[1:-1]
        pattern = '%"cpu":"%' + _escaped(written) + '%","%'
        statement = statement.where(document.like(pattern, escape="\\"))
    rows = session.execute(statement).all()
    found = [_known_best(*row) for row in rows[:size]]
    next_token = None
    if len(rows) > size:
        moved_at, _, _, record = rows[size - 1]
        next_token = f"{rfc3339(moved_at)}_{record.key}"
    kept = [best for best in found if best is not None]
    kept = [best for best in kept if cpu in str(best.target.get("cpu", "")).lower()]
    return Page(tuple(kept), next_token)


def _known_best(
    moved_at: datetime, workload: WorkloadRow, target: TargetRow, record: RecordRow
) -> KnownBest | None:
    document, entry = target_document(target), workload_entry(workload)
    if document is None or entry is None or not is_intact(record, RECORD):
        return None
    if record.estimate_secs is None:
        return None
    return KnownBest(
        workload_key=entry.key,
        name=entry.name,
        flops=entry.flops,
        target_key=target.key,
        target=document,
        record_key=record.key,
        run_secs=record.estimate_secs,
        codegen_version=record.codegen_version,
        llvmlite=record.llvmlite,
        moved_at=moved_at,
    )


def _best_token(token: str) -> tuple[datetime, str]:
    moment, _, key = token.partition("_")
    try:
        return moment_of(moment), key
    except (ValueError, TypeError) as error:
        raise bad_token(token) from error


def _escaped(text: str) -> str:
    """Return `text` for LIKE with a backslash as its escape character."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
