"""Every query on records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewright.schedules.record import TuningRecord

from .engine import insert_ignore
from .errors import BadPageToken, NotRegistered
from .models import RecordRow, WithdrawnRow
from .rows import IMPORTED, from_row, from_rows, to_row

MAX_PAGE = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list. `next_token` asks for what follows; None at the end."""

    items: tuple[T, ...]
    next_token: str | None


class RecordRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, records: Sequence[TuningRecord], now: datetime) -> int:
        """Insert those not there yet; how many were new.

        InvalidRecord for one that contradicts itself, NotRegistered for one whose workload or
        target is unknown; in both cases the caller's transaction must be given up.
        """
        try:
            return insert_ignore(self._session, RecordRow, [to_row(r, now) for r in records])
        except IntegrityError as error:
            if "foreign key" not in str(error.orig).lower():
                raise
            works = sorted({(r.workload_key, r.target_key) for r in records})
            raise NotRegistered(
                f"{len(records)} records of {works[0]}: their workload or target is not "
                "registered; call register() first"
            ) from error

    def row(self, key: str, *, locked: bool = False) -> RecordRow | None:
        """The row of this key; `locked`, no other transaction decides about it until this ends."""
        statement = select(RecordRow).filter_by(key=key)
        if locked:
            statement = statement.with_for_update(key_share=True)
        return self._session.scalars(statement).one_or_none()

    def get(self, key: str, *, locked: bool = False) -> TuningRecord | None:
        return from_row(self.row(key, locked=locked))

    def of_work(
        self, workload_key: str, target_key: str, *, include_imported: bool
    ) -> list[TuningRecord]:
        """Every sound record of exactly this work, in the order of arrival."""
        statement = _of(select(RecordRow), workload_key, target_key).order_by(RecordRow.id)
        if not include_imported:
            statement = statement.where(RecordRow.verified_level != IMPORTED)
        return from_rows(self._session.scalars(statement))

    def page(
        self, after: str | None, limit: int, workload_key: str | None, target_key: str | None
    ) -> Page[TuningRecord]:
        """Records in the order of arrival, from the token `after` on."""
        size = max(1, min(limit, MAX_PAGE))
        start = _row_id(after)
        statement = _of(select(RecordRow), workload_key, target_key)
        statement = statement.where(RecordRow.id > start).order_by(RecordRow.id).limit(size + 1)
        rows = self._session.scalars(statement).all()
        token = str(rows[size - 1].id) if len(rows) > size else None
        return Page(tuple(from_rows(rows[:size])), token)

    def count(self, workload_key: str | None = None, target_key: str | None = None) -> int:
        statement = _of(select(func.count()).select_from(RecordRow), workload_key, target_key)
        return int(self._session.scalar(statement) or 0)

    def withdrawn(self, key: str) -> str | None:
        """Why this record was withdrawn, None if it was not."""
        return self._session.scalar(select(WithdrawnRow.reason).filter_by(record_key=key))


def _of(statement: Select[Any], workload_key: str | None, target_key: str | None) -> Select[Any]:
    if workload_key is not None:
        statement = statement.where(RecordRow.workload_key == workload_key)
    if target_key is not None:
        statement = statement.where(RecordRow.target_key == target_key)
    return statement


def _row_id(token: str | None) -> int:
    if token is None:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) <= 18):
        raise BadPageToken(f"page token {token!r}: give the next_token of the page before")
    return int(token)
