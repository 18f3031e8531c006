"""The default schedule, chosen without measurement."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..process.frames import Frame
from .prior_ranking import rank_for_default


def default_trace(workload: Workload, target: Target) -> Trace:
    """Return the trace of the analytic prior's best legal candidate.

    Deterministic; needs neither LLVM nor xgboost. Raise ScheduleError if no candidate is legal, as
    for a workload whose intermediate tensors exceed `MAX_WORKSPACE_BYTES`.
    """
    return rank_for_default(space_for(workload, target)).default_trace


def default_of_document(document: dict[str, Any]) -> Frame:
    """Return the default trace of `workload` on `target`, for a helper process."""
    trace = default_trace(
        Workload.from_json(document["workload"]), Target.from_json(document["target"])
    )
    return Frame({"trace": trace.to_json()})
