"""Preparations: answers that need no tuning, each computed once and by one process.

Requests for the same task and toolchain share one row. A process works on a row while it renews its
lease (`jobs/leases.py`); when the lease has expired, another process continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import case, delete, func, or_, select, update
from sqlalchemy.orm import Session

from tilewright.schedules.canonical import canonical_bytes

from ..core.engine import KEYS_PER_STATEMENT
from ..core.hashes import PREPARATION, PREPARED_FILE, is_intact, row_hash
from ..core.models import PreparationRow, PreparedFileRow
from ..core.parts import StorePart, reading, writing
from ..errors import QuotaReached, StaleLease
from ..jobs.jobs import count_jobs, create_job
from ..jobs.leases import is_over
from ..records.blobs import drop_blobs, insert_files
from ..records.works import find_target, find_workload, register_target, register_workload
from ..values.answers import (
    LEASE_SECS,
    Demand,
    Preparation,
    PreparationQuota,
    PreparationState,
    preparation_key,
)
from ..values.jobs import TICKET_PRIORITY, JobQuota
from ..values.records import Artefact, ArtefactFile, Work

MAX_ATTEMPTS = 3
"""A preparation fails after this many processes ended while they worked on it."""

UNFINISHED = PreparationRow.state.in_([PreparationState.WANTED, PreparationState.CHOSEN])


class PreparationStore(StorePart):
    """The methods of a store that request, lease and store preparations of tasks that were not
    tuned. `values/answers.py` has the states of a preparation. The writes of a process raise
    StaleLease if it has lost its lease."""

    @writing
    def demand(
        self,
        session: Session,
        demands: Sequence[Demand],
        toolchain: str,
        *,
        most_waiting: int,
        most_jobs: int,
        owner: str | None = None,
        quota: JobQuota | None = None,
        own: PreparationQuota | None = None,
    ) -> set[Work]:
        """Request the preparation and the tuning of tasks. Return the tasks that were refused
        because a limit is reached. If a task is prepared or waiting already, only a missing ticket
        is created.

        At most `most_waiting` preparations wait, and at most `most_jobs` jobs are open. The jobs
        belong to `owner`, within `quota`; tasks above the quota are prepared but not tuned. `own`
        limits the waiting and the stored preparations of `owner`.
        """
        now = self._clock()
        self._database.serialise(session, "submit")  # equal concurrent demands share a row
        self._database.serialise(session, "blobs")  # the oldest of this owner may be deleted
        waiting, room = _count_waiting(session, toolchain), most_waiting
        if owner is not None and own is not None:
            mine = _count_waiting(session, toolchain, owner)
            room = min(room, waiting + max(own.waiting - mine, 0))
            _drop_oldest(session, owner, own.kept)
        open_jobs = sum(n for state, n in count_jobs(session).items() if not state.final)
        refused: set[Work] = set()
        for one in demands:
            key = preparation_key(one.workload_key, one.target_key, toolchain)
            row = session.get(PreparationRow, key)
            if row is None and waiting >= room:
                refused.add((one.workload_key, one.target_key))
                continue
            if row is None:
                register_workload(
                    session, one.workload_key, one.workload_document, one.name, one.flops, now
                )
                if find_target(session, one.target_key) is None:  # keep the probes that are stored
                    register_target(session, one.target_key, one.target_document, now)
                row = PreparationRow(
                    key=key,
                    workload_key=one.workload_key,
                    target_key=one.target_key,
                    toolchain=toolchain,
                    attempts=0,
                    created_at=now,
                    asked_by=owner,
                )
                _write(row, PreparationState.WANTED, {})
                session.add(row)
                session.flush()
                waiting += 1
            elif not is_intact(row, PREPARATION):  # damaged: prepare it again
                _drop_files(session, key)
                row.workload_key, row.target_key = one.workload_key, one.target_key
                row.toolchain, row.attempts = toolchain, 0
                _write(row, PreparationState.WANTED, {})
            elif one.again and PreparationState(row.state).final:
                # The document stays: it is served until a better one is stored.
                _write(row, PreparationState.WANTED, json.loads(row.document))
                row.attempts = 0
            if row.job_id is None and one.job is not None and open_jobs < most_jobs:
                request, _, flight_key = one.job
                with suppress(QuotaReached):  # prepared, but not tuned for this owner
                    job, new = create_job(
                        session,
                        request,
                        flight_key,
                        TICKET_PRIORITY,
                        now,
                        self._entropy,
                        owner,
                        quota,
                    )
                    row.job_id = job.id
                    open_jobs += new
            session.flush()
        return refused

    @reading
    def preparations_waiting(self, session: Session, toolchain: str) -> int:
        """Return the number of preparations of `toolchain` that are not finished."""
        return _count_waiting(session, toolchain)

    @reading
    def preparation_counts(self, session: Session) -> dict[PreparationState, int]:
        """Return the number of preparations in every state, over all toolchains."""
        states = select(PreparationRow.state, func.count()).group_by(PreparationRow.state)
        found = {str(state): count for state, count in session.execute(states)}
        return {state: found.get(str(state), 0) for state in PreparationState}

    @reading
    def preparation_states(
        self, session: Session, keys: Sequence[str]
    ) -> dict[str, PreparationState]:
        """Return the state of each preparation; keys without a preparation are omitted."""
        found: dict[str, PreparationState] = {}
        for start in range(0, len(keys), KEYS_PER_STATEMENT):
            statement = select(PreparationRow.key, PreparationRow.state).where(
                PreparationRow.key.in_(keys[start : start + KEYS_PER_STATEMENT])
            )
            found |= {k: PreparationState(s) for k, s in session.execute(statement)}
        return found

    @writing
    def claim_preparation(self, session: Session, toolchain: str, owner: str) -> Preparation | None:
        """Lease the next preparation to the process `owner`. Return it, or None if no preparation
        waits.

        The API owners who requested preparations take turns, one step each. For each of them, all
        schedules are chosen before any is built, because a chosen schedule already answers lookups.
        """
        now_secs = self._lease_time(session)
        # Twice the duration: another process may have leased a row after this clock was read.
        over = is_over(PreparationRow.lease_until, 2 * LEASE_SECS, now_secs)
        free = or_(PreparationRow.lease_until.is_(None), over)
        turns = (
            select(PreparationRow.asked_by, func.max(PreparationRow.turn).label("last"))
            .group_by(PreparationRow.asked_by)
            .subquery()
        )
        same_asker = turns.c.asked_by.is_not_distinct_from(PreparationRow.asked_by)
        statement = (
            select(PreparationRow)
            .join(turns, same_asker)
            .where(UNFINISHED, PreparationRow.toolchain == toolchain, free)
            .order_by(
                func.coalesce(turns.c.last, 0),
                case((PreparationRow.state == PreparationState.WANTED, 0), else_=1),
                PreparationRow.created_at,
                PreparationRow.key,
            )
            .limit(1)
            .with_for_update(skip_locked=True, of=PreparationRow)
        )
        while (row := session.scalars(statement).one_or_none()) is not None:
            leased = _lease(session, row, owner, now_secs)
            if leased is not None:
                return leased
        return None

    @writing
    def renew_preparation(self, session: Session, key: str, owner: str) -> None:
        """Extend the lease. Raise StaleLease if another process holds the preparation."""
        row = _held_row(session, key, owner)
        row.lease_until = self._lease_time(session) + LEASE_SECS
        session.flush()

    @writing
    def settle_preparation(
        self,
        session: Session,
        key: str,
        owner: str,
        state: PreparationState,
        document: dict[str, Any],
        files: Sequence[ArtefactFile] = (),
    ) -> None:
        """Store the result of a step and end the lease. Raise StaleLease if the lease was lost,
        BlobTooLarge if a file is too large."""
        now = self._clock()
        self._database.serialise(session, "blobs")  # no blob is pruned before a row refers to it
        row = _held_row(session, key, owner)
        _write(row, state, document)
        row.owner = row.lease_until = None
        row.attempts = 0
        _drop_files(session, key)
        session.flush()
        insert_files(session, PreparedFileRow, PREPARED_FILE, key, files, now)

    @writing
    def drop_preparation(self, session: Session, key: str, owner: str) -> None:
        """Delete a preparation whose task now has a best record. Raise StaleLease if the lease was
        lost."""
        row = _held_row(session, key, owner)
        _drop_files(session, key)
        session.delete(row)
        session.flush()

    @writing
    def release_preparations(self, session: Session, owner: str) -> None:
        """End every lease of the process `owner`, so that other processes can take over."""
        statement = update(PreparationRow).where(PreparationRow.owner == owner)
        statement = statement.values(owner=None, lease_until=None)
        session.execute(statement.execution_options(synchronize_session=False))


def prepared_files(rows: Iterable[Any]) -> list[Artefact]:
    """Return the files of intact rows, by kind."""
    found = [
        Artefact(r.kind, r.name, r.sha256, r.bytes) for r in rows if is_intact(r, PREPARED_FILE)
    ]
    return sorted(found, key=lambda file: file.kind)


def drop_preparations(session: Session, keys: Sequence[str]) -> tuple[int, int]:
    """Delete preparations and the blobs that only they used. Return the number of these blobs and
    their bytes."""
    blobs = blob_bytes = 0
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        some = keys[start : start + KEYS_PER_STATEMENT]
        theirs = select(PreparedFileRow.sha256).where(PreparedFileRow.preparation_key.in_(some))
        names = session.scalars(theirs.distinct()).all()
        untracked = {"synchronize_session": False}
        files = delete(PreparedFileRow).where(PreparedFileRow.preparation_key.in_(some))
        session.execute(files, execution_options=untracked)
        rows = delete(PreparationRow).where(PreparationRow.key.in_(some))
        session.execute(rows, execution_options=untracked)
        count, size = drop_blobs(session, names, built=False)
        blobs, blob_bytes = blobs + count, blob_bytes + size
    return blobs, blob_bytes


def _count_waiting(session: Session, toolchain: str, owner: str | None = None) -> int:
    statement = select(func.count()).where(UNFINISHED, PreparationRow.toolchain == toolchain)
    if owner is not None:
        statement = statement.where(PreparationRow.asked_by == owner)
    return int(session.scalar(statement) or 0)


def _drop_oldest(session: Session, owner: str, kept: int) -> None:
    """Delete the finished preparations that `owner` requested, except the newest `kept`."""
    old = (
        select(PreparationRow.key)
        .where(~UNFINISHED, PreparationRow.asked_by == owner)
        .order_by(PreparationRow.created_at.desc(), PreparationRow.key)
        .offset(kept)
        .limit(KEYS_PER_STATEMENT)
    )
    drop_preparations(session, session.scalars(old).all())


def _lease(
    session: Session, row: PreparationRow, owner: str, now_secs: float
) -> Preparation | None:
    workload, target = (
        find_workload(session, row.workload_key),
        find_target(session, row.target_key),
    )
    row.attempts += 1
    if workload is None or target is None or row.attempts > MAX_ATTEMPTS:
        detail = "its workload or target is damaged in the database"
        if row.attempts > MAX_ATTEMPTS:
            detail = f"{MAX_ATTEMPTS} processes ended while they prepared it"
        problem = {"problem": {"code": "not_prepared", "detail": detail}}
        _write(row, PreparationState.FAILED, problem)
        row.owner = row.lease_until = None
        session.flush()
        return None
    row.owner, row.lease_until = owner, now_secs + LEASE_SECS
    row.turn = int(session.scalar(select(func.max(PreparationRow.turn))) or 0) + 1
    session.flush()
    document = json.loads(row.document) if is_intact(row, PREPARATION) else {}
    return Preparation(
        key=row.key,
        workload_key=row.workload_key,
        target_key=row.target_key,
        state=PreparationState(row.state),
        document=document,
        workload_document=workload.document,
        target_document=target,
        owner=owner,
        attempts=row.attempts,
    )


def _held_row(session: Session, key: str, owner: str) -> PreparationRow:
    """Return the row of a preparation. Raise StaleLease if `owner` has lost its lease."""
    row = session.get(PreparationRow, key, with_for_update=True)
    if row is None or row.owner != owner:
        raise StaleLease(f"preparation {key}: another process has leased it")
    return row


def _drop_files(session: Session, key: str) -> None:
    session.execute(delete(PreparedFileRow).filter_by(preparation_key=key))


def _write(row: PreparationRow, state: PreparationState, document: dict[str, Any]) -> None:
    row.state, row.document = str(state), canonical_bytes(document).decode()
    row.row_sha256 = row_hash([getattr(row, name) for name in PREPARATION])
