"""Settings of a tile: its knobs, and the sizes of tiles and blocks that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from ...arrays import BoolArray, IntArray
from ...hardware import FEWEST_ROWS
from ..analysis.stages import StageLoop
from ..analysis.tile_roles import LEAST_DEPTH
from ..groups import TASKS_A_THREAD
from ..knobs import POWERS, N, knob, nontemporal_knob, nontemporal_values, settings, switch
from .stage import MAX_TAPS, TileStage

M = TypeVar("M", IntArray, int)
"""Of many settings, or of one."""


def _up_to(*most: int) -> range:
    return range(1, min(most) + 1)


def _counts(most: int) -> tuple[int, ...]:
    """The numbers of blocks of an axis with `most` tiles of one element: powers of two, thrice
    these, and `most` divided by powers of two, rounded up."""
    found = {n for x in range(most.bit_length()) for n in (1 << x, 3 << x, -(-most >> x))}
    return tuple(sorted(n for n in found if n <= most))


def _reduction_blocks(stage: TileStage) -> tuple[int, ...]:
    """Without reuse, a block of a few rows of the operand can be read contiguously, as prefetchers
    need."""
    depth, least = stage.roles.main.extent, LEAST_DEPTH if stage.roles.is_reused else FEWEST_ROWS
    return tuple(c for c in _counts(depth) if c * least <= max(depth, least))


def _unrolled_steps(stage: TileStage) -> tuple[int, ...]:
    k = stage.roles.main.extent
    if stage.step_distance > 1:
        return tuple(_up_to(MAX_TAPS, -(-k // stage.step_distance)))
    return tuple(u for u in (*POWERS[:3], k) if k % u == 0 and u <= stage.most_taps)


def _reduction_parts(stage: TileStage) -> tuple[int, ...]:
    """Several parts where output tiles are too few for the threads, the reduction is long and it
    has no epilogue. Each part is summed in a buffer of its own (RFactor), and one thread adds the
    parts in order: the order of every sum depends on the trace only, and its error bound holds for
    any order."""
    roles, view, threads = stage.roles, stage.view, stage.target.threads
    rewritten = stage.epilogue or stage.is_scattered or view.axis_splits or view.phase_steps
    usual_tile = stage.lanes * stage.target.vector_registers // 2
    is_large = view.outputs >= TASKS_A_THREAD * threads * usual_tile
    if threads == 1 or rewritten or is_large:
        return (1,)
    depth, counts = roles.main.extent, (threads, 2 * threads)
    return (1, *(n for n in counts if depth % n == 0 and depth // n >= LEAST_DEPTH))


def _nontemporal(stage: TileStage) -> tuple[int, ...]:
    if stage.is_scattered or stage.is_sliding:
        return (0,)
    return nontemporal_values(stage.workload, stage.output, stage.target)


@settings
class TileKnobs(Generic[N]):
    """Columns are the vector axis; rows are up to two axes column operands do not depend on."""

    tile_vectors: N = knob(
        lambda tile: _up_to(tile.target.vector_registers // 2 - 1, tile.column_vectors)
    )
    """Vectors of columns in a register tile."""
    tile_rows: N = knob(lambda tile: _up_to(tile.target.vector_registers - 2, tile.rows[0]))
    tile_rows2: N = knob(lambda tile: _up_to(tile.target.vector_registers - 2, tile.rows[1]))
    """Rows of a register tile along the second axis of rows."""
    column_blocks: N = knob(lambda tile: _counts(tile.column_vectors))
    row_blocks: N = knob(lambda tile: _counts(tile.rows[0]))
    row_blocks2: N = knob(lambda tile: _counts(tile.rows[1]))
    reduction_blocks: N = knob(_reduction_blocks)
    unroll_reduction: N = knob(_unrolled_steps)
    """Unroll factor of the reduction."""
    unroll_window: N = knob(lambda tile: range(len(tile.short_taps()) + 1))
    """Tap loops that are unrolled, from the innermost on."""
    row_blocks_outermost: N = knob(lambda tile: switch(tile.roles.is_reused))
    """Whether blocks of rows are outside of blocks of columns."""
    row_tiles_innermost: N = knob(lambda tile: switch(not tile.is_sliding))
    """Whether tiles of rows are inside of tiles of columns. Where windows slide, tiles follow the
    long rows of an image, which are read and written contiguously; otherwise each row of a tile
    would be a stream of its own: measured slower."""
    pack_columns: N = knob(
        lambda tile: (0, *(1,) * bool(tile.packable), *(2,) * bool(tile.prepacked))
    )
    """Whether column operands are packed into panels: in each call (1), constants before all calls
    (2)."""
    fuse_packing: N = knob(lambda tile: switch(tile.fusable_panels))
    """Whether the first tile of rows packs while it computes, see `packing.py`."""
    copy_rows: N = knob(lambda tile: switch(tile.can_copy_rows))
    """Whether blocks of row operands are copied, zeros of padding included."""
    skip_padding: N = knob(lambda tile: switch(tile.can_skip_padding))
    """Whether products with zeros of padding are skipped."""
    peel_remainders: N = knob(lambda tile: (0, 1, 2))
    """Whether remainder tiles are peeled: of rows (1), and of columns too (2)."""
    nontemporal_stores: N = nontemporal_knob(_nontemporal)
    parallel: N = knob(
        lambda tile: range(2 + tile.roles.is_reused) if tile.target.threads > 1 else (0,)
    )
    """How many of the loops over blocks are parallel, from the outermost on."""
    prefetch: N = knob(lambda tile: switch(tile.prefetchable))
    """Whether the next pieces of operands are prefetched, see `prefetch.py`."""
    split_reduction: N = knob(_reduction_parts)
    """Equal parts of the reduction that threads sum separately."""


def _holds(truth: Any) -> BoolArray:
    """(P,), or of no dimension for one setting: `~` is a negation of either."""
    return np.asarray(truth)


@dataclass(frozen=True)
class TileSettings(TileKnobs[M]):
    """The knobs of `stage`, and the sizes in elements that follow from them. BLIS calls the sides
    of a register tile `mr` and `nr`, and the depth of a packed panel `kc`."""

    stage: TileStage

    @property
    def mr(self) -> M:
        """Rows of a tile, along both row axes together."""
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
        """Rows, innermost first, then columns."""
        return [axis for axis in (self.rows, self.rows2, self.columns) if axis.loop]

    @cached_property
    def kc(self) -> M:
        """Iterations of the main reduction loop in a block: whole unrolled ones."""
        k = self.stage.roles.main.extent // self.split_reduction
        together: Any = self.unroll_reduction if self.stage.step_distance == 1 else 1
        found: M = ((k - 1) // self.reduction_blocks + together) // together * together
        return found

    @cached_property
    def k_count(self) -> M:
        """Blocks of the reduction."""
        return -(-(self.stage.roles.main.extent // self.split_reduction) // self.kc)

    @cached_property
    def taps_inside(self) -> M:
        """Copies made by unrolled tap loops."""
        copies: Any = self.stage.tap_copies[self.unroll_window]
        found: M = copies
        return found

    @property
    def rows_tested(self) -> M:
        """Second rows whose padding is tested along the taps that are not unrolled."""
        found: M = self.stage.rows_tested[self.unroll_window]
        return found

    @property
    def together(self) -> M:
        """Iterations of the main loop that one iteration covers where it is unrolled."""
        return self.stage.step_distance * self.unroll_reduction

    @property
    def written_out(self) -> M:
        """Copies of an iteration."""
        return self.unroll_reduction * self.taps_inside

    @property
    def unrolls_main(self) -> BoolArray:
        """Whether the main reduction loop is unrolled completely."""
        return _holds(np.equal(self.unroll_reduction, self.stage.roles.main.extent))

    def unrolls_tap(self, number: int) -> BoolArray:
        """Whether short tap loop `number` is unrolled."""
        return _holds(np.greater(self.unroll_window, number))

    @property
    def copies_rows(self) -> BoolArray:
        return _holds(np.equal(self.copy_rows, 1))

    @property
    def packs(self) -> BoolArray:
        """Whether columns are read from panels."""
        return _holds(np.greater(self.pack_columns, 0))

    @property
    def prepacks(self) -> BoolArray:
        """Whether panels of constants are packed before the call."""
        return _holds(np.equal(self.pack_columns, 2))

    @property
    def prefetches(self) -> BoolArray:
        return _holds(np.greater(self.prefetch, 0))

    @property
    def splits(self) -> BoolArray:
        """Whether threads divide the reduction."""
        return _holds(np.greater(self.split_reduction, 1))

    @property
    def skips_in_tiles(self) -> BoolArray:
        """Whether each tile decides which padding to skip."""
        return _holds(np.equal(self.skip_padding, 1)) & ~self.copies_rows

    @property
    def skips_around(self) -> BoolArray:
        """Whether loops outside of tiles decide it; rows are copied then."""
        return _holds(np.equal(self.skip_padding, 1)) & self.copies_rows


@dataclass(frozen=True)
class TileBlocks(Generic[M]):
    """Tiles of `size` elements along an axis, in blocks of `per_block` tiles; size 1 if there is no
    `loop`."""

    loop: StageLoop | None
    size: M
    tiles: M
    per_block: M
    blocks: M

    @classmethod
    def of(cls, loop: StageLoop | None, size: M, blocks: M) -> TileBlocks[M]:
        """The requested number of blocks, or the next smaller number that whole tiles allow."""
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
