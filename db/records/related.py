"""Records of workloads that have the same structure as a given one."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewright.schedules.record import MeasureStatus, TuningRecord
from tilewright.schedules.related import RelatedRecords
from tilewright.schedules.workload.structure import Structure, distance, structure_of
from tilewright.schedules.workload.workload import Workload

from ..core.models import RecordRow, WorkloadRow
from ..core.parts import StorePart, reading
from ..values.records import IMPORTED
from .rows import from_rows
from .works import workload_entry

MAX_COMPARED = 256
"""Number of workloads of one structure, the newest ones, whose distances are computed."""

MAX_RECORDS = 256
"""Number of records per related workload, the fastest ones."""


class RelatedStore(StorePart):
    """The records of a store that later searches for similar workloads can use."""

    @reading
    def related(
        self, session: Session, workload: Workload, target_key: str, count: int
    ) -> list[RelatedRecords]:
        """Return the successful records with a setting of the `count` workloads nearest to
        `workload` that have the same structure, nearest first, measured on exactly this target.
        Records of `workload` itself and imported records are left out."""
        own = structure_of(workload)
        near = sorted(self._distances(session, workload.key, own, target_key))[:count]
        return [
            RelatedRecords(name, gap, tuple(found))
            for gap, key, name in near
            if (found := self._records(session, key, target_key))
        ]

    def _distances(
        self, session: Session, workload_key: str, own: Structure, target_key: str
    ) -> list[tuple[float, str, str]]:
        """Return distance, key and name of the workloads of the structure `own`."""
        has_records = (
            select(RecordRow.id)
            .where(RecordRow.workload_key == WorkloadRow.key, RecordRow.target_key == target_key)
            .exists()
        )
        rows = session.scalars(
            select(WorkloadRow)
            .where(WorkloadRow.structure == own.key, WorkloadRow.key != workload_key, has_records)
            .order_by(WorkloadRow.created_at.desc())
            .limit(MAX_COMPARED)
        )
        entries = [entry for entry in map(workload_entry, rows) if entry is not None]
        return [
            (distance(own, structure_of(Workload.from_json(entry.document))), entry.key, entry.name)
            for entry in entries
        ]

    def _records(self, session: Session, workload_key: str, target_key: str) -> list[TuningRecord]:
        rows = session.scalars(
            select(RecordRow)
            .where(
                RecordRow.workload_key == workload_key,
                RecordRow.target_key == target_key,
                RecordRow.status == str(MeasureStatus.OK),
                RecordRow.verified_level != IMPORTED,
            )
            .order_by(RecordRow.estimate_secs)
            .limit(MAX_RECORDS)
        )
        return [r for r in from_rows(rows) if r.setting is not None and r.prior_secs is not None]
