"""Leaves of the tile sketch: the operations of a tile inside the loops of its plan.

Sums are updated in the innermost loop. After the reduction they are stored, added to the sums of
the previous block of the reduction, or consumed by an epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from ...algebra.scalar_function import FUNCTION_OPS
from ...arrays import BoolArray, FloatArray, IntArray, Number, map_unique
from ...hardware import BUSY_CHAINS, OPS_IN_FLIGHT
from ...leaves import Leaf, LeafLoop, Operations, Statement
from ...plan import Plan
from ..statements import own_names, own_place
from ..vectors import vectors_of
from ..writer import BATCHES, TILES, VECTORS_AT_ONCE
from .remainders import RemainderTiles
from .settings import TileSettings
from .stage import TileStage


@dataclass(frozen=True)
class TileNest:
    """The loop nests of a tiled stage for P settings."""

    t: TileSettings[IntArray]
    plan: Plan
    """The loops of the nests."""
    remainders: dict[str, RemainderTiles]
    """The remainder tiles by loop: along rows, innermost first, then along columns."""

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
        """Average number of lanes per vector, shape (P,). A remainder shorter than a vector is
        computed with shorter vectors."""
        end, lanes = self.remainders[self.lane], self.stage.lanes
        narrow = end.is_exact & (end.computed_extent % self.t.nr < lanes)
        return np.where(
            narrow, end.computed_extent / -(-end.computed_extent // lanes), float(lanes)
        )

    def shares(self, elements: Iterable[IntArray | int]) -> dict[str, FloatArray]:
        """Return `elements` along each axis, divided by the elements of all tiles if each were
        full. Columns are counted in whole vectors."""
        *rows, columns = elements
        parts = (*rows, -(-columns // self.stage.lanes) * self.stage.lanes)
        remainders = self.remainders.items()
        return {
            axis: part / end.padded_extent
            for (axis, end), part in zip(remainders, parts, strict=True)
        }

    def leaves(self) -> Iterator[Leaf]:
        t, stage = self.t, self.stage
        view, remainders, axes = stage.view, self.remainders.values(), own_names(stage.view)
        steps = t.unrolled_copies
        # Registers between operand and sum: one, and one per row in each additional step.
        between = 1 + t.mr * (steps - 1) if view.operations > 2 else 0
        yield Leaf(
            self.plan.leaf_loops[-1], stage.update, self.plan.unroll_factors(), self.lane,
            self.lanes, self.clear, guarded_fraction=self.tested,
            accumulators=t.sums, extra_registers=between, unrolls_reduction=steps > 1,
            axis_fractions=self.shares(end.computed_extent for end in remainders), is_chained=True,
            lane_tests=np.maximum(self._tests_padding, self._undecided_edges) * self._lane_conds,
            scalar_tests=self._tests_padding * (len(stage.padding) - self._lane_conds),
            retested_rows=self._retested_rows,
            spacing={self.lane: stage.lanes, stage.roles.main.name: stage.step_distance},
        )  # fmt: skip
        several, own = t.k_count > 1, own_place(view, axes)
        add = Statement((Operations(frozenset(axes), 1, 1),), (own,), own)
        size = [end.extent for end in remainders]
        # Some phases may have fewer rows than others.
        there: Number = prod(view.shape) / view.outputs
        for level in self.plan.levels:
            there = there / level.active_fraction if level.role == BATCHES else there
        if stage.finish:
            *rows, columns = remainders
            # If a guard on the last rows of a block remains, the guard on columns remains too.
            ends = [
                (end.padded_extent > end.stored_extent) & (end.stored_extent == end.extent)
                for end in rows
            ]
            kept = np.where(np.any(ends, axis=0), columns.extent, columns.stored_extent)
            yield self._of_tile(add, several, (*(end.stored_extent for end in rows), kept))
            last, after = stage.finish, several
            at_once = tuple(read for read in last.reads if read.tensor != view.name)
            finish = self._of_tile(replace(last, reads=at_once), there * ~several, size)
            yield replace(finish, latency_chain=finish.all_copies * waits_of(last))
        else:
            yield self._of_tile(Statement(writes=own), there * ~several, size)
            yield self._of_tile(add, there * several, size)
            # One thread adds the partial sums that the other threads computed.
            last, after = add, np.where(t.splits, t.split_reduction, 0)
        if not np.any(after):
            return
        length = self.remainders[self.lane].extent
        row, block = -(-length // stage.lanes), np.minimum(t.nr * t.columns.per_block, length)
        _, once = map_unique(lambda n: vectors_of(n, stage.lanes, VECTORS_AT_ONCE), block)
        around = LeafLoop(frozenset(axes), after * prod(view.shape) / length * t.columns.blocks)
        walk = LeafLoop(frozenset({self.lane}), row / t.columns.blocks / once, around)
        yield Leaf(walk, last, {self.lane: once}, self.lane, stage.lanes)

    def _of_tile(self, does: Statement, times: Number, size: Iterable[IntArray | int]) -> Leaf:
        """Return the leaf that executes the statement `does` for the sums of a tile, outside the
        steps of the reduction. A guard on rows that encloses several copies counts as one
        branch."""
        copies = {
            axis: n for axis, n in self.plan.unroll_factors().items() if axis in self.remainders
        }
        tested, inside = np.zeros(self.plan.num_settings), np.ones(self.plan.num_settings)
        for axis, count in reversed(copies.items()):
            if self._is_branch(axis):
                tested = np.maximum(tested, self.remainders[axis].guarded_fraction * (inside == 1))
            inside = inside * count
        return Leaf(
            self.loops[TILES], does, copies, self.lane, self.lanes, times,
            guarded_fraction=tested, extra_registers=self.t.sums, axis_fractions=self.shares(size),
        )  # fmt: skip

    @property
    def clear(self) -> FloatArray | float:
        """Fraction of the updates that remain if tiles skip padding, (P,) or a scalar."""
        return (
            np.where(self.t.skips_in_tiles, self.stage.useful_share, 1.0)
            if self.stage.border
            else 1.0
        )

    @property
    def _lane_conds(self) -> int:
        """Number of padding conditions that differ between lanes."""
        return sum(self.lane in cond.index.vars() for cond in self.stage.padding)

    @property
    def _tests_padding(self) -> BoolArray:
        """Whether padded columns are read in place under conditions, shape (P,)."""
        found = ~self.t.copies_rows & ~self.t.skips_in_tiles
        return found & any(read.padded for read in self.stage.roles.column_reads)

    @cached_property
    def _undecided_edges(self) -> FloatArray:
        """Fraction of the columns in tiles with code for the edges of the image, if it is also the
        code of other tiles, shape (P,). Such tiles test each lane, even though they skip padding:
        the first and the last tiles of every block have the same code as those of the others."""
        t, border = self.t, self.stage.border
        if border is None or self.lane not in border.conds:
            return np.zeros(self.plan.num_settings)
        shared = t.skips_in_tiles & (t.columns.blocks > 1)
        edges = border.edges(self.lane, t.columns.size)
        return np.where(shared, np.minimum(edges / t.columns.per_block, 1.0), 0.0)

    @cached_property
    def _retested_rows(self) -> IntArray:
        """Number of rows along the second row axis whose padding is tested in each step of the
        reduction, shape (P,). It is 0 if the main loop is unrolled, or if the stage has phases."""
        t, stage, rows = self.t, self.stage, self.stage.roles.rows
        skips = t.skips_in_tiles & (t.tile_rows2 > 1)
        skips &= ~t.unrolls_main
        if len(rows) < 2 or stage.view.phase_steps or not skips.any():
            return np.zeros(self.plan.num_settings, np.int64)
        extent, tested = rows[1].extent, t.rows_tested
        # All tiles test the padding, because any of them may be at an edge.
        some = (t.rows2.tiles > 1) & (tested > 0) & (tested < extent)
        return np.where(skips, np.where(some, np.minimum(t.tile_rows2, extent), tested), 0)

    def _is_branch(self, axis: str) -> bool:
        """Return whether the guard of an incomplete tile is a branch and not a lane mask."""
        return axis != self.lane or self.stage.roles.columns.extent % self.stage.lanes == 0

    @cached_property
    def tested(self) -> FloatArray:
        """Fraction of the updates under guards, shape (P,). An update is guarded if an operand is
        read in place, and is padded or ends inside a tile. Copies are large enough for full
        tiles."""
        t, stage = self.t, self.stage
        copied, packs = t.copies_rows, t.packs
        found = np.zeros(self.plan.num_settings)
        for read in stage.operands:
            in_place = ~copied if read in stage.copyable else np.ones_like(copied)
            if read in stage.packable:
                # Transposition of register blocks may leave the end of a panel unpadded.
                left = packs & stage.is_transposed(read) & (t.kc % stage.lanes != 0)
                in_place = ~packs | left
            for axis, end in self.remainders.items():
                if self._is_branch(axis) and read.uses(axis):
                    found = np.maximum(found, in_place * end.guarded_fraction)
            if read.padded:
                found = np.maximum(found, in_place * self._padding)
        return found

    @cached_property
    def _padding(self) -> FloatArray:
        """Fraction of the updates that test a padding condition at run time, shape (P,). Conditions
        on unrolled taps, and on tiles with separate code, are decided at compile time and are not
        tested. With `skip_padding`, only `_undecided_edges` are tested."""
        t, stage, every = self.t, self.stage, np.ones(self.plan.num_settings)
        left: dict[str, Number] = {x.name: x.extent > 1 for x in self.plan.outline.axes}
        left |= {x.name: ~t.unrolls_tap(n) for n, x in enumerate(stage.short_taps())}
        left[stage.roles.main.name] = ~t.unrolls_main
        left |= {axis: end.undecided_fraction for axis, end in self.remainders.items()}
        conds = (cond.index.vars() for cond in stage.padding)
        decided = [every * prod(1 - left[name] for name in names) for names in conds]
        tested = 1 - np.min([every, *decided], axis=0)
        return np.asarray(np.where(t.skip_padding == 0, tested, self._undecided_edges))


def waits_of(statement: Statement) -> float:
    """Return how many dependent operations one evaluation of `statement` waits for, beyond the time
    of its instructions, if it shares registers with a tile.

    Functions of functions are one chain. The core executes as many evaluations meanwhile as fit
    into the instructions in flight.
    """
    calls = sum(some.math_calls for some in statement.operations)
    chain = calls * FUNCTION_OPS
    ops = chain + sum(some.instructions for some in statement.operations)
    meanwhile = np.maximum(OPS_IN_FLIGHT / np.maximum(ops, 1.0), 1.0)
    return float(np.maximum(chain / meanwhile - ops / BUSY_CHAINS, 0.0))
