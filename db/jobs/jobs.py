"""Jobs: submitted once, joined by equal requests, and listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from ..core.engine import insert_ignore
from ..core.models import JobRequestRow, JobRow
from ..core.parts import StorePart, reading, writing
from ..errors import IdempotencyConflict
from ..values.job_states import JobState
from ..values.jobs import TICKET_PRIORITY, JobQuota, JsonObject, Sharing, StoredJob
from ..values.moments import rfc3339
from ..values.pages import Page, check_job_token, clamp_page_size
from .history import note_state, saved, served
from .owners import add_owner, check_quota, is_seen_by, of_owner, sharing_of, trials_left
from .rows import hash_of, is_intact_row, job_of, text_of

MAX_PRIORITY = 1000
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class JobStore(StorePart):
    """The methods of a store that create, join and list jobs.

    **States.** `job_states.NEXT` is the table of states and transitions. Every change of state
    writes an event in the same transaction. Event ids increase over all jobs, and the events of one
    job become visible in the order of their ids, so a reader can resume after the last id that it
    received.

    **Damage.** A damaged job is not listed, leased or joined, and a damaged event or trial is
    omitted.
    """

    @writing
    def create_job(
        self,
        session: Session,
        request: JsonObject,
        *,
        body_hash: str,
        flight_key: str,
        idempotency_key: str | None = None,
        priority: int = 0,
        owner: str | None = None,
        quota: JobQuota | None = None,
    ) -> tuple[StoredJob, bool]:
        """Return the job for `request`, and whether it is new.

        A repeated `idempotency_key` returns the same job. A request with the `flight_key` of a job
        that is QUEUED or RUNNING joins this job, and raises its priority if its own is higher.
        `priority` is clamped to -1000..1000. `owner` becomes one of the job's owners. Raise
        IdempotencyConflict if the key was used for another body, QuotaReached if the job is new to
        `owner` and exceeds `quota`.
        """
        now = self._clock()
        self._database.serialise(session, "submit")
        if idempotency_key is not None:
            known = _job_of_key(session, idempotency_key, body_hash)
            if known is not None:
                return known, False
        job, created = create_job(
            session, request, flight_key, priority, now, self._entropy, owner, quota
        )
        if idempotency_key is not None:
            _note_key(session, idempotency_key, body_hash, job.id, now)
        return job, created

    @reading
    def get_job(self, session: Session, job_id: str) -> StoredJob | None:
        """Return the job as it is now, or None if it is unknown or damaged."""
        return job_of(session.get(JobRow, job_id))

    @reading
    def list_jobs(
        self,
        session: Session,
        page_token: str | None = None,
        page_size: int = 50,
        state: JobState | None = None,
        owner: str | None = None,
    ) -> Page[StoredJob]:
        """Return a page of jobs (of `owner`, if given), newest first; `page_size` is clamped to
        1..1000.

        Raise BadPageToken if this list did not issue `page_token`.
        """
        check_job_token(page_token)
        size = clamp_page_size(page_size)
        statement = select(JobRow).order_by(JobRow.id.desc()).limit(size + 1)
        if page_token is not None:
            statement = statement.where(JobRow.id < page_token)
        if state is not None:
            statement = statement.where(JobRow.state == state)
        if owner is not None:
            statement = statement.where(of_owner(owner))
        rows = session.scalars(statement).all()
        next_token = rows[size - 1].id if len(rows) > size else None
        jobs = (job_of(row) for row in rows[:size])
        return Page(tuple(job for job in jobs if job is not None), next_token)

    @reading
    def job_is_seen_by(self, session: Session, job_id: str, owner: str) -> bool:
        """Return whether `owner` may read the job: it is or was an owner, or the job is a
        ticket."""
        return is_seen_by(session, job_id, owner)

    @reading
    def job_sharing(self, session: Session, job_ids: Sequence[str]) -> dict[str, Sharing]:
        """Return the current and the withdrawn owners of each job."""
        return sharing_of(session, job_ids)

    @reading
    def job_counts(self, session: Session) -> dict[JobState, int]:
        """Return the number of jobs in each state; every state is listed."""
        return count_jobs(session)

    @reading
    def oldest_jobs(self, session: Session) -> dict[JobState, tuple[str, datetime]]:
        """Return the id and the time of submission of the oldest job of each open state."""
        first = (
            select(JobRow.state, func.min(JobRow.id))
            .where(JobRow.state.in_([state for state in JobState if not state.final]))
            .group_by(JobRow.state)
        )
        ids = [job_id for _, job_id in session.execute(first)]
        rows = session.scalars(select(JobRow).where(JobRow.id.in_(ids)))
        jobs = [job for job in map(job_of, rows) if job is not None]
        return {job.state: (job.id, job.created_at) for job in jobs}

    def is_cancel_requested(self, job_id: str) -> bool:
        """Return whether the job is CANCELLING or CANCELLED; False for an unknown job."""
        job = self.get_job(job_id)
        return job is not None and job.state in (JobState.CANCELLING, JobState.CANCELLED)


def create_job(
    session: Session,
    request: JsonObject,
    flight_key: str,
    priority: int,
    now: datetime,
    entropy: Callable[[int], bytes],
    owner: str | None,
    quota: JobQuota | None,
) -> tuple[StoredJob, bool]:
    """Do the work of `JobStore.create_job` without an idempotency key. The caller serialises
    writers (`Database.serialise`)."""
    row = _in_flight(session, flight_key)
    created = row is None
    if owner is not None and quota is not None:
        joins = row is not None and owner in sharing_of(session, [row.id])[row.id].asking
        if not joins:
            check_quota(session, owner, quota, trials_left(request, {}), priority)
        elif row is not None and row.priority <= TICKET_PRIORITY < priority:
            check_quota(session, owner, quota, 0, priority)  # its trials already count as waiting
    if row is None:
        row = _new_row(session, request, flight_key, priority, now, entropy)
    elif priority > row.priority:
        row.priority = priority
        saved(session, row)
    if owner is not None:
        add_owner(session, row.id, owner)
    return served(row), created


def count_jobs(session: Session, owner: str | None = None) -> dict[JobState, int]:
    """Return the number of jobs (of `owner`, if given) in each state; every state is listed."""
    statement = select(JobRow.state, func.count()).group_by(JobRow.state)
    if owner is not None:
        statement = statement.where(of_owner(owner))
    found = {str(state): int(count) for state, count in session.execute(statement)}
    return {state: found.get(str(state), 0) for state in JobState}


def new_ulid(now: datetime, entropy: Callable[[int], bytes]) -> str:
    """Return 26 characters that sort by their time of creation (github.com/ulid/spec): 48 bits of
    milliseconds since 1970, then 80 bits from `entropy(10)`, in base 32."""
    millis = int(now.timestamp() * 1000)
    number = (millis << 80) | int.from_bytes(entropy(10), "big")
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


def _job_of_key(session: Session, idempotency_key: str, body_hash: str) -> StoredJob | None:
    """Return the job that this key created, or None if it is unknown or damaged."""
    known = session.get(JobRequestRow, idempotency_key)
    if known is None or not is_intact_row(known):
        return None
    if known.body_sha256 != body_hash:
        raise IdempotencyConflict(
            "this Idempotency-Key was already used for another request "
            f"(job {known.job_id}); send the same body, or a new key"
        )
    return job_of(session.get(JobRow, known.job_id))


def _note_key(
    session: Session, idempotency_key: str, body_hash: str, job_id: str, now: datetime
) -> None:
    values = {"body_sha256": body_hash, "job_id": job_id, "created_at": rfc3339(now)}
    values["row_sha256"] = hash_of(JobRequestRow, {"idempotency_key": idempotency_key, **values})
    note = {"idempotency_key": idempotency_key, **values}
    if not insert_ignore(session, JobRequestRow, [note]):  # the row exists, but is damaged
        mended = update(JobRequestRow).where(JobRequestRow.idempotency_key == idempotency_key)
        session.execute(mended.values(values).execution_options(synchronize_session=False))


def _in_flight(session: Session, flight_key: str) -> JobRow | None:
    """Return the job that an equal request joins, or None. A damaged job loses its flight key."""
    wanted = select(JobRow).filter_by(flight_key=flight_key).with_for_update()
    row = session.scalars(wanted).one_or_none()
    if row is None or is_intact_row(row):
        return row
    aside = update(JobRow).where(JobRow.flight_key == flight_key).values(flight_key=None)
    session.execute(aside.execution_options(synchronize_session=False))
    session.expire(row)
    return None


def _new_row(
    session: Session,
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
    session.add(row)
    session.flush()
    row.arrival = note_state(session, row, now)
    saved(session, row)
    return row
