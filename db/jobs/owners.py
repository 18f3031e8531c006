"""The owners of jobs, and the quotas of one owner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, exists, func, select
from sqlalchemy.orm import Session

from ..core.engine import insert_ignore
from ..core.models import JobOwnerRow, JobRow, PreparationRow
from ..errors import NotAlone, QuotaReached
from ..values.job_states import JobState
from ..values.jobs import TICKET_PRIORITY, JobQuota, Sharing

OPEN = (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING)


def add_owner(session: Session, job_id: str, owner: str) -> None:
    """Make `owner` an owner of the job, even if it withdrew before."""
    if not insert_ignore(session, JobOwnerRow, [{"job_id": job_id, "owner": owner}]):
        _mark(session, job_id, owner, None)


def first_owners(session: Session, jobs: Select[str]) -> dict[str, str]:
    """Return one owner of each of the `jobs` (a query of their ids) that has an owner."""
    statement = (
        select(JobOwnerRow.job_id, func.min(JobOwnerRow.owner))
        .where(JobOwnerRow.job_id.in_(jobs))
        .group_by(JobOwnerRow.job_id)
    )
    return {row[0]: row[1] for row in session.execute(statement)}


def is_seen_by(session: Session, job_id: str, owner: str) -> bool:
    """Return whether `owner` may read the job: it is or was an owner, or the job is a ticket."""
    if session.get(JobOwnerRow, (job_id, owner)) is not None:
        return True
    return bool(session.scalar(select(exists().where(PreparationRow.job_id == job_id))))


def sharing_of(session: Session, job_ids: Sequence[str]) -> dict[str, Sharing]:
    """Return the current and the withdrawn owners of each job."""
    rows = session.scalars(
        select(JobOwnerRow).where(JobOwnerRow.job_id.in_(job_ids)).order_by(JobOwnerRow.owner)
    ).all()
    return {
        job_id: Sharing(
            tuple(r.owner for r in rows if r.job_id == job_id and r.withdrawn_at is None),
            tuple(r.owner for r in rows if r.job_id == job_id and r.withdrawn_at is not None),
        )
        for job_id in job_ids
    }


def withdraw_owner(session: Session, job_id: str, owner: str, now: datetime) -> bool:
    """Withdraw `owner` from a job that has other owners; return False if it has none. Raise
    NotAlone if the job does not belong to `owner`."""
    found = sharing_of(session, [job_id])[job_id]
    if owner in found.withdrawn:
        return True
    if owner not in found.asking:
        raise NotAlone(f"job {job_id} belongs to other owners, and not to {owner}")
    if found.asking == (owner,):
        return False
    _mark(session, job_id, owner, now)
    return True


def check_quota(
    session: Session, owner: str, quota: JobQuota, trials: int, priority: int = 0
) -> None:
    """Raise QuotaReached if another job with `trials` and `priority` exceeds the owner's
    `quota`."""
    statement = select(JobRow.request, JobRow.progress, JobRow.priority).where(
        of_owner(owner, asking=True), JobRow.state.in_(OPEN)
    )
    jobs = session.execute(statement).all()
    tickets = sum(row.priority <= TICKET_PRIORITY for row in jobs)
    if priority <= TICKET_PRIORITY:
        if tickets >= quota.tickets:
            raise QuotaReached(f"{quota.tickets} tickets of {owner} are open already")
    elif len(jobs) - tickets >= quota.jobs:
        raise QuotaReached(f"{quota.jobs} jobs of {owner} are open already")
    waiting = sum(trials_left(json.loads(row.request), json.loads(row.progress)) for row in jobs)
    if waiting + trials > quota.trials:
        raise QuotaReached(
            f"{waiting} trials of {owner} wait already; {trials} more exceed {quota.trials}"
        )


def of_owner(owner: str, *, asking: bool = False) -> Any:
    """Return the condition that `owner` is or was an owner of a job. With `asking`, `owner` must
    not have withdrawn."""
    mine = select(JobOwnerRow.job_id).where(JobOwnerRow.owner == owner)
    return JobRow.id.in_(mine.where(JobOwnerRow.withdrawn_at.is_(None)) if asking else mine)


def trials_left(request: dict[str, Any], progress: dict[str, Any]) -> int:
    """Return how many trials of its budget a job has not reported yet."""
    budget = request.get("budget") or {}
    return max(0, int(budget.get("trials") or 0) - int(progress.get("trials_done") or 0))


def _mark(session: Session, job_id: str, owner: str, withdrawn_at: datetime | None) -> None:
    row = session.get_one(JobOwnerRow, (job_id, owner))
    row.withdrawn_at = withdrawn_at
    session.flush()
