"""The inner-product sketch: vectors along the reduction, and several rows and columns at a time.

It matches a large operand that is contiguous along the reduction and has few uses per element.
Examples are weights stored as outputs x inputs if the data has few rows, and images with many input
and few output channels. This operand is read once, in place; as many of its rows are read
concurrently as a tile has columns. Each result of a tile has a vector of partial sums in a
register, whose lanes are summed at the end. Packing such an operand would take as long as the
product, and vectors along a few results would have empty lanes.

If the rows of the other operand exceed the first cache, a block of tiles can process one part of
the reduction before the next. Its partial sums are then stored in the second cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil, log2

import numpy as np

from ...arrays import BoolArray, IntArray, map_unique
from ...hardware import BUSY_CHAINS, PAGE_BYTES, USABLE_SHARE
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ...memory_use import DistantRuns, MemoryUse, PrivateCopy
from ...nest.loop_ir import LoopKind
from ...plan import Access, Level, Outline, Plan
from ..analysis.stages import once
from ..knobs import Knobbed
from ..statements import bits_of, own_names, own_place, stage_outline, statement_of
from ..writer import BATCHES, BLOCKS, BODY, DEPTH, STEPS, TILES, TraceWriter
from .roles import TILE_COLUMNS, InnerProductSettings, InnerProductStage
from .trace import write_inner_product

PHASE = "phase"
"""Axis of leaves: the position of a column in a period. All operands but the large one repeat after
`period` columns."""


@dataclass(frozen=True)
class InnerProductSketch(
    InnerProductStage, Knobbed[InnerProductSettings[IntArray], InnerProductSettings[int]]
):
    """The sketch of reductions with vectors along the reduction axis."""

    name = "inner_product"
    SETTINGS = InnerProductSettings

    @property
    def tile_widths(self) -> tuple[int, ...]:
        """The values of `tile_columns`."""
        many, period = self.roles.many.extent, self.roles.period
        return tuple(n for n in TILE_COLUMNS if many % n == 0 and n % period == 0)

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether a setting is feasible, shape (P,).

        A setting is feasible if (1) registers hold the sums of a tile and the vectors of one
        operand, (2) blocks contain several tiles if the reduction is in blocks, and (3) rows are
        packed only if the reduction is in blocks, because a whole reduction reads packed rows no
        faster.
        """
        v = self.values(settings)
        rows, columns = v.tile_rows, v.tile_columns
        live = rows * columns + np.minimum(rows * self.roles.period, columns) + 1
        held = live < self.target.vector_registers
        whole = (v.reduction_blocks == 1) & (v.pack_rows == 0)
        ok: BoolArray = held & (whole | (self.tiles_in_block(v) > 1))
        return ok

    def tiles_in_block(self, v: InnerProductSettings[IntArray]) -> IntArray:
        (tiles,) = map_unique(lambda width: (self.tiles_per_block(width),), v.tile_columns)
        return np.where(v.reduction_blocks > 1, tiles, 1).astype(np.int64)

    @cached_property
    def _outline(self) -> Outline:
        roles = self.roles
        loops = (roles.many, roles.few, roles.along, *roles.batch, *roles.taps)
        # Vectors are counted in full, even if the last one is partially filled.
        whole = -(-roles.along.extent // self.lanes) * self.lanes
        return stage_outline(self.view, loops, once(self.view.reads), {roles.along.name: whole})

    def plan(self, settings: IntArray) -> Plan:
        """Return the plan. Its loops are blocks of tiles, parts of the reduction, tiles, and
        vectors of the reduction."""
        v, roles = self.values(settings), self.roles
        at = {axis.name: number for number, axis in enumerate(self._outline.axes)}
        many, few, along = (at[loop.name] for loop in (roles.many, roles.few, roles.along))
        vectors = -(-roles.along.extent // (self.lanes * v.reduction_blocks))
        shared, in_blocks = v.parallel > 0, v.reduction_blocks > 1
        codes = 1 + (roles.along.extent % self.lanes > 0)

        def unrolled(axis: int, there: BoolArray | bool = True) -> Level:
            return Level(axis, 1, False, BODY, LoopKind.UNROLLED, there)

        levels = (
            *(Level(at[loop.name], 1, shared, BATCHES) for loop in roles.batch),
            Level(many, v.tile_columns * self.tiles_in_block(v), shared, BLOCKS, present=in_blocks),
            Level(along, vectors * self.lanes, role=DEPTH, present=in_blocks),
            Level(many, v.tile_columns, shared & ~in_blocks, TILES),
            Level(few, v.tile_rows, role=TILES),
            *(Level(at[loop.name], 1, role=STEPS) for loop in roles.taps),
            Level(along, self.lanes, role=STEPS, num_versions=np.where(vectors > 1, codes, 1)),
            unrolled(few, ~in_blocks & (roles.few.dim < roles.many.dim)),
            unrolled(many),
            unrolled(few, in_blocks | (roles.few.dim > roles.many.dim)),
            Level(along, 1, role=BODY, kind=LoopKind.VECTORIZED),
        )
        return Plan(self._with_sums(in_blocks), levels, len(shared), self._dense(v))

    def _with_sums(self, in_blocks: BoolArray) -> Outline:
        """Return the outline with the vectors of partial sums as another access. They are in memory
        only if there are blocks."""
        outline, vector = self._outline, self.lanes * self.view.dtype.bytes
        tile = (self.roles.many.name, self.roles.few.name)
        strides = tuple(tuple(int(axis.name == x) for axis in outline.axes) for x in tile)
        around = len(self.roles.batch) + 1
        sums = Access(f"{self.view.name}.wide", vector * in_blocks, strides, private_levels=around)
        return replace(outline, accesses=(*outline.accesses, sums))

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaves in program order.

        A tile's sums are updated in vectors. Between parts of the reduction, the sums are stored in
        memory. At the end, the lanes are summed and the results are stored.
        """
        plan, v, roles = self.plan(settings), self.values(settings), self.roles
        at = {level.role: loop for level, loop in zip(plan.levels, plan.leaf_loops, strict=True)}
        many, few, along = (loop.name for loop in (roles.many, roles.few, roles.along))
        tile, in_blocks = {many: v.tile_columns, few: v.tile_rows}, v.reduction_blocks > 1
        walk = {few: v.tile_rows, many: v.tile_columns} if roles.few.dim < roles.many.dim else tile
        sums, phases = v.tile_rows * v.tile_columns, {PHASE: roles.period}
        for copies, times in ((walk | phases, ~in_blocks), (tile | phases, in_blocks)):
            yield Leaf(
                at[STEPS], self._update, copies, along, self.lanes, times,
                accumulators=sums, is_chained=True,
            )  # fmt: skip
        wide = AccessPattern("wide", ("wide",), {many: 1, few: 1, along: 1})
        axes, halves = frozenset({many, few, along}), ceil(log2(self.lanes))
        add = Statement((Operations(axes, 1, 1),), (wide,), wide)
        yield Leaf(at[TILES], add, tile, along, self.lanes, in_blocks)
        # Half of the instructions are shuffles.
        total = (Operations(axes, 2 * halves, halves),)
        whole = Statement(total, (), own_place(self.view, own_names(self.view)))
        yield Leaf(at[TILES], whole, tile, along, self.lanes, ~in_blocks)
        several = self.tiles_in_block(v) * in_blocks
        tiles = LeafLoop(frozenset({many}), several, at[DEPTH].parent)
        tiles = LeafLoop(frozenset({few}), roles.few.extent / v.tile_rows, tiles)
        yield Leaf(tiles, replace(whole, reads=(wide,)), tile, along, self.lanes, in_blocks)

    def memory(self, settings: IntArray) -> MemoryUse:
        """Return the memory use: copies of transposed and shared operands, and the rows of the
        large operand."""
        plan, v, roles = self.plan(settings), self.values(settings), self.roles
        at = {level.role: loop for level, loop in zip(plan.levels, plan.leaf_loops, strict=True)}
        copies = [PrivateCopy(read.bytes, 1, read.bytes) for read in roles.transposed]
        copies += [PrivateCopy(v.pack_rows * read.bytes) for read in self.shared]
        prefetches = v.prefetch > 0
        far = DistantRuns(
            roles.large.bytes * self.is_far,
            PAGE_BYTES,
            np.where(prefetches, 0.0, 1.0),
            prefetches * v.tile_columns * at[STEPS].executions,
        )
        return MemoryUse(tuple(copies), (far,))

    @cached_property
    def _update(self) -> Statement:
        """The update of a sum. Operands that repeat after some columns are indexed by the position
        in the period (PHASE). The other operands, or their copies, are contiguous along the
        reduction."""
        does, roles = statement_of(self.view, own_names(self.view)), self.roles
        reads = []
        for place in does.reads:
            steps = {**place.steps}
            if place.tensor != roles.large.tensor and steps.pop(roles.many.name, 0):
                steps[PHASE] = 1
            if roles.along.name in steps:
                steps[roles.along.name] = 1
            reads.append(AccessPattern(place.tensor, place.key, steps))
        return replace(does, reads=tuple(reads))

    def _dense(self, v: InnerProductSettings[IntArray]) -> IntArray:
        """Return a bit mask, (P,), of the accesses that are read through a copy; see
        `Plan.dense_mask`."""
        bits = partial(bits_of, self._outline)
        return bits(self.roles.transposed) + v.pack_rows * bits(self.shared)

    def default(self) -> tuple[int, ...]:
        """Return the default setting: the tile with the fewest loads per multiply-add, on all
        threads. The parts of the reduction are the longest whose data fits the first cache."""
        grid = self.feasible_of({})
        v = self.values(grid)
        chains = v.tile_rows * v.tile_columns
        worth = chains / (v.tile_rows + v.tile_columns) * np.minimum(chains / BUSY_CHAINS, 1.0)
        near = self.shared_bytes / v.reduction_blocks <= USABLE_SHARE * self.target.caches[0].bytes
        order = (
            -np.arange(len(grid)),
            -v.reduction_blocks,
            worth,
            v.parallel + v.prefetch + near,
        )
        return tuple(int(i) for i in grid[np.lexsort(order)[-1]])

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        levels = self.plan(np.asarray([setting])).loops()
        write_inner_product(self, writer, self.chosen(setting), levels)
