"""Records of tasks that resemble a given one."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

from tilewright.schedules.related import RelatedRecords
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ..core.parts import StorePart, reading
from .nearby import find_related


class RelatedStore(StorePart):
    """The records of a store that later searches for similar tasks can use."""

    @reading
    def related(
        self, session: Session, workload: Workload, target: Target, count: int, before: str = ""
    ) -> list[RelatedRecords]:
        """Return the records of tasks that resemble `workload` on `target`, see
        `nearby.find_related`."""
        return find_related(
            lambda sql, values: session.execute(text(sql), values), workload, target, count, before
        )
