"""Compares the results of two variants in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.schedules.workload.tensors import Stage

TOLERANCE = 1e-4
"""Tolerance relative to the largest element, for sums in different orders."""

ELEMENTWISE_TOLERANCE = 1e-5
"""Tolerance relative to the largest element, if there are no sums. GELU and its approximation
differ by more."""


def tolerance(stages: Sequence[Stage]) -> float:
    """Return the allowed difference of two variants, relative to the largest element."""
    reduces = any(not stage.is_elementwise for stage in stages)
    return TOLERANCE if reduces else ELEMENTWISE_TOLERANCE


def difference(result: Any, right: Any, allowed: float = TOLERANCE) -> str | None:
    """Return how tensor `result` differs from `right`, or None if the difference is at most
    `allowed`, relative to the largest element. A NaN differs."""
    if result.shape != right.shape:
        return f"gives the shape {tuple(result.shape)}"
    if not right.numel():
        return None
    scale = float(right.abs().max()) or 1.0
    off = float((result - right).abs().max()) / scale
    if off <= allowed:
        return None
    return f"gives another result: off by {off:.3g} of the largest element"
