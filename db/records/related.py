"""Records of workloads that have the same structure as a given one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from tilewright.schedules.record import MeasureStatus, TuningRecord
from tilewright.schedules.related import RelatedRecords, nearest, usable
from tilewright.schedules.workload.structure import structure_of
from tilewright.schedules.workload.workload import Workload

from ..core.models import RecordRow, WorkloadRow
from ..core.parts import StorePart, reading
from ..values.records import IMPORTED, MAX_COMPARED, MAX_RECORDS
from .rows import from_rows
from .works import workload_entry


class RelatedStore(StorePart):
    """The records of a store that later searches for similar workloads can use."""

    @reading
    def related(
        self, session: Session, workload: Workload, target_key: str, count: int, before: str = ""
    ) -> list[RelatedRecords]:
        """Return the successful records with a setting of the `count` workloads nearest to
        `workload` that have the same structure, nearest first, measured on exactly this target.
        Records of `workload` itself and imported records are left out, and records created at the
        time `before` (`TuningRecord.created_at`) or later, if it is given."""
        own = structure_of(workload)
        entries = self._entries(session, workload.key, own.key, target_key, before)
        return [
            RelatedRecords(one.name, one.distance, found)
            for one in nearest(own, entries, count)
            if (found := self._usable(session, one.key, target_key, before))
        ]

    def _entries(
        self, session: Session, workload_key: str, structure: str, target_key: str, before: str
    ) -> list[tuple[str, str, dict[str, Any]]]:
        has_records = (
            select(RecordRow.id)
            .where(
                RecordRow.workload_key == WorkloadRow.key,
                RecordRow.target_key == target_key,
                *_earlier(before),
            )
            .exists()
        )
        rows = session.scalars(
            select(WorkloadRow)
            .where(WorkloadRow.structure == structure, WorkloadRow.key != workload_key, has_records)
            .order_by(WorkloadRow.created_at.desc())
            .limit(MAX_COMPARED)
        )
        entries = [entry for entry in map(workload_entry, rows) if entry is not None]
        return [(entry.key, entry.name, entry.document) for entry in entries]

    def _usable(
        self, session: Session, workload_key: str, target_key: str, before: str
    ) -> tuple[TuningRecord, ...]:
        rows = session.scalars(
            select(RecordRow)
            .where(
                RecordRow.workload_key == workload_key,
                RecordRow.target_key == target_key,
                RecordRow.status == str(MeasureStatus.OK),
                RecordRow.verified_level != IMPORTED,
                *_earlier(before),
            )
            .order_by(RecordRow.estimate_secs)
            .limit(MAX_RECORDS)
        )
        return usable(from_rows(rows))


def _earlier(before: str) -> list[ColumnElement[bool]]:
    return [RecordRow.created_at < before] if before else []
