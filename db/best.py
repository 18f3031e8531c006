"""The best of each (workload, target): a pointer that only something proven better can move."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, or_, select, tuple_, update
from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import DISPROVED, FULL
from tilewright.schedules.record import Toolchain, TuningRecord

from .engine import changed, insert_ignore
from .errors import NotRegistered
from .full_checks import FullCheckRepository
from .models import BestMoveRow, BestRow, RecordRow, TargetRow, WithdrawnRow
from .records import RecordRepository
from .rows import from_row, from_rows
from .works import target_document

_KEYS_PER_QUERY = 1000
_RACES = 100
MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class BestMove:
    """One move of a best pointer. `to_record_key` is None where nothing was left to point at."""

    version: int
    from_record_key: str | None
    to_record_key: str | None
    reason: str
    moved_at: datetime


@dataclass(frozen=True, slots=True)
class BestElsewhere:
    """The best of the same workload on another target."""

    record: TuningRecord
    target_document: dict[str, Any]


def generation(toolchain: Toolchain) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Orders toolchains by age: code generator, LLVM, llvmlite. Later compares greater."""
    return toolchain.codegen_version, _numbers(toolchain.llvm), _numbers(toolchain.llvmlite)


def reason_to_move(incumbent: TuningRecord | None, challenger: TuningRecord) -> str | None:
    """Why `challenger` takes the place of `incumbent`, or None if it does not.

    Only a record verified in full may. Times of one generation of the toolchain compare; equal
    times leave the older record. A record of an older generation would have to be verified
    again before it is served, so a newer generation's record replaces it whatever its time.
    """
    if not challenger.result.ok or challenger.verified_level != FULL:
        return None
    if incumbent is None:
        return "first"
    ages = generation(challenger.toolchain), generation(incumbent.toolchain)
    if ages[0] != ages[1]:
        return "newer toolchain" if ages[0] > ages[1] else None
    return "faster" if _secs(challenger) < _secs(incumbent) else None


class BestRepository:
    """Works in the session it is given; the caller commits.

    Where writers are not alone (PostgreSQL), moving a best locks first the record concerned and
    then the pointer, so that a record cannot be withdrawn and promoted at one moment.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._records = RecordRepository(session)
        self._checks = FullCheckRepository(session)

    def get(self, workload_key: str, target_key: str) -> TuningRecord | None:
        """The record the pointer names, None if there is none or it is damaged."""
        statement = _served(select(RecordRow)).where(
            BestRow.workload_key == workload_key, BestRow.target_key == target_key
        )
        return from_row(self._session.scalars(statement).one_or_none())

    def get_many(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], TuningRecord]:
        """The best of each (workload_key, target_key) that has one; one query a thousand keys."""
        found: dict[tuple[str, str], TuningRecord] = {}
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            asked = list(keys[start : start + _KEYS_PER_QUERY])
            statement = _served(select(RecordRow)).where(
                tuple_(BestRow.workload_key, BestRow.target_key).in_(asked)
            )
            for record in from_rows(self._session.scalars(statement)):
                found[record.workload_key, record.target_key] = record
        return found

    def elsewhere(self, workload_key: str, target_key: str) -> list[BestElsewhere]:
        """The best on every other target, fastest first, with what those targets are."""
        statement = (
            _served(select(RecordRow, TargetRow))
            .join(TargetRow, TargetRow.key == RecordRow.target_key)
            .where(BestRow.workload_key == workload_key, BestRow.target_key != target_key)
            .order_by(RecordRow.estimate_secs, RecordRow.id)
        )
        found: list[BestElsewhere] = []
        for row, target in self._session.execute(statement):
            record, document = from_row(row), target_document(target)
            if record is not None and document is not None:
                found.append(BestElsewhere(record, document))
        return found

    def works_of_others(self, toolchain: Toolchain) -> list[tuple[str, str]]:
        """Each work, (workload_key, target_key), whose best another toolchain made, in the order in
        which they became best."""
        by_others = or_(
            RecordRow.codegen_version != toolchain.codegen_version,
            RecordRow.llvmlite != toolchain.llvmlite,
        )
        statement = (
            _served(select(RecordRow.workload_key, RecordRow.target_key))
            .where(by_others)
            .order_by(BestRow.moved_at, RecordRow.id)
        )
        return [(row[0], row[1]) for row in self._session.execute(statement)]

    def promote(self, key: str, now: datetime) -> bool:
        """Make the stored record `key` the best if it has reason to be; whether it is now.

        NotRegistered if no such record is stored.
        """
        challenger = self._records.get(key, locked=True)
        if challenger is None:
            raise NotRegistered(f"record {key}: not stored, so it cannot be the best; add it first")
        if self._records.withdrawn(key) is not None:
            return False
        work = challenger.workload_key, challenger.target_key
        if self._checks.refusals(*work).refusal(challenger.trace, challenger.toolchain):
            return False
        for _ in range(_RACES):
            seen = self._pointer(*work)
            if seen is not None and seen.record_key == key:
                return True
            incumbent = self.get(*work)
            reason = reason_to_move(incumbent, challenger)
            if reason is None:
                return False
            if incumbent is None and seen is not None and seen.record_key is not None:
                reason = "incumbent damaged"
            if self.move(work, seen, key, reason, now):
                return True
        raise RuntimeError(f"best of {work} moved {_RACES} times while one record was compared")

    def withdraw_disproved(self, records: Sequence[TuningRecord], now: datetime) -> None:
        """Withdraw what the failed full checks among `records`, which are stored, disprove: every
        record that passed with the same schedule, of the same toolchain."""
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
                    RecordRow.key.not_in(select(WithdrawnRow.record_key)),
                )
                .order_by(RecordRow.id)
            )
            reason = f"{failed.result.status}: {failed.result.detail}"[:MOST_REASON]
            for passed in from_rows(self._session.scalars(statement).all()):
                if passed.trace_key == failed.trace_key:
                    self.withdraw(passed.key, reason, now)

    def withdraw(self, key: str, reason: str, now: datetime) -> TuningRecord | None:
        """Never serve record `key` again; the best of its work afterwards, if any is left."""
        row = self._records.row(key, locked=True)
        if row is None:
            raise NotRegistered(f"record {key}: not stored, so there is nothing to withdraw")
        entry = {"record_key": key, "reason": reason, "created_at": now}
        insert_ignore(self._session, WithdrawnRow, [entry])
        work = row.workload_key, row.target_key
        for _ in range(_RACES):
            seen = self._pointer(*work)
            if seen is None or seen.record_key != key:
                return self.get(*work)
            successor = self._runner_up(*work, reading=from_row(row))
            next_key = successor.key if successor else None
            if self.move(work, seen, next_key, f"withdrawn: {reason}", now):
                return successor
        raise RuntimeError(f"best of {work} moved {_RACES} times while one record was withdrawn")

    def history(self, workload_key: str, target_key: str) -> list[BestMove]:
        """Every move of this pointer, oldest first."""
        statement = (
            select(BestMoveRow)
            .filter_by(workload_key=workload_key, target_key=target_key)
            .order_by(BestMoveRow.version)
        )
        return [
            BestMove(m.version, m.from_record_key, m.to_record_key, m.reason, m.moved_at)
            for m in self._session.scalars(statement)
        ]

    def move(
        self,
        work: tuple[str, str],
        seen: BestRow | None,
        to_key: str | None,
        reason: str,
        now: datetime,
    ) -> bool:
        """Move the pointer if it is still as `seen`; False if someone else moved it first."""
        workload_key, target_key = work
        version = 1 if seen is None else seen.version + 1
        names = {"workload_key": workload_key, "target_key": target_key}
        values: dict[str, Any] = {"record_key": to_key, "version": version, "moved_at": now}
        if seen is None:
            if not insert_ignore(self._session, BestRow, [names | values]):
                return False
        else:
            unmoved = (
                BestRow.workload_key == workload_key,
                BestRow.target_key == target_key,
                BestRow.version == seen.version,
            )
            statement = update(BestRow).where(*unmoved).values(values)
            statement = statement.execution_options(synchronize_session=False)
            if not changed(self._session.execute(statement)):
                return False
        before = None if seen is None else seen.record_key
        note = {"from_record_key": before, "to_record_key": to_key, "reason": reason}
        insert_ignore(
            self._session, BestMoveRow, [names | note | {"version": version, "moved_at": now}]
        )
        return True

    def _pointer(self, workload_key: str, target_key: str) -> BestRow | None:
        names = {"workload_key": workload_key, "target_key": target_key}
        fresh = select(BestRow).filter_by(**names).with_for_update(key_share=True)
        fresh = fresh.execution_options(populate_existing=True)
        return self._session.scalars(fresh).one_or_none()

    def _runner_up(
        self, workload_key: str, target_key: str, reading: TuningRecord | None
    ) -> TuningRecord | None:
        """The fastest other record fit to serve, of the generation of `reading` where known."""
        out = select(WithdrawnRow.record_key)
        statement = (
            select(RecordRow)
            .where(RecordRow.workload_key == workload_key, RecordRow.target_key == target_key)
            .where(RecordRow.verified_level == FULL, RecordRow.status == "ok")
            .where(RecordRow.key.not_in(out))
            .order_by(RecordRow.estimate_secs, RecordRow.id)
        )
        checks = self._checks.refusals(workload_key, target_key)
        fit = [
            record
            for record in from_rows(self._session.scalars(statement))
            if checks.refusal(record.trace, record.toolchain) is None
        ]
        if reading is not None:
            age = generation(reading.toolchain)
            fit = [r for r in fit if generation(r.toolchain) == age] or fit
        return fit[0] if fit else None


def _served(statement: Any) -> Select[Any]:
    """Joins what the pointers name. That it is fit to serve is asked again, not believed."""
    served: Select[Any] = statement.join(
        BestRow,
        and_(
            BestRow.record_key == RecordRow.key,
            BestRow.workload_key == RecordRow.workload_key,
            BestRow.target_key == RecordRow.target_key,
            RecordRow.status == "ok",
            RecordRow.verified_level == FULL,
        ),
    ).where(RecordRow.key.not_in(select(WithdrawnRow.record_key)))
    return served


def _numbers(version: str) -> tuple[int, ...]:
    dotted = re.match(r"\d{1,9}(\.\d{1,9})+", version)  # others (mocked timings) have no order
    return tuple(int(digits) for digits in dotted[0].split(".")) if dotted else ()


def _secs(record: TuningRecord) -> float:
    secs = record.result.run_secs_estimate
    assert secs is not None  # an OK record has a time, checked before it was stored
    return secs
