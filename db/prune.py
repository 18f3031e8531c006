"""What nobody points to, and how it goes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, exists, func, select
from sqlalchemy.orm import Session

from .models import (
    ArtefactRow,
    BestRow,
    BlobRow,
    PreparationRow,
    PreparedFileRow,
    RecordRow,
    TargetRow,
    WorkloadRow,
)


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was deleted, or would be: how many of each, and the size of the blobs."""

    blobs: int
    blob_bytes: int
    workloads: int
    targets: int


def prune(
    session: Session, now: datetime, min_age_secs: float, *, dry_run: bool, built: bool
) -> PruneReport:
    """Delete workloads and targets without records, and with `built` blobs that are no artefact:
    lock files, of which a database knows nothing, may name those.

    What is younger than `min_age_secs` may be about to be pointed to, and stays.
    """
    before = now - timedelta(seconds=min_age_secs)
    blobs: list[ColumnElement[bool]] = [
        BlobRow.created_at <= before,
        ~exists().where(ArtefactRow.sha256 == BlobRow.sha256),
        ~exists().where(PreparedFileRow.sha256 == BlobRow.sha256),
    ]
    workloads: list[ColumnElement[bool]] = [
        WorkloadRow.created_at <= before,
        ~exists().where(RecordRow.workload_key == WorkloadRow.key),
        ~exists().where(BestRow.workload_key == WorkloadRow.key),
        ~exists().where(PreparationRow.workload_key == WorkloadRow.key),
    ]
    targets: list[ColumnElement[bool]] = [
        TargetRow.created_at <= before,
        ~exists().where(RecordRow.target_key == TargetRow.key),
        ~exists().where(BestRow.target_key == TargetRow.key),
        ~exists().where(PreparationRow.target_key == TargetRow.key),
    ]
    count, size = session.execute(
        select(func.count(), func.coalesce(func.sum(func.length(BlobRow.data)), 0)).where(*blobs)
    ).one()
    report = PruneReport(
        blobs=int(count) if built else 0,
        blob_bytes=int(size) if built else 0,
        workloads=int(session.scalar(select(func.count(WorkloadRow.key)).where(*workloads)) or 0),
        targets=int(session.scalar(select(func.count(TargetRow.key)).where(*targets)) or 0),
    )
    if not dry_run:
        goes = [(WorkloadRow, workloads), (TargetRow, targets), *([(BlobRow, blobs)] * built)]
        for table, which in goes:
            statement = delete(table).where(*which)
            session.execute(statement.execution_options(synchronize_session=False))
    return report
