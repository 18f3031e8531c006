"""Whose a job is, and how much one owner may have open."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, exists, func, select
from sqlalchemy.orm import Session

from .engine import insert_ignore
from .errors import NotAlone, QuotaReached
from .job_states import JobState
from .models import JobOwnerRow, JobRow, PreparationRow

OPEN = (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING)


TICKET_PRIORITY = -100
"""What somebody submits goes before what somebody only asked for."""


@dataclass(frozen=True, slots=True)
class JobQuota:
    """What one owner may have open at once: jobs, trials of all of them that are not measured yet,
    and tickets, which are jobs of `TICKET_PRIORITY` or less."""

    jobs: int
    trials: int
    tickets: int = 0


class OwnerRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job_id: str, owner: str) -> None:
        """`owner` asked for the job too; once more changes nothing."""
        insert_ignore(self._session, JobOwnerRow, [{"job_id": job_id, "owner": owner}])

    def has(self, job_id: str, owner: str) -> bool:
        return self._session.get(JobOwnerRow, (job_id, owner)) is not None

    def first_of(self, jobs: Select[str]) -> dict[str, str]:
        """One owner of each of the `jobs`, a query of their ids, that has any."""
        statement = (
            select(JobOwnerRow.job_id, func.min(JobOwnerRow.owner))
            .where(JobOwnerRow.job_id.in_(jobs))
            .group_by(JobOwnerRow.job_id)
        )
        return {row[0]: row[1] for row in self._session.execute(statement)}

    def sees(self, job_id: str, owner: str) -> bool:
        """Whether the job is one of `owner`'s, or a ticket, which answers to everybody name."""
        ticket = select(exists().where(PreparationRow.job_id == job_id))
        return self.has(job_id, owner) or bool(self._session.scalar(ticket))

    def check_quota(self, owner: str, quota: JobQuota, trials: int, priority: int = 0) -> None:
        """QuotaReached if a job of `trials` more, and of `priority`, were too much for `owner`."""
        statement = select(JobRow.request, JobRow.progress, JobRow.priority).where(
            of_owner(owner), JobRow.state.in_(OPEN)
        )
        jobs = self._session.execute(statement).all()
        tickets = sum(row.priority <= TICKET_PRIORITY for row in jobs)
        if priority <= TICKET_PRIORITY:
            if tickets >= quota.tickets:
                raise QuotaReached(f"{quota.tickets} tickets of {owner} are open already")
        elif len(jobs) - tickets >= quota.jobs:
            raise QuotaReached(f"{quota.jobs} jobs of {owner} are open already")
        waiting = sum(
            trials_left(json.loads(row.request), json.loads(row.progress)) for row in jobs
        )
        if waiting + trials > quota.trials:
            raise QuotaReached(
                f"{waiting} trials of {owner} wait already, {trials} more are above {quota.trials}"
            )

    def check_alone(self, job_id: str, owner: str) -> None:
        """NotAlone if the job has owners besides `owner`, or `owner` is none of them."""
        others = select(exists().where(JobOwnerRow.job_id == job_id, JobOwnerRow.owner != owner))
        if self._session.scalar(others) or not self.has(job_id, owner):
            raise NotAlone(f"job {job_id}: others asked for the same work and wait for it")


def of_owner(owner: str) -> Any:
    """The condition that a job is one of `owner`'s."""
    return JobRow.id.in_(select(JobOwnerRow.job_id).where(JobOwnerRow.owner == owner))


def trials_left(request: dict[str, Any], progress: dict[str, Any]) -> int:
    """How many trials of its budget a job has not reported yet."""
    budget = request.get("budget") or {}
    return max(0, int(budget.get("trials") or 0) - int(progress.get("trials_done") or 0))
