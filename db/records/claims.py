"""Claims: imported records, and how they become answers without another tuning run.

A claim is a record of `verified_level` "imported": another machine reports that this trace takes
this many seconds on this kind of machine. To verify it, this machine rebuilds it, checks it in full
and times it once. The result is a separate record, which `confirm` stores, and which may become
best.
"""

from __future__ import annotations

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import FULL
from tilewright.schedules.record import Toolchain, TuningRecord

from ..core.engine import insert_ignore
from ..core.models import BestRow, ConfirmationRow, RecordRow
from ..core.parts import StorePart, reading, writing
from ..errors import InvalidRecord, NotRegistered
from ..values.records import IMPORTED, Work
from .best import promote_record, works_of_others
from .records import insert_records, record_row
from .rows import IS_OPEN_CLAIM, from_row, from_rows


class ClaimStore(StorePart):
    """The claims of a store."""

    @reading
    def claims(self, session: Session, workload_key: str, target_key: str) -> list[TuningRecord]:
        """Return the imported records of this task that are worth a check, by the time they claim.

        Claims that are confirmed or withdrawn are omitted.
        """
        statement = (
            select(RecordRow)
            .where(RecordRow.workload_key == workload_key, RecordRow.target_key == target_key)
            .where(text(IS_OPEN_CLAIM))
            .order_by(RecordRow.estimate_secs, RecordRow.id)
        )
        return from_rows(session.scalars(statement))

    @reading
    def works_to_verify(self, session: Session, toolchain: Toolchain) -> list[Work]:
        """Return each (workload_key, target_key) without an answer of `toolchain` that has records
        which may become one when verified: a best of another toolchain, or claims and no best."""
        answered = (
            select(BestRow.record_key)
            .where(
                BestRow.workload_key == RecordRow.workload_key,
                BestRow.target_key == RecordRow.target_key,
                BestRow.record_key.is_not(None),
            )
            .correlate(RecordRow)
        )
        claimed = (
            select(RecordRow.workload_key, RecordRow.target_key, func.min(RecordRow.id))
            .where(text(IS_OPEN_CLAIM), ~answered.exists())
            .group_by(RecordRow.workload_key, RecordRow.target_key)
            .order_by(func.min(RecordRow.id))
        )
        return [
            *works_of_others(session, toolchain),
            *((row[0], row[1]) for row in session.execute(claimed)),
        ]

    @writing
    def confirm(self, session: Session, claim_key: str, own: TuningRecord) -> bool:
        """Store `own`, the claim rebuilt, verified in full and timed here, as its confirmation;
        return whether it is the best now.

        `own` is promoted like any other record. Raise NotRegistered if there is no such claim,
        InvalidRecord if `own` has another task or trace, or was not verified in full. A claim that
        is wrong is withdrawn with `withdraw`.
        """
        now = self._clock()
        claim = from_row(record_row(session, claim_key))
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
        insert_records(session, [own], now)
        note = {"claim_key": claim_key, "record_key": own.key, "created_at": now}
        insert_ignore(session, ConfirmationRow, [note])
        return promote_record(session, own.key, now)
