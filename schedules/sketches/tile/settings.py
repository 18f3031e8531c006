"""Settings of the tile sketch: the knobs, and the sizes of tiles and blocks derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from ...arrays import BoolArray, IntArray
from ...hardware import FEWEST_ROWS
from ..analysis.stages import StageLoop
from ..analysis.tile_roles import LEAST_DEPTH
from ..groups import TASKS_PER_THREAD
from ..knobs import POWERS, N, knob, nontemporal_knob, nontemporal_values, settings, switch
from .stage import MAX_TAPS, TileStage

TESTED_STEPS = 8
"""Number of steps of a reduction that one test skips together, if the first steps may be skipped.
On Zen 5, an upper triangle of 512x512 takes 0.53 of the time of the full product with 8 or 16
steps, 0.55 with 32, and 1.03 with one step, because each skipped step moves all sums."""

M = TypeVar("M", IntArray, int)
"""Type of a value: an array (P,) for P settings, or an integer for one setting."""


def _up_to(*most: int) -> range:
    return range(1, min(most) + 1)


def _counts(most: int) -> tuple[int, ...]:
    """Return the numbers of blocks for an axis of `most` tiles. They are powers of two, three times
    powers of two, and `most` divided by powers of two."""
    found = {n for x in range(most.bit_length()) for n in (1 << x, 3 << x, -(-most >> x))}
    return tuple(sorted(n for n in found if n <= most))


def _reduction_blocks(stage: TileStage) -> tuple[int, ...]:
    """Return the values of `reduction_blocks`. Without reuse, blocks may be so short that they read
    a few rows of the operand sequentially, which suits hardware prefetchers."""
    depth, least = stage.roles.main.extent, LEAST_DEPTH if stage.roles.is_reused else FEWEST_ROWS
    return tuple(c for c in _counts(depth) if c * least <= max(depth, least))


def _unrolled_steps(stage: TileStage) -> tuple[int, ...]:
    k = stage.roles.main.extent
    if stage.step_distance > 1:
        return tuple(_up_to(MAX_TAPS, -(-k // stage.step_distance)))
    return tuple(u for u in (*POWERS[:3], k) if k % u == 0 and u <= stage.most_taps)


def _reduction_parts(stage: TileStage) -> tuple[int, ...]:
    """Return the values of `split_reduction`. They include several parts if (1) there are fewer
    output tiles than threads need, (2) the reduction is long, and (3) it has no epilogue.

    Each part has a separate accumulation buffer (RFactor). One thread adds the parts in order at
    the end. Every element is thus a sum of the same products, in an order that depends on the trace
    only. The rounding error bound holds for any order.
    """
    roles, view, threads = stage.roles, stage.view, stage.target.threads
    rewritten = view.axis_splits or view.phase_steps or stage.is_scattered
    is_inside = stage.epilogue is not None or stage.outer > 0
    usual_tile = stage.lanes * stage.target.vector_registers // 2
    is_large = view.outputs >= TASKS_PER_THREAD * threads * usual_tile
    if threads == 1 or rewritten or is_inside or is_large:
        return (1,)
    depth, counts = roles.main.extent, (threads, 2 * threads)
    return (1, *(n for n in counts if depth % n == 0 and depth // n >= LEAST_DEPTH))


def _nontemporal(stage: TileStage) -> tuple[int, ...]:
    if stage.is_scattered or stage.is_sliding:
        return (0,)
    return nontemporal_values(stage.workload, stage.output, stage.target)


@settings
class TileKnobs(Generic[N]):
    """Knobs of a register tile. Columns are vectorised. Rows are up to two axes that column
    operands do not depend on."""

    tile_vectors: N = knob(
        lambda tile: _up_to(tile.target.vector_registers // 2 - 1, tile.column_vectors)
    )
    """Vectors of columns per register tile."""
    tile_rows: N = knob(lambda tile: _up_to(tile.target.vector_registers - 2, tile.rows[0]))
    tile_rows2: N = knob(lambda tile: _up_to(tile.target.vector_registers - 2, tile.rows[1]))
    """Rows of a register tile along the second row axis."""
    column_blocks: N = knob(lambda tile: _counts(tile.column_vectors))
    row_blocks: N = knob(lambda tile: _counts(tile.rows[0]))
    row_blocks2: N = knob(lambda tile: _counts(tile.rows[1]))
    reduction_blocks: N = knob(_reduction_blocks)
    unroll_reduction: N = knob(_unrolled_steps)
    """Steps of the reduction that are unrolled together."""
    unroll_window: N = knob(lambda tile: range(len(tile.short_taps()) + 1))
    """Number of unrolled tap loops, from the innermost outward."""
    row_blocks_outermost: N = knob(lambda tile: switch(tile.roles.is_reused))
    """Whether the loop over blocks of rows encloses the loop over blocks of columns."""
    row_tiles_innermost: N = knob(lambda tile: switch(not tile.is_sliding))
    """Whether tiles of rows are nested in tiles of columns. For sliding windows this is always 0:
    tiles then follow long rows of an image, which are read and written sequentially. Separate
    streams for each row of a tile were slower in measurements."""
    pack_columns: N = knob(
        lambda tile: (0, *(1,) * bool(tile.packable), *(2,) * bool(tile.prepacked))
    )
    """When column operands are packed: not at all (0), in each call (1), or constants before the
    first call (2)."""
    fuse_packing: N = knob(lambda tile: switch(tile.fusable_panels))
    """Whether the first tile of rows packs panels while it computes."""
    copy_rows: N = knob(
        lambda tile: range(1 + tile.can_copy_rows * (1 + bool(tile.sharing_batches)))
    )
    """Whether blocks of row operands are copied, including the zeros of padding: not at all (0),
    for each batch (1), or once for the batches that share a copy (2)."""
    skip_padding: N = knob(lambda tile: switch(tile.can_skip_padding))
    """Whether products with the zeros of padding are skipped."""
    peel_remainders: N = knob(lambda tile: (0, 1, 2))
    """Which incomplete tiles have separate code: none (0), those of rows (1), or those of rows and
    columns (2)."""
    nontemporal_stores: N = nontemporal_knob(_nontemporal)
    parallel: N = knob(lambda tile: range(1 + tile.most_shared * (tile.target.threads > 1)))
    """Number of loops over blocks that threads divide, outermost first. If the stage is computed
    inside the loops of a later stage, 1 if threads divide those loops instead."""
    prefetch: N = knob(lambda tile: switch(tile.prefetchable))
    """Whether the next parts of operands are prefetched while the current parts are used."""
    split_reduction: N = knob(_reduction_parts)
    """Number of equal parts of the reduction that threads sum independently."""
    prefetch_stores: N = knob(lambda tile: switch(tile.stores_far))
    """Whether each tile prefetches the lines that it will store."""


def _holds(truth: Any) -> BoolArray:
    """Return `truth` as an array, (P,) or without dimensions, so that `~` negates it."""
    return np.asarray(truth)


@dataclass(frozen=True, eq=False, repr=False)
class TileSettings(TileKnobs[M]):
    """The knobs of `stage` and derived sizes, in elements. `mr` and `nr` are the sides of a
    register tile, and `kc` is the depth of a packed panel, as in BLIS."""

    stage: TileStage

    @property
    def mr(self) -> M:
        return self.tile_rows * self.tile_rows2

    @property
    def nr(self) -> M:
        return self.tile_vectors * self.stage.lanes

    @cached_property
    def sums(self) -> M:
        """Accumulator registers of a tile."""
        return self.mr * self.tile_vectors

    @cached_property
    def columns(self) -> TileBlocks[M]:
        return TileBlocks.of(self.stage.roles.columns, self.nr, self.column_blocks)

    @cached_property
    def rows(self) -> TileBlocks[M]:
        return TileBlocks.of(self._row_axis(0), self.tile_rows, self.row_blocks)

    @cached_property
    def rows2(self) -> TileBlocks[M]:
        return TileBlocks.of(self._row_axis(1), self.tile_rows2, self.row_blocks2)

    def _row_axis(self, number: int) -> StageLoop | None:
        return next(iter(self.stage.roles.rows[number:]), None)

    @property
    def tiled_axes(self) -> list[TileBlocks[M]]:
        """Row axes, innermost first, then columns."""
        return [axis for axis in (self.rows, self.rows2, self.columns) if axis.loop]

    @cached_property
    def kc(self) -> M:
        """Steps of the reduction's main loop per block, a multiple of the unroll factor."""
        k = self.stage.roles.main.extent // self.split_reduction
        together: Any = self.unroll_reduction if self.stage.step_distance == 1 else 1
        found: M = ((k - 1) // self.reduction_blocks + together) // together * together
        return found

    @cached_property
    def k_count(self) -> M:
        return -(-(self.stage.roles.main.extent // self.split_reduction) // self.kc)

    @cached_property
    def taps_inside(self) -> M:
        """Number of copies that unrolled tap loops make."""
        copies: Any = self.stage.tap_copies[self.unroll_window]
        found: M = copies
        return found

    @property
    def rows_tested(self) -> M:
        """Number of rows along the second row axis for which padding is tested along taps that are
        not unrolled."""
        found: M = self.stage.rows_tested[self.unroll_window]
        return found

    @property
    def together(self) -> M:
        """Number of iterations of the main loop that one unrolled iteration covers."""
        return self.stage.step_distance * self.unroll_reduction

    @property
    def unrolled_copies(self) -> M:
        """Number of unrolled copies of a step."""
        return self.unroll_reduction * self.taps_inside

    @property
    def unrolls_main(self) -> BoolArray:
        """Whether the whole main loop is unrolled."""
        return _holds(np.equal(self.unroll_reduction, self.stage.roles.main.extent))

    def unrolls_tap(self, number: int) -> BoolArray:
        """Return whether short tap loop `number` is unrolled."""
        return _holds(np.greater(self.unroll_window, number))

    @property
    def copies_rows(self) -> BoolArray:
        return _holds(np.greater(self.copy_rows, 0))

    @property
    def shares_copies(self) -> BoolArray:
        """Whether the `sharing_batches` are inside the copies of rows."""
        return _holds(np.equal(self.copy_rows, 2))

    @property
    def packs(self) -> BoolArray:
        """Whether columns are read from panels."""
        return _holds(np.greater(self.pack_columns, 0))

    @property
    def prepacks(self) -> BoolArray:
        return _holds(np.equal(self.pack_columns, 2))

    @property
    def prefetches_stores(self) -> BoolArray:
        return _holds(np.greater(self.prefetch_stores, 0))

    @property
    def stored_lines(self) -> M:
        """Number of lines that a tile prefetches before it stores them. A row of the output may
        begin anywhere in a line."""
        stage = self.stage
        line = stage.target.line_bytes // stage.stored.dtype.bytes
        runs, run = self.stored_runs
        found: M = runs * (-(-run // line) + bool(stage.stored.shape[-1] % line))
        return found

    @property
    def stored_runs(self) -> tuple[M, M]:
        """The number of runs of contiguous elements that a tile stores, and their length."""
        if self.stage.is_scattered:  # rows are contiguous in the output
            return self.nr * self.tile_rows2, self.tile_rows
        return self.mr, self.nr

    @property
    def prefetches(self) -> BoolArray:
        return _holds(np.greater(self.prefetch, 0))

    @property
    def window_steps(self) -> M:
        """Number of steps of the main loop whose lines are prefetched together; see
        `TileStage.steps_move_windows`."""
        return self.unroll_reduction if self.stage.steps_move_windows else self.kc

    @property
    def splits(self) -> BoolArray:
        """Whether threads divide the reduction."""
        return _holds(np.greater(self.split_reduction, 1))

    @property
    def skips_in_tiles(self) -> BoolArray:
        """Whether tests in each tile skip its padding."""
        return self._skips & ~self.copies_rows & (not self.stage.block_conds)

    @property
    def skips_around(self) -> BoolArray:
        """Whether tests in loops outside the tiles skip padding. Rows are then copied."""
        return self._skips & self.copies_rows & (not self.stage.block_conds)

    @property
    def skips_blocks(self) -> BoolArray:
        """Whether steps of the reduction are skipped in which a whole tile adds zeros."""
        return self._skips & bool(self.stage.block_conds)

    @property
    def skips_several(self) -> BoolArray:
        """Whether one test skips `TESTED_STEPS` steps of the reduction."""
        return (
            self.skips_blocks & self.stage.starts_late & _holds(np.greater(self.kc, TESTED_STEPS))
        )

    @property
    def _skips(self) -> BoolArray:
        return _holds(np.equal(self.skip_padding, 1))


@dataclass(frozen=True)
class TileBlocks(Generic[M]):
    """Tiles of `size` elements along an axis, in blocks of `per_block` tiles. If `loop` is None,
    the axis has one element."""

    loop: StageLoop | None
    size: M
    tiles: M
    per_block: M
    blocks: M

    @classmethod
    def of(cls, loop: StageLoop | None, size: M, blocks: M) -> TileBlocks[M]:
        """Return the tiles of an axis in at most `blocks` blocks of equal size, except the last."""
        tiles: M = -(-(loop.extent if loop else 1) // size)
        per_block: M = -(-tiles // blocks)
        return cls(loop, size, tiles, per_block, -(-tiles // per_block))

    @property
    def name(self) -> str:
        assert self.loop is not None
        return self.loop.name

    @property
    def extent(self) -> int:
        return self.loop.extent if self.loop else 1
