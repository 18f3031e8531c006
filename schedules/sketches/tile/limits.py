"""Which settings of the tile stage are worth a try: what the target holds, each structure once.

A setting is left out where registers, caches or code would overflow, where its trace would not be
legal, and where a knob has no effect beside the others: another setting says the same.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...arrays import BoolArray
from .first_tile import can_fuse_packing
from .loops import Values, tile_axes
from .prefetch import prefetches
from .stage import MAX_BODY, MAX_TAPS, TileStage


def feasible_tiles(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """(P,) whether tile, panel and code fit the target, and no knob is without effect."""
    ok = _fits_registers(stage, v, s) & _is_short(stage, v, s) & _panels_fit(stage, v, s)
    ok &= _has_one_spelling(stage, v, s) & _reduction_goes_together(stage, v)
    ok &= _tails_are_there(stage, v, s)
    ok &= (v["prefetch"] == 0) | prefetches(stage, v, s)
    ok &= (v["fuse_packing"] == 0) | can_fuse_packing(stage, v, s)
    ok &= (v["skip_padding"] == 0) | _leaves_out_padding(stage, v, s)
    if stage.epilogue:
        ok &= _block_of_sums_fits(stage, v, s)
    return ok


def _fits_registers(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """Sums, a step's vectors of columns and an element of the rows are in registers at once."""
    registers = stage.target.vector_registers
    reads = len(stage.roles.column_reads)
    live = s["mr"] * s["mr2"] * v["tile_vectors"] + v["tile_vectors"] * max(reads, 1) + 1
    ok: BoolArray = live <= registers
    # With one vector a row, all rows of a step are loaded ahead: they need registers as well.
    ok &= (
        (v["tile_vectors"] > 1)
        | (v["unroll_reduction"] == 1)
        | (2 * s["mr"] * s["mr2"] + 1 <= registers)
    )
    if stage.is_sliding:  # what one tap has loaded is kept for the next
        kept = s["mr"] * s["mr2"] * v["tile_vectors"] * (s["taps_inside"] > 1)
        if stage.lane_step > 1:  # so do the vectors that phases are taken from
            kept = kept * (1 + stage.lane_step)
        ok &= live + kept <= registers
    return ok


def _is_short(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """The body that is written out is no longer than pays. More copies of a step only bring spills:
    LLVM moves their loads to the front."""
    view = stage.view
    body = s["mr"] * s["mr2"] * v["tile_vectors"] * v["unroll_reduction"] * s["taps_inside"]
    plain = (v["unroll_reduction"] == 1) & (v["unroll_window"] == 0)
    whole = v["unroll_reduction"] * s["taps_inside"] * view.outputs == view.points
    shares = (v["unroll_window"] > 0) | stage.is_sliding
    most = np.where(whole, 2 * MAX_BODY, np.where(shares, MAX_BODY, MAX_BODY // 2))
    ok: BoolArray = plain | (body <= most)
    return ok


def _has_one_spelling(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """Numbers of blocks are what they say: those that give other numbers are skipped."""
    ok: BoolArray = s["k_count"] == v["reduction_blocks"]
    for blocks, axis in (("column_blocks", "col"), ("row_blocks", "row"), ("row_blocks2", "row2")):
        ok &= s[f"{axis}_blocks"] == v[blocks]
    if not stage.roles.is_reused:
        ok &= v["row_blocks_outermost"] == 0
    return ok


def _panels_fit(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """Packed panels fit half of the last cache, and what cannot be loaded as vectors is packed."""
    roles = stage.roles
    taps = prod(loop.extent for loop in roles.taps)
    panel = s["kc"] * taps * s["nr"] * s["col_per"] * stage.view.dtype.bytes
    whole_ahead = (v["pack_columns"] == 2) & (not stage.packed_inside(ahead=True))
    room = stage.target.caches[-1].bytes // 2
    ok: BoolArray = (v["pack_columns"] == 0) | whole_ahead | (panel <= room)
    columns = roles.columns.name
    if any(read.element_stride(columns) not in (0, 1) for read in stage.packable):
        ok &= v["pack_columns"] >= 1
    if stage.epilogue and any(loop.dim == roles.columns.dim for loop in roles.batch):
        # Tiles of columns across two groups read rows of both, which are no block.
        ok &= (v["copy_rows"] == 0) | (roles.columns.extent % s["nr"] == 0)
    return ok


def _block_of_sums_fits(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """With blocks of the reduction and an epilogue, partial sums of a block wait in a private
    buffer: half of the second cache holds it, it is whole, and more than one row."""
    roles, caches = stage.roles, stage.target.caches
    rows = s["mr"] * s["row_per"] * s["mr2"] * s["row2_per"]
    block = rows * s["nr"] * s["col_per"] * stage.view.dtype.bytes
    small = block <= caches[min(1, len(caches) - 1)].bytes // 2
    several = all(loop.extent > 1 for loop in (*roles.rows, roles.columns))
    one = (s["mr"] * s["row_per"] == 1) & bool(roles.rows)
    one |= (s["mr2"] * s["row2_per"] == 1) & (len(roles.rows) > 1)
    ok: BoolArray = (v["reduction_blocks"] == 1) | (
        small & (v["peel_remainders"] == 0) & several & ~one
    )
    return ok


def _reduction_goes_together(stage: TileStage, v: Values) -> BoolArray:
    """What divides the reduction agrees with what else is done: sums that are read again are not
    streamed, parts that threads add up are plain, steps far apart are in one block."""
    alone = (v["nontemporal_stores"] == 0) & (v["skip_padding"] == 0) & (v["pack_columns"] < 2)
    ok: BoolArray = (v["split_reduction"] == 1) | (alone & (v["parallel"] > 0))
    if not stage.epilogue:
        ok &= (v["nontemporal_stores"] == 0) | (v["reduction_blocks"] == 1)
    if stage.step_distance > 1:
        ok &= (v["unroll_reduction"] == 1) | (
            (v["reduction_blocks"] == 1) & (v["split_reduction"] == 1)
        )
    return ok


def _tails_are_there(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """Incomplete tiles have code of their own where there are some."""
    *rows, columns = (loop.extent % tile != 0 for loop, tile, _ in tile_axes(stage, s))
    ragged = np.any([columns & False, *rows], axis=0)
    ok: BoolArray = (v["peel_remainders"] == 0) | ragged | ((v["peel_remainders"] == 2) & columns)
    return ok


def _leaves_out_padding(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """Some padding can be left out: around rows that are copied, or where tiles decide it."""
    ok: BoolArray = (v["copy_rows"] == 1) & stage.decides_around(v)
    if stage.border:
        ok |= _tiles_decide_padding(stage, v, s)
    return ok


def _tiles_decide_padding(stage: TileStage, v: Values, s: Values) -> BoolArray:
    """Rows are in one block and as they are, tiles whole, the taps written out, and not too many
    tiles at the edges."""
    border, roles, columns = stage.border, stage.roles, stage.roles.columns
    assert border is not None
    taps = [loop.name for loop in stage.short_taps()]
    needed = max((taps.index(name) + 1 for name in border.taps if name in taps), default=0)
    ok: BoolArray = (v["copy_rows"] == 0) & (s["row_blocks"] == 1) & (v["unroll_window"] >= needed)
    if roles.main.name in border.taps:
        ok &= v["unroll_reduction"] == roles.main.extent
    rows = roles.rows[0].extent if roles.rows else 1
    ok &= (v["peel_remainders"] > 0) | (rows % s["mr"] == 0)
    if any(read.padded for read in stage.panels):  # a copy takes the conditions with it
        ok &= v["pack_columns"] == 0
    for loop, tile, _ in tile_axes(stage, s):
        if loop.name in border.conds:
            ok &= border.edges(loop.name, tile) <= MAX_TAPS
    if columns.name in border.conds:  # tiles of columns are cut as those of rows are
        edges = border.edges(columns.name, s["nr"])
        ok &= (s["col_tiles"] % s["col_blocks"] == 0) & (v["peel_remainders"] != 1)
        ok &= (s["col_blocks"] == 1) | (edges < s["col_per"])
        ok &= (v["peel_remainders"] == 2) | (columns.extent % s["nr"] == 0)
    return ok
