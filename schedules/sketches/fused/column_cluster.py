"""Stages computed together for a block of columns: neighbours along the contiguous axis.

A softmax along the first axis of a matrix, or the mean and the variance of every channel of an
image kept channels last: reductions walk over rows that lie far apart, and every stage has the
contiguous axis to itself. What one column needs of a stage is one column of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from ...algebra.affine import affine, var
from ...workload.workload import Workload
from ..analysis import Loop, StageView
from .row_cluster import FEWEST_COLUMNS, contiguous_reduction


@dataclass(frozen=True, slots=True)
class ColumnCluster:
    """Stages with a common last axis, the columns: `last` gives the outer loops, `inside` are
    computed in its blocks, first to last. `lead` leading axes are shared as well."""

    last: StageView
    inside: tuple[StageView, ...]
    lead: int

    @property
    def stages(self) -> tuple[StageView, ...]:
        return (*self.inside, self.last)

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return self.last.spatial[-1].extent

    @property
    def matrices(self) -> int:
        """How many times the shared leading axes repeat all columns."""
        return prod(loop.extent for loop in self.last.spatial[: self.lead])

    def depth(self, view: StageView) -> int:
        """Evaluations of a stage for one column of one matrix."""
        return view.points // (self.matrices * self.columns)

    @property
    def read_bytes(self) -> int:
        """Bytes of the rows that are walked over again, for one column of one matrix."""
        inside = {view.name for view in self.inside}
        deepest: dict[str, int] = {}
        for view in self.stages:
            for read in view.reads:
                if read.tensor not in inside and len(read.shape) > self.lead + 1:
                    size = self.depth(view) * read.dtype.bytes
                    deepest[read.tensor] = max(size, deepest.get(read.tensor, 0))
        return sum(deepest.values())


def column_cluster(
    workload: Workload, views: dict[str, StageView], name: str, remaining: Collection[str]
) -> ColumnCluster | None:
    """Stage `name` with those of `remaining` that only it and they need, column by column; None
    if there is no reduction over rows among them, or no second stage."""
    last = views[name]
    if not last.spatial or last.spatial[-1].extent < FEWEST_COLUMNS or not _is_by_column(last):
        return None
    lead = len(last.spatial) - 1
    inside: list[StageView] = []
    members = {name}
    for other in reversed(list(remaining)):
        readers = [v for v in views.values() if any(r.tensor == other for r in v.reads)]
        if other in workload.outputs or not readers or not {v.name for v in readers} <= members:
            continue
        if not _is_by_column(views[other]):
            continue
        shared = min(_shared_lead(reader, other) for reader in readers)
        if shared < 0:
            continue
        lead = min(lead, shared)
        inside.insert(0, views[other])
        members.add(other)
    cluster = ColumnCluster(last, tuple(inside), lead)
    reduces = any(view.is_reduction for view in cluster.stages)
    return cluster if inside and reduces else None


def _is_by_column(view: StageView) -> bool:
    """Whether vectors along the stage's last axis are loaded whole, or are one element."""
    if view.presolve or view.presplit or not view.spatial:
        return False
    if view.spatial[-1].dim != len(view.shape) - 1 or contiguous_reduction(view) is not None:
        return False
    along = [read.element_stride(view.spatial[-1].name) for read in view.reads]
    return all(step in (0, 1) for step in along) and 1 in along


def _shared_lead(reader: StageView, tensor: str) -> int:
    """How many leading axes of `reader` are those of every read of `tensor`; -1 unless the last
    axes are the same."""
    shared = len(reader.spatial) - 1
    for read in reader.reads:
        if read.tensor != tensor:
            continue
        if not read.index or not _is_loop(read.index[-1], reader.spatial[-1]):
            return -1
        same = 0
        for index, loop in zip(read.index[:-1], reader.spatial[:-1], strict=False):
            if not _is_loop(index, loop):
                break
            same += 1
        shared = min(shared, same)
    return shared


def _is_loop(index: object, loop: Loop) -> bool:
    return index == (var(loop.name) if loop.extent > 1 else affine(0))


def merged_columns(cluster: ColumnCluster) -> dict[str, str]:
    """Reductions, each with the elementwise stage just before it whose values it takes in order:
    one walk over the rows can do both."""
    found = {}
    for view, reduced in pairwise(cluster.stages):
        if view.is_reduction or not reduced.is_reduction:
            continue
        reads = [read for read in reduced.reads if read.tensor == view.name]
        if reads and all(
            not read.conditional and _is_in_order(cluster, reduced, read.index, view.spatial)
            for read in reads
        ):
            found[reduced.name] = view.name
    return found


def _is_in_order(
    cluster: ColumnCluster, reduced: StageView, index: Sequence[object], own: Sequence[Loop]
) -> bool:
    """Whether `index` is every loop of a reduction: shared ones, all those it reduces, columns."""
    shared = reduced.spatial[: cluster.lead]
    if len(reduced.spatial) != cluster.lead + 1:
        return False
    loops = (*shared, *reduced.reduce, reduced.spatial[-1])
    return len(loops) == len(own) == len(index) and all(
        _is_loop(i, loop) and loop.extent == mine.extent
        for i, loop, mine in zip(index, loops, own, strict=True)
    )
