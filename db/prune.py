"""What nobody points to, and how it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select
from sqlalchemy.orm import Session

from .engine import changed
from .job_states import JobState
from .models import (
    ArtefactRow,
    BestRow,
    BlobRow,
    JobRow,
    PreparationRow,
    PreparedFileRow,
    RecordRow,
    TargetRow,
    WorkloadRow,
)

KEYS_PER_STATEMENT = 500
OLDEST_FIRST = 100
"""Preparations, or files of builds, that go at once when room is made."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was deleted, or would be: how many of each, and the size of the blobs."""

    blobs: int = 0
    blob_bytes: int = 0
    workloads: int = 0
    targets: int = 0
    preparations: int = 0


def prune(session: Session, now: datetime, min_age_secs: float, *, built: bool) -> PruneReport:
    """Delete preparations (which are found again when somebody asks), workloads and targets without
    records, and with `built` blobs that only builds asked for: lock files may name those.

    What is younger than `min_age_secs` may be about to be pointed to, and stays.
    """
    before = now - timedelta(seconds=min_age_secs)
    old = select(PreparationRow.key).where(PreparationRow.created_at <= before, _is_idle())
    keys = session.scalars(old).all()
    blobs, blob_bytes = drop_preparations(session, keys)
    if built:
        unreferenced = select(BlobRow.sha256).where(BlobRow.created_at <= before, *_unreferenced())
        more, more_bytes = drop_blobs(session, session.scalars(unreferenced).all(), built=True)
        blobs, blob_bytes = blobs + more, blob_bytes + more_bytes
    workloads = delete(WorkloadRow).where(
        WorkloadRow.created_at <= before,
        ~exists().where(RecordRow.workload_key == WorkloadRow.key),
        ~exists().where(BestRow.workload_key == WorkloadRow.key),
        ~exists().where(PreparationRow.workload_key == WorkloadRow.key),
    )
    targets = delete(TargetRow).where(
        TargetRow.created_at <= before,
        ~exists().where(RecordRow.target_key == TargetRow.key),
        ~exists().where(BestRow.target_key == TargetRow.key),
        ~exists().where(PreparationRow.target_key == TargetRow.key),
    )
    untracked = {"synchronize_session": False}
    return PruneReport(
        preparations=len(keys),
        blobs=blobs,
        blob_bytes=blob_bytes,
        workloads=changed(session.execute(workloads, execution_options=untracked)),
        targets=changed(session.execute(targets, execution_options=untracked)),
    )


def make_room(session: Session, need_bytes: int) -> PruneReport:
    """Delete what can be made again, the oldest first, until its files are `need_bytes`: prepared
    answers, then files that only builds asked for. Files of records stay."""
    preparations = blobs = freed = 0
    while freed < need_bytes:
        oldest = (
            select(PreparationRow.key)
            .where(_is_idle())
            .order_by(PreparationRow.created_at, PreparationRow.key)
            .limit(OLDEST_FIRST)
        )
        keys = session.scalars(oldest).all()
        if not keys:
            break
        count, size = drop_preparations(session, keys)
        preparations, blobs, freed = preparations + len(keys), blobs + count, freed + size
    while freed < need_bytes:
        first = select(BlobRow.sha256).where(*_unreferenced())
        names = session.scalars(
            first.order_by(BlobRow.built_at, BlobRow.sha256).limit(OLDEST_FIRST)
        ).all()
        if not names:
            break
        count, size = drop_blobs(session, names, built=True)
        blobs, freed = blobs + count, freed + size
    return PruneReport(preparations=preparations, blobs=blobs, blob_bytes=freed)


def drop_preparations(session: Session, keys: Sequence[str]) -> tuple[int, int]:
    """Forget preparations and the blobs that were theirs alone: how many blobs, and their bytes."""
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


def drop_blobs(session: Session, names: Sequence[str], *, built: bool) -> tuple[int, int]:
    """Delete those of the blobs that nothing points to, and that no build asked for unless
    `built`: how many, and their bytes."""
    count = size = 0
    for start in range(0, len(names), KEYS_PER_STATEMENT):
        goes: list[ColumnElement[bool]] = [
            BlobRow.sha256.in_(names[start : start + KEYS_PER_STATEMENT]),
            *_unreferenced(),
            *([] if built else [BlobRow.built_at.is_(None)]),
        ]
        size += session.scalar(select(func.sum(func.length(BlobRow.data))).where(*goes)) or 0
        gone = session.execute(
            delete(BlobRow).where(*goes), execution_options={"synchronize_session": False}
        )
        count += changed(gone)
    return count, size


def _unreferenced() -> list[ColumnElement[bool]]:
    return [
        ~exists().where(ArtefactRow.sha256 == BlobRow.sha256),
        ~exists().where(PreparedFileRow.sha256 == BlobRow.sha256),
    ]


def _is_idle() -> ColumnElement[bool]:
    """Of a preparation: nobody works on it, and its ticket, if it has one, is over."""
    final = [state for state in JobState if state.final]
    over = exists().where(JobRow.id == PreparationRow.job_id, JobRow.state.in_(final))
    return and_(PreparationRow.owner.is_(None), or_(PreparationRow.job_id.is_(None), over))
