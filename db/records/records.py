"""Measured records: stored once, immutable, and read by their task."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewright.schedules.record import TuningRecord

from ..core.engine import insert_ignore
from ..core.models import BlobRow, RecordRow
from ..core.parts import StorePart, reading
from ..errors import NotRegistered
from ..values.records import IMPORTED, Counts
from .rows import from_row, from_rows, to_row


class RecordStore(StorePart):
    """The methods of a store that read measured records. `BestStore.add` stores records."""

    @reading
    def records(
        self,
        session: Session,
        workload_key: str,
        target_key: str,
        *,
        include_imported: bool = False,
    ) -> list[TuningRecord]:
        """Return the records of exactly this task, in the order of arrival. Imported records, which
        are claims of other machines, are included only with `include_imported`."""
        statement = select(RecordRow).where(
            RecordRow.workload_key == workload_key, RecordRow.target_key == target_key
        )
        if not include_imported:
            statement = statement.where(RecordRow.verified_level != IMPORTED)
        return from_rows(session.scalars(statement.order_by(RecordRow.id)))

    @reading
    def record(self, session: Session, key: str) -> TuningRecord | None:
        """Return the record of this key, or None if it is unknown or damaged."""
        return from_row(record_row(session, key))

    @reading
    def counts(self, session: Session) -> Counts:
        """Return the number of records and blobs."""
        records, blobs = (
            int(session.scalar(select(func.count()).select_from(table)) or 0)
            for table in (RecordRow, BlobRow)
        )
        return Counts(records, blobs)


def insert_records(session: Session, records: Sequence[TuningRecord], now: datetime) -> int:
    """Insert the records that are not stored yet; return how many were new.

    Raise InvalidRecord if a record contradicts itself, NotRegistered if the workload or the target
    of a record is not stored; in both cases the caller must roll back its transaction.
    """
    try:
        return insert_ignore(session, RecordRow, [to_row(r, now) for r in records])
    except IntegrityError as error:
        if "foreign key" not in str(error.orig).lower():
            raise
        works = sorted({(r.workload_key, r.target_key) for r in records})
        raise NotRegistered(
            f"{len(records)} records of {works[0]}: their workload or target is not "
            "registered; call register() first"
        ) from error


def record_row(session: Session, key: str, *, locked: bool = False) -> RecordRow | None:
    """Return the row of this key; with `locked`, lock it until this transaction ends."""
    statement = select(RecordRow).filter_by(key=key)
    if locked:
        statement = statement.with_for_update(key_share=True)
    return session.scalars(statement).one_or_none()
