"""Jobs as rows: submitted once, leased to one worker at a time, their events kept.

A worker's right to write to a job is its `epoch`: taking a job over raises it, and whatever the
former worker writes afterwards raises StaleLease. Records are no part of this: a measurement
that arrives late is stored like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from schedules.record import TuningRecord, canonical_bytes

from .engine import changed, insert_ignore
from .errors import (
    BadPageToken,
    BadTransition,
    IdempotencyConflict,
    NotRegistered,
    StaleLease,
    UnknownJob,
)
from .job_owners import JobQuota, OwnerRepository, of_owner, trials_left
from .job_states import JobState, after_cancel_request, check_transition
from .models import JobEventRow, JobRequestRow, JobRow, JobTrialRow, RecordRow
from .records import MAX_PAGE, Page
from .rows import from_row
from .ulid import new_ulid

JsonObject = dict[str, Any]

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
MAX_TAKEOVERS = 3
LOST_TOO_OFTEN: JsonObject = {
    "code": "lost_too_often",
    "detail": f"{MAX_TAKEOVERS + 1} workers in a row disappeared while running this job, "
    "without a new trial",
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was when read. `epoch` counts leases; writers hand it back."""

    id: str
    state: JobState
    request: JsonObject
    progress: JsonObject
    result: JsonObject | None
    error: JsonObject | None
    owner: str | None
    lease_until: datetime | None
    epoch: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def done(self) -> bool:
        return self.state.final


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job nobody works on. `lost`: its worker disappeared."""

    id: str
    trials: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One thing that happened. `id` grows over all jobs: the event id of the stream."""

    id: int
    job_id: str
    kind: str
    data: JsonObject
    created_at: datetime


class JobRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # Submitting and reading

    def create(
        self,
        request: JsonObject,
        *,
        idempotency_key: str | None,
        body_hash: str,
        flight_key: str,
        now: datetime,
        entropy: Callable[[int], bytes],
        owner: str | None = None,
        quota: JobQuota | None = None,
    ) -> tuple[Job, bool]:
        """A job for `request`, and whether it is new.

        The same idempotency key gives the same job for good (IdempotencyConflict for another
        body); an equal request (`flight_key`) gives the job in flight, and its `owner` is one
        more. QuotaReached for one that is new to its owner and too much for `quota`.
        """
        if idempotency_key is not None:
            known = self._session.get(JobRequestRow, idempotency_key)
            if known is not None:
                if known.body_sha256 != body_hash:
                    raise IdempotencyConflict(
                        f"Idempotency-Key {idempotency_key!r}: already used for another request "
                        f"(job {known.job_id}); send the same body, or a new key"
                    )
                return _job(self._row(known.job_id)), False
        row = self._session.scalars(select(JobRow).filter_by(flight_key=flight_key)).one_or_none()
        created = row is None
        owners = OwnerRepository(self._session)
        if (
            owner is not None
            and quota is not None
            and (row is None or not owners.has(row.id, owner))
        ):
            owners.check_quota(owner, quota, trials_left(request, {}))
        if row is None:
            row = JobRow(
                id=new_ulid(now, entropy),
                state=JobState.QUEUED,
                request=_checked(request),
                flight_key=flight_key,
                progress={},
                epoch=0,
                takeovers=0,
                created_at=now,
            )
            self._session.add(row)
            self._session.flush()
            self._state_event(row, now)
        if owner is not None:
            owners.add(row.id, owner)
        if idempotency_key is not None:
            note = {"idempotency_key": idempotency_key, "body_sha256": body_hash}
            insert_ignore(
                self._session, JobRequestRow, [note | {"job_id": row.id, "created_at": now}]
            )
        return _job(row), created

    def get(self, job_id: str) -> Job | None:
        row = self._session.get(JobRow, job_id)
        return None if row is None else _job(row)

    def has_owner(self, job_id: str, owner: str) -> bool:
        return OwnerRepository(self._session).has(job_id, owner)

    def page(
        self, token: str | None, size: int, state: JobState | None, owner: str | None = None
    ) -> Page[Job]:
        """Jobs (of `owner`, where given), newest first."""
        size = max(1, min(size, MAX_PAGE))
        statement = select(JobRow).order_by(JobRow.id.desc()).limit(size + 1)
        if token is not None:
            if not (len(token) == 26 and token.isascii() and token.isalnum()):
                raise BadPageToken(f"page token {token!r}: give the next_token of the page before")
            statement = statement.where(JobRow.id < token)
        if state is not None:
            statement = statement.where(JobRow.state == state)
        if owner is not None:
            statement = statement.where(of_owner(owner))
        rows = self._session.scalars(statement).all()
        next_token = rows[size - 1].id if len(rows) > size else None
        return Page(tuple(_job(row) for row in rows[:size]), next_token)

    def counts(self) -> dict[JobState, int]:
        """How many jobs are in each state; every state is there."""
        statement = select(JobRow.state, func.count()).group_by(JobRow.state)
        found = {JobState(state): count for state, count in self._session.execute(statement)}
        return {state: found.get(state, 0) for state in JobState}

    # Working on a job

    def lease(
        self, owner: str, lease_secs: float, now: datetime, job_id: str | None = None
    ) -> Job | None:
        """The oldest job that waits or whose worker's lease ran out, now `owner`'s; None if idle.
        With `job_id` only that one will do.

        On the way, jobs whose worker vanished while it was cancelling are CANCELLED, and jobs
        that lost MAX_TAKEOVERS workers before are FAILED.
        """
        expired = _expired(now)
        for row in self._session.scalars(select(JobRow).where(expired)):
            if row.state == JobState.CANCELLING:
                self._end(row, JobState.CANCELLED, None, None, now)
            elif row.takeovers >= MAX_TAKEOVERS:
                self._end(row, JobState.FAILED, None, LOST_TOO_OFTEN, now)
        waiting = or_(JobRow.state == JobState.QUEUED, expired)
        oldest = select(JobRow).where(waiting).order_by(JobRow.id).limit(1)
        if job_id is not None:
            oldest = oldest.where(JobRow.id == job_id)
        chosen = self._session.scalars(oldest.with_for_update(skip_locked=True)).one_or_none()
        if chosen is None:
            return None
        chosen.takeovers += chosen.state == JobState.RUNNING
        chosen.state = JobState.RUNNING
        chosen.epoch += 1
        chosen.owner = owner
        chosen.lease_until = now + timedelta(seconds=lease_secs)
        chosen.started_at = chosen.started_at or now
        self._state_event(chosen, now)
        return _job(chosen)

    def waiting(self, now: datetime) -> list[WaitingJob]:
        """The jobs `lease` may give out, oldest first."""
        trials = JobRow.request["budget"]["trials"].as_integer()
        statement = (
            select(JobRow.id, trials, JobRow.state == JobState.QUEUED)
            .where(or_(JobRow.state == JobState.QUEUED, _expired(now)))
            .order_by(JobRow.id)
        )
        return [
            WaitingJob(job_id, count or 0, lost=not queued)
            for job_id, count, queued in self._session.execute(statement)
        ]

    def end_leases(self) -> int:
        """End every lease now; how many there were."""
        leased = update(JobRow).where(JobRow.lease_until.is_not(None))
        return changed(
            self._session.execute(
                leased.values(lease_until=LONG_AGO).execution_options(synchronize_session=False)
            )
        )

    def renew(self, job_id: str, epoch: int, lease_secs: float, now: datetime) -> Job:
        """Keep the job for `lease_secs` more; its state tells whether to stop."""
        row = self._mine(job_id, epoch)
        row.lease_until = now + timedelta(seconds=lease_secs)
        self._session.flush()
        return _job(row)

    def release(self, job_id: str, epoch: int, now: datetime) -> Job:
        """Give the job up unfinished: to the next worker, or CANCELLED if that was asked for."""
        row = self._mine(job_id, epoch)
        if row.state == JobState.CANCELLING:
            return self._end(row, JobState.CANCELLED, None, None, now)
        check_transition(row.id, JobState(row.state), JobState.QUEUED)
        row.state, row.owner, row.lease_until = JobState.QUEUED, None, None
        self._state_event(row, now)
        self._session.flush()
        return _job(row)

    def set_progress(self, job_id: str, epoch: int, progress: JsonObject) -> None:
        self._mine(job_id, epoch).progress = _checked(progress)
        self._session.flush()

    def got_on(self, job_id: str) -> None:
        """The job has new trials: workers that were lost before no longer count against it."""
        self._row(job_id).takeovers = 0
        self._session.flush()

    def finish(
        self,
        job_id: str,
        epoch: int,
        state: JobState,
        *,
        result: JsonObject | None,
        error: JsonObject | None,
        now: datetime,
    ) -> Job:
        """End the job. Doing so again in the same epoch and state changes nothing."""
        row = self._row(job_id)
        if row.epoch == epoch and row.state == state and state.final:
            return _job(row)
        if not state.final:
            raise BadTransition(f"job {job_id}: {state} is not an end of a job")
        row = self._mine(job_id, epoch)
        return self._end(row, state, result, error, now)

    def request_cancel(self, job_id: str, now: datetime, owner: str | None = None) -> Job:
        """Ask the job to stop; one nobody works on stops at once, a finished one stays as it is.

        NotAlone if `owner` asks and others wait for the job too.
        """
        row = self._row(job_id)
        if owner is not None and not JobState(row.state).final:
            OwnerRepository(self._session).check_alone(job_id, owner)
        state = after_cancel_request(JobState(row.state))
        if state == row.state:
            return _job(row)
        if state.final:
            return self._end(row, state, None, None, now)
        check_transition(row.id, JobState(row.state), state)
        row.state, row.flight_key = state, None
        self._state_event(row, now)
        self._session.flush()
        return _job(row)

    # Events and trials

    def append_event(self, job_id: str, kind: str, data: JsonObject, now: datetime) -> int:
        """Store an event and give its id."""
        row = JobEventRow(job_id=job_id, kind=kind, data=_checked(data), created_at=now)
        self._session.add(row)
        try:
            self._session.flush()
        except IntegrityError as error:
            raise UnknownJob(f"job {job_id!r}: there is no such job") from error
        return row.id

    def events_after(self, job_id: str, event_id: int, limit: int) -> list[JobEvent]:
        """Up to `limit` events of the job later than `event_id`, in order."""
        statement = (
            select(JobEventRow)
            .where(JobEventRow.job_id == job_id, JobEventRow.id > event_id)
            .order_by(JobEventRow.id)
            .limit(limit)
        )
        return [
            JobEvent(row.id, row.job_id, row.kind, row.data, row.created_at)
            for row in self._session.scalars(statement)
        ]

    def last_event_id(self) -> int:
        return self._session.scalar(select(func.max(JobEventRow.id))) or 0

    def changes_since(self, event_id: int) -> tuple[set[str], int]:
        newest = self.last_event_id()
        if newest <= event_id:
            return set(), newest
        later = select(JobEventRow.job_id).where(JobEventRow.id > event_id).distinct()
        return set(self._session.scalars(later)), newest

    def link_trials(self, job_id: str, trials: Sequence[tuple[int, str]]) -> None:
        """Note which records the job's trials ended in: (trial, record_key), each once."""
        rows = [{"job_id": job_id, "trial": t, "record_key": key} for t, key in trials]
        try:
            insert_ignore(self._session, JobTrialRow, rows)
        except IntegrityError as error:
            raise NotRegistered(
                f"job {job_id!r}: the job or one of the records {[key for _, key in trials][:3]} "
                "is not stored"
            ) from error

    def trials(self, job_id: str, after: int, limit: int) -> list[tuple[int, TuningRecord]]:
        """Trials numbered above `after`, in order, with their sound records."""
        statement = (
            select(JobTrialRow.trial, RecordRow)
            .join(RecordRow, RecordRow.key == JobTrialRow.record_key)
            .where(JobTrialRow.job_id == job_id, JobTrialRow.trial > after)
            .order_by(JobTrialRow.trial)
            .limit(limit)
        )
        pairs = [(trial, from_row(row)) for trial, row in self._session.execute(statement)]
        return [(trial, record) for trial, record in pairs if record is not None]

    # Within

    def _row(self, job_id: str) -> JobRow:
        row = self._session.get(JobRow, job_id, with_for_update=True)
        if row is None:
            raise UnknownJob(f"job {job_id!r}: there is no such job")
        return row

    def _mine(self, job_id: str, epoch: int) -> JobRow:
        row = self._row(job_id)
        if row.epoch != epoch or row.owner is None:
            raise StaleLease(
                f"job {job_id}: lease {epoch} has ended (the job is {row.state}, lease "
                f"{row.epoch}); stop working on it"
            )
        return row

    def _end(
        self,
        row: JobRow,
        state: JobState,
        result: JsonObject | None,
        error: JsonObject | None,
        now: datetime,
    ) -> Job:
        check_transition(row.id, JobState(row.state), state)
        row.state, row.finished_at = state, now
        row.result = None if result is None else _checked(result)
        row.error = None if error is None else _checked(error)
        row.owner = row.lease_until = row.flight_key = None
        self._state_event(row, now)
        self._session.flush()
        return _job(row)

    def _state_event(self, row: JobRow, now: datetime) -> None:
        data: JsonObject = {"state": str(row.state), "epoch": row.epoch}
        self._session.add(JobEventRow(job_id=row.id, kind="state", data=data, created_at=now))
        self._session.flush()


def _expired(now: datetime) -> ColumnElement[bool]:
    """Jobs whose worker's lease ran out."""
    return and_(JobRow.state.in_([JobState.RUNNING, JobState.CANCELLING]), JobRow.lease_until < now)


def _checked(document: JsonObject) -> JsonObject:
    """The document; ValueError or TypeError here, not from deep within, if it is not JSON data."""
    canonical_bytes(document)
    return document


def _job(row: JobRow) -> Job:
    return Job(
        id=row.id,
        state=JobState(row.state),
        request=row.request,
        progress=row.progress,
        result=row.result,
        error=row.error,
        owner=row.owner,
        lease_until=row.lease_until,
        epoch=row.epoch,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
