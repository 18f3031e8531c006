"""Statistics: the rows of each table and kind, their age, and their owners."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, LargeBinary, Table, Text, case, distinct, exists, func, select
from sqlalchemy import String as StringType
from sqlalchemy.orm import Session

from ..core.models import (
    ApiKeyRow,
    ArtefactRow,
    Base,
    BlobRow,
    JobOwnerRow,
    JobRow,
    PreparationRow,
    PreparedFileRow,
    RecordRow,
    UtcMoment,
    WithdrawnRow,
)
from ..core.parts import StorePart, reading
from ..jobs.owners import OPEN
from ..values.whole import KindStats, OwnerStats, Stats, TableStats

ANYBODY = ""
"""The owner of preparations that were requested without a key."""

CAME = ("created_at", "moved_at")  # the columns that may have the time of a row


class StatsStore(StorePart):
    """The methods of a store that return statistics."""

    @reading
    def used_bytes(self, session: Session) -> int:
        """Return the bytes in use, without the free pages of a file."""
        return self._database.used_bytes(session)

    @reading
    def stats(self, session: Session) -> Stats:
        """Return statistics from one snapshot. This reads every row, which takes seconds if the
        database has gigabytes."""
        return Stats(
            used_bytes=self._database.used_bytes(session),
            disk_bytes=self._database.disk_bytes(session),
            tables={t.name: _table(session, t) for t in Base.metadata.sorted_tables},
            blobs=_blobs(session),
            records=_records(session),
            jobs=_by(session, JobRow.state),
            preparations=_by(session, PreparationRow.state),
            owners=_owners(session),
        )


def _table(session: Session, table: Table) -> TableStats:
    texts = [c for c in table.columns if isinstance(c.type, StringType | Text | LargeBinary)]
    texts += [c for c in table.columns if isinstance(c.type, UtcMoment)]
    size: Any = 8 * (len(table.columns) - len(texts)) * func.count()
    for column in texts:
        size = size + func.coalesce(func.sum(func.length(column)), 0)
    came = next((table.c[name] for name in CAME if name in table.c), None)
    oldest = func.min(came) if came is not None else func.min(None)
    count, total, first = session.execute(
        select(func.count(), size, oldest).select_from(table)
    ).one()
    return TableStats(int(count), int(total or 0), _moment(first))


def _moment(value: Any) -> datetime | None:
    # The tables of jobs have timestamps as text.
    return UtcMoment().process_result_value(value, None) if isinstance(value, str) else value  # type: ignore[arg-type]


def _blobs(session: Session) -> dict[str, KindStats]:
    kind: ColumnElement[str] = case(
        (exists().where(ArtefactRow.sha256 == BlobRow.sha256), "artefact"),
        (exists().where(PreparedFileRow.sha256 == BlobRow.sha256), "prepared"),
        (BlobRow.built_at.is_not(None), "built"),
        else_="unreferenced",
    )
    kinds = select(kind.label("kind"), func.length(BlobRow.data).label("size")).subquery()
    found = session.execute(
        select(kinds.c.kind, func.count(), func.sum(kinds.c.size)).group_by(kinds.c.kind)
    )
    return {str(name): KindStats(int(count), int(size or 0)) for name, count, size in found}


def _records(session: Session) -> dict[str, int]:
    kind: ColumnElement[str] = case(
        (exists().where(WithdrawnRow.record_key == RecordRow.key), "withdrawn"),
        (RecordRow.verified_level == "imported", "imported"),
        else_=RecordRow.status,
    )
    kinds = select(kind.label("kind")).select_from(RecordRow).subquery()
    found = session.execute(select(kinds.c.kind, func.count()).group_by(kinds.c.kind))
    return {str(name): int(count) for name, count in found}


def _by(session: Session, column: Any) -> dict[str, int]:
    found = session.execute(select(column, func.count()).group_by(column))
    return {str(name): int(count) for name, count in found}


def _owners(session: Session) -> dict[str, OwnerStats]:
    is_open = JobRow.state.in_(OPEN) & JobOwnerRow.withdrawn_at.is_(None)
    jobs = session.execute(
        select(JobOwnerRow.owner, func.count(), func.sum(case((is_open, 1), else_=0)))
        .join(JobRow, JobRow.id == JobOwnerRow.job_id)
        .group_by(JobOwnerRow.owner)
    ).all()
    prepared = session.execute(
        select(
            PreparationRow.asked_by,
            func.count(distinct(PreparationRow.key)),
            func.coalesce(func.sum(PreparedFileRow.bytes), 0),
        )
        .outerjoin(PreparedFileRow, PreparedFileRow.preparation_key == PreparationRow.key)
        .group_by(PreparationRow.asked_by)
    ).all()
    found: dict[str, dict[str, int]] = {}
    for owner, count, still_open in jobs:
        found.setdefault(owner, {}).update(jobs=int(count), open_jobs=int(still_open or 0))
    for owner, count, size in prepared:
        found.setdefault(owner or ANYBODY, {}).update(
            preparations=int(count), prepared_bytes=int(size)
        )
    for owner, count in _by(session, ApiKeyRow.owner).items():
        found.setdefault(owner, {}).update(keys=count)
    return {owner: OwnerStats(**counts) for owner, counts in sorted(found.items())}
