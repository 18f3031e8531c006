"""Whether two PyTorch results agree, as far as variants of one library must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.schedules.workload.tensors import Stage

TOLERANCE = 1e-4
"""Of the largest element, where sums are taken in different orders."""

ELEMENTWISE_TOLERANCE = 1e-5
"""Of the largest element, where nothing is summed: it tells GELU from its approximation."""


def tolerance(stages: Sequence[Stage]) -> float:
    """How far two variants of these stages may differ, as a part of the largest element."""
    reduces = any(not stage.is_elementwise for stage in stages)
    return TOLERANCE if reduces else ELEMENTWISE_TOLERANCE


def difference(result: Any, right: Any, allowed: float = TOLERANCE) -> str | None:
    """Why tensor `result` is not `right`, None if it is within `allowed`. A NaN never is."""
    if result.shape != right.shape:
        return f"gives the shape {tuple(result.shape)}"
    if not right.numel():
        return None
    scale = float(right.abs().max()) or 1.0
    off = float((result - right).abs().max()) / scale
    if off <= allowed:
        return None
    return f"gives another result: off by {off:.3g} of the largest element"
