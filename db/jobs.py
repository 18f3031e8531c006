"""Every query on jobs: submitted once, leased to one worker at a time, their events kept.

A worker's right to write to a job is its `epoch`: taking a job over raises it, and whatever the
former worker writes afterwards raises StaleLease. Records are no part of this: a measurement
that arrives late is stored like any other.

A lease is alive while `now < lease_until <= now + lease_secs` on the database's clock of leases:
one that lies further ahead than it was long was made before the clock was set back, or before the
machine was started again, and nobody waits for it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from schedules.record import TuningRecord

from .engine import insert_ignore
from .errors import (
    BadPageToken,
    BadTransition,
    IdempotencyConflict,
    NotRegistered,
    StaleLease,
    UnknownJob,
)
from .job_owners import TICKET_PRIORITY, JobQuota, OwnerRepository, of_owner, trials_left
from .job_rows import (
    Job,
    JobEvent,
    JsonObject,
    Waiting,
    WaitingJob,
    events_of,
    hash_of,
    job_of,
    sound,
    text_of,
    waiting_of,
)
from .job_states import (
    LOST_TOO_OFTEN,
    MAX_FAILURES,
    JobState,
    after_cancel_request,
    check_transition,
)
from .models import JobEventRow, JobRequestRow, JobRow, JobTrialRow, RecordRow
from .moments import rfc3339
from .records import MAX_PAGE, Page
from .rows import from_row
from .ulid import new_ulid

log = logging.getLogger("tilewright.db")

MAX_PRIORITY = 1000

Event = tuple[str, JsonObject]
_LEASED = (JobState.RUNNING, JobState.CANCELLING)


class JobRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session, lease_clock: Callable[[Session], float]) -> None:
        self._session = session
        self._lease_clock = lease_clock

    # Submitting and reading

    def create(
        self,
        request: JsonObject,
        *,
        idempotency_key: str | None,
        body_hash: str,
        flight_key: str,
        priority: int,
        now: datetime,
        entropy: Callable[[int], bytes],
        owner: str | None = None,
        quota: JobQuota | None = None,
    ) -> tuple[Job, bool]:
        """A job for `request`, and whether it is new. One at a time: see `Database.serialise`.

        The same idempotency key gives the same job for good (IdempotencyConflict for another
        body); an equal request (`flight_key`) gives the job in flight, raised to `priority`, and
        its `owner` is one more. QuotaReached for one that is new to its owner and too much for
        `quota`.
        """
        if idempotency_key is not None:
            known = self._job_of_key(idempotency_key, body_hash)
            if known is not None:
                return known, False
        row = self._in_flight(flight_key)
        created = row is None
        owners = OwnerRepository(self._session)
        if owner is not None and quota is not None:
            joins = row is not None and owners.has(row.id, owner)
            if not joins:
                owners.check_quota(owner, quota, trials_left(request, {}), priority)
            elif row is not None and row.priority <= TICKET_PRIORITY < priority:
                owners.check_quota(owner, quota, 0, priority)  # its trials wait already
        if row is None:
            row = self._new(request, flight_key, priority, now, entropy)
        elif priority > row.priority:
            row.priority = priority
            self._save(row)
        if owner is not None:
            owners.add(row.id, owner)
        if idempotency_key is not None:
            self._note_key(idempotency_key, body_hash, row.id, now)
        return _served(row), created

    def get(self, job_id: str) -> Job | None:
        return job_of(self._session.get(JobRow, job_id))

    def is_seen_by(self, job_id: str, owner: str) -> bool:
        return OwnerRepository(self._session).sees(job_id, owner)

    def page(
        self, token: str | None, size: int, state: JobState | None, owner: str | None = None
    ) -> Page[Job]:
        """Jobs (of `owner`, where given), newest first; damaged ones are left out."""
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
        jobs = (job_of(row) for row in rows[:size])
        return Page(tuple(job for job in jobs if job is not None), next_token)

    def counts(self) -> dict[JobState, int]:
        """How many jobs are in each state; every state is there."""
        statement = select(JobRow.state, func.count()).group_by(JobRow.state)
        found = {str(state): count for state, count in self._session.execute(statement)}
        return {state: found.get(str(state), 0) for state in JobState}

    def waiting(self, job_id: str) -> Waiting | None:
        """Where a QUEUED job stands; None if it does not wait."""
        row = self._session.get(JobRow, job_id)
        if row is None or row.state != JobState.QUEUED:
            return None
        before = or_(
            JobRow.priority > row.priority,
            and_(JobRow.priority == row.priority, JobRow.arrival < row.arrival),
        )
        queued = select(func.count()).where(JobRow.state == JobState.QUEUED, before)
        running = select(func.count()).where(JobRow.state.in_(_LEASED))
        return Waiting(
            int(self._session.scalar(queued) or 0), int(self._session.scalar(running) or 0)
        )

    # Working on a job

    def queue(self) -> list[WaitingJob]:
        """The sound jobs `lease` may give out, those of higher priority first, then by arrival."""
        clock = self._lease_clock(self._session)
        rows = self._session.scalars(
            select(JobRow)
            .where(or_(JobRow.state == JobState.QUEUED, _is_over(clock)))
            .order_by(JobRow.priority.desc(), JobRow.arrival, JobRow.id)
        )
        return [waiting_of(row) for row in rows if sound(row)]

    def lease(
        self, owner: str, lease_secs: float, now: datetime, job_id: str | None = None
    ) -> Job | None:
        """The job to work on next, now `owner`'s; None if idle: of those that wait or whose lease
        is over, one of the highest priority, and of these the first that came. With `job_id` that
        one or none.

        On the way, jobs whose worker vanished while it was cancelling are CANCELLED, and jobs
        with more than MAX_FAILURES failures are FAILED: they could not even be concluded.
        """
        clock = self._lease_clock(self._session)
        self._end_hopeless(clock, now)
        waiting = or_(JobRow.state == JobState.QUEUED, _is_over(clock))
        if job_id is not None:
            waiting = and_(waiting, JobRow.id == job_id)
        damaged: list[str] = []
        while True:
            first = (
                select(JobRow)
                .where(waiting, JobRow.id.not_in(damaged))
                .order_by(JobRow.priority.desc(), JobRow.arrival, JobRow.id)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            chosen = self._session.scalars(first).one_or_none()
            if chosen is None:
                return None
            if sound(chosen):
                break
            log.warning("job %s is damaged and not run; run `tilewright db check`", chosen.id)
            damaged.append(chosen.id)
        chosen.state = JobState.RUNNING
        chosen.epoch += 1
        chosen.owner = owner
        chosen.lease_until, chosen.lease_secs = clock + lease_secs, float(lease_secs)
        chosen.started_at = chosen.started_at or rfc3339(now)
        self._state_event(chosen, now)
        return self._save(chosen)

    def void_leases(self, *, blameless: bool = False) -> int:
        """End every lease: its holder is gone. How many there were.

        The epochs go up too, so that a former holder that does live cannot go on. `blameless`: it
        is known that no job was the reason.
        """
        rows = self._session.scalars(
            select(JobRow).where(JobRow.state.in_(_LEASED)).with_for_update()
        ).all()
        for row in filter(sound, rows):
            row.epoch += 1
            row.lease_until = 0.0
            row.failures = max(row.failures - blameless, 0)
            self._save(row)
        return len(rows)

    def renew(self, job_id: str, epoch: int, lease_secs: float) -> Job:
        """Keep the job for `lease_secs` more; its state tells whether to stop."""
        row = self._mine(job_id, epoch)
        clock = self._lease_clock(self._session)
        row.lease_until, row.lease_secs = clock + lease_secs, float(lease_secs)
        return self._save(row)

    def release(self, job_id: str, epoch: int, now: datetime) -> Job:
        """Give the job up unfinished: to the next worker, or CANCELLED if that was asked for."""
        row = self._mine(job_id, epoch)
        if row.state == JobState.CANCELLING:
            return self._end(row, JobState.CANCELLED, None, None, now)
        check_transition(row.id, JobState(row.state), JobState.QUEUED)
        row.state, row.owner, row.lease_until, row.lease_secs = JobState.QUEUED, None, None, None
        self._state_event(row, now)
        return self._save(row)

    def report(
        self,
        job_id: str,
        epoch: int,
        *,
        trials: Sequence[tuple[int, str]],
        candidates: Mapping[int, Sequence[int]],
        events: Sequence[Event],
        progress: JsonObject | None,
        failures: int | None,
        now: datetime,
    ) -> list[int]:
        """Note what has been done: trials and their records, events, progress. Ids of the events.

        A trial that was not noted before is progress: failures count from zero again, unless
        `failures` says what they are.
        """
        row = self._mine(job_id, epoch)
        if self._link(row, trials, candidates):
            row.failures = 0
        if failures is not None:
            row.failures = failures
        numbers = [self._event(row, kind, data, now) for kind, data in events]
        if progress is not None:
            row.progress = text_of(progress)
        self._save(row)
        return numbers

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
            return _served(row)
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
            return _served(row)
        if state.final:
            return self._end(row, state, None, None, now)
        check_transition(row.id, JobState(row.state), state)
        row.state, row.flight_key = state, None
        self._state_event(row, now)
        return self._save(row)

    # Events and trials

    def events_after(self, job_id: str, event_id: int, limit: int) -> list[JobEvent]:
        """Up to `limit` sound events of the job later than `event_id`, in order."""
        while True:
            statement = (
                select(JobEventRow)
                .where(JobEventRow.job_id == job_id, JobEventRow.id > event_id)
                .order_by(JobEventRow.id)
                .limit(limit)
            )
            rows = self._session.scalars(statement).all()
            found = events_of(rows)
            if found or len(rows) < limit:
                return found
            event_id = rows[-1].id  # a whole page of damaged ones: what follows them

    def changes_since(self, event_id: int) -> tuple[set[str], int]:
        """The jobs with events later than event `event_id`, and the id of the newest event."""
        newest = self._session.scalar(select(func.max(JobEventRow.id))) or 0
        if newest <= event_id:
            return set(), newest
        later = select(JobEventRow.job_id).where(JobEventRow.id > event_id).distinct()
        return set(self._session.scalars(later)), newest

    def begun(self, job_id: str) -> list[tuple[tuple[int, ...], str]]:
        """Candidate and record key of the trials from the first on, while rows are sound, have
        both, and none is missing."""
        statement = (
            select(JobTrialRow).where(JobTrialRow.job_id == job_id).order_by(JobTrialRow.trial)
        )
        found: list[tuple[tuple[int, ...], str]] = []
        for row in self._session.scalars(statement).all():
            if row.trial != len(found) + 1 or row.candidate is None or not sound(row):
                break
            found.append((tuple(json.loads(row.candidate)), row.record_key))
        return found

    def trials(self, job_id: str, after: int, limit: int) -> list[tuple[int, TuningRecord]]:
        """Trials numbered above `after`, in order, with their sound records."""
        statement = (
            select(JobTrialRow, RecordRow)
            .join(RecordRow, RecordRow.key == JobTrialRow.record_key)
            .where(JobTrialRow.job_id == job_id, JobTrialRow.trial > after)
            .order_by(JobTrialRow.trial)
            .limit(limit)
        )
        pairs = [
            (link.trial, from_row(record))
            for link, record in self._session.execute(statement)
            if sound(link)
        ]
        return [(trial, record) for trial, record in pairs if record is not None]

    # Within

    def _job_of_key(self, idempotency_key: str, body_hash: str) -> Job | None:
        """The job this key got, if the note of it and the job are sound."""
        known = self._session.get(JobRequestRow, idempotency_key)
        if known is None or not sound(known):
            return None
        if known.body_sha256 != body_hash:
            raise IdempotencyConflict(
                "this Idempotency-Key was already used for another request "
                f"(job {known.job_id}); send the same body, or a new key"
            )
        return self.get(known.job_id)

    def _note_key(self, idempotency_key: str, body_hash: str, job_id: str, now: datetime) -> None:
        values = {"body_sha256": body_hash, "job_id": job_id, "created_at": rfc3339(now)}
        values["row_sha256"] = hash_of(
            JobRequestRow, {"idempotency_key": idempotency_key, **values}
        )
        note = {"idempotency_key": idempotency_key, **values}
        if not insert_ignore(self._session, JobRequestRow, [note]):  # there, but damaged
            mended = update(JobRequestRow).where(JobRequestRow.idempotency_key == idempotency_key)
            self._session.execute(
                mended.values(values).execution_options(synchronize_session=False)
            )

    def _in_flight(self, flight_key: str) -> JobRow | None:
        """The job that equal requests join. A damaged one is nobody's to join: it steps aside."""
        wanted = select(JobRow).filter_by(flight_key=flight_key).with_for_update()
        row = self._session.scalars(wanted).one_or_none()
        if row is None or sound(row):
            return row
        aside = update(JobRow).where(JobRow.flight_key == flight_key).values(flight_key=None)
        self._session.execute(aside.execution_options(synchronize_session=False))
        self._session.expire(row)
        return None

    def _new(
        self,
        request: JsonObject,
        flight_key: str,
        priority: int,
        now: datetime,
        entropy: Callable[[int], bytes],
    ) -> JobRow:
        row = JobRow(
            id=new_ulid(now, entropy),
            state=JobState.QUEUED,
            priority=max(-MAX_PRIORITY, min(priority, MAX_PRIORITY)),
            arrival=0,
            request=text_of(request),
            flight_key=flight_key,
            progress=text_of({}),
            epoch=0,
            failures=0,
            created_at=rfc3339(now),
            row_sha256="",
        )
        self._session.add(row)
        self._session.flush()
        row.arrival = self._state_event(row, now)
        self._save(row)
        return row

    def _row(self, job_id: str) -> JobRow:
        row = self._session.get(JobRow, job_id, with_for_update=True)
        if row is None:
            raise UnknownJob(f"job {job_id!r}: there is no such job")
        if not sound(row):
            raise UnknownJob(f"job {job_id}: its row is damaged; `tilewright db check` tells of it")
        return row

    def _mine(self, job_id: str, epoch: int) -> JobRow:
        row = self._session.get(JobRow, job_id, with_for_update=True)
        if row is None:
            raise UnknownJob(f"job {job_id!r}: there is no such job")
        if not sound(row):
            raise StaleLease(f"job {job_id}: its row is damaged; stop working on it")
        if row.epoch != epoch or row.owner is None:
            raise StaleLease(
                f"job {job_id}: lease {epoch} has ended (the job is {row.state}, lease "
                f"{row.epoch}); stop working on it"
            )
        return row

    def _end_hopeless(self, clock: float, now: datetime) -> None:
        """End the jobs that lost their worker while cancelling, or too many workers in a row."""
        lost = select(JobRow).where(_is_over(clock)).with_for_update(skip_locked=True)
        for row in filter(sound, self._session.scalars(lost).all()):
            if row.state == JobState.CANCELLING:
                self._end(row, JobState.CANCELLED, None, None, now)
            elif row.failures > MAX_FAILURES:
                self._end(row, JobState.FAILED, None, LOST_TOO_OFTEN, now)

    def _end(
        self,
        row: JobRow,
        state: JobState,
        result: JsonObject | None,
        error: JsonObject | None,
        now: datetime,
    ) -> Job:
        check_transition(row.id, JobState(row.state), state)
        row.state, row.finished_at = state, rfc3339(now)
        row.result = None if result is None else text_of(result)
        row.error = None if error is None else text_of(error)
        row.owner = row.lease_until = row.lease_secs = row.flight_key = None
        self._state_event(row, now)
        return self._save(row)

    def _link(
        self,
        row: JobRow,
        trials: Sequence[tuple[int, str]],
        candidates: Mapping[int, Sequence[int]],
    ) -> int:
        """Note the records of trials; how many of them are new."""
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
            return insert_ignore(self._session, JobTrialRow, rows)
        except IntegrityError as error:
            raise NotRegistered(
                f"job {row.id!r}: one of the records {[key for _, key in trials][:3]} is not stored"
            ) from error

    def _state_event(self, row: JobRow, now: datetime) -> int:
        return self._event(row, "state", {"state": str(row.state), "epoch": row.epoch}, now)

    def _event(self, row: JobRow, kind: str, data: JsonObject, now: datetime) -> int:
        """Store an event and give its id. The job's row is locked: ids follow the commits."""
        event = JobEventRow(
            job_id=row.id, epoch=row.epoch, kind=kind, data=text_of(data), created_at=rfc3339(now)
        )
        event.row_sha256 = hash_of(JobEventRow, event)
        self._session.add(event)
        self._session.flush()
        return event.id

    def _save(self, row: JobRow) -> Job:
        row.row_sha256 = hash_of(JobRow, row)
        self._session.flush()
        return _served(row)


def _is_over(clock: float) -> ColumnElement[bool]:
    """Leased, but not by anybody who is still there."""
    return and_(
        JobRow.state.in_(_LEASED),
        or_(JobRow.lease_until <= clock, JobRow.lease_until > clock + JobRow.lease_secs),
    )


def _served(row: JobRow) -> Job:
    job = job_of(row)
    assert job is not None, "a row that was just checked or written"
    return job
