"""Whose a job is, and how much one owner may have open."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from .engine import insert_ignore
from .errors import NotAlone, QuotaReached
from .job_states import JobState
from .models import JobOwnerRow, JobRow

OPEN = (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING)


@dataclass(frozen=True, slots=True)
class JobQuota:
    """What one owner may have open at once: jobs, and trials that are not measured yet."""

    jobs: int
    trials: int


class OwnerRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job_id: str, owner: str) -> None:
        """`owner` asked for the job too; once more changes nothing."""
        insert_ignore(self._session, JobOwnerRow, [{"job_id": job_id, "owner": owner}])

    def has(self, job_id: str, owner: str) -> bool:
        return self._session.get(JobOwnerRow, (job_id, owner)) is not None

    def check_quota(self, owner: str, quota: JobQuota, trials: int) -> None:
        """QuotaReached if a job of `trials` more were too much for `owner`."""
        statement = select(JobRow.request, JobRow.progress).where(
            of_owner(owner), JobRow.state.in_(OPEN)
        )
        jobs = self._session.execute(statement).all()
        if len(jobs) >= quota.jobs:
            raise QuotaReached(f"{quota.jobs} jobs of {owner} are open already")
        waiting = sum(
            trials_left(json.loads(request), json.loads(progress)) for request, progress in jobs
        )
        if waiting + trials > quota.trials:
            raise QuotaReached(
                f"{waiting} trials of {owner} wait already, {trials} more are above {quota.trials}"
            )

    def check_alone(self, job_id: str, owner: str) -> None:
        """NotAlone if the job has owners besides `owner`."""
        statement = select(exists().where(JobOwnerRow.job_id == job_id, JobOwnerRow.owner != owner))
        if self._session.scalar(statement):
            raise NotAlone(f"job {job_id}: others asked for the same work and wait for it")


def of_owner(owner: str) -> Any:
    """The condition that a job is one of `owner`'s."""
    return JobRow.id.in_(select(JobOwnerRow.job_id).where(JobOwnerRow.owner == owner))


def trials_left(request: dict[str, Any], progress: dict[str, Any]) -> int:
    """How many trials of its budget a job has not reported yet."""
    budget = request.get("budget") or {}
    return max(0, int(budget.get("trials") or 0) - int(progress.get("trials_done") or 0))
