"""Which schedules failed their full check: the one query behind everything that hands out code.

`refusing` selects the records that speak against a schedule, and those that speak for one that
failed for a reason that may have been the machine's. What they mean together is said once, in
`tilewright.schedules.full_checks`; `quick.py` asks the same without SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from sqlalchemy import ColumnElement, and_, null, select, tuple_
from sqlalchemy.orm import Session, aliased

from tilewright.schedules.full_checks import FULL, FullChecks
from tilewright.schedules.record import TuningRecord

from .models import RecordRow, WithdrawnRow
from .rows import HASHED, from_row

Raw: TypeAlias = tuple[Any, ...]
"""The columns of a record (`RECORD`), and why it was withdrawn, or None."""

RECORD = (*HASHED, "row_sha256")


class FullCheckRepository:
    """Works in the session it is given."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of_work(self, workload_key: str, target_key: str) -> FullChecks:
        """Every full check of a work, those that passed too."""
        of_it = and_(RecordRow.workload_key == workload_key, RecordRow.target_key == target_key)
        return checks_of([*self._of_level(of_it), *self._withdrawn(of_it)])

    def refusals(self, workload_key: str, target_key: str) -> FullChecks:
        """What speaks against schedules of a work, in few rows."""
        return checks_of(self.refusing([(workload_key, target_key)]))

    def refusing(self, works: Sequence[tuple[str, str]], *, elsewhere: bool = False) -> list[Raw]:
        """The rows that speak against schedules of `works`, (workload_key, target_key) each; with
        `elsewhere` those of other targets too."""
        workloads = list({workload for workload, _ in works})
        asked = (
            RecordRow.workload_key.in_(workloads)
            if elsewhere
            else tuple_(RecordRow.workload_key, RecordRow.target_key).in_(works)
        )
        failed = self._of_level(asked, RecordRow.estimate_secs.is_(None))  # as the index has it
        withdrawn = self._withdrawn(asked)
        if not failed:
            return withdrawn
        other = aliased(RecordRow)
        beside = select(other.key).where(
            other.workload_key == RecordRow.workload_key,
            other.target_key == RecordRow.target_key,
            other.verified_level == FULL,
            other.estimate_secs.is_(None),
        )
        passed = self._of_level(asked, RecordRow.status == "ok", beside.exists())
        return [*failed, *passed, *withdrawn]

    def _of_level(self, *conditions: ColumnElement[bool]) -> list[Raw]:
        statement = select(*_columns(), null()).where(RecordRow.verified_level == FULL, *conditions)
        return [tuple(row) for row in self._session.execute(statement.order_by(RecordRow.id))]

    def _withdrawn(self, asked: ColumnElement[bool]) -> list[Raw]:
        statement = (
            select(*_columns(), WithdrawnRow.reason)
            .join(WithdrawnRow, WithdrawnRow.record_key == RecordRow.key)
            .where(asked)
            .order_by(RecordRow.id)
        )
        return [tuple(row) for row in self._session.execute(statement)]


def checks_of(rows: Iterable[Raw]) -> FullChecks:
    """What rows of one work say; damaged ones say nothing."""
    return FullChecks.of(
        (record, raw[-1]) for raw in rows if (record := record_in(raw)) is not None
    )


def record_in(raw: Raw) -> TuningRecord | None:
    """The record of a row; None if it is damaged."""
    return from_row(cast(Any, SimpleNamespace(**dict(zip(RECORD, raw[:-1], strict=True)))))


def _columns() -> list[Any]:
    columns = RecordRow.__table__.c
    return [columns[name] for name in RECORD]
