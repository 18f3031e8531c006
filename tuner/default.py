"""The schedule chosen with no measurement at all."""

from __future__ import annotations

from schedules.target import Target
from schedules.trace import Trace
from schedules.workload import Workload


def default_trace(workload: Workload, target: Target) -> Trace:
    """The analytic prior's best of the space. Deterministic; needs neither LLVM nor xgboost."""
    from schedules.rules import space_for

    from .search.first_look import default_candidate

    space = space_for(workload, target)
    return space.trace(default_candidate(space))
