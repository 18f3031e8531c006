"""The default schedule, chosen without measuring this workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from tilewright.costmodel.correction import Correction
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.storage import plan_storage
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..process.frames import Frame
from .adaptation import RelatedTrial
from .prior_ranking import rank_for_default
from .spellings import SpelledTrace, first_legal

# Start-up: most default schedules are chosen by the prior alone, without related trials.

MOST_ASKED = 16
"""More than the trials of an opening with related trials."""

TRIED = 4
"""Number of candidates of the model that are tried before the analytic prior's best one."""


@dataclass(frozen=True, slots=True)
class DefaultChoice:
    """A schedule that was chosen without measuring the workload.

    `source`: number of the related task that has a measured trial with this setting, 0 if none. If
    the task is another spelling of the computation, the trial has the same loops.
    `log2_secs`: the predicted time of a call, and `log2_gain`: the predicted time of the choice
    without related trials over it, both in log2 units; None without related trials.
    """

    trace: Trace
    source: int = 0
    log2_secs: float | None = None
    log2_gain: float | None = None

    def to_json(self) -> dict[str, Any]:
        predicted = {"log2_secs": self.log2_secs, "log2_gain": self.log2_gain}
        return {"trace": self.trace.to_json(), "source": self.source, **predicted}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        return cls(**document | {"trace": Trace.from_json(document["trace"])})


def default_trace(workload: Workload, target: Target) -> Trace:
    """Return the trace of the best legal candidate by the analytic prior, see `default_choice`."""
    return default_choice(workload, target).trace


def default_choice(
    workload: Workload,
    target: Target,
    related: Sequence[RelatedTrial] = (),
    correction: Correction | None = None,
    spelled: Sequence[SpelledTrace] = (),
) -> DefaultChoice:
    """Return the first legal one of the `spelled` schedules, which are of other spellings of the
    computation. If there is none, return the best legal candidate by the analytic prior, corrected
    as at the start of a search: by the model of the database, if there is a `correction`, then by
    the trials of related tasks, if there are any.

    Deterministic; needs neither LLVM nor xgboost. Raise WorkloadError "too_large" if no candidate
    is legal because intermediate tensors exceed `MAX_WORKSPACE_BYTES`.
    """
    same = first_legal(workload, spelled)
    if same is not None:
        return DefaultChoice(same[0], same[1].source)
    space = space_for(workload, target)
    found = _from_related(space, related, correction) if related else None
    return found or DefaultChoice(rank_for_default(space, correction).default_trace)


def _from_related(
    space: ScheduleSpace, related: Sequence[RelatedTrial], correction: Correction | None
) -> DefaultChoice | None:
    """Return the first trial of a search that borrows the `related` trials, or None if its first
    candidates are not legal."""
    from .base import SearchGoal
    from .strategies.annealing import AnnealingStrategy

    strategy = AnnealingStrategy(space, SearchGoal(related=related, correction=correction))
    batch = strategy.ask(MOST_ASKED)
    predicted = strategy.predictions
    for candidate in batch[:TRIED]:
        try:
            trace, nest = space.sketches[candidate.sketch].lowered(candidate.setting)
            plan_storage(nest)
        except ScheduleError:
            continue
        without = predicted.get(strategy.prior_choice)
        log2_secs = predicted[candidate]
        gain = None if without is None else without - log2_secs
        return DefaultChoice(trace, strategy.source_of(candidate), log2_secs, gain)
    return None


def default_of_document(document: dict[str, Any]) -> Frame:
    """Return the default choice of `workload` on `target`, with the `related` trials, the
    `correction` and the `spelled` schedules, for a helper process."""
    correction = None
    if document["correction"] is not None:
        correction = Correction.from_document(document["correction"])
    choice = default_choice(
        Workload.from_json(document["workload"]),
        Target.from_json(document["target"]),
        [RelatedTrial.from_json(trial) for trial in document["related"]],
        correction,
        [SpelledTrace.from_json(one) for one in document["spelled"]],
    )
    return Frame(choice.to_json())
