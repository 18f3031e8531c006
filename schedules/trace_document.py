"""Traces as JSON data in records. Callers can pass this data on without parsing the steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from .canonical import canonical_bytes

REWRITES = frozenset({
    "CompactOutputs", "CopyOutput", "Deinterleave", "ExtractCommonStage", "GatherOverTaps",
    "GatherSelected", "IndexTestsFirst", "LocateExtreme", "MaskResult", "MergeAxes", "PermuteAxes",
    "PrecomputeFactors", "ReadThrough", "ReduceAxisLast", "RepeatConditions", "RepeatElements",
    "ReverseAxis", "ScanPrefixes", "SearchBlocks", "SelectOutputs", "SplitAxis", "SplitTuples",
    "Winograd",
})  # fmt: skip
"""Names of the steps that change the expression; these steps come first in a trace."""

RENAMED_STEPS = {
    "AxisLast": "PermuteAxes",
    "Beforehand": "PrecomputeFactors",
    "OverTaps": "GatherOverTaps",
    "Share": "ExtractCommonStage",
}
"""Map from the step names of earlier versions to current names. A stored trace keeps its bytes:
`trace_key` and `Trace.from_json` translate the old names."""


def current_steps(steps: Sequence[Any]) -> list[Any]:
    """Return the steps of a trace with current names."""
    return [_renamed(step) for step in steps]


def has_rewrites(steps: Sequence[Any]) -> bool:
    """Return whether a trace of these steps changes the expression."""
    first = _renamed(steps[0]) if steps else None
    return isinstance(first, dict) and first.get("do") in REWRITES


def leading_rewrites(steps: Sequence[Any]) -> list[Any]:
    """Return the steps of a trace that change the expression, with current names."""
    return list(takewhile(lambda step: has_rewrites([step]), current_steps(steps)))


def trace_key(steps: Sequence[Any]) -> bytes:
    """Return a key that is equal for all documents of one trace, independent of the version."""
    return canonical_bytes(current_steps(steps))


def _renamed(step: Any) -> Any:
    name = step.get("do") if isinstance(step, dict) else None
    new = RENAMED_STEPS.get(name) if isinstance(name, str) else None
    return step if new is None else {**step, "do": new}
