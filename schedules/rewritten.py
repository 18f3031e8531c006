"""What a rewritten schedule costs in accuracy, as reports and answers tell it."""

from __future__ import annotations

from typing import Any

from .lowering.lower import stated_error
from .trace import Trace
from .workload.workload import Workload


def rewritten_document(
    workload: Workload, trace: Trace, error_found: float | None
) -> dict[str, Any] | None:
    """`steps` as text, `error_allowed`, `error_stated` (the largest proven bound of a step) and
    `error_found` in the full check, all relative to max|data| * max sum|weight| (docs/math.md);
    None where nothing is rewritten, or only regrouped."""
    stated = stated_error(workload, trace.rewrites)
    if not stated:
        return None
    return {
        "steps": [str(step) for step in trace.rewrites],
        "error_allowed": workload.allowed_error,
        "error_stated": stated,
        "error_found": error_found,
    }
