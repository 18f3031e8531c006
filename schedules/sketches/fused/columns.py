"""The column sketch: stages that are computed together for one block of columns at a time.

    matrices and blocks of columns (parallel) | stages | rows | vectors | lanes

All stages iterate over the same few vectors of columns, so that the values between stages stay in a
core's private caches. Reductions over the rows accumulate in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Generic

import numpy as np

from ...arrays import BoolArray, IntArray
from ...leaves import Leaf, LeafLoop, Statement
from ...plan import Level, LoopLevel, Plan
from ...primitives import CacheWrite, ComputeAt, Merge
from ..analysis.reductions import contiguous_reduction
from ..analysis.stages import SHORT_AXIS, StageLoop, StageView
from ..analysis.tile_roles import is_product
from ..groups import (
    FusionGroup,
    Stages,
    absorb_producers,
    is_loop,
    leading_axes,
    merged,
    reads_boxes,
)
from ..knobs import (
    POWERS,
    N,
    knob,
    nontemporal_knob,
    parallel_knob,
    settings,
    stores_whole_lines,
    switch,
)
from ..statements import own_place, statement_of
from ..writer import BLOCKS, BODY, STEPS, UNROLLED, VECTORIZED, TraceWriter, called
from .common_axes import Walk
from .rows import RowPart


def column_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Return the group of `view` and earlier stages with the same columns, or None if it has one
    stage or no reduction over rows."""
    if not _is_by_column(view) or view.spatial[-1].extent < SHORT_AXIS:
        return None

    def common(other: StageView, reader: StageView) -> int:
        return _shared_beside_last(other.name, reader) if _is_by_column(other) else -1

    def fits(group: FusionGroup) -> bool:
        return reads_boxes(
            group, lambda view: (*view.spatial[: group.shared_axes], view.spatial[-1])
        )

    alone = FusionGroup(view, (), len(view.spatial) - 1)
    found = absorb_producers(stages, alone, common, 0, fits)
    sums = any(stage.is_reduction for stage in found.stages)
    return found if found.producers and sums else None


def _is_by_column(view: StageView) -> bool:
    """Return whether the stage can be vectorised along its last axis with contiguous loads and
    broadcasts only. Products are excluded because tiles are faster."""
    if view.phase_steps or view.axis_splits or not view.spatial or is_product(view):
        return False
    if view.spatial[-1].dim != len(view.shape) - 1 or contiguous_reduction(view) is not None:
        return False
    along = [read.element_stride(view.spatial[-1].name) for read in view.reads]
    return all(step in (0, 1) for step in along) and 1 in along


def _shared_beside_last(tensor: str, reader: StageView) -> int:
    """Return the number of leading axes, without the last one, that `reader` and all its reads of
    `tensor` have in common. Return -1 if the last axes differ."""
    own = [read.index for read in reader.reads if read.tensor == tensor]
    if not all(index and is_loop(index[-1], reader.spatial[-1]) for index in own):
        return -1
    others = (len(axes) - 1 for axes in (*own, reader.spatial))
    return min(leading_axes(tensor, reader), *others)


@settings
class ColumnSettings(Generic[N]):
    """Knobs of blocks of columns."""

    vectors: N = knob(lambda sketch: sketch.widths, usual=len(POWERS))
    """Largest number of vectors per block. All blocks have equal width, and threads get equal
    numbers of blocks."""
    parallel: N = parallel_knob(lambda sketch: sketch.group.repeats * sketch.most > 1)
    fuse_loops: N = knob(lambda sketch: switch(sketch.merged), usual=1)
    """Whether a reduction and the elementwise stage before it share one loop."""
    nontemporal_stores: N = nontemporal_knob(
        lambda sketch: (0,) if sketch.group.last.is_reduction else sketch.nontemporal_choices
    )


@dataclass(frozen=True)
class ColumnSketch(RowPart[ColumnSettings[IntArray], ColumnSettings[int]]):
    """The sketch of stages that are computed together for one block of columns at a time."""

    name = "columns"
    SETTINGS = ColumnSettings

    @property
    def most(self) -> int:
        return -(-self.group.last.spatial[-1].extent // self.lanes)

    @cached_property
    def merged(self) -> dict[str, str]:
        """The name of the elementwise stage that can share a loop with a reduction, by the name of
        the reduction."""

        def along_rows(view: StageView) -> list[StageLoop] | None:
            alone = len(view.spatial) == self.group.shared_axes + 1
            return list(self._axes(view).values()) if alone else None

        return merged(self.group, along_rows)

    @property
    def widths(self) -> tuple[int, ...]:
        """Values of the knob `vectors`: powers of two whose blocks fit a core's private caches."""
        return tuple(n for n in POWERS if n == 1 or (n <= self.most and self._keeps(n)))

    def _keeps(self, vectors: int) -> bool:
        """Return whether the intermediate values of a block of `vectors` vectors occupy at most
        half of a core's private caches."""
        kept = ((x, self._own_axes(x)[:-1]) for x in self.group.producers if not x.is_reduction)
        column = sum(prod(row.extent for row in rows) * x.dtype.bytes for x, rows in kept)
        return 2 * column * vectors * self.lanes <= self.target.own_cache_bytes

    def block_vectors(self, v: ColumnSettings[IntArray]) -> IntArray:
        """Return the width of all blocks in vectors, shape (P,)."""
        blocks = -(-self.most // v.vectors)
        threads = np.where(v.parallel > 0, self.target.threads, 1)
        if self.group.repeats == 1:
            blocks = np.minimum(-(-blocks // threads) * threads, self.most)
        return -(-self.most // blocks)

    block_levels = 1

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether non-temporal stores of a row of a block fill whole lines, shape (P,)."""
        v = self.values(settings)
        run = self.block_vectors(v) * self.lanes * self.group.last.dtype.bytes
        return stores_whole_lines(v.nontemporal_stores, run, self.target.line_bytes)

    def _own_axes(self, view: StageView) -> list[StageLoop]:
        *others, column = view.spatial[self.group.shared_axes :]
        return [*others, *view.reduce, column]

    @cached_property
    def _walks(self) -> Sequence[Walk]:
        """The axes of the stages. The last axes of all stages correspond, because the stages are
        written in this order, too."""
        own = {view.name: self._own_axes(view) for view in self.group.stages}
        most = max(map(len, own.values()))
        return [
            {name: loops[n - most] for name, loops in own.items() if len(loops) >= most - n}
            for n in range(most)
        ]

    def plan(self, settings: IntArray) -> Plan:
        """Return a plan of matrices and blocks of columns. Inside a block are the rows of each
        stage. Inside a row are the vectors of the block."""
        v = self.values(settings)
        *axes, column = range(len(self._outline.axes))
        lead, width, shared = (
            self.group.shared_axes,
            self.block_vectors(v) * self.lanes,
            v.parallel,
        )
        levels = (
            *(Level(axis, 1, shared > 0, BLOCKS) for axis in axes[:lead]),
            Level(column, width, shared > 0, BLOCKS),
            *(Level(axis, 1, role=STEPS) for axis in axes[lead:]),
            Level(column, self.lanes, role=BODY, kind=UNROLLED),
            Level(column, 1, role=BODY, kind=VECTORIZED),
        )
        return Plan(self._outline, levels, len(width), nontemporal=v.nontemporal_stores > 0)

    def _axes(self, view: StageView) -> dict[str, StageLoop]:
        """Return the axes of a stage by the names of the plan's axes. The last axes of both
        correspond."""
        lead, own = self.group.shared_axes, self._own_axes(view)
        names = [axis.name for axis in self._outline.axes]
        every = (*view.spatial[:lead], *own)
        return dict(zip((*names[:lead], *names[-len(own) :]), every, strict=True))

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaves, one stage after the other. In intermediate values, lanes beyond the
        last column are computed and discarded."""
        plan, merge = self.plan(settings), self.values(settings).fuse_loops > 0
        levels, copies = plan.loops(), plan.unroll_factors()
        around, column = [x.loop for x in levels if x.role == BLOCKS], levels[-1].loop
        blocks = plan.trips[:, : len(around)].prod(axis=1)
        block = LeafLoop(frozenset(around), blocks, None, plan.levels[0].is_parallel)
        vectors, does = (copies, column, self.lanes), dict[str, Statement]()
        for view in self.group.stages:
            own, loop, outside = self._axes(view), block, block
            for name in (x.loop for x in levels if x.role == STEPS and x.loop in own):
                loop = LeafLoop(frozenset({name}), own[name].extent, loop)
                outside = outside if own[name].reduce else loop
            names = {axis.name: name for name, axis in own.items()}
            does[view.name] = statement_of(view, names)
            filled = plan.mean_trips[-2] / copies[column] if view is self.group.last else 1
            if view.name in self.merged:
                yield Leaf(loop, does[self.merged[view.name]], *vectors, merge, filled)
            alone = 1 - merge * (view.name in self.merged.values())
            sums = copies[column] if view.is_reduction else 0
            yield Leaf(loop, does[view.name], *vectors, alone, filled, accumulators=sums)
            if view.is_reduction:
                result = Statement(writes=own_place(view, names))
                yield Leaf(outside, result, *vectors, 1, filled)

    def _loops(self, w: TraceWriter, setting: Sequence[int]) -> str:
        levels, fuse = self.plan(np.asarray([setting])).loops(), self.chosen(setting).fuse_loops
        around = [level for level in levels if level.role == BLOCKS]
        inside, last = levels[len(around) :], self.group.last
        made = w.arrange([*around, *(LoopLevel(axis.name) for axis in self._own_axes(last))])
        place = w.fuse_all(called(made, BLOCKS))
        now = {last.spatial[-1].name: made[-1][1]}
        for view in reversed(self.group.producers):
            now |= dict.fromkeys((x.name for x in view.spatial), "")
            now |= {old: new for old, (new,) in w.remake(ComputeAt(view.name, place)).items()}
        walks: dict[str, list[str]] = {}
        for view in self.group.stages:
            names = {name: now.get(x.name, x.name) for name, x in self._axes(view).items()}
            made = w.arrange(x._replace(loop=names[x.loop]) for x in inside if x.loop in names)
            rows = called(made, STEPS)
            if view.is_reduction:  # accumulators stay in registers
                results = (row for row in rows if not w.loop(row).reduce)
                w.do(CacheWrite(view.name, [place, *results][-1], f"{view.name}.acc"))
            # A stage moved by ComputeAt has no loop over a single row.
            short = [row for row in rows if w.loop(row).extent == 1]
            walks[view.name] = [loop for _, loop in made if loop not in short]
        for reduced, name in self.merged.items() if fuse else ():
            w.do(*(Merge(*pair) for pair in zip(walks[name], walks[reduced], strict=True)))
        return place
