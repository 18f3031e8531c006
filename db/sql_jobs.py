"""`SqlJobs`: the contract of `job_store.py` kept on a SQL database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from tilewright.schedules.record import TuningRecord

from .engine import Database
from .job_history import Event, HistoryRepository
from .job_owners import JobQuota, OwnerRepository, Sharing
from .job_rows import JobEvent, JsonObject, QueuePosition, StoredJob, WaitingJob
from .job_states import JobState
from .jobs import JobRepository
from .leases import LeaseRepository
from .records import MAX_PAGE, Page


class SqlJobs:
    """See `JobStore`. `SqlStore` gives the parts it works with."""

    _database: Database
    _clock: Callable[[], datetime]
    _entropy: Callable[[int], bytes]

    def create_job(
        self,
        request: JsonObject,
        *,
        body_hash: str,
        flight_key: str,
        idempotency_key: str | None = None,
        priority: int = 0,
        owner: str | None = None,
        quota: JobQuota | None = None,
    ) -> tuple[StoredJob, bool]:
        now = self._clock()

        def work(session: Session) -> tuple[StoredJob, bool]:
            self._database.serialise(session, "submit")
            return JobRepository(session).create(
                request,
                idempotency_key=idempotency_key,
                body_hash=body_hash,
                flight_key=flight_key,
                priority=priority,
                now=now,
                entropy=self._entropy,
                owner=owner,
                quota=quota,
            )

        return self._database.write(work)

    def get_job(self, job_id: str) -> StoredJob | None:
        return self._database.read(lambda session: JobRepository(session).get(job_id))

    def list_jobs(
        self,
        page_token: str | None = None,
        page_size: int = 50,
        state: JobState | None = None,
        owner: str | None = None,
    ) -> Page[StoredJob]:
        return self._database.read(
            lambda session: JobRepository(session).page(page_token, page_size, state, owner)
        )

    def job_is_seen_by(self, job_id: str, owner: str) -> bool:
        return self._database.read(lambda session: JobRepository(session).is_seen_by(job_id, owner))

    def job_counts(self) -> dict[JobState, int]:
        return self._database.read(lambda session: JobRepository(session).counts())

    def oldest_jobs(self) -> dict[JobState, tuple[str, datetime]]:
        return self._database.read(lambda session: JobRepository(session).oldest())

    def job_waiting(self, job_id: str) -> QueuePosition | None:
        return self._database.read(lambda session: JobRepository(session).waiting(job_id))

    def job_queue(self) -> list[WaitingJob]:
        return self._database.read(lambda session: self._leases(session).queue())

    def lease_job(
        self, owner: str, lease_secs: float, *, job_id: str | None = None
    ) -> StoredJob | None:
        now = self._clock()
        return self._database.write(
            lambda session: self._leases(session).lease(owner, lease_secs, now, job_id)
        )

    def renew_lease(self, job_id: str, epoch: int, lease_secs: float) -> StoredJob:
        return self._database.write(
            lambda session: self._leases(session).renew(job_id, epoch, lease_secs)
        )

    def release_job(self, job_id: str, epoch: int) -> StoredJob:
        now = self._clock()
        return self._database.write(
            lambda session: self._leases(session).release(job_id, epoch, now)
        )

    def void_leases(self, *, blameless: bool = False) -> int:
        return self._database.write(
            lambda session: self._leases(session).void_leases(blameless=blameless)
        )

    def report_job(
        self,
        job_id: str,
        epoch: int,
        *,
        trials: Sequence[tuple[int, str]] = (),
        candidates: Mapping[int, Sequence[int]] | None = None,
        events: Sequence[Event] = (),
        progress: JsonObject | None = None,
        failures: int | None = None,
    ) -> list[int]:
        now = self._clock()
        return self._database.write(
            lambda session: self._leases(session).report(
                job_id,
                epoch,
                trials=trials,
                candidates=candidates or {},
                events=events,
                progress=progress,
                failures=failures,
                now=now,
            )
        )

    def update_progress(self, job_id: str, epoch: int, progress: JsonObject) -> None:
        self.report_job(job_id, epoch, progress=progress)

    def append_event(self, job_id: str, epoch: int, kind: str, data: JsonObject) -> int:
        [number] = self.report_job(job_id, epoch, events=[(kind, data)])
        return number

    def link_trials(self, job_id: str, epoch: int, trials: Sequence[tuple[int, str]]) -> None:
        self.report_job(job_id, epoch, trials=trials)

    def finish_job(
        self,
        job_id: str,
        epoch: int,
        state: JobState,
        *,
        result: JsonObject | None = None,
        error: JsonObject | None = None,
    ) -> StoredJob:
        now = self._clock()
        return self._database.write(
            lambda session: self._leases(session).finish(
                job_id, epoch, state, result=result, error=error, now=now
            )
        )

    def request_cancel(self, job_id: str, owner: str | None = None) -> StoredJob:
        now = self._clock()
        return self._database.write(
            lambda session: self._leases(session).request_cancel(job_id, now, owner)
        )

    def job_sharing(self, job_ids: Sequence[str]) -> dict[str, Sharing]:
        return self._database.read(lambda session: OwnerRepository(session).sharing(job_ids))

    def is_cancel_requested(self, job_id: str) -> bool:
        job = self.get_job(job_id)
        return job is not None and job.state in (JobState.CANCELLING, JobState.CANCELLED)

    def events_after(self, job_id: str, event_id: int = 0, limit: int = 100) -> list[JobEvent]:
        return self._database.read(
            lambda session: HistoryRepository(session).events_after(
                job_id, event_id, min(limit, MAX_PAGE)
            )
        )

    def changes_since(self, event_id: int) -> tuple[set[str], int]:
        return self._database.read(
            lambda session: HistoryRepository(session).changes_since(event_id)
        )

    def begun_trials(self, job_id: str) -> list[tuple[tuple[int, ...], str]]:
        return self._database.read(lambda session: HistoryRepository(session).begun(job_id))

    def job_trials(
        self, job_id: str, after: int = 0, limit: int = MAX_PAGE
    ) -> list[tuple[int, TuningRecord]]:
        return self._database.read(
            lambda session: HistoryRepository(session).trials(job_id, after, min(limit, MAX_PAGE))
        )

    def _leases(self, session: Session) -> LeaseRepository:
        return LeaseRepository(session, self._lease_time)

    def _lease_time(self, session: Session) -> float:
        raise NotImplementedError
