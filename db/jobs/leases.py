"""Leases of jobs: each job is leased to one worker at a time, which ends the job or returns it.

Every lease increases the `epoch` of the job, and every write to the job states an epoch. A write
with an older epoch raises StaleLease. Records are not affected: late measurements are stored as
usual.

A lease is valid while `now < lease_until <= now + lease_secs` on the database's clock of leases. If
`lease_until` is later, the clock was set back or the machine was restarted after the lease was
made; the lease counts as expired.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from ..core.models import JobRow
from ..core.parts import StorePart, reading, writing
from ..errors import BadTransition, StaleLease, UnknownJob
from ..values.job_states import (
    LEASED,
    LOST_TOO_OFTEN,
    MAX_FAILURES,
    JobState,
    after_cancel_request,
    check_transition,
)
from ..values.jobs import JsonObject, StoredJob, WaitingJob
from ..values.moments import rfc3339
from .history import Event, note_event, note_state, note_trials, saved, served
from .owners import first_owners, withdraw_owner
from .rows import is_intact_row, text_of, waiting_of

log = logging.getLogger("tilewright.db")


class LeaseStore(StorePart):
    """The methods of a store that lease jobs, and the writes of the workers that hold the leases.

    A write whose acknowledgement was lost may be repeated: it takes effect once. Leases use
    `Database.lease_clock`: the server's clock, or the time since this machine was started.
    """

    @reading
    def job_queue(self, session: Session) -> list[WaitingJob]:
        """Return the intact jobs that `lease_job` may lease, by priority, then by arrival."""
        waiting = _is_free(self._lease_time(session))
        rows = session.scalars(
            select(JobRow)
            .where(waiting)
            .order_by(JobRow.priority.desc(), JobRow.arrival, JobRow.id)
        )
        owners = first_owners(session, select(JobRow.id).where(waiting))
        return [waiting_of(row, owners.get(row.id, "")) for row in rows if is_intact_row(row)]

    @writing
    def lease_job(
        self, session: Session, owner: str, lease_secs: float, *, job_id: str | None = None
    ) -> StoredJob | None:
        """Lease the next job to the worker `owner`, and return the job, or None if no job is free.
        A job is free if it waits or if its worker is gone. With `job_id`, lease only that job.

        Higher priority is leased first, then earlier arrival. A job with `MAX_FAILURES` failures is
        leased once more, so that its incumbent is published; a job with more becomes FAILED. A job
        in state CANCELLING whose worker is gone becomes CANCELLED.
        """
        now, clock = self._clock(), self._lease_time(session)
        self._end_hopeless(session, clock, now)
        waiting = _is_free(clock)
        if job_id is not None:
            waiting = and_(waiting, JobRow.id == job_id)
        passed_over: list[str] = []
        while True:
            first = (
                select(JobRow)
                .where(waiting, JobRow.id.not_in(passed_over))
                .order_by(JobRow.priority.desc(), JobRow.arrival, JobRow.id)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            chosen = session.scalars(first).one_or_none()
            if chosen is None:
                return None
            if not is_intact_row(chosen):
                log.warning("job %s is damaged and not run; run `tilewright db check`", chosen.id)
            elif chosen.state == JobState.QUEUED or self._still_over(session, chosen):
                break
            passed_over.append(chosen.id)
        chosen.state = JobState.RUNNING
        chosen.epoch += 1
        chosen.owner = owner
        chosen.lease_until, chosen.lease_secs = clock + lease_secs, float(lease_secs)
        chosen.started_at = chosen.started_at or rfc3339(now)
        note_state(session, chosen, now)
        return saved(session, chosen)

    @writing
    def renew_lease(
        self, session: Session, job_id: str, epoch: int, lease_secs: float
    ) -> StoredJob:
        """Extend the lease (heartbeat). If the returned job is CANCELLING, the caller must stop.
        Raise StaleLease if the lease was lost."""
        row = _held_row(session, job_id, epoch)
        clock = self._lease_time(session)
        row.lease_until, row.lease_secs = clock + lease_secs, float(lease_secs)
        return saved(session, row)

    @writing
    def release_job(self, session: Session, job_id: str, epoch: int) -> StoredJob:
        """Return an unfinished job to the queue, for another worker to continue; it becomes
        CANCELLED if its cancellation was requested. Raise StaleLease if the lease was lost."""
        now = self._clock()
        row = _held_row(session, job_id, epoch)
        if row.state == JobState.CANCELLING:
            return _end(session, row, JobState.CANCELLED, now)
        check_transition(row.id, JobState(row.state), JobState.QUEUED)
        row.state, row.owner, row.lease_until, row.lease_secs = JobState.QUEUED, None, None, None
        note_state(session, row, now)
        return saved(session, row)

    @writing
    def report_job(
        self,
        session: Session,
        job_id: str,
        epoch: int,
        *,
        trials: Sequence[tuple[int, str]] = (),
        candidates: Mapping[int, Sequence[int]] | None = None,
        events: Sequence[Event] = (),
        progress: JsonObject | None = None,
        failures: int | None = None,
    ) -> list[int]:
        """Store the progress of a job in one transaction; return the ids of the events.

        `trials` has pairs (trial, record_key); a repeated trial is stored once. `candidates` has
        the proposed candidate of each trial, `events` pairs (kind, data). `progress` replaces the
        job's. `failures` replaces the count of failures; a new trial sets the count to 0. Raise
        StaleLease if the lease was lost, NotRegistered if a record is not stored.
        """
        now = self._clock()
        row = _held_row(session, job_id, epoch)
        if note_trials(session, row, trials, candidates or {}):
            row.failures = 0
        if failures is not None:
            row.failures = failures
        numbers = [note_event(session, row, kind, data, now) for kind, data in events]
        if progress is not None:
            row.progress = text_of(progress)
        saved(session, row)
        return numbers

    @writing
    def finish_job(
        self,
        session: Session,
        job_id: str,
        epoch: int,
        state: JobState,
        *,
        result: JsonObject | None = None,
        error: JsonObject | None = None,
    ) -> StoredJob:
        """End the job. A repeated call with the same epoch and state changes nothing.

        Raise StaleLease if the lease was lost, BadTransition if the job cannot enter `state`,
        UnknownJob if it does not exist.
        """
        row = _row(session, job_id)
        if row.epoch == epoch and row.state == state and state.final:
            return served(row)
        if not state.final:
            raise BadTransition(f"job {job_id}: {state} is not an end of a job")
        row = _held_row(session, job_id, epoch)
        return _end(session, row, state, self._clock(), result=result, error=error)

    @writing
    def request_cancel(self, session: Session, job_id: str, owner: str | None = None) -> StoredJob:
        """Request the end of a job: a QUEUED job becomes CANCELLED immediately, a finished job is
        unchanged. Raise UnknownJob if the job does not exist.

        If the job has other owners than `owner`, `owner` only withdraws and the job continues; when
        the last owner withdraws, it stops. Raise NotAlone if the job does not belong to `owner`.
        """
        now = self._clock()
        row = _row(session, job_id)
        is_open = not JobState(row.state).final
        if owner is not None and is_open and withdraw_owner(session, job_id, owner, now):
            return served(row)
        state = after_cancel_request(JobState(row.state))
        if state == row.state:
            return served(row)
        if state.final:
            return _end(session, row, state, now)
        check_transition(row.id, JobState(row.state), state)
        row.state, row.flight_key = state, None
        note_state(session, row, now)
        return saved(session, row)

    def coordinate(self, *, blameless: bool = False) -> None:
        """Become the only coordinator of this database until `close`. Raise StoreHeld if another
        process is the coordinator.

        Only the coordinator leases jobs and does maintenance, and it prevents upgrades of the
        schema. All leases of the former coordinator are ended. `blameless` means that no job caused
        its end, so the failures of its jobs are decremented again.
        """
        lock = self._database.lock
        if lock.held:
            return
        lock.acquire(min(self._database.timeout_secs, 1.0), purpose=f"coordinate {self.name}")
        self._end_leases(blameless=blameless)

    def coordinates(self) -> bool:
        """Return whether this store is the coordinator now. A lost connection to a server ends this
        role; the worker then stops its jobs and calls `coordinate` again."""
        return self._database.lock.held

    @writing
    def _end_leases(self, session: Session, *, blameless: bool) -> None:
        """End every lease and increase the epochs, so that former holders cannot write."""
        leased = select(JobRow).where(JobRow.state.in_(LEASED)).with_for_update()
        for row in filter(is_intact_row, session.scalars(leased).all()):
            row.epoch += 1
            row.lease_until = 0.0
            row.failures = max(row.failures - blameless, 0)
            saved(session, row)

    def _end_hopeless(self, session: Session, clock: float, now: datetime) -> None:
        """End the jobs that lost their worker while CANCELLING, or lost too many workers."""
        lost = select(JobRow).where(_is_abandoned(clock)).with_for_update(skip_locked=True)
        for row in filter(is_intact_row, session.scalars(lost).all()):
            if not self._still_over(session, row):
                continue
            if row.state == JobState.CANCELLING:
                _end(session, row, JobState.CANCELLED, now)
            elif row.failures > MAX_FAILURES:
                _end(session, row, JobState.FAILED, now, error=LOST_TOO_OFTEN)

    def _still_over(self, session: Session, row: JobRow) -> bool:
        """Return whether the lease of a locked row has expired, by a new reading of the clock. A
        lease that was committed after the first reading would seem to be invalid by that reading.
        """
        return bool(is_over(row.lease_until, row.lease_secs, self._lease_time(session)))


def is_over(lease_until: Any, lease_secs: Any, clock: float) -> Any:
    """Return whether a lease has expired, as a bool or as a condition for columns. The lease is
    valid while clock < lease_until <= clock + lease_secs."""
    return (lease_until <= clock) | (lease_until > clock + lease_secs)


def _is_free(clock: float) -> ColumnElement[bool]:
    return or_(JobRow.state == JobState.QUEUED, _is_abandoned(clock))


def _is_abandoned(clock: float) -> ColumnElement[bool]:
    over = is_over(JobRow.lease_until, JobRow.lease_secs, clock)
    return and_(JobRow.state.in_(LEASED), over)


def _row(session: Session, job_id: str) -> JobRow:
    row = session.get(JobRow, job_id, with_for_update=True)
    if row is None:
        raise UnknownJob(f"job {job_id!r}: there is no such job")
    if not is_intact_row(row):
        raise UnknownJob(f"job {job_id}: its row is damaged; `tilewright db check` reports it")
    return row


def _held_row(session: Session, job_id: str, epoch: int) -> JobRow:
    """Return the row of a job. Raise StaleLease if the lease `epoch` has ended."""
    row = session.get(JobRow, job_id, with_for_update=True)
    if row is None:
        raise UnknownJob(f"job {job_id!r}: there is no such job")
    if not is_intact_row(row):
        raise StaleLease(f"job {job_id}: its row is damaged; stop working on it")
    if row.epoch != epoch or row.owner is None:
        raise StaleLease(
            f"job {job_id}: lease {epoch} has ended (the job is {row.state}, lease "
            f"{row.epoch}); stop working on it"
        )
    return row


def _end(
    session: Session,
    row: JobRow,
    state: JobState,
    now: datetime,
    *,
    result: JsonObject | None = None,
    error: JsonObject | None = None,
) -> StoredJob:
    check_transition(row.id, JobState(row.state), state)
    row.state, row.finished_at = state, rfc3339(now)
    row.result = None if result is None else text_of(result)
    row.error = None if error is None else text_of(error)
    row.owner = row.lease_until = row.lease_secs = row.flight_key = None
    note_state(session, row, now)
    return saved(session, row)
