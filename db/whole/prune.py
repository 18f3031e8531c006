"""Deletion of rows that are unreferenced or reproducible."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select
from sqlalchemy.orm import Session

from ..answers.preparations import drop_preparations
from ..core.engine import changed
from ..core.models import (
    BestRow,
    BlobRow,
    JobRow,
    PreparationRow,
    RecordRow,
    TargetRow,
    WorkloadRow,
)
from ..core.parts import StorePart, writing
from ..records.blobs import drop_blobs, unreferenced
from ..values.job_states import JobState
from ..values.whole import PruneReport

OLDEST_FIRST = 100
"""The number of preparations, or of files of builds, that one eviction step deletes."""


class PruneStore(StorePart):
    """The methods of a store that delete rows which are unreferenced or reproducible."""

    @writing
    def prune(
        self,
        session: Session,
        *,
        dry_run: bool = False,
        min_age_secs: float = 86_400.0,
        built: bool = False,
    ) -> PruneReport:
        """Delete rows older than `min_age_secs`: preparations with their files, and workloads and
        targets without records. With `built`, also delete blobs that only builds requested,
        although lock files may name them. With `dry_run`, delete nothing. Return the counts."""
        before = self._clock() - timedelta(seconds=min_age_secs)
        self._database.serialise(session, "blobs")
        with session.begin_nested() as undoable:
            report = _prune(session, before, built=built)
            if dry_run:
                undoable.rollback()
        return report

    @writing
    def make_room(self, session: Session, need_bytes: int) -> PruneReport:
        """Delete preparations, then files that only builds requested, each oldest first, until
        their files total `need_bytes` or none is left."""
        self._database.serialise(session, "blobs")
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
            first = select(BlobRow.sha256).where(*unreferenced())
            names = session.scalars(
                first.order_by(BlobRow.built_at, BlobRow.sha256).limit(OLDEST_FIRST)
            ).all()
            if not names:
                break
            count, size = drop_blobs(session, names, built=True)
            blobs, freed = blobs + count, freed + size
        return PruneReport(preparations=preparations, blobs=blobs, blob_bytes=freed)


def _prune(session: Session, before: datetime, *, built: bool) -> PruneReport:
    """Delete rows created until `before`; a process may be about to refer to newer rows."""
    old = select(PreparationRow.key).where(PreparationRow.created_at <= before, _is_idle())
    keys = session.scalars(old).all()
    blobs, blob_bytes = drop_preparations(session, keys)
    if built:
        unused = select(BlobRow.sha256).where(BlobRow.created_at <= before, *unreferenced())
        more, more_bytes = drop_blobs(session, session.scalars(unused).all(), built=True)
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


def _is_idle() -> ColumnElement[bool]:
    """Return the condition that no process works on a preparation and it has no open ticket."""
    final = [state for state in JobState if state.final]
    over = exists().where(JobRow.id == PreparationRow.job_id, JobRow.state.in_(final))
    return and_(PreparationRow.owner.is_(None), or_(PreparationRow.job_id.is_(None), over))
