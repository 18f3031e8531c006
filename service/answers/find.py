"""Finds the best stored answer for a workload on a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.target import Target
from tilewright.schedules.trace_document import has_rewrites
from tilewright.service.answers.grades import Answer, StoredRecord, choose
from tilewright.service.grade import Grade

if TYPE_CHECKING:
    from tilewright.db import StoredEvidence
    from tilewright.schedules.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An acceptable stored record, its grade, and a note on why the grade is not better."""

    grade: Grade
    stored: StoredRecord
    note: str

    def answer(
        self, workload: dict[str, Any], target: dict[str, Any], form: Callable[[], Workload]
    ) -> Answer:
        """Return the answer, with short descriptions of workload and target. `form` returns the
        parsed workload; it is called only if the schedule has rewrites."""
        record, made_for = self.stored.record, self.stored.made_for
        return Answer(
            grade=self.grade,
            workload=workload,
            target=target,
            steps=record.trace,
            rewritten=_rewritten(record, form) if has_rewrites(record.trace) else None,
            record_key=self.stored.key,
            run_secs=record.result.run_secs_estimate,
            run_secs_with_packing=record.result.run_secs_with_packing,
            verified=record.verified_level == "full" and not self.note,
            evidence=evidence_document(record),
            note=self.note,
            made_for={"key": made_for.key, "cpu": made_for.cpu, "threads": made_for.threads},
            created_at=record.created_at or None,
        )


def evidence_document(record: TuningRecord) -> dict[str, Any] | None:
    """Return the scope of a record's full check (`Evidence`) as JSON data."""
    found = record.result.evidence
    return None if found is None else asdict(found)


def _rewritten(record: TuningRecord, form: Callable[[], Workload]) -> dict[str, Any] | None:
    # Start-up: few records have rewrites, and only these need the modules.
    from tilewright.schedules.rewritten import rewritten_document
    from tilewright.schedules.trace import Trace

    return rewritten_document(form(), Trace.from_json(record.trace), record.result.error_found)


def find_answer(
    evidence: StoredEvidence, target: Target, minimum: Grade, toolchain: Toolchain | None
) -> StoredAnswer | None:
    """Return the best answer from the stored rows, or None. `toolchain` None accepts all
    toolchains."""
    candidates = [
        stored
        for one in evidence.best()
        if _may_be_served(
            evidence, stored := StoredRecord(one.record, target, one.key), target, toolchain
        )
    ]
    chosen = choose(candidates, target, toolchain, minimum)
    if (chosen is None or chosen[0] is not Grade.EXACT) and minimum is not Grade.EXACT:
        elsewhere = [
            StoredRecord(one.record, Target.from_json(one.target_document), one.key)
            for one in evidence.elsewhere()
        ]
        candidates += [s for s in elsewhere if _may_be_served(evidence, s, target, toolchain)]
        chosen = choose(candidates, target, toolchain, minimum)
    return StoredAnswer(*chosen) if chosen is not None else None


def _may_be_served(
    evidence: StoredEvidence, stored: StoredRecord, target: Target, toolchain: Toolchain | None
) -> bool:
    """Return whether the record's schedule failed no full check: neither as compiled for the
    machine that measured it, nor as compiled for `target`."""
    record = stored.record
    made = evidence.refusals(stored.made_for.key).refusal(record.trace, record.toolchain)
    here = evidence.refusals(target.key).refusal(record.trace, toolchain or record.toolchain)
    return made is None and here is None
