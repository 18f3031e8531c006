"""Find the best stored answer for a workload on a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schedules.record import Toolchain, TuningRecord
from schedules.rewritten import rewritten_document
from schedules.target import Target
from schedules.trace import Trace
from schedules.workload import Workload
from service.answers.grades import Answer, Grade, Stored, choose

if TYPE_CHECKING:
    from db import Store


@dataclass(frozen=True, slots=True)
class Found:
    """A stored record that will do: its grade, why not a better one, where it was made."""

    grade: Grade
    stored: Stored
    note: str

    def answer(
        self, workload: dict[str, Any], target: dict[str, Any], form: Callable[[], Workload]
    ) -> Answer:
        """The answer to tell, with short descriptions of what was asked. `form` gives the workload,
        which is needed where it was rewritten."""
        record, made_for = self.stored.record, self.stored.made_for
        trace, found = Trace.from_json(record.trace), record.result.error_found
        return Answer(
            grade=self.grade,
            workload=workload,
            target=target,
            trace=trace,
            rewritten=rewritten_document(form(), trace, found) if trace.rewrites else None,
            record_key=record.key,
            run_secs=record.result.run_secs_estimate,
            run_secs_with_packing=record.result.run_secs_with_packing,
            verified=record.verified_level == "full" and not self.note,
            note=self.note,
            made_for={"key": made_for.key, "cpu": made_for.cpu, "threads": made_for.threads},
            created_at=record.created_at or None,
        )


def find_answer(
    store: Store,
    workload_key: str,
    target: Target,
    minimum: Grade,
    toolchain: Toolchain | None,
    *,
    exact: TuningRecord | None = None,
) -> Found | None:
    """The best stored answer, or None. `exact` saves a query where it is known already.

    `toolchain` None trusts records whoever compiled them.
    """
    record = exact or store.best(workload_key, target.key)
    candidates = [Stored(record, target)] if record is not None else []
    chosen = choose(candidates, target, toolchain, minimum)
    if (chosen is None or chosen[0] is not Grade.EXACT) and minimum is not Grade.EXACT:
        candidates += [
            Stored(found.record, Target.from_json(found.target_document))
            for found in store.best_elsewhere(workload_key, target.key)
        ]
        chosen = choose(candidates, target, toolchain, minimum)
    return Found(*chosen) if chosen is not None else None
