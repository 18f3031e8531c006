"""A trial as the document that HTTP shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.schedules.full_checks import FullChecks
    from tilewright.schedules.record import TuningRecord


def trial_document(trial: int, record: TuningRecord, checks: FullChecks) -> dict[str, Any]:
    """One trial of a job: how it ended, every timed sample, the schedule, and what the full check
    found of it among `checks`, those of its work; None where it was not checked in full."""
    document = record.to_json()
    check = checks.check(record.trace, record.toolchain)
    return {
        "trial": trial,
        "record_key": record.key,
        "status": str(record.result.status),
        "run_secs": record.result.run_secs_estimate,
        "samples_secs": list(record.result.run_secs),
        "detail": record.result.detail,
        "compile_secs": record.result.compile_secs,
        "verify_secs": record.result.verify_secs,
        "measure_secs": record.result.measure_secs,
        "verified_level": record.verified_level,
        "evidence": document["result"].get("evidence"),
        "full_check": None if check is None else check.to_json(),
        "trace": document["trace"],
        "created_at": record.created_at,
    }
