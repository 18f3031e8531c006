"""The knob `fetch` of a tile: what is prefetched, when it can be, and the steps that do it.

The loop that moves an operand to its next block runs a prefetch of that block beside the work on
the one before, shared out over the loops that use a block again:

    streamed columns    the next tile of columns, or block of the reduction
    far rows            the rows of the next tile
    next panels         the columns of the next batch, before they are packed
    short runs          the next row of an image

Prefetches for streamed columns exclude the others: those compete for the same lines.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...algebra.scalar import Load, loads
from ...arrays import BoolArray, IntArray
from ...nest.loop_ir import For
from ...primitives import Prefetch
from ...primitives.prefetching import MOST_HINTS
from ..analysis import Read, offsets
from ..writer import TraceWriter
from .stage import TileStage

MOST_PANEL_LINES = 4
"""Prefetches of panels in one iteration of the innermost loop; with fewer tiles of rows there would
be more (64 rows of 64 columns: 7, and no difference)."""


def can_prefetch(stage: TileStage) -> bool:
    """Whether there is something to prefetch."""
    return bool(stage.passing or stage.far_rows or stage.prefetched_runs)


def prefetches(stage: TileStage, v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether what would be prefetched is read in place and has a next tile, or row."""
    ok: BoolArray = np.ones(len(v["prefetch"]), np.bool_)
    in_place = v["copy_rows"] == 0
    if stage.passing:
        # One tile of columns at a time is read by all rows of a block. Steps of several rows of the
        # operand are slower, with prefetches more so.
        ok &= (v["pack_columns"] == 0) & (v["rows_outside"] == 0) & (v["row_tiles_inside"] == 1)
        ok &= (v["unroll"] == 1) & (s["col_tiles"] * s["k_count"] > 1)
    if stage.far_rows:
        ok &= in_place & (s["row_per"] > 1) & (v["split_k"] == 1)
    if stage.prefetched_runs:
        ok &= in_place & (s["row2_per"] > 1) & (s["k_count"] == 1) & (v["split_k"] == 1)
        ok &= runs_an_iteration(stage, v) <= MOST_HINTS
    return ok


def prefetches_panels(
    stage: TileStage, v: dict[str, IntArray], s: dict[str, IntArray]
) -> BoolArray:
    """(P,) whether the next batch's panels are prefetched: a batch is one block of everything, and
    has enough tiles of rows to share the prefetches out."""
    if not stage.next_panels:
        return np.zeros(len(v["prefetch"]), np.bool_)
    one = (s["col_blocks"] == 1) & (s["row_blocks"] == 1) & (s["k_count"] == 1)
    asks: BoolArray = (v["prefetch"] > 0) & (v["pack_columns"] == 1) & one & (v["split_k"] == 1)
    return asks & (panel_lines_a_step(s) <= MOST_PANEL_LINES)


def panel_lines_a_step(s: dict[str, IntArray]) -> IntArray:
    """(P,) prefetches in one iteration of the innermost loop: a line of each column, shared out."""
    return -(-s["nr"] // s["row_per"])


def runs_an_iteration(stage: TileStage, v: dict[str, IntArray]) -> IntArray:
    """(P,) different runs that one iteration of the loop around the innermost one reads."""
    shape = np.stack([v["rows"], v["rows2"], v["tap_unroll"]], axis=1)
    settings, place = np.unique(shape, axis=0, return_inverse=True)
    roles, counts = stage.roles, []
    for rows, rows2, taps in settings.tolist():
        inside = {roles.main.name: roles.main.extent}
        inside |= dict(zip((x.name for x in roles.rows[:2]), (rows, rows2), strict=True))
        inside |= {loop.name: loop.extent for loop in stage.short_taps()[:taps]}
        places = (prod(len(offsets(i, inside)) for i in r.index[:-1]) for r in stage.short_runs)
        counts.append(sum(places))
    return np.asarray(counts, np.int64)[place.reshape(-1)]


def write_prefetches(
    w: TraceWriter,
    stage: TileStage,
    buffer: str,
    v: dict[str, int],
    s: dict[str, int],
    tiles: list[str],
    depth: list[str],
    batch: list[str],
) -> None:
    """Add the prefetches for tiles with knob values `v` and sizes `s` whose sums are in `buffer`.
    `tiles` are the loops over tiles, `depth` those of the reduction that are not written out,
    outermost first, and `batch` those over batches."""
    leaf, chain = w.update_of(buffer)
    names = [loop.var for loop in chain]
    around = [loop for loop in chain[: names.index(depth[-1])] if loop.extent > 1]
    moves = {ld.tensor: set[str]() for ld in loads(leaf.value)}
    for load in loads(leaf.value):
        moves[load.tensor] |= _vars_of(load)
    for read in (*stage.passing, *stage.far_rows):
        own = [n for n, x in enumerate(around) if x.var in moves[read.tensor]]
        own = [n for n in own if around[n].var not in depth]
        if own:
            _write(w, stage, read, around[own[-1] :], moves[read.tensor], v["prefetch"], depth[-1])
    one, sizes = ({name: np.asarray([x]) for name, x in d.items()} for d in (v, s))
    if stage.next_panels and prefetches_panels(stage, one, sizes)[0]:
        at = max(n for n, loop in enumerate(around) if loop.var in batch)
        for read in stage.next_panels:
            _write(w, stage, read, around[at:], moves[read.tensor], 1, depth[-1])
    for read in stage.prefetched_runs:
        next_row = tiles[1] if v["row_tiles_inside"] else tiles[0]
        within = depth[-2] if len(depth) > 1 else tiles[-1]
        w.do(Prefetch(read.tensor, next_row, 1, within, "", _line(stage, read)))


def _write(
    w: TraceWriter,
    stage: TileStage,
    read: Read,
    loops: list[For],
    moves: set[str],
    distance: int,
    within: str,
) -> None:
    """Prefetch what `read` is `distance` iterations of the first of `loops` later, in loop
    `within`, shared out over the longest of the other loops that does not move it."""
    first, *others = loops
    again = [loop for loop in others if loop.var not in moves]
    shared = max(again, key=lambda loop: loop.extent).var if again else ""
    w.do(Prefetch(read.tensor, first.var, distance, within, shared, _line(stage, read)))


def _vars_of(load: Load) -> set[str]:
    """The loops that move a read."""
    return {name for index in load.index for name in index.vars()}


def _line(stage: TileStage, read: Read) -> int:
    """How many elements of `read` a line has."""
    return stage.target.caches[0].line_bytes // read.dtype.bytes
