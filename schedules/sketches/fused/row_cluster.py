"""Stages computed together along common rows, and what their structure allows in a row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from ..analysis import MOST_STEP, Loop, StageView
from .staggered import Steps, row_steps

FEWEST_COLUMNS = 8
"""Results that must share what they are made of, for lanes to lie along them."""

TASKS_A_THREAD = 4
"""Tasks that rows which are too few for the threads are divided into, so that work evens out."""


@dataclass(frozen=True, slots=True)
class RowCluster:
    """Stages computed together: `last` gives the outer loops, `inside` are computed in its rows,
    first to last. `rows` leading axes are shared."""

    last: StageView
    inside: tuple[StageView, ...]
    rows: int

    @property
    def stages(self) -> tuple[StageView, ...]:
        return (*self.inside, self.last)

    @property
    def divisible(self) -> bool:
        """Whether threads can share a reduction: there is one, over contiguous data, and it needs
        no other stage."""
        first, *others = self.stages
        along = contiguous_reduction(first)
        return along is not None and not any(view.is_reduction for view in others)


def spread_tasks(cluster: RowCluster, rows: int, threads: int) -> int:
    """Tasks a lone elementwise stage of few rows is divided into: its rows, if that will do."""
    spread = not cluster.inside and not cluster.last.is_reduction and rows < 2 * threads
    return rows * -(-TASKS_A_THREAD * threads // rows) if spread else rows


def column_piece(columns: int, threads: int, step: int) -> int:
    """Columns that a thread reduces, in whole steps of its vectors."""
    return ceil(ceil(columns / threads) / step) * step


def merged_stages(cluster: RowCluster) -> dict[str, str]:
    """Sums, each with the elementwise stage just before it whose values it adds up, in order:
    one walk along the row can do both."""
    found = {}
    for view, summed in pairwise(cluster.stages):
        along = contiguous_reduction(summed)
        reads = [r for r in summed.reads if r.tensor == view.name]
        divided = view.presolve or view.presplit or summed.presolve or summed.presplit
        if view.is_reduction or divided or along is None or len(summed.reduce) != 1 or not reads:
            continue
        loops = tuple(loop.name for loop in (*summed.spatial, *summed.reduce))
        if all(tuple(map(str, r.index)) == loops and not r.conditional for r in reads):
            found[summed.name] = view.name
    return found


def staggered_steps(cluster: RowCluster, lanes: int) -> Steps:
    """The steps in which rows of the cluster can be staggered; none if they cannot."""
    if not cluster.inside or not cluster.rows:
        return ()
    return row_steps(cluster.stages, cluster.rows, 2 * lanes, contiguous_reduction)


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
