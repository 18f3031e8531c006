"""The best record of each task: a pointer that moves only to a better verified record.

With concurrent writers (PostgreSQL), a move locks first the record and then the pointer, so that a
record cannot be withdrawn and promoted concurrently. A *generation* of toolchains has the same
versions of the code generator, LLVM and llvmlite.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, or_, select, text, update
from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import DISPROVED, FULL, FullChecks
from tilewright.schedules.record import Toolchain, TuningRecord

from ..core.engine import changed, insert_ignore
from ..core.models import BestMoveRow, BestRow, RecordRow, TargetRow, WithdrawnRow
from ..core.parts import StorePart, reading, writing
from ..errors import NotRegistered
from ..values.records import BestElsewhere, BestMove, Work
from .full_checks import checks_of_work, refusals_of_work
from .records import insert_records, record_row
from .rows import IS_BEST, NOT_WITHDRAWN, from_row, from_rows
from .works import target_document

_ATTEMPTS = 100
MOST_REASON = 500


class BestStore(StorePart):
    """The methods of a store that add records and maintain the best record of each task."""

    def add(self, records: Sequence[TuningRecord]) -> None:
        """Store all `records` or none. Records that are stored already are not changed. A record
        without a timestamp gets the current time. If a record disproves a schedule (it failed the
        full check), the records of this schedule that passed before are withdrawn.

        Raise InvalidRecord if a record contradicts itself, NotRegistered if `register` was not
        called.
        """
        self._add(records)
        self._database.tend()

    @writing
    def _add(self, session: Session, records: Sequence[TuningRecord]) -> None:
        now = self._clock()
        insert_records(session, records, now)
        _withdraw_disproved(session, records, now)

    @writing
    def promote(self, session: Session, record: TuningRecord) -> bool:
        """Make a stored record the best of its task if it is better; return whether it is the best
        now.

        A record becomes best if it was verified in full and is strictly faster than the best of the
        same generation. A record of a newer generation replaces a best of an older one even if it
        is slower, never the reverse; mocked timings are older than all generations. A record whose
        schedule failed a full check is never best. Raise NotRegistered if the record is not stored.
        """
        return promote_record(session, record.key, self._clock())

    @writing
    def withdraw(self, session: Session, record_key: str, reason: str) -> TuningRecord | None:
        """Withdraw a record that failed a later check, so that it is never served again. Return the
        best record of its task afterwards, or None."""
        return _withdraw(session, record_key, reason, self._clock())

    @reading
    def best(self, session: Session, workload_key: str, target_key: str) -> TuningRecord | None:
        """Return the best record of exactly this task, or None if there is none."""
        return best_of(session, (workload_key, target_key))

    @reading
    def best_elsewhere(
        self, session: Session, workload_key: str, target_key: str
    ) -> list[BestElsewhere]:
        """Return the best of the same workload on every other target, fastest first."""
        statement = (
            _bests(RecordRow, TargetRow)
            .join(TargetRow, TargetRow.key == RecordRow.target_key)
            .where(BestRow.workload_key == workload_key, BestRow.target_key != target_key)
            .order_by(RecordRow.estimate_secs, RecordRow.id)
        )
        found: list[BestElsewhere] = []
        for row, target in session.execute(statement):
            record, document = from_row(row), target_document(target)
            if record is not None and document is not None:
                found.append(BestElsewhere(record, document))
        return found

    @reading
    def best_history(self, session: Session, workload_key: str, target_key: str) -> list[BestMove]:
        """Return every move of the best of this task, oldest first."""
        statement = (
            select(BestMoveRow)
            .filter_by(workload_key=workload_key, target_key=target_key)
            .order_by(BestMoveRow.version)
        )
        return [
            BestMove(m.version, m.from_record_key, m.to_record_key, m.reason, m.moved_at)
            for m in session.scalars(statement)
        ]

    @reading
    def full_checks(self, session: Session, workload_key: str, target_key: str) -> FullChecks:
        """Return the full checks of this task. A schedule that failed, or whose record was
        withdrawn, is never served, at any grade."""
        return checks_of_work(session, (workload_key, target_key))


def generation(toolchain: Toolchain) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the generation of a toolchain; a newer generation compares greater."""
    return toolchain.codegen_version, _numbers(toolchain.llvm), _numbers(toolchain.llvmlite)


def reason_to_move(incumbent: TuningRecord | None, challenger: TuningRecord) -> str | None:
    """Return why `challenger` replaces `incumbent`, or None if it does not.

    Only a record that was verified in full may replace it. Times are compared within one
    generation, and the challenger must be strictly faster. A record of an older generation must be
    verified again before it is served, so a record of a newer generation replaces it even if it is
    slower.
    """
    if not challenger.result.ok or challenger.verified_level != FULL:
        return None
    if incumbent is None:
        return "first"
    ages = generation(challenger.toolchain), generation(incumbent.toolchain)
    if ages[0] != ages[1]:
        return "newer toolchain" if ages[0] > ages[1] else None
    return "faster" if _secs(challenger) < _secs(incumbent) else None


def works_of_others(session: Session, toolchain: Toolchain) -> list[Work]:
    """Return each task whose best was made by another toolchain, oldest best first."""
    by_others = or_(
        RecordRow.codegen_version != toolchain.codegen_version,
        RecordRow.llvmlite != toolchain.llvmlite,
    )
    statement = _bests(RecordRow.workload_key, RecordRow.target_key).where(by_others)
    rows = session.execute(statement.order_by(BestRow.moved_at, RecordRow.id))
    return [(row[0], row[1]) for row in rows]


def promote_record(session: Session, key: str, now: datetime) -> bool:
    """Apply `BestStore.promote` to the record with this key."""
    challenger = from_row(record_row(session, key, locked=True))
    if challenger is None:
        raise NotRegistered(f"record {key}: not stored, so it cannot be the best; add it first")
    if session.get(WithdrawnRow, key) is not None:
        return False
    work = challenger.workload_key, challenger.target_key
    if refusals_of_work(session, work).refusal(challenger.trace, challenger.toolchain):
        return False
    for _ in range(_ATTEMPTS):
        seen = _pointer(session, work)
        if seen is not None and seen.record_key == key:
            return True
        incumbent = best_of(session, work)
        reason = reason_to_move(incumbent, challenger)
        if reason is None:
            return False
        if incumbent is None and seen is not None and seen.record_key is not None:
            reason = "incumbent damaged"
        if _move(session, work, seen, key, reason, now):
            return True
    raise RuntimeError(f"best of {work} moved {_ATTEMPTS} times while one record was compared")


def _withdraw_disproved(session: Session, records: Sequence[TuningRecord], now: datetime) -> None:
    """Withdraw every verified record that has the same task, schedule and toolchain as a record in
    `records` that failed its full check. `records` must be stored already."""
    for failed in records:
        if failed.verified_level != FULL or failed.result.status not in DISPROVED:
            continue
        statement = (
            select(RecordRow)
            .where(
                RecordRow.workload_key == failed.workload_key,
                RecordRow.target_key == failed.target_key,
                RecordRow.verified_level == FULL,
                RecordRow.status == "ok",
                RecordRow.codegen_version == failed.toolchain.codegen_version,
                RecordRow.llvmlite == failed.toolchain.llvmlite,
                text(NOT_WITHDRAWN),
            )
            .order_by(RecordRow.id)
        )
        reason = f"{failed.result.status}: {failed.result.detail}"[:MOST_REASON]
        for passed in from_rows(session.scalars(statement).all()):
            if passed.trace_key == failed.trace_key:
                _withdraw(session, passed.key, reason, now)


def _withdraw(session: Session, key: str, reason: str, now: datetime) -> TuningRecord | None:
    """Withdraw record `key`; return the best record of its task afterwards, or None."""
    row = record_row(session, key, locked=True)
    if row is None:
        raise NotRegistered(f"record {key}: not stored, so there is nothing to withdraw")
    entry = {"record_key": key, "reason": reason, "created_at": now}
    insert_ignore(session, WithdrawnRow, [entry])
    work = row.workload_key, row.target_key
    for _ in range(_ATTEMPTS):
        seen = _pointer(session, work)
        if seen is None or seen.record_key != key:
            return best_of(session, work)
        successor = _runner_up(session, work, withdrawn=from_row(row))
        next_key = successor.key if successor else None
        if _move(session, work, seen, next_key, f"withdrawn: {reason}", now):
            return successor
    raise RuntimeError(f"best of {work} moved {_ATTEMPTS} times while one record was withdrawn")


def _move(
    session: Session,
    work: Work,
    seen: BestRow | None,
    to_key: str | None,
    reason: str,
    now: datetime,
) -> bool:
    """Move the pointer; return False if another process moved it after `seen` was read."""
    workload_key, target_key = work
    version = 1 if seen is None else seen.version + 1
    names = {"workload_key": workload_key, "target_key": target_key}
    values: dict[str, Any] = {"record_key": to_key, "version": version, "moved_at": now}
    if seen is None:
        if not insert_ignore(session, BestRow, [names | values]):
            return False
    else:
        unmoved = (
            BestRow.workload_key == workload_key,
            BestRow.target_key == target_key,
            BestRow.version == seen.version,
        )
        statement = update(BestRow).where(*unmoved).values(values)
        statement = statement.execution_options(synchronize_session=False)
        if not changed(session.execute(statement)):
            return False
    before = None if seen is None else seen.record_key
    note = {"from_record_key": before, "to_record_key": to_key, "reason": reason}
    insert_ignore(session, BestMoveRow, [names | note | {"version": version, "moved_at": now}])
    return True


def best_of(session: Session, work: Work) -> TuningRecord | None:
    """Return the record to which the pointer points, or None if it is damaged or missing."""
    workload_key, target_key = work
    statement = _bests(RecordRow).where(
        BestRow.workload_key == workload_key, BestRow.target_key == target_key
    )
    return from_row(session.scalars(statement).one_or_none())


def _pointer(session: Session, work: Work) -> BestRow | None:
    workload_key, target_key = work
    fresh = select(BestRow).filter_by(workload_key=workload_key, target_key=target_key)
    fresh = fresh.with_for_update(key_share=True).execution_options(populate_existing=True)
    return session.scalars(fresh).one_or_none()


def _runner_up(session: Session, work: Work, withdrawn: TuningRecord | None) -> TuningRecord | None:
    """Return the fastest record of `work` that may be served, or None. Records of the generation of
    `withdrawn` are preferred, because times are compared only within a generation."""
    workload_key, target_key = work
    statement = (
        select(RecordRow)
        .where(RecordRow.workload_key == workload_key, RecordRow.target_key == target_key)
        .where(RecordRow.verified_level == FULL, RecordRow.status == "ok", text(NOT_WITHDRAWN))
        .order_by(RecordRow.estimate_secs, RecordRow.id)
    )
    checks = refusals_of_work(session, work)
    fit = [
        record
        for record in from_rows(session.scalars(statement))
        if checks.refusal(record.trace, record.toolchain) is None
    ]
    if withdrawn is not None:
        age = generation(withdrawn.toolchain)
        fit = [r for r in fit if generation(r.toolchain) == age] or fit
    return fit[0] if fit else None


def _bests(*columns: Any) -> Select[Any]:
    """Return a query of `columns` of the best records and their pointers."""
    return select(*columns).select_from(BestRow).join(RecordRow, text(IS_BEST))


def _numbers(version: str) -> tuple[int, ...]:
    dotted = re.match(r"\d{1,9}(\.\d{1,9})+", version)  # mocked timings have other texts
    return tuple(int(digits) for digits in dotted[0].split(".")) if dotted else ()


def _secs(record: TuningRecord) -> float:
    secs = record.result.run_secs_estimate
    assert secs is not None  # guaranteed by `check_record`
    return secs
