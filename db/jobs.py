"""Jobs: submitted once, joined by equal requests, and listed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session

from .engine import insert_ignore
from .errors import BadPageToken, IdempotencyConflict
from .job_history import note_state, saved, served
from .job_owners import TICKET_PRIORITY, JobQuota, OwnerRepository, of_owner, trials_left
from .job_rows import JsonObject, QueuePosition, StoredJob, hash_of, job_of, sound, text_of
from .job_states import LEASED, JobState
from .models import JobRequestRow, JobRow
from .moments import rfc3339
from .records import MAX_PAGE, Page
from .ulid import new_ulid

MAX_PRIORITY = 1000


class JobRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

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
    ) -> tuple[StoredJob, bool]:
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
            saved(self._session, row)
        if owner is not None:
            owners.add(row.id, owner)
        if idempotency_key is not None:
            self._note_key(idempotency_key, body_hash, row.id, now)
        return served(row), created

    def get(self, job_id: str) -> StoredJob | None:
        return job_of(self._session.get(JobRow, job_id))

    def is_seen_by(self, job_id: str, owner: str) -> bool:
        return OwnerRepository(self._session).sees(job_id, owner)

    def page(
        self, token: str | None, size: int, state: JobState | None, owner: str | None = None
    ) -> Page[StoredJob]:
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

    def oldest(self) -> dict[JobState, tuple[str, datetime]]:
        """The id of the oldest job in each state that is not final, and when it was asked for."""
        first = (
            select(JobRow.state, func.min(JobRow.id))
            .where(JobRow.state.in_([state for state in JobState if not state.final]))
            .group_by(JobRow.state)
        )
        ids = [job_id for _, job_id in self._session.execute(first)]
        rows = self._session.scalars(select(JobRow).where(JobRow.id.in_(ids)))
        jobs = [job for job in map(job_of, rows) if job is not None]
        return {job.state: (job.id, job.created_at) for job in jobs}

    def waiting(self, job_id: str) -> QueuePosition | None:
        """Where a QUEUED job stands; None if it does not wait."""
        row = self._session.get(JobRow, job_id)
        if row is None or row.state != JobState.QUEUED:
            return None
        before = or_(
            JobRow.priority > row.priority,
            and_(JobRow.priority == row.priority, JobRow.arrival < row.arrival),
        )
        queued = select(func.count()).where(JobRow.state == JobState.QUEUED, before)
        running = select(func.count()).where(JobRow.state.in_(LEASED))
        return QueuePosition(
            int(self._session.scalar(queued) or 0), int(self._session.scalar(running) or 0)
        )

    def _job_of_key(self, idempotency_key: str, body_hash: str) -> StoredJob | None:
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
        row.arrival = note_state(self._session, row, now)
        saved(self._session, row)
        return row
