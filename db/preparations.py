"""Preparations as rows: what can be answered without tuning, found once and by one process.

    WANTED -> CHOSEN -> READY        a schedule, then its files and how its check ended
    WANTED -> FAILED                 there can be no schedule; the document says why
    WANTED -> gone                   a stored record passed its check and is the best now

One row a work and toolchain, whoever asks and however often. A process works on a row for as long
as it renews its lease; whose lease runs out is taken over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import case, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from tilewright.schedules.canonical import canonical_bytes

from .artefact_rows import Artefact
from .artefacts import KEYS_PER_QUERY, ArtefactFile
from .blobs import BlobRepository
from .errors import QuotaReached, StaleLease
from .job_owners import TICKET_PRIORITY, JobQuota
from .jobs import JobRepository
from .models import PreparationRow, PreparedFileRow
from .prune import drop_preparations
from .rows import row_hash
from .works import WorkRepository

LEASE_SECS = 15.0
MAX_ATTEMPTS = 3
"""How many processes may be lost over one work before it is given up."""

HASHED = ("key", "workload_key", "target_key", "toolchain", "state", "document")
FILE_HASHED = ("preparation_key", "kind", "name", "sha256", "bytes")


class PreparationState(StrEnum):
    """How far a preparation is."""

    WANTED = "WANTED"
    CHOSEN = "CHOSEN"
    READY = "READY"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        return self in (PreparationState.READY, PreparationState.FAILED)


@dataclass(frozen=True, slots=True)
class Demand:
    """A work to prepare, described, and the job that would tune it (None: no such job).

    `job` is its request, its body hash and its flight key, as `create_job` takes them. `again`:
    records came that a finished preparation does not know.
    """

    workload_key: str
    workload_document: dict[str, Any]
    name: str
    flops: int
    target_key: str
    target_document: dict[str, Any]
    job: tuple[dict[str, Any], str, str] | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Preparation:
    """A row as it was when read, with what a process needs to work on it."""

    key: str
    workload_key: str
    target_key: str
    state: PreparationState
    document: dict[str, Any]
    workload_document: dict[str, Any]
    target_document: dict[str, Any]
    owner: str
    attempts: int


@dataclass(frozen=True, slots=True)
class PreparationQuota:
    """Of one owner: works that may wait to be prepared, and prepared ones that are kept. What is
    above the latter takes the place of the owner's oldest."""

    waiting: int
    kept: int


def preparation_key(workload_key: str, target_key: str, toolchain: str) -> str:
    """The name of a preparation."""
    return hashlib.sha256(canonical_bytes([workload_key, target_key, toolchain])).hexdigest()


def sound_preparation(row: Any) -> bool:
    """Whether the row is what was once written."""
    return _intact(row, HASHED)


def prepared_files(rows: Iterable[Any]) -> list[Artefact]:
    """The files of sound rows, by kind."""
    found = [Artefact(r.kind, r.name, r.sha256, r.bytes) for r in rows if _intact(r, FILE_HASHED)]
    return sorted(found, key=lambda file: file.kind)


UNFINISHED = PreparationRow.state.in_([PreparationState.WANTED, PreparationState.CHOSEN])


class PreparationRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session, lease_clock: Callable[[Session], float]) -> None:
        self._session = session
        self._lease_clock = lease_clock

    def demand(
        self,
        demands: Sequence[Demand],
        toolchain: str,
        jobs: JobRepository,
        *,
        most_waiting: int,
        most_jobs: int,
        now: datetime,
        entropy: Callable[[int], bytes],
        owner: str | None = None,
        quota: JobQuota | None = None,
        own: PreparationQuota | None = None,
    ) -> set[tuple[str, str]]:
        """Have each work prepared and, while there is room, tuned; the works that were not taken.
        One at a time: see `Database.serialise`. The jobs are `owner`'s, as far as `quota` goes, and
        so are the preparations, as far as `own` goes.

        A work that is prepared or waiting already is left as it is, but for a job it has not.
        """
        works = WorkRepository(self._session)
        waiting, room = self.waiting(toolchain), most_waiting
        if owner is not None and own is not None:
            mine = self.waiting(toolchain, owner)
            room = min(room, waiting + max(own.waiting - mine, 0))
            self._drop_oldest(owner, own.kept)
        open_jobs = sum(n for state, n in jobs.counts().items() if not state.final)
        refused: set[tuple[str, str]] = set()
        for one in demands:
            key = preparation_key(one.workload_key, one.target_key, toolchain)
            row = self._session.get(PreparationRow, key)
            if row is None and waiting >= room:
                refused.add((one.workload_key, one.target_key))
                continue
            if row is None:
                works.register_workload(
                    one.workload_key, one.workload_document, one.name, one.flops, now
                )
                if works.target(one.target_key) is None:  # probes of askers replace none of ours
                    works.register_target(one.target_key, one.target_document, now)
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
                self._session.add(row)
                self._session.flush()
                waiting += 1
            elif not sound_preparation(row):  # damaged: found anew
                self._drop_files(key)
                row.workload_key, row.target_key = one.workload_key, one.target_key
                row.toolchain, row.attempts = toolchain, 0
                _write(row, PreparationState.WANTED, {})
            elif one.again and PreparationState(row.state).final:
                # What it found goes on being served until there is something better.
                _write(row, PreparationState.WANTED, json.loads(row.document))
                row.attempts = 0
            if row.job_id is None and one.job is not None and open_jobs < most_jobs:
                request, body_hash, flight_key = one.job
                with suppress(QuotaReached):  # prepared, but not tuned for this owner
                    job, new = jobs.create(
                        request,
                        idempotency_key=None,
                        body_hash=body_hash,
                        flight_key=flight_key,
                        priority=TICKET_PRIORITY,
                        now=now,
                        entropy=entropy,
                        owner=owner,
                        quota=quota,
                    )
                    row.job_id = job.id
                    open_jobs += new
            self._session.flush()
        return refused

    def waiting(self, toolchain: str, owner: str | None = None) -> int:
        """How many works of this toolchain (asked for by `owner`, where given) are not finished."""
        statement = select(func.count()).where(UNFINISHED, PreparationRow.toolchain == toolchain)
        if owner is not None:
            statement = statement.where(PreparationRow.asked_by == owner)
        return int(self._session.scalar(statement) or 0)

    def counts(self) -> dict[PreparationState, int]:
        """How many are in each state, whatever made them; every state is there."""
        states = select(PreparationRow.state, func.count()).group_by(PreparationRow.state)
        found = {str(state): count for state, count in self._session.execute(states)}
        return {state: found.get(str(state), 0) for state in PreparationState}

    def states(self, keys: Sequence[str]) -> dict[str, PreparationState]:
        """How far each is; those that are gone are left out."""
        found: dict[str, PreparationState] = {}
        for start in range(0, len(keys), KEYS_PER_QUERY):
            statement = select(PreparationRow.key, PreparationRow.state).where(
                PreparationRow.key.in_(keys[start : start + KEYS_PER_QUERY])
            )
            found |= {k: PreparationState(s) for k, s in self._session.execute(statement)}
        return found

    def claim(self, toolchain: str, owner: str) -> Preparation | None:
        """The next one to work on, now the process `owner`'s; None if there is none.

        Those who asked take turns, a step each, however much one of them asked for. Of one asker's
        works all schedules are chosen before any is built: one is soon of use to everybody.
        """
        now_secs = self._lease_clock(self._session)
        free = or_(
            PreparationRow.lease_until.is_(None),
            PreparationRow.lease_until < now_secs,
            # The machine was started anew, and its clock with it: nobody leases for so long.
            PreparationRow.lease_until > now_secs + 2 * LEASE_SECS,
        )
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
        while (row := self._session.scalars(statement).one_or_none()) is not None:
            leased = self._lease(row, owner, now_secs)
            if leased is not None:
                return leased
        return None

    def renew(self, key: str, owner: str) -> None:
        """Keep it. StaleLease: somebody else has it now."""
        row = self._mine(key, owner)
        row.lease_until = self._lease_clock(self._session) + LEASE_SECS
        self._session.flush()

    def settle(
        self,
        key: str,
        owner: str,
        state: PreparationState,
        document: dict[str, Any],
        files: Sequence[ArtefactFile],
        now: datetime,
    ) -> None:
        """Note what was found and give the row up, or keep it where it is not final. StaleLease."""
        row = self._mine(key, owner)
        _write(row, state, document)
        row.owner = row.lease_until = None
        row.attempts = 0
        blobs = BlobRepository(self._session)
        self._drop_files(key)
        self._session.flush()
        for file in files:
            values: dict[str, Any] = {
                "preparation_key": key,
                "kind": file.kind,
                "name": file.name,
                "sha256": blobs.put(file.data, file.media_type, now),
                "bytes": len(file.data),
            }
            values["row_sha256"] = row_hash([values[name] for name in FILE_HASHED])
            self._session.execute(insert(PreparedFileRow).values(**values))

    def drop(self, key: str, owner: str) -> None:
        """Forget it: the work has a best. StaleLease."""
        row = self._mine(key, owner)
        self._drop_files(key)
        self._session.delete(row)
        self._session.flush()

    def release(self, owner: str) -> None:
        """Give up whatever `owner` works on, for others to take."""
        statement = update(PreparationRow).where(PreparationRow.owner == owner)
        statement = statement.values(owner=None, lease_until=None)
        self._session.execute(statement.execution_options(synchronize_session=False))

    def _drop_oldest(self, owner: str, kept: int) -> None:
        """Leave `kept` finished ones of those that `owner` asked for: the newest."""
        old = (
            select(PreparationRow.key)
            .where(~UNFINISHED, PreparationRow.asked_by == owner)
            .order_by(PreparationRow.created_at.desc(), PreparationRow.key)
            .offset(kept)
            .limit(KEYS_PER_QUERY)
        )
        drop_preparations(self._session, self._session.scalars(old).all())

    def _lease(self, row: PreparationRow, owner: str, now_secs: float) -> Preparation | None:
        works = WorkRepository(self._session)
        workload, target = works.workload(row.workload_key), works.target(row.target_key)
        row.attempts += 1
        if workload is None or target is None or row.attempts > MAX_ATTEMPTS:
            reason = "was lost" if row.attempts > MAX_ATTEMPTS else "is damaged"
            _write(row, PreparationState.FAILED, lost(f"the work {reason}", row.attempts))
            row.owner = row.lease_until = None
            self._session.flush()
            return None
        row.owner, row.lease_until = owner, now_secs + LEASE_SECS
        row.turn = int(self._session.scalar(select(func.max(PreparationRow.turn))) or 0) + 1
        self._session.flush()
        document = json.loads(row.document) if sound_preparation(row) else {}
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

    def _mine(self, key: str, owner: str) -> PreparationRow:
        row = self._session.get(PreparationRow, key, with_for_update=True)
        if row is None or row.owner != owner:
            raise StaleLease(f"preparation {key}: another process has it now")
        return row

    def _drop_files(self, key: str) -> None:
        self._session.execute(delete(PreparedFileRow).filter_by(preparation_key=key))


def lost(detail: str, attempts: int) -> dict[str, Any]:
    """What is told of a work that no process came to an end with."""
    return {"problem": {"code": "not_prepared", "detail": f"{detail} ({attempts} attempts)"}}


def _write(row: PreparationRow, state: PreparationState, document: dict[str, Any]) -> None:
    row.state, row.document = str(state), canonical_bytes(document).decode()
    row.row_sha256 = row_hash([getattr(row, name) for name in HASHED])


def _intact(row: Any, names: Sequence[str]) -> bool:
    try:
        return bool(row_hash([getattr(row, name) for name in names]) == row.row_sha256)
    except (TypeError, ValueError):  # damage can turn a number into bytes
        return False
