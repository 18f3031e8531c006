"""The default schedule, chosen without measuring this workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

# Start-up: most default schedules are chosen by the prior alone, without related trials.

TRIED = 4
"""Number of candidates of the model that are tried before the analytic prior's best one."""


def default_trace(
    workload: Workload, target: Target, related: Sequence[RelatedTrial] = ()
) -> Trace:
    """Return the trace of the best legal candidate by the analytic prior, corrected by the trials
    of related workloads if there are any.

    Deterministic; needs neither LLVM nor xgboost. Raise ScheduleError if no candidate is legal, as
    for a workload whose intermediate tensors exceed `MAX_WORKSPACE_BYTES`.
    """
    space = space_for(workload, target)
    found = _from_related(space, related) if related else None
    return rank_for_default(space).default_trace if found is None else found


def _from_related(space: ScheduleSpace, related: Sequence[RelatedTrial]) -> Trace | None:
    """Return the first trial of a search that borrows the `related` trials, or None if its first
    candidates are not legal."""
    from .base import SearchGoal
    from .strategies.annealing import AnnealingStrategy

    for candidate in AnnealingStrategy(space, SearchGoal(related=related)).ask(TRIED):
        try:
            trace, nest = space.sketches[candidate.sketch].lowered(candidate.setting)
            plan_storage(nest)
        except ScheduleError:
            continue
        return trace
    return None


def default_of_document(document: dict[str, Any]) -> Frame:
    """Return the default trace of `workload` on `target`, with the `related` trials, for a helper
    process."""
    trace = default_trace(
        Workload.from_json(document["workload"]),
        Target.from_json(document["target"]),
        [RelatedTrial.from_json(trial) for trial in document["related"]],
    )
    return Frame({"trace": trace.to_json()})
