"""Claims: imported records, which may become answers without another tuning run.

A claim is a record with `verified_level` "imported": another machine reports the time of a trace.
To verify a claim, this machine rebuilds its kernel, runs the full check and times the kernel. The
result is a new record, which `confirm` stores and which may become best.
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
    """The methods of a store that list and confirm claims."""

    @reading
    def claims(self, session: Session, workload_key: str, target_key: str) -> list[TuningRecord]:
        """Return the claims of this task that are neither confirmed nor withdrawn, fastest
        first."""
        statement = (
            select(RecordRow)
            .where(RecordRow.workload_key == workload_key, RecordRow.target_key == target_key)
            .where(text(IS_OPEN_CLAIM))
            .order_by(RecordRow.estimate_secs, RecordRow.id)
        )
        return from_rows(session.scalars(statement))

    @reading
    def works_to_verify(self, session: Session, toolchain: Toolchain) -> list[Work]:
        """Return each task (workload_key, target_key) that has no answer of `toolchain`, but a
        record to verify: first tasks with a best of another toolchain, then tasks with claims and
        no best."""
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
        """Store `own`, which confirms the claim: the record of its kernel as rebuilt, verified in
        full and timed here. `own` is promoted like any record; return whether it is the best now.

        Raise NotRegistered if the claim does not exist, InvalidRecord if `own` has another task or
        trace or was not verified in full.
        """
        now = self._clock()
        claim = from_row(record_row(session, claim_key))
        if claim is None or claim.verified_level != IMPORTED:
            raise NotRegistered(f"record {claim_key}: no claim with this key is stored")
        if (own.workload_key, own.target_key, own.threads, own.trace) != (
            claim.workload_key,
            claim.target_key,
            claim.threads,
            claim.trace,
        ):
            raise InvalidRecord(
                f"record {own.key}: has another task or trace than claim {claim_key}"
            )
        if not own.result.ok or own.verified_level != FULL:
            raise InvalidRecord(
                f"record {own.key}: status {own.result.status}, verified {own.verified_level}; "
                "a confirmation must be verified in full"
            )
        insert_records(session, [own], now)
        note = {"claim_key": claim_key, "record_key": own.key, "created_at": now}
        insert_ignore(session, ConfirmationRow, [note])
        return promote_record(session, own.key, now)
