"""How a reduction walks over its data: along what is contiguous, or across it."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import MOST_STEP, Loop, StageView

FEWEST_COLUMNS = 8
"""Results that must share what they are made of, for lanes to lie along them."""


def contiguous_reduction(view: StageView) -> str | None:
    """The reduction loop along which all reads that move with it are contiguous, if there is."""
    if not view.is_reduction or _is_same_for_columns(view):
        return None
    for loop in reversed(view.reduce):
        strides = [r.element_stride(loop.name) for r in view.reads if r.uses(loop.name)]
        if strides and all(s == 1 for s in strides) and loop.extent > 1:
            return None if _is_window(view, loop) else loop.name
    return None


def _is_same_for_columns(view: StageView) -> bool:
    """Whether neighbouring results are made of the same elements and differ in the conditions
    only, as in a cumulative sum: an element read once then serves a whole vector of results."""
    if not view.spatial or view.spatial[-1].extent < FEWEST_COLUMNS:
        return False
    return not any(read.uses(view.spatial[-1].name) for read in view.reads)


def _is_window(view: StageView, loop: Loop) -> bool:
    """Whether `loop` walks windows that lie side by side, so near that vectors along them are
    read whole, and at least as many as a window is long."""
    if not view.spatial or view.spatial[-1].extent < loop.extent:
        return False
    beside = view.spatial[-1].name
    steps = [r.element_stride(beside) for r in view.reads if r.uses(loop.name)]
    return all(step is not None and 1 <= step <= MOST_STEP for step in steps)


def is_along_columns(view: StageView) -> bool:
    """Whether a reduction walks over rows that are contiguous along another axis."""
    if not view.reduce or not view.spatial or contiguous_reduction(view) is not None:
        return False
    last = view.spatial[-1].name
    return any(r.element_stride(last) == 1 for r in view.reads)


def chunks_of(views: Sequence[StageView]) -> tuple[int, ...]:
    """Rows that a reduction along columns may add up at a time, 0 for all of them."""
    longest = max((v.reduce[-1].extent for v in views if is_along_columns(v)), default=0)
    return (0, *(n for n in (2, 4, 8, 16) if 2 * n <= longest))


def row_walk(view: StageView) -> tuple[Loop, ...] | None:
    """The loops of a reduction that walks along rows once, see `merged`."""
    loops = (*view.spatial, *view.reduce)
    short = any(loop.extent == 1 for loop in loops)
    along = contiguous_reduction(view)
    return None if along is None or len(view.reduce) != 1 or short else loops
