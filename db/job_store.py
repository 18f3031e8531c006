"""`JobStore`: the calls on jobs, each in a transaction of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from schedules.record import TuningRecord

from .engine import Database
from .job_owners import JobQuota
from .job_states import JobState
from .jobs import Job, JobEvent, JobRepository, JsonObject, WaitingJob
from .records import MAX_PAGE, Page

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time of day, for a store that is given no other clock."""
    return datetime.now(UTC)


class JobStore:
    """Safe to call from any thread. Each call is one transaction; `JobRepository` has the rules."""

    def __init__(
        self,
        database: Database,
        clock: Clock = utc_now,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._database = database
        self._clock = clock
        self._entropy = entropy

    def create_job(
        self,
        request: JsonObject,
        *,
        body_hash: str,
        flight_key: str,
        idempotency_key: str | None = None,
        owner: str | None = None,
        quota: JobQuota | None = None,
    ) -> tuple[Job, bool]:
        """The job for `request`, and whether it is new.

        The same idempotency key gives the same job for good; an equal request (`flight_key`)
        joins the job that is QUEUED or RUNNING; `owner` becomes one of the job's owners.
        IdempotencyConflict: key used for another body. QuotaReached: `owner` has too much open.
        """
        with self._database.writing() as session:
            return JobRepository(session).create(
                request,
                idempotency_key=idempotency_key,
                body_hash=body_hash,
                flight_key=flight_key,
                owner=owner,
                quota=quota,
                now=self._clock(),
                entropy=self._entropy,
            )

    def get_job(self, job_id: str) -> Job | None:
        with self._database.reading() as session:
            return JobRepository(session).get(job_id)

    def list_jobs(
        self,
        page_token: str | None = None,
        page_size: int = 50,
        state: JobState | None = None,
        owner: str | None = None,
    ) -> Page[Job]:
        """Jobs (of `owner`, where given), newest first; `page_size` is cut to 1..1000.

        BadPageToken.
        """
        with self._database.reading() as session:
            return JobRepository(session).page(page_token, page_size, state, owner)

    def job_has_owner(self, job_id: str, owner: str) -> bool:
        """Whether `owner` asked for the job."""
        with self._database.reading() as session:
            return JobRepository(session).has_owner(job_id, owner)

    def job_counts(self) -> dict[JobState, int]:
        """How many jobs are in each state; every state is there."""
        with self._database.reading() as session:
            return JobRepository(session).counts()

    def lease_job(
        self,
        owner: str,
        lease_secs: float,
        now: datetime | None = None,
        *,
        job_id: str | None = None,
    ) -> Job | None:
        """The oldest job that waits or that its worker lost, now `owner`'s; None if there is none.

        With `job_id` only that one will do. Its `epoch` is the caller's right to write to it until
        another lease is given out.
        """
        now = now or self._clock()
        with self._database.writing() as session:
            return JobRepository(session).lease(owner, lease_secs, now, job_id)

    def waiting_jobs(self) -> list[WaitingJob]:
        """The jobs that `lease_job` may give out, oldest first."""
        with self._database.reading() as session:
            return JobRepository(session).waiting(self._clock())

    def end_leases(self) -> int:
        """Declare every lease over, and how many were: for the coordinator when it begins, since
        whoever had them is gone. Their jobs can be leased at once."""
        with self._database.writing() as session:
            return JobRepository(session).end_leases()

    def last_event_id(self) -> int:
        """The id of the newest event of any job, 0 if there is none: it grows with every change."""
        with self._database.reading() as session:
            return JobRepository(session).last_event_id()

    def changes_since(self, event_id: int) -> tuple[set[str], int]:
        """The jobs with events later than event `event_id`, and the id of the newest event."""
        with self._database.reading() as session:
            return JobRepository(session).changes_since(event_id)

    def note_trials(
        self,
        job_id: str,
        epoch: int,
        *,
        trials: Sequence[tuple[int, str]],
        events: Sequence[JsonObject],
        progress: JsonObject | None,
    ) -> None:
        """`link_trials`, a "trial" event for each of `events` and `update_progress`, in one
        transaction. StaleLease, NotRegistered."""
        with self._database.writing() as session:
            repository, now = JobRepository(session), self._clock()
            if progress is not None:
                repository.set_progress(job_id, epoch, progress)
            repository.link_trials(job_id, trials)
            for data in events:
                repository.append_event(job_id, "trial", data, now)
            if events:
                repository.got_on(job_id)

    def renew_lease(
        self, job_id: str, epoch: int, lease_secs: float, now: datetime | None = None
    ) -> Job:
        """Heartbeat: keep the job; state CANCELLING asks the caller to stop. StaleLease."""
        now = now or self._clock()
        with self._database.writing() as session:
            return JobRepository(session).renew(job_id, epoch, lease_secs, now)

    def release_job(self, job_id: str, epoch: int) -> Job:
        """Give an unfinished job back, for another worker to continue. StaleLease."""
        with self._database.writing() as session:
            return JobRepository(session).release(job_id, epoch, self._clock())

    def update_progress(self, job_id: str, epoch: int, progress: JsonObject) -> None:
        """Replace the job's progress document. StaleLease."""
        with self._database.writing() as session:
            JobRepository(session).set_progress(job_id, epoch, progress)

    def finish_job(
        self,
        job_id: str,
        epoch: int,
        state: JobState,
        *,
        result: JsonObject | None = None,
        error: JsonObject | None = None,
    ) -> Job:
        """End the job; again in the same epoch and state it changes nothing.

        StaleLease, BadTransition, UnknownJob.
        """
        with self._database.writing() as session:
            repository = JobRepository(session)
            return repository.finish(
                job_id, epoch, state, result=result, error=error, now=self._clock()
            )

    def request_cancel(self, job_id: str, owner: str | None = None) -> Job:
        """Ask it to stop: a QUEUED one is CANCELLED at once, a finished one stays. UnknownJob.

        NotAlone: in the name of `owner`, while the job has other owners too.
        """
        with self._database.writing() as session:
            return JobRepository(session).request_cancel(job_id, self._clock(), owner)

    def is_cancel_requested(self, job_id: str) -> bool:
        """Whether the job is CANCELLING or CANCELLED; False for an unknown one."""
        job = self.get_job(job_id)
        return job is not None and job.state in (JobState.CANCELLING, JobState.CANCELLED)

    def append_event(self, job_id: str, kind: str, data: JsonObject) -> int:
        """Store an event of the job; its id, which grows over all jobs. UnknownJob."""
        with self._database.writing() as session:
            return JobRepository(session).append_event(job_id, kind, data, self._clock())

    def events_after(self, job_id: str, event_id: int = 0, limit: int = 100) -> list[JobEvent]:
        """Up to `limit` events later than `event_id`, in order."""
        with self._database.reading() as session:
            return JobRepository(session).events_after(job_id, event_id, min(limit, MAX_PAGE))

    def link_trials(self, job_id: str, trials: Sequence[tuple[int, str]]) -> None:
        """Note which record each trial ended in: (trial, record_key). NotRegistered."""
        with self._database.writing() as session:
            JobRepository(session).link_trials(job_id, trials)

    def job_trials(
        self, job_id: str, after: int = 0, limit: int = MAX_PAGE
    ) -> list[tuple[int, TuningRecord]]:
        """The job's trials numbered above `after`, in order, with their records."""
        with self._database.reading() as session:
            return JobRepository(session).trials(job_id, after, min(limit, MAX_PAGE))
