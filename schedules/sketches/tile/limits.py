"""Feasibility of settings of the tile sketch.

A setting is infeasible if registers, caches or code size would overflow, or if its trace would be
illegal. It is also infeasible if a knob has no effect, because another setting gives the same code.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...arrays import BoolArray, IntArray, map_unique
from ...primitives.prefetching import MOST_PREFETCHES, MOST_STORE_PREFETCHES
from ..knobs import stores_whole_lines
from .operands import MOST_OF_SEPARATE
from .prefetch import columns_per_iteration, runs_per_iteration, windows_per_iteration
from .settings import TESTED_STEPS, TileSettings
from .stage import MAX_BODY, MAX_TAPS


def feasible_tiles(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether a setting is feasible, shape (P,): tile, panel and code fit the target, and
    every knob has an effect."""
    stage = t.stage
    ok = _fits_registers(t) & _is_short(t) & _panels_fit(t)
    ok &= _is_canonical(t) & _reduction_is_compatible(t)
    ok &= _remainders_exist(t)
    ok &= ~t.prefetches | _can_prefetch(t)
    ok &= ~t.prefetches_stores | _can_prefetch_stores(t)
    ok &= (t.fuse_packing == 0) | _can_fuse_packing(t)
    ok &= (t.skip_padding == 0) | _skips_some_padding(t)
    ok &= ~t.shares_copies | _can_share_copies(t)
    if stage.epilogue:
        ok &= _block_of_sums_fits(t)
    return ok


def _can_share_copies(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether several batches can share the copies of rows, shape (P,).

    These must hold: (1) rows are not copied inside a block of the reduction, which is inside all
    batches, (2) the first tile, which packs the columns of one batch, packs no panels, and (3) one
    copy of a block is smaller than separate copies.
    """
    ok: BoolArray = (t.k_count == 1) & (t.fuse_packing == 0)
    if np.any(ok & t.shares_copies):
        sides = (np.minimum(x.size * x.per_block, x.extent) for x in t.tiled_axes)
        (share,) = map_unique(t.stage.shared_share, *sides)
        ok &= share <= MOST_OF_SEPARATE
    return ok


def _fits_registers(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether accumulators, the column vectors of a step and one row element fit the
    registers, shape (P,)."""
    stage = t.stage
    registers = stage.target.vector_registers
    reads = len(stage.roles.column_reads)
    live = t.sums + t.tile_vectors * max(reads, 1) + 1
    ok: BoolArray = live <= registers
    # With one vector per row, LLVM loads all rows of a step in advance, and they occupy registers
    # as well.
    ok &= (t.tile_vectors > 1) | (t.unroll_reduction == 1) | (2 * t.mr + 1 <= registers)
    if stage.is_sliding:  # vectors loaded by one tap are reused by the next
        kept = t.sums * (t.taps_inside > 1)
        if stage.lane_step > 1:  # and the vectors from which lanes are selected
            kept = kept * (1 + stage.lane_step)
        ok &= live + kept <= registers
    return ok


def _is_short(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether the unrolled body is short enough, shape (P,). More copies of a step cause
    spills, because LLVM moves their loads to the front."""
    stage = t.stage
    view = stage.view
    body = t.sums * t.unrolled_copies
    plain = (t.unroll_reduction == 1) & (t.unroll_window == 0)
    whole = t.unrolled_copies * view.outputs == view.points
    shares = (t.unroll_window > 0) | stage.is_sliding
    most = np.where(whole, 2 * MAX_BODY, np.where(shares, MAX_BODY, MAX_BODY // 2))
    ok: BoolArray = plain | (body <= most)
    return ok


def _is_canonical(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether each axis is divided into exactly as many blocks as its knob states, shape
    (P,)."""
    stage = t.stage
    ok: BoolArray = t.k_count == t.reduction_blocks
    ok &= (t.columns.blocks == t.column_blocks) & (t.rows.blocks == t.row_blocks)
    ok &= t.rows2.blocks == t.row_blocks2
    if not stage.roles.is_reused:
        ok &= t.row_blocks_outermost == 0
    return ok


def _panels_fit(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether packed panels and copied rows are possible, shape (P,).

    These must hold: (1) a packed panel, or the whole operand if it is packed once per call, fits
    half of the last cache, or everything is prepacked; (2) operands that cannot be loaded as
    vectors are packed; (3) if an epilogue's rows are copied, no tile of columns crosses two groups.
    """
    stage = t.stage
    roles = stage.roles
    panel = np.zeros_like(t.kc)
    for read in stage.packable:
        rows = prod(loop.extent for loop in roles.taps if read.uses(loop.name))
        depth = t.kc if read.uses(roles.main.name) else 1
        batches = prod(loop.extent for loop in stage.sharing_batches if read.uses(loop.name))
        own = depth * rows * t.nr * t.columns.per_block * read.dtype.bytes
        panel = panel + own * np.where(t.shares_copies, batches, 1)
    if stage.outer:
        panel = np.full_like(panel, sum(read.bytes for read in stage.panels))
    whole_ahead = (t.pack_columns == 2) & (not stage.packed_inside(ahead=True))
    room = stage.target.caches[-1].bytes // 2
    ok: BoolArray = ~t.packs | whole_ahead | (panel <= room)
    columns = roles.columns.name
    panels = stage.panels if roles.is_reused else ()
    if any(read.element_stride(columns) not in (0, 1) for read in panels):
        ok &= t.packs
    if stage.epilogue and any(loop.dim == roles.columns.dim for loop in roles.batch):
        # A tile of columns across two groups reads rows of both groups, which do not form a block.
        ok &= ~t.copies_rows | (roles.columns.extent % t.nr == 0)
    return ok


def _block_of_sums_fits(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether an epilogue can follow the reduction, shape (P,).

    If the reduction is in blocks, the partial sums of an output block are stored in a private
    buffer. The buffer must fit half of the second cache, consist of full tiles, and have more than
    one row.
    """
    stage = t.stage
    roles, caches = stage.roles, stage.target.caches
    rows = t.tile_rows * t.rows.per_block * t.tile_rows2 * t.rows2.per_block
    block = rows * t.nr * t.columns.per_block * stage.view.dtype.bytes
    small = block <= caches[min(1, len(caches) - 1)].bytes // 2
    several = all(loop.extent > 1 for loop in (*roles.rows, roles.columns))
    one = (t.tile_rows * t.rows.per_block == 1) & bool(roles.rows)
    one |= (t.tile_rows2 * t.rows2.per_block == 1) & (len(roles.rows) > 1)
    ok: BoolArray = (t.reduction_blocks == 1) | (small & (t.peel_remainders == 0) & several & ~one)
    return ok


def _reduction_is_compatible(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether the division of the reduction is compatible with the other knobs, shape (P,).

    Sums that are read again have no non-temporal stores, which fill whole lines. If threads divide
    the reduction, the setting is parallel, and prepacking and skipped padding are excluded. If
    steps that are not adjacent are unrolled together, the reduction is not divided.
    """
    stage = t.stage
    alone = (t.nontemporal_stores == 0) & (t.skip_padding == 0) & (t.pack_columns < 2)
    ok: BoolArray = ~t.splits | (alone & (t.parallel > 0))
    if not stage.epilogue:
        ok &= (t.nontemporal_stores == 0) | (t.reduction_blocks == 1)
    run = t.stored_runs[1] * stage.stored.dtype.bytes
    ok &= stores_whole_lines(t.nontemporal_stores, run, stage.target.line_bytes)
    if stage.step_distance > 1:
        ok &= (t.unroll_reduction == 1) | ((t.reduction_blocks == 1) & ~t.splits)
    return ok


def _remainders_exist(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether there are remainder tiles if `peel_remainders` is set, shape (P,)."""
    *rows, columns = (axis.extent % axis.size != 0 for axis in t.tiled_axes)
    ragged = np.any([columns & False, *rows], axis=0)
    ok: BoolArray = (t.peel_remainders == 0) | ragged | ((t.peel_remainders == 2) & columns)
    return ok


def _skips_some_padding(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether some padding can be skipped around copied rows, per tile, or in each step of
    the reduction, shape (P,)."""
    stage = t.stage
    if stage.block_conds:
        return (t.kc > t.together) & _some_tile_is_limited(t)
    ok: BoolArray = t.copies_rows & stage.decides_around(t.tile_rows, t.tile_rows2, t.unroll_window)
    if stage.border:
        ok |= _tiles_decide_padding(t)
    return ok


def _some_tile_is_limited(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether a condition fails for all elements of some tile in some step of the reduction,
    shape (P,). Otherwise no step can be skipped, for example if one tile contains the whole axis.
    """
    stage = t.stage
    extents = {loop.name: loop.extent for loop in stage.view.spatial}
    # Sizes and places of what is tested at once: a tile along its axes, and an unrolled step.
    units = {axis.name: (axis.size, axis.blocks * axis.per_block) for axis in t.tiled_axes}
    steps = np.where(t.skips_several, TESTED_STEPS, t.together)
    units[stage.roles.main.name] = steps, t.k_count * -(-t.kc // steps)
    ok: BoolArray = np.zeros(len(t.tile_rows), np.bool_)
    for cond in stage.block_conds:
        # The largest value of the index in a unit, in the unit where it is least.
        value = np.full(len(ok), cond.index.const)
        for name in cond.index.vars():
            step = cond.index.coefficient(name)
            size, count = units.get(name, (1, extents.get(name, 1)))
            value = value + step * ((size - 1) if step > 0 else (count - 1) * size)
        ok |= value < 0
    return ok


def _tiles_decide_padding(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether each tile can skip its padding, shape (P,).

    This requires that (1) rows form one block and are read in place, (2) tiles are full or peeled,
    (3) the taps in padding conditions are unrolled, (4) padded column operands are not packed, and
    (5) few tiles are at the edges.
    """
    stage = t.stage
    border, roles, columns = stage.border, stage.roles, stage.roles.columns
    assert border is not None
    taps = [loop.name for loop in stage.short_taps()]
    needed = max((taps.index(name) + 1 for name in border.taps if name in taps), default=0)
    ok: BoolArray = ~t.copies_rows & (t.rows.blocks == 1) & (t.unroll_window >= needed)
    if roles.main.name in border.taps:
        ok &= t.unroll_reduction == roles.main.extent
    rows = roles.rows[0].extent if roles.rows else 1
    ok &= (t.peel_remainders > 0) | (rows % t.tile_rows == 0)
    # a copy contains the padding, so nothing is left to test
    if any(read.padded for read in (*stage.panels, *stage.windows)):
        ok &= ~t.packs
    for axis in t.tiled_axes:
        if axis.name in border.conds:
            ok &= border.edges(axis.name, axis.size) <= MAX_TAPS
    if columns.name in border.conds:  # tiles of columns are peeled like tiles of rows
        edges = border.edges(columns.name, t.nr)
        ok &= (t.columns.tiles % t.columns.blocks == 0) & (t.peel_remainders != 1)
        ok &= (t.columns.blocks == 1) | (edges < t.columns.per_block)
        ok &= (t.peel_remainders == 2) | (columns.extent % t.nr == 0)
    return ok


def _can_prefetch(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether all operands to be prefetched are read in place and another tile or row
    follows, shape (P,). The number of prefetches per iteration must be small."""
    stage = t.stage
    ok: BoolArray = np.ones(len(t.prefetch), np.bool_)
    in_place = ~t.copies_rows
    if stage.nonresident:
        # All rows of a block read one tile of columns at a time. Unrolled steps are slower.
        ok &= ~t.packs & (t.row_blocks_outermost == 0) & (t.row_tiles_innermost == 1)
        ok &= (t.unroll_reduction == 1) & (t.columns.tiles * t.k_count > 1)
        ok &= columns_per_iteration(t) <= MOST_PREFETCHES
    if stage.page_strided_operands:
        ok &= in_place & (t.rows.per_block > 1) & ~t.splits
    if stage.prefetched_runs:
        ok &= in_place & (t.rows2.per_block > 1) & (t.k_count == 1) & ~t.splits
        ok &= runs_per_iteration(t) <= MOST_PREFETCHES
    if stage.distant_windows:
        ok &= in_place & (t.rows.tiles > 1) & (t.k_count == 1) & ~t.splits
        ok &= windows_per_iteration(t) <= MOST_PREFETCHES
    return ok


def _can_prefetch_stores(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether each tile stores its result once and through the caches, in few enough lines,
    shape (P,)."""
    once = (t.k_count == 1) & ~t.splits & (t.nontemporal_stores == 0)
    few: BoolArray = once & (t.stored_lines <= MOST_STORE_PREFETCHES)
    return few


def _can_fuse_packing(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether packing can be fused with the first tile, shape (P,).

    This requires that (1) a panel is one tile wide, (2) it is packed once for several tiles of
    rows, (3) blocks of the reduction are full and have several unrolled iterations, (4) a stage
    with an epilogue has one block of the reduction, and (5) no other knob changes the loops.
    """
    stage = t.stage
    one = (t.columns.per_block == 1) & (t.rows.blocks == 1) & (t.rows2.blocks == 1)
    several = t.rows.per_block * t.rows2.per_block > 1
    whole = ~t.splits & (stage.roles.main.extent % t.kc == 0)
    as_is = (t.skip_padding == 0) & (t.pack_columns == 1) & (t.row_blocks_outermost == 0)
    steps = t.kc > t.unroll_reduction
    found: BoolArray = one & several & whole & as_is & steps & (t.row_tiles_innermost == 0)
    if stage.epilogue:  # partial sums would be in a separate buffer
        found &= t.k_count == 1
    return found
