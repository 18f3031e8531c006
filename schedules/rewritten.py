"""The accuracy of a rewritten schedule, as reported to users."""

from __future__ import annotations

from typing import Any

from .lowering.lower import stated_error
from .trace import Trace
from .workload.workload import Workload


def rewritten_document(
    workload: Workload, trace: Trace, error_found: float | None
) -> dict[str, Any] | None:
    """Return the document of the errors of the rewrites of `trace`, or None if no error is stated.

    Its fields are `steps` as text, `error_allowed`, `error_stated` (the largest proven bound of a
    step) and `error_found` in the full check. All errors are relative to max|data| * max
    sum|weight| (docs/math.md). No error is stated if the trace has no rewrites, or only rewrites
    that reassociate.
    """
    stated = stated_error(workload, trace.rewrites)
    if not stated:
        return None
    return {
        "steps": [str(step) for step in trace.rewrites],
        "error_allowed": workload.allowed_error,
        "error_stated": stated,
        "error_found": error_found,
    }
