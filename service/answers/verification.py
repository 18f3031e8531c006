"""The command `verify`: rebuild a stored best, check it, and update the database.

A record with wrong results is withdrawn and never becomes best again. If a record of another code
generator, or with mocked timings, passes, it is stored again as measured here. Missing files of a
record that passes are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tilewright.schedules.full_checks import DISPROVED, FULL
from tilewright.schedules.record import MeasureResult, TuningRecord
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service import database
from tilewright.service.answers.grades import same_toolchain
from tilewright.service.answers.publish import publish
from tilewright.service.resolve import toolchains

if TYPE_CHECKING:
    from tilewright.db import Store

IMPORTED = "imported"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of the check, and its effects: whether the record is `withdrawn`, and the key of
    the new record (`renewed_as`)."""

    record_key: str
    result: MeasureResult
    withdrawn: bool = False
    renewed_as: str | None = None
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "verified": self.result.ok,
            "record_key": self.record_key,
            "status": str(self.result.status),
            "detail": self.result.detail,
            "verify_secs": self.result.verify_secs,
            "evidence": self.result.to_json().get("evidence"),
            "withdrawn": self.withdrawn,
            "renewed_as": self.renewed_as,
            "warning": self.warning,
        }


def verify(workload: Workload, trace: Trace, target: Target, seed: int) -> MeasureResult:
    """Return the result of the full check of a schedule that is rebuilt in a fresh process."""
    # Start-up: the checker takes as long to load as everything else here.
    from tilewright.tuner.measure.local import verify_full

    return verify_full(workload, trace, target, seed=seed)


def verify_stored(
    db: str | None, workload: Workload, target: Target, record_key: str, trace: Trace, seed: int
) -> Verification:
    """Check a stored record with schedule `trace` in fresh processes."""
    result = verify(workload, trace, target, seed)
    with database.session(db) as store:
        if result.status in DISPROVED:
            withdraw_wrong(store, record_key, result)
            return Verification(record_key, result, withdrawn=True)
        if not result.ok:
            return Verification(record_key, result)
        record = store.record(record_key)
        own = None
        if record is not None and not _ours(record):
            own = renewed(store, record, result)
        published = publish(store, workload, target, own or record_key, trace)
    return Verification(record_key, result, renewed_as=own, warning=published.warning)


def withdraw_wrong(store: Store, record_key: str, result: MeasureResult) -> None:
    """Withdraw a stored record whose rebuilt schedule computes wrong results. Store the failed
    check as a separate record, so that no other record serves the schedule."""
    record = store.record(record_key)
    if record is not None:
        store.add([_checked_here(record, result)])
    store.withdraw(record_key, f"{result.status}: {result.detail}"[:500])


def failed_check(
    workload: Workload, target: Target, trace: Trace, result: MeasureResult
) -> TuningRecord:
    """Return the record of a full check that is not part of a search. Its trial number is 0."""
    return TuningRecord(
        workload_key=workload.key,
        target_key=target.key,
        threads=target.threads,
        trace=trace.to_json(),
        result=result,
        toolchain=toolchains.real_toolchain(),
        seed=0,
        trial=0,
        verified_level=FULL,
        created_at=_now(),
    )


def renewed(store: Store, record: TuningRecord, result: MeasureResult) -> str | None:
    """Store the checked schedule of `record` as a new record measured here. Return the new record's
    key, or None if `result` has no time. `record` must be of another toolchain or imported."""
    if result.run_secs_estimate is None:
        return None
    own = _checked_here(record, result)
    if record.verified_level == IMPORTED:
        store.confirm(record.key, own)
    else:
        store.add([own])
        store.promote(own)
    return own.key


def _checked_here(record: TuningRecord, result: MeasureResult) -> TuningRecord:
    return replace(
        record,
        result=result,
        toolchain=toolchains.real_toolchain(),
        verified_level=FULL,
        object_sha256=None,
        created_at=_now(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _ours(record: TuningRecord) -> bool:
    """Return whether the installed toolchain verified the record in full."""
    same = same_toolchain(record.toolchain, toolchains.toolchain())
    return same and record.verified_level == FULL
