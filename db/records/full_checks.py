"""The query for full checks, by which failed schedules are excluded from all answers.

A failure with a possible cause in the machine (a deadline, lack of memory) is outweighed by a
passed check. `tilewright.schedules.full_checks` combines failed and passed checks; `quick.py` has
the same query without SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, and_, null, select, tuple_
from sqlalchemy.orm import Session, aliased

from tilewright.schedules.full_checks import FULL, FullChecks

from ..core.hashes import RECORD, as_row, guarded
from ..core.models import RecordRow, WithdrawnRow
from ..values.records import Work
from .rows import from_row

Raw: TypeAlias = tuple[Any, ...]
"""The hashed columns of a record, its hash, and the reason of its withdrawal or None."""


def checks_of_work(session: Session, work: Work) -> FullChecks:
    """Return every full check of a task, passed and failed."""
    workload_key, target_key = work
    of_it = and_(RecordRow.workload_key == workload_key, RecordRow.target_key == target_key)
    return checks_of([*_fully_checked(session, of_it), *_withdrawn(session, of_it)])


def refusals_of_work(session: Session, work: Work) -> FullChecks:
    """Return the full checks of a task that decide which schedules are refused."""
    return checks_of(refusing_rows(session, [work]))


def refusing_rows(session: Session, works: Sequence[Work], *, elsewhere: bool = False) -> list[Raw]:
    """Return the rows that decide which schedules of `works` are refused:

    - failed full checks
    - passed full checks that may outweigh them
    - withdrawn records

    With `elsewhere`, include the rows of the same workloads on other targets.
    """
    workloads = list({workload for workload, _ in works})
    asked = (
        RecordRow.workload_key.in_(workloads)
        if elsewhere
        else tuple_(RecordRow.workload_key, RecordRow.target_key).in_(works)
    )
    failed = _fully_checked(session, asked, RecordRow.estimate_secs.is_(None))  # uses an index
    withdrawn = _withdrawn(session, asked)
    if not failed:
        return withdrawn
    other = aliased(RecordRow)
    beside = select(other.key).where(
        other.workload_key == RecordRow.workload_key,
        other.target_key == RecordRow.target_key,
        other.verified_level == FULL,
        other.estimate_secs.is_(None),
    )
    passed = _fully_checked(session, asked, RecordRow.status == "ok", beside.exists())
    return [*failed, *passed, *withdrawn]


def checks_of(rows: Iterable[Raw]) -> FullChecks:
    """Return the full checks in the intact rows of one task."""
    return FullChecks.of(
        (record, raw[-1])
        for raw in rows
        if (record := from_row(as_row(guarded(RECORD), raw[:-1]))) is not None
    )


def _fully_checked(session: Session, *conditions: ColumnElement[bool]) -> list[Raw]:
    statement = select(*_columns(), null()).where(RecordRow.verified_level == FULL, *conditions)
    return [tuple(row) for row in session.execute(statement.order_by(RecordRow.id))]


def _withdrawn(session: Session, asked: ColumnElement[bool]) -> list[Raw]:
    statement = (
        select(*_columns(), WithdrawnRow.reason)
        .join(WithdrawnRow, WithdrawnRow.record_key == RecordRow.key)
        .where(asked)
        .order_by(RecordRow.id)
    )
    return [tuple(row) for row in session.execute(statement)]


def _columns() -> list[Any]:
    columns = RecordRow.__table__.c
    return [columns[name] for name in guarded(RECORD)]
