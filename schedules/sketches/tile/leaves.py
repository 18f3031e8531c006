"""The statements in the loops of a tile's plan: leaves, for the cost model.

The innermost loop updates the accumulators. Outside of the reduction they are stored, added to
those of the previous block of the reduction, or read by an epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray, Number, map_unique
from ...leaves import Leaf, LeafLoop, Operations, Statement
from ...plan import Plan
from ..statements import own_names, own_place
from ..vectors import vectors_of
from ..writer import BATCHES, TILES, VECTORS_AT_ONCE
from .settings import TileSettings
from .stage import TileStage
from .tails import RemainderTiles


@dataclass(frozen=True)
class TileNest:
    """The nests of settings: their `plan`, and their remainder tiles along rows, innermost first,
    and along columns, by loop."""

    t: TileSettings[IntArray]
    plan: Plan
    tails: dict[str, RemainderTiles]

    @property
    def stage(self) -> TileStage:
        return self.t.stage

    @property
    def lane(self) -> str:
        return self.stage.roles.columns.name

    @cached_property
    def loops(self) -> dict[str, LeafLoop]:
        """The innermost loop of each role."""
        return {x.role: at for x, at in zip(self.plan.levels, self.plan.leaf_loops, strict=True)}

    @cached_property
    def lanes(self) -> FloatArray:
        """(P,) lanes of a vector, on average: the last one of a row may be narrower."""
        tail, lanes = self.tails[self.lane], self.stage.lanes
        narrow = tail.is_exact & (tail.computed_extent % self.t.nr < lanes)
        return np.where(
            narrow, tail.computed_extent / -(-tail.computed_extent // lanes), float(lanes)
        )

    def shares(self, elements: Iterable[IntArray | int]) -> dict[str, FloatArray]:
        """So many elements along each axis as a fraction of whole tiles; columns are counted in
        vectors."""
        *rows, columns = elements
        parts = (*rows, -(-columns // self.stage.lanes) * self.stage.lanes)
        tails = self.tails.items()
        return {
            axis: part / tail.padded_extent for (axis, tail), part in zip(tails, parts, strict=True)
        }

    def leaves(self) -> Iterator[Leaf]:
        """In program order."""
        t, stage = self.t, self.stage
        view, tails, axes = stage.view, self.tails.values(), own_names(stage.view)
        steps = t.written_out
        # Values between operand and sum, a row's in each step ahead.
        between = 1 + t.mr * (steps - 1) if view.operations > 2 else 0
        yield Leaf(
            self.plan.leaf_loops[-1], stage.update, self.plan.unroll_factors(), self.lane,
            self.lanes, self.clear, guarded_fraction=self.tested,
            accumulators=t.sums, extra_registers=between, unrolls_reduction=steps > 1,
            axis_fractions=self.shares(tail.computed_extent for tail in tails), is_chained=True,
            lane_tests=self._tests_padding * self._lane_conds,
            scalar_tests=self._tests_padding * (len(stage.padding) - self._lane_conds),
            retested_rows=self._retested_rows,
            spacing={self.lane: stage.lanes, stage.roles.main.name: stage.step_distance},
        )  # fmt: skip
        several, own = t.k_count > 1, own_place(view, axes)
        add = Statement((Operations(frozenset(axes), 1, 1),), (own,), own)
        size = [tail.extent for tail in tails]
        # Phases may have fewer rows than others.
        there: Number = prod(view.shape) / view.outputs
        for level in self.plan.levels:
            there = there / level.active_fraction if level.role == BATCHES else there
        if stage.finish:
            *rows, columns = tails
            # A guard that is left for rows that end in a block is left for columns too.
            ends = [
                (tail.padded_extent > tail.stored_extent) & (tail.stored_extent == tail.extent)
                for tail in rows
            ]
            kept = np.where(np.any(ends, axis=0), columns.extent, columns.stored_extent)
            yield self._of_tile(add, several, (*(tail.stored_extent for tail in rows), kept))
            last, after = stage.finish, several
            at_once = tuple(read for read in last.reads if read.tensor != view.name)
            yield self._of_tile(replace(last, reads=at_once), there * ~several, size)
        else:
            yield self._of_tile(Statement(writes=own), there * ~several, size)
            yield self._of_tile(add, there * several, size)
            # One thread adds up what others have summed of the reduction.
            last, after = add, np.where(t.splits, t.split_reduction, 0)
        if not np.any(after):
            return
        length = self.tails[self.lane].extent
        row, block = -(-length // stage.lanes), np.minimum(t.nr * t.columns.per_block, length)
        _, once = map_unique(lambda n: vectors_of(n, stage.lanes, VECTORS_AT_ONCE), block)
        around = LeafLoop(frozenset(axes), after * prod(view.shape) / length * t.columns.blocks)
        walk = LeafLoop(frozenset({self.lane}), row / t.columns.blocks / once, around)
        yield Leaf(walk, last, {self.lane: once}, self.lane, stage.lanes)

    def _of_tile(self, does: Statement, times: Number, size: Iterable[IntArray | int]) -> Leaf:
        """What is done with the accumulators outside of the reduction. If several copies inside of
        the row guard are guarded themselves, it stands around these."""
        copies = {axis: n for axis, n in self.plan.unroll_factors().items() if axis in self.tails}
        tested, inside = np.zeros(self.plan.num_settings), np.ones(self.plan.num_settings)
        for axis, count in reversed(copies.items()):
            if self._is_branch(axis):
                tested = np.maximum(tested, self.tails[axis].guarded_fraction * (inside == 1))
            inside = inside * count
        return Leaf(
            self.loops[TILES], does, copies, self.lane, self.lanes, times,
            guarded_fraction=tested, extra_registers=self.t.sums, axis_fractions=self.shares(size),
        )  # fmt: skip

    @property
    def clear(self) -> FloatArray | float:
        """(P,) the fraction of the updates in the innermost loop that is left where tiles skip
        padding."""
        return (
            np.where(self.t.skips_in_tiles, self.stage.useful_share, 1.0)
            if self.stage.border
            else 1.0
        )

    @property
    def _lane_conds(self) -> int:
        """The number of padding conditions that differ between lanes."""
        return sum(self.lane in cond.index.vars() for cond in self.stage.padding)

    @property
    def _tests_padding(self) -> BoolArray:
        """(P,) whether padded columns are read in place, under conditions."""
        found = ~self.t.copies_rows & ~self.t.skips_in_tiles
        return found & any(read.padded for read in self.stage.roles.column_reads)

    @cached_property
    def _retested_rows(self) -> IntArray:
        """(P,) second rows whose padding is skipped by a test in every iteration of a loop. Tests
        in unrolled iterations are branches, and phases have tests of their own."""
        t, stage, rows = self.t, self.stage, self.stage.roles.rows
        skips = t.skips_in_tiles & (t.tile_rows2 > 1)
        skips &= ~t.unrolls_main
        if len(rows) < 2 or stage.view.phase_steps or not skips.any():
            return np.zeros(self.plan.num_settings, np.int64)
        extent, tested = rows[1].extent, t.rows_tested
        # Any of several tiles may be at an edge.
        some = (t.rows2.tiles > 1) & (tested > 0) & (tested < extent)
        return np.where(skips, np.where(some, np.minimum(t.tile_rows2, extent), tested), 0)

    def _is_branch(self, axis: str) -> bool:
        """Whether the guard of an incomplete tile is a branch and not a mask of lanes."""
        return axis != self.lane or self.stage.roles.columns.extent % self.stage.lanes == 0

    @cached_property
    def tested(self) -> FloatArray:
        """(P,) the fraction of the updates under tests: reads in place that are padded or end in
        the middle of a tile. Copies have room for whole tiles."""
        t, stage = self.t, self.stage
        copied, packs = t.copies_rows, t.packs
        found = np.zeros(self.plan.num_settings)
        for read in stage.operands:
            in_place = ~copied if read in stage.copyable else np.ones_like(copied)
            if read in stage.packable:
                # Blocks that are transposed in registers may leave the end of a panel as it is.
                left = packs & stage.is_transposed(read) & (t.kc % stage.lanes != 0)
                in_place = ~packs | left
            for axis, tail in self.tails.items():
                if self._is_branch(axis) and read.uses(axis):
                    found = np.maximum(found, in_place * tail.guarded_fraction)
            if read.padded:
                found = np.maximum(found, in_place * self._padding)
        return found

    @cached_property
    def _padding(self) -> FloatArray:
        """(P,) the fraction of the updates that test padding, where it is not skipped. Tests are
        decided at compile time along unrolled taps, and for tiles that have a version of their own.
        """
        t, stage, every = self.t, self.stage, np.ones(self.plan.num_settings)
        left: dict[str, Number] = {x.name: x.extent > 1 for x in self.plan.outline.axes}
        left |= {x.name: ~t.unrolls_tap(n) for n, x in enumerate(stage.short_taps())}
        left[stage.roles.main.name] = ~t.unrolls_main
        left |= {axis: tail.undecided_fraction for axis, tail in self.tails.items()}
        conds = (cond.index.vars() for cond in stage.padding)
        decided = [every * prod(1 - left[name] for name in names) for names in conds]
        return np.asarray((t.skip_padding == 0) * (1 - np.min([every, *decided], axis=0)))
