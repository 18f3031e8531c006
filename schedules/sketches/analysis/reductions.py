"""Determine whether a reduction runs along contiguous data or across it."""

from __future__ import annotations

from ...leaves import MAX_LANE_STRIDE
from .stages import SHORT_AXIS, StageLoop, StageView


def contiguous_reduction(view: StageView) -> str | None:
    """Return the reduction loop along which all reads that depend on it are contiguous, or have a
    stride of a few elements if no operand is contiguous along the last spatial axis.

    Return None if there is no such loop, or if vectors along the last spatial axis can load the
    operands better.
    """
    if not view.is_reduction or _is_same_for_columns(view):
        return None
    most = 1 if _is_contiguous_for_columns(view) else MAX_LANE_STRIDE
    for loop in reversed(view.reduce):
        strides = [r.element_stride(loop.name) or 0 for r in view.reads if r.uses(loop.name)]
        if strides and all(1 <= s <= most for s in strides) and loop.extent > 1:
            return None if _is_window(view, loop) else loop.name
    return None


def _is_contiguous_for_columns(view: StageView) -> bool:
    return bool(view.spatial) and any(
        read.element_stride(view.spatial[-1].name) == 1 for read in view.reads
    )


def _is_same_for_columns(view: StageView) -> bool:
    """Return whether neighbouring results read the same elements under different conditions, as in
    a cumulative sum. One load then serves a whole vector of results."""
    if not view.spatial or view.spatial[-1].extent < SHORT_AXIS:
        return False
    return not any(read.uses(view.spatial[-1].name) for read in view.reads)


def _is_window(view: StageView, loop: StageLoop) -> bool:
    """Return whether `loop` iterates over a window of the last spatial axis. There must be at least
    as many windows as elements in a window. Neighbouring windows must be so close that lanes can be
    selected from whole vectors."""
    if not view.spatial or view.spatial[-1].extent < loop.extent:
        return False
    beside = view.spatial[-1].name
    steps = [r.element_stride(beside) for r in view.reads if r.uses(loop.name)]
    return all(step is not None and 1 <= step <= MAX_LANE_STRIDE for step in steps)


def is_along_columns(view: StageView) -> bool:
    """Return whether a reduction adds rows that are contiguous along the last spatial axis."""
    if not view.reduce or not view.spatial or contiguous_reduction(view) is not None:
        return False
    return _is_contiguous_for_columns(view)
