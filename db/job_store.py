"""`JobStore`: what a store promises about jobs. `store.py` has the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from tilewright.schedules.record import TuningRecord

    from .job_owners import JobQuota, Sharing
    from .job_rows import JobEvent, QueuePosition, StoredJob, WaitingJob
    from .job_states import JobState
    from .records import Page

JsonObject = dict[str, Any]


class JobStore(Protocol):
    """Jobs: submitted once, leased to one worker at a time, with their events and trials.

    **Life.** `job_states.NEXT` is the table of states; nothing else happens to a job. Every change
    of state writes an event in the same transaction. Event ids grow over all jobs, and those of one
    job become visible in their order: whoever resumes after the last id seen misses nothing.

    **Ownership.** A lease carries an `epoch`. Each write of a worker names it, and raises
    StaleLease once somebody else was given the job or its leases were voided. A write whose answer
    was lost may be made again: the outcome is that of one.

    **Time.** Leases are held to the database's clock (`Database.lease_clock`): the server's, or the
    time since this machine was started. No process's time of day has a part in it.

    **Damage.** Every row carries a hash. A damaged job is not listed, not leased and not joined; a
    damaged event or trial is left out. The others are as if it were not there.
    """

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
        """The job for `request`, and whether it is new.

        The same idempotency key gives the same job for good; an equal request (`flight_key`)
        joins the job that is QUEUED or RUNNING, and raises its priority to its own if that is
        higher. `priority` is cut to -1000..1000. `owner` becomes one of the job's owners.
        IdempotencyConflict: key used for another body. QuotaReached: `owner` has too much open.
        """
        ...

    def get_job(self, job_id: str) -> StoredJob | None:
        """The job as it is now; None if it is unknown or damaged."""
        ...

    def list_jobs(
        self,
        page_token: str | None = None,
        page_size: int = 50,
        state: JobState | None = None,
        owner: str | None = None,
    ) -> Page[StoredJob]:
        """Jobs (of `owner`, where given), newest first; `page_size` is cut to 1..1000.

        BadPageToken.
        """
        ...

    def job_is_seen_by(self, job_id: str, owner: str) -> bool:
        """Whether `owner` asked for the job, or it is a ticket, which answers to anybody name."""
        ...

    def job_counts(self) -> dict[JobState, int]:
        """How many jobs are in each state; every state is there."""
        ...

    def oldest_jobs(self) -> dict[JobState, tuple[str, datetime]]:
        """The oldest job of each state that is not final: its id, and when it was asked for."""
        ...

    def job_waiting(self, job_id: str) -> QueuePosition | None:
        """How many jobs go before a QUEUED one, and how many are running; None if it does not
        wait."""
        ...

    def job_queue(self) -> list[WaitingJob]:
        """The jobs `lease_job` may give out, those of higher priority first, then by arrival."""
        ...

    def lease_job(
        self, owner: str, lease_secs: float, *, job_id: str | None = None
    ) -> StoredJob | None:
        """The next job that waits or that its worker lost, now `owner`'s; None if there is none.
        With `job_id` that one or none.

        Higher priority goes first, then who came first. Its `epoch` is the caller's right to
        write to it until another lease is given out. A job with `MAX_FAILURES` failures is given
        out once more, to be concluded; one with more is FAILED instead.
        """
        ...

    def renew_lease(self, job_id: str, epoch: int, lease_secs: float) -> StoredJob:
        """Heartbeat: keep the job; state CANCELLING asks the caller to stop. StaleLease."""
        ...

    def release_job(self, job_id: str, epoch: int) -> StoredJob:
        """Give an unfinished job back, for another worker to continue. StaleLease."""
        ...

    def void_leases(self, *, blameless: bool = False) -> int:
        """End every lease at once, because whoever held one is gone; how many there were.

        `coordinate` does it: the coordinator's lock is free only when its holder has ended.
        `blameless`: it is known that no job was the reason, and failures are not counted.
        """
        ...

    def report_job(
        self,
        job_id: str,
        epoch: int,
        *,
        trials: Sequence[tuple[int, str]] = (),
        candidates: Mapping[int, Sequence[int]] | None = None,
        events: Sequence[tuple[str, JsonObject]] = (),
        progress: JsonObject | None = None,
        failures: int | None = None,
    ) -> list[int]:
        """Note in one transaction what has been done; the ids of the events.

        `trials` are (trial, record_key), each noted once whatever is sent again; `candidates` what
        the search had asked for, by trial; `events` are (kind, data); `progress` replaces the
        job's. `failures` are those the job has if the caller ends at this moment: one more while it
        is at work on the job than while it waits. StaleLease, NotRegistered.
        """
        ...

    def update_progress(self, job_id: str, epoch: int, progress: JsonObject) -> None:
        """`report_job` of progress alone."""
        ...

    def append_event(self, job_id: str, epoch: int, kind: str, data: JsonObject) -> int:
        """`report_job` of one event; its id."""
        ...

    def link_trials(self, job_id: str, epoch: int, trials: Sequence[tuple[int, str]]) -> None:
        """`report_job` of trials alone."""
        ...

    def finish_job(
        self,
        job_id: str,
        epoch: int,
        state: JobState,
        *,
        result: JsonObject | None = None,
        error: JsonObject | None = None,
    ) -> StoredJob:
        """End the job; again in the same epoch and state it changes nothing.

        StaleLease, BadTransition, UnknownJob.
        """
        ...

    def request_cancel(self, job_id: str, owner: str | None = None) -> StoredJob:
        """Ask it to stop: a QUEUED one is CANCELLED at once, a finished one stays. UnknownJob.

        In the name of `owner`, while the job has other owners too, only that owner withdraws and
        the job goes on; with the last one it stops. NotAlone: it is none of `owner`'s.
        """
        ...

    def job_sharing(self, job_ids: Sequence[str]) -> dict[str, Sharing]:
        """Who wants each of the jobs, and who has withdrawn."""
        ...

    def is_cancel_requested(self, job_id: str) -> bool:
        """Whether the job is CANCELLING or CANCELLED; False for an unknown one."""
        ...

    def events_after(self, job_id: str, event_id: int = 0, limit: int = 100) -> list[JobEvent]:
        """Up to `limit` events later than `event_id`, in order."""
        ...

    def changes_since(self, event_id: int) -> tuple[set[str], int]:
        """The jobs with events later than event `event_id`, and the id of the newest event of any
        job, 0 if there is none."""
        ...

    def begun_trials(self, job_id: str) -> list[tuple[tuple[int, ...], str]]:
        """(candidate, record key) of the job's trials from the first on, as far as each is noted
        with its candidate."""
        ...

    def job_trials(
        self, job_id: str, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, TuningRecord]]:
        """The job's trials numbered above `after`, in order, with their records."""
        ...
