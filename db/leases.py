"""Who works on a job: each is leased to one worker at a time, which ends it or gives it up.

A worker's right to write to a job is its `epoch`: taking a job over raises it, and whatever the
former worker writes afterwards raises StaleLease. Records are no part of this: a measurement
that arrives late is stored like any other.

A lease is alive while `now < lease_until <= now + lease_secs` on the database's clock of leases:
one that lies further ahead than it was long was made before the clock was set back, or before the
machine was started again, and nobody waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from .errors import BadTransition, StaleLease, UnknownJob
from .job_history import Event, note_event, note_state, note_trials, saved, served
from .job_owners import OwnerRepository
from .job_rows import JsonObject, StoredJob, WaitingJob, sound, text_of, waiting_of
from .job_states import (
    LEASED,
    LOST_TOO_OFTEN,
    MAX_FAILURES,
    JobState,
    after_cancel_request,
    check_transition,
)
from .models import JobRow
from .moments import rfc3339

log = logging.getLogger("tilewright.db")


class LeaseRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session, lease_clock: Callable[[Session], float]) -> None:
        self._session = session
        self._lease_clock = lease_clock

    def queue(self) -> list[WaitingJob]:
        """The sound jobs `lease` may give out, those of higher priority first, then by arrival."""
        clock = self._lease_clock(self._session)
        waiting = or_(JobRow.state == JobState.QUEUED, _abandoned(clock))
        rows = self._session.scalars(
            select(JobRow)
            .where(waiting)
            .order_by(JobRow.priority.desc(), JobRow.arrival, JobRow.id)
        )
        owners = OwnerRepository(self._session).first_of(select(JobRow.id).where(waiting))
        return [waiting_of(row, owners.get(row.id, "")) for row in rows if sound(row)]

    def lease(
        self, owner: str, lease_secs: float, now: datetime, job_id: str | None = None
    ) -> StoredJob | None:
        """The job to work on next, now `owner`'s; None if idle: of those that wait or whose lease
        is over, one of the highest priority, and of these the first that came. With `job_id` that
        one or none.

        On the way, jobs whose worker vanished while it was cancelling are CANCELLED, and jobs
        with more than MAX_FAILURES failures are FAILED: they could not even be concluded.
        """
        clock = self._lease_clock(self._session)
        self._end_hopeless(clock, now)
        waiting = or_(JobRow.state == JobState.QUEUED, _abandoned(clock))
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
            chosen = self._session.scalars(first).one_or_none()
            if chosen is None:
                return None
            if not sound(chosen):
                log.warning("job %s is damaged and not run; run `tilewright db check`", chosen.id)
            elif chosen.state == JobState.QUEUED or self._still_over(chosen):
                break
            passed_over.append(chosen.id)
        chosen.state = JobState.RUNNING
        chosen.epoch += 1
        chosen.owner = owner
        chosen.lease_until, chosen.lease_secs = clock + lease_secs, float(lease_secs)
        chosen.started_at = chosen.started_at or rfc3339(now)
        note_state(self._session, chosen, now)
        return saved(self._session, chosen)

    def void_leases(self, *, blameless: bool = False) -> int:
        """End every lease: its holder is gone. How many there were.

        The epochs go up too, so that a former holder that does live cannot go on. `blameless`: it
        is known that no job was the reason.
        """
        rows = self._session.scalars(
            select(JobRow).where(JobRow.state.in_(LEASED)).with_for_update()
        ).all()
        for row in filter(sound, rows):
            row.epoch += 1
            row.lease_until = 0.0
            row.failures = max(row.failures - blameless, 0)
            saved(self._session, row)
        return len(rows)

    def renew(self, job_id: str, epoch: int, lease_secs: float) -> StoredJob:
        """Keep the job for `lease_secs` more; its state tells whether to stop."""
        row = self._mine(job_id, epoch)
        clock = self._lease_clock(self._session)
        row.lease_until, row.lease_secs = clock + lease_secs, float(lease_secs)
        return saved(self._session, row)

    def release(self, job_id: str, epoch: int, now: datetime) -> StoredJob:
        """Give the job up unfinished: to the next worker, or CANCELLED if that was asked for."""
        row = self._mine(job_id, epoch)
        if row.state == JobState.CANCELLING:
            return self._end(row, JobState.CANCELLED, None, None, now)
        check_transition(row.id, JobState(row.state), JobState.QUEUED)
        row.state, row.owner, row.lease_until, row.lease_secs = JobState.QUEUED, None, None, None
        note_state(self._session, row, now)
        return saved(self._session, row)

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
        if note_trials(self._session, row, trials, candidates):
            row.failures = 0
        if failures is not None:
            row.failures = failures
        numbers = [note_event(self._session, row, kind, data, now) for kind, data in events]
        if progress is not None:
            row.progress = text_of(progress)
        saved(self._session, row)
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
    ) -> StoredJob:
        """End the job. Doing so again in the same epoch and state changes nothing."""
        row = self._row(job_id)
        if row.epoch == epoch and row.state == state and state.final:
            return served(row)
        if not state.final:
            raise BadTransition(f"job {job_id}: {state} is not an end of a job")
        row = self._mine(job_id, epoch)
        return self._end(row, state, result, error, now)

    def request_cancel(self, job_id: str, now: datetime, owner: str | None = None) -> StoredJob:
        """Ask the job to stop; one nobody works on stops at once, a finished one stays as it is.

        An `owner` of a job that others wait for too only withdraws from it: it goes on for them.
        NotAlone if it is none of `owner`'s.
        """
        row = self._row(job_id)
        if owner is not None and not JobState(row.state).final:
            owners = OwnerRepository(self._session)
            if owners.withdraw(job_id, owner, now):
                return served(row)
        state = after_cancel_request(JobState(row.state))
        if state == row.state:
            return served(row)
        if state.final:
            return self._end(row, state, None, None, now)
        check_transition(row.id, JobState(row.state), state)
        row.state, row.flight_key = state, None
        note_state(self._session, row, now)
        return saved(self._session, row)

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
        lost = select(JobRow).where(_abandoned(clock)).with_for_update(skip_locked=True)
        for row in filter(sound, self._session.scalars(lost).all()):
            if not self._still_over(row):
                continue
            if row.state == JobState.CANCELLING:
                self._end(row, JobState.CANCELLED, None, None, now)
            elif row.failures > MAX_FAILURES:
                self._end(row, JobState.FAILED, None, LOST_TOO_OFTEN, now)

    def _still_over(self, row: JobRow) -> bool:
        """Whether the lease of a row that is locked is over.

        A server shows what others committed after our reading of the clock: such a lease is too
        far ahead for that reading, and none of a clock that was set back.
        """
        return bool(_is_over(row.lease_until, row.lease_secs, self._lease_clock(self._session)))

    def _end(
        self,
        row: JobRow,
        state: JobState,
        result: JsonObject | None,
        error: JsonObject | None,
        now: datetime,
    ) -> StoredJob:
        check_transition(row.id, JobState(row.state), state)
        row.state, row.finished_at = state, rfc3339(now)
        row.result = None if result is None else text_of(result)
        row.error = None if error is None else text_of(error)
        row.owner = row.lease_until = row.lease_secs = row.flight_key = None
        note_state(self._session, row, now)
        return saved(self._session, row)


def _abandoned(clock: float) -> ColumnElement[bool]:
    """Leased, but not by anybody who is still there."""
    over = _is_over(JobRow.lease_until, JobRow.lease_secs, clock)
    return and_(JobRow.state.in_(LEASED), over)


def _is_over(lease_until: Any, lease_secs: Any, clock: float) -> Any:
    """By the rule of the module; of the columns of a row or of their values."""
    return (lease_until <= clock) | (lease_until > clock + lease_secs)
