"""The schedule chosen without measurement."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..process.frames import Frame
from .prior_ranking import rank_for_default


def default_trace(workload: Workload, target: Target) -> Trace:
    """The analytic prior's best legal candidate. ScheduleError if there is none, as for a workload
    whose intermediate tensors exceed `MAX_WORKSPACE_BYTES`. Deterministic; needs neither LLVM nor
    xgboost."""
    return rank_for_default(space_for(workload, target)).default_trace


def default_of_document(document: dict[str, Any]) -> Frame:
    """The default trace of `workload` on `target`; called by a helper process."""
    trace = default_trace(
        Workload.from_json(document["workload"]), Target.from_json(document["target"])
    )
    return Frame({"trace": trace.to_json()})
