"""What `verify` does with a stored best: rebuild it, check it, and keep the store honest.

A record that computes wrong results is withdrawn and never best again. One made by another code
generator, or with mocked timings, that passes is stored anew as measured here. The files of one
that passes are kept where they are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from schedules.record import MeasureResult, MeasureStatus, TuningRecord
from schedules.target import Target
from schedules.workload.workload import Workload
from service import database
from service.answers.grades import Answer, same_toolchain
from service.answers.publish import publish
from service.resolve import toolchains

if TYPE_CHECKING:
    from db import Store

IMPORTED = "imported"
WRONG = frozenset({MeasureStatus.WRONG_RESULT, MeasureStatus.OUT_OF_BOUNDS})
"""What no second try makes right; a deadline or a lost process may be the machine's fault."""


@dataclass(frozen=True, slots=True)
class Verification:
    """How the check ended, and what it changed: `withdrawn`, or the key it is `renewed_as`."""

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


def verify(workload: Workload, found: Answer, target: Target, seed: int) -> MeasureResult:
    """Rebuild in a fresh process and check in full."""
    # Start-up: what checks a kernel takes as long to load as all else here.
    from tuner.measure.local import verify_full

    return verify_full(workload, found.trace, target, seed=seed)


def verify_stored(
    db: str | None, workload: Workload, target: Target, found: Answer, seed: int
) -> Verification:
    """Check the record of `found`, which is stored, in fresh processes."""
    assert found.record_key is not None
    result = verify(workload, found, target, seed)
    with database.session(db) as store:
        if result.status in WRONG:
            reason = f"{result.status}: {result.detail}"[:500]
            store.withdraw(found.record_key, reason)
            return Verification(found.record_key, result, withdrawn=True)
        if not result.ok:
            return Verification(found.record_key, result)
        record = store.record(found.record_key)
        own = None
        if record is not None and not _ours(record):
            own = renewed(store, record, result)
        key = own or found.record_key
        published = publish(store, workload, target, key, found.trace)
    return Verification(found.record_key, result, renewed_as=own, warning=published.warning)


def renewed(store: Store, record: TuningRecord, result: MeasureResult) -> str | None:
    """Store a record of another toolchain, or of others, as this one's own, with the time just
    measured; its key. None where no time was measured."""
    if result.run_secs_estimate is None:
        return None
    own = replace(
        record,
        result=result,
        toolchain=toolchains.real_toolchain(),
        verified_level="full",
        object_sha256=None,
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    if record.verified_level == IMPORTED:
        store.confirm(record.key, own)
    else:
        store.add([own])
        store.promote(own)
    return own.key


def _ours(record: TuningRecord) -> bool:
    """Whether the record was verified in full by the toolchain installed here."""
    same = same_toolchain(record.toolchain, toolchains.toolchain())
    return same and record.verified_level == "full"
