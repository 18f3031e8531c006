"""Whose a job is, and how much one owner may have open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
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


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who wants a job: the owners that asked and have not withdrawn, and those that have. Both are
    empty for a job that was asked for without a key."""

    asking: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()


class OwnerRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job_id: str, owner: str) -> None:
        """`owner` asked for the job too, or again after it withdrew."""
        if not insert_ignore(self._session, JobOwnerRow, [{"job_id": job_id, "owner": owner}]):
            self._mark(job_id, owner, None)

    def has(self, job_id: str, owner: str) -> bool:
        """Whether the job is one of `owner`'s, who has not withdrawn."""
        return owner in self.sharing([job_id])[job_id].asking

    def first_of(self, jobs: Select[str]) -> dict[str, str]:
        """One owner of each of the `jobs`, a query of their ids, that has any."""
        statement = (
            select(JobOwnerRow.job_id, func.min(JobOwnerRow.owner))
            .where(JobOwnerRow.job_id.in_(jobs))
            .group_by(JobOwnerRow.job_id)
        )
        return {row[0]: row[1] for row in self._session.execute(statement)}

    def sees(self, job_id: str, owner: str) -> bool:
        """Whether the job is or was one of `owner`'s, or a ticket, which answers to everybody
        name."""
        if self._session.get(JobOwnerRow, (job_id, owner)) is not None:
            return True
        ticket = select(exists().where(PreparationRow.job_id == job_id))
        return bool(self._session.scalar(ticket))

    def sharing(self, job_ids: Sequence[str]) -> dict[str, Sharing]:
        """Who wants each of the jobs."""
        rows = self._session.scalars(
            select(JobOwnerRow).where(JobOwnerRow.job_id.in_(job_ids)).order_by(JobOwnerRow.owner)
        ).all()
        return {
            job_id: Sharing(
                tuple(r.owner for r in rows if r.job_id == job_id and r.withdrawn_at is None),
                tuple(r.owner for r in rows if r.job_id == job_id and r.withdrawn_at is not None),
            )
            for job_id in job_ids
        }

    def withdraw(self, job_id: str, owner: str, now: datetime) -> bool:
        """Take `owner` off a job that others want too: whether they do; else nothing is changed.
        NotAlone if the job is none of `owner`'s."""
        found = self.sharing([job_id])[job_id]
        if owner in found.withdrawn:
            return True
        if owner not in found.asking:
            raise NotAlone(f"job {job_id}: others asked for it, and {owner} did not")
        if found.asking == (owner,):
            return False
        self._mark(job_id, owner, now)
        return True

    def check_quota(self, owner: str, quota: JobQuota, trials: int, priority: int = 0) -> None:
        """QuotaReached if a job of `trials` more, and of `priority`, were too much for `owner`."""
        statement = select(JobRow.request, JobRow.progress, JobRow.priority).where(
            of_owner(owner, asking=True), JobRow.state.in_(OPEN)
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

    def _mark(self, job_id: str, owner: str, withdrawn_at: datetime | None) -> None:
        row = self._session.get_one(JobOwnerRow, (job_id, owner))
        row.withdrawn_at = withdrawn_at
        self._session.flush()


def of_owner(owner: str, *, asking: bool = False) -> Any:
    """The condition that a job is, or was, one of `owner`'s; `asking`: who has not withdrawn."""
    mine = select(JobOwnerRow.job_id).where(JobOwnerRow.owner == owner)
    return JobRow.id.in_(mine.where(JobOwnerRow.withdrawn_at.is_(None)) if asking else mine)


def trials_left(request: dict[str, Any], progress: dict[str, Any]) -> int:
    """How many trials of its budget a job has not reported yet."""
    budget = request.get("budget") or {}
    return max(0, int(budget.get("trials") or 0) - int(progress.get("trials_done") or 0))
