"""Claims: records that import brought, and how they become answers without tuning again.

A claim is a record of `verified_level` "imported": somebody says that this trace takes so long on
this kind of machine. Whoever verifies it rebuilds it, checks it in full and times it once, here;
what comes out is a record of our own, which `confirm` stores beside the claim, and which may be
best like any other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import FULL
from tilewright.schedules.record import TuningRecord

from .best import BestRepository
from .engine import insert_ignore
from .errors import InvalidRecord, NotRegistered
from .models import BestRow, ConfirmationRow, RecordRow, WithdrawnRow
from .records import RecordRepository
from .rows import IMPORTED, from_rows


class ClaimRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of_work(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        """The claims of this work nobody has tried yet, fastest first."""
        statement = (
            _open(select(RecordRow))
            .where(RecordRow.workload_key == workload_key, RecordRow.target_key == target_key)
            .order_by(RecordRow.estimate_secs, RecordRow.id)
        )
        return from_rows(self._session.scalars(statement))

    def works(self) -> list[tuple[str, str]]:
        """Each work, (workload_key, target_key), that has open claims and no best."""
        statement = _open(
            select(RecordRow.workload_key, RecordRow.target_key, func.min(RecordRow.id))
        )
        statement = (
            statement.where(~_answered().exists())
            .group_by(RecordRow.workload_key, RecordRow.target_key)
            .order_by(func.min(RecordRow.id))
        )
        return [(row[0], row[1]) for row in self._session.execute(statement)]

    def waiting(self, limit: int) -> list[TuningRecord]:
        """The fastest open claim of each work that has no best."""
        place = func.row_number().over(
            partition_by=(RecordRow.workload_key, RecordRow.target_key),
            order_by=(RecordRow.estimate_secs, RecordRow.id),
        )
        ranked = (
            _open(select(RecordRow.id, place.label("place")))
            .where(~_answered().exists())
            .subquery()
        )
        statement = (
            select(RecordRow)
            .join(ranked, ranked.c.id == RecordRow.id)
            .where(ranked.c.place == 1)
            .order_by(RecordRow.id)
            .limit(limit)
        )
        return from_rows(self._session.scalars(statement))

    def confirm(self, claim_key: str, own: TuningRecord, now: datetime) -> bool:
        """Store `own` as what became of the claim; whether it is the best now."""
        records = RecordRepository(self._session)
        claim = records.get(claim_key)
        if claim is None or claim.verified_level != IMPORTED:
            raise NotRegistered(f"record {claim_key}: no claim of this key is stored")
        if (own.workload_key, own.target_key, own.threads, own.trace) != (
            claim.workload_key,
            claim.target_key,
            claim.threads,
            claim.trace,
        ):
            raise InvalidRecord(f"record {own.key}: not of the work and trace of claim {claim_key}")
        if not own.result.ok or own.verified_level != FULL:
            raise InvalidRecord(
                f"record {own.key}: status {own.result.status}, verified {own.verified_level}; "
                "a confirmation was verified in full"
            )
        records.add([own], now)
        note = {"claim_key": claim_key, "record_key": own.key, "created_at": now}
        insert_ignore(self._session, ConfirmationRow, [note])
        return BestRepository(self._session).promote(own.key, now)


def _answered() -> Select[Any]:
    """The best of the work of a record."""
    return (
        select(BestRow.record_key)
        .where(
            BestRow.workload_key == RecordRow.workload_key,
            BestRow.target_key == RecordRow.target_key,
            BestRow.record_key.is_not(None),
        )
        .correlate(RecordRow)
    )


def _open(statement: Any) -> Select[Any]:
    """Only claims that may be worth trying."""
    opened: Select[Any] = statement.where(
        RecordRow.verified_level == IMPORTED,
        RecordRow.status == "ok",
        RecordRow.key.not_in(select(WithdrawnRow.record_key)),
        RecordRow.key.not_in(select(ConfirmationRow.claim_key)),
    )
    return opened
