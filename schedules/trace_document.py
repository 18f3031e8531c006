"""Traces as records hold them: JSON data, which can be passed on without reading its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .canonical import canonical_bytes

REWRITES = frozenset(
    {"ExtractCommonStage", "GatherOverTaps", "PermuteAxes", "PrecomputeFactors", "Winograd"}
)
"""The steps that change the expression, by name; they stand first."""

RENAMED_STEPS = {
    "AxisLast": "PermuteAxes",
    "Beforehand": "PrecomputeFactors",
    "OverTaps": "GatherOverTaps",
    "Share": "ExtractCommonStage",
}
"""Steps by the names that earlier versions wrote, with today's. A stored trace keeps its bytes:
`trace_key` and `Trace.from_json` read the old names as the new ones."""


def current_steps(steps: Sequence[Any]) -> list[Any]:
    """The steps of a trace by today's names."""
    return [_renamed(step) for step in steps]


def has_rewrites(steps: Sequence[Any]) -> bool:
    """Whether a trace of these steps changes the expression."""
    first = _renamed(steps[0]) if steps else None
    return isinstance(first, dict) and first.get("do") in REWRITES


def trace_key(steps: Sequence[Any]) -> bytes:
    """Equal for the documents of one trace, whichever version wrote them."""
    return canonical_bytes(current_steps(steps))


def _renamed(step: Any) -> Any:
    name = step.get("do") if isinstance(step, dict) else None
    new = RENAMED_STEPS.get(name) if isinstance(name, str) else None
    return step if new is None else {**step, "do": new}
