"""The knob `prefetch` of a tile: what is prefetched, when it can be, and the steps that do it.

The innermost loop that moves an operand to its next piece runs a prefetch of that piece beside the
work on the one before, shared out over the longest of the loops that use a piece again:

    streamed columns    the next tile of columns, or block of the reduction
    far rows            the rows of the next tile
    next panels         the columns of the next batch, before they are packed
    short runs          the next row of an image

Prefetches for streamed columns exclude the others: those compete for the same lines.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...algebra.scalar import loads
from ...arrays import BoolArray, IntArray, map_unique
from ...primitives import Prefetch
from ...primitives.prefetching import MOST_PREFETCHES, PrefetchRun
from ..analysis.stages import offsets
from ..writer import TraceWriter
from .stage import TileStage


def can_prefetch(stage: TileStage) -> bool:
    """Whether there is something to prefetch."""
    return bool(stage.nonresident or stage.page_strided_operands or stage.prefetched_runs)


def prefetches(stage: TileStage, v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether what would be prefetched is read in place and has a next tile, or row."""
    ok: BoolArray = np.ones(len(v["prefetch"]), np.bool_)
    in_place = v["copy_rows"] == 0
    if stage.nonresident:
        # One tile of columns at a time is read by all rows of a block. Steps of several rows of the
        # operand are slower, with prefetches more so.
        ok &= (
            (v["pack_columns"] == 0)
            & (v["row_blocks_outermost"] == 0)
            & (v["row_tiles_innermost"] == 1)
        )
        ok &= (v["unroll_reduction"] == 1) & (s["col_tiles"] * s["k_count"] > 1)
        ok &= columns_an_iteration(stage, v, s) <= MOST_PREFETCHES
    if stage.page_strided_operands:
        ok &= in_place & (s["row_per"] > 1) & (v["split_reduction"] == 1)
    if stage.prefetched_runs:
        ok &= in_place & (s["row2_per"] > 1) & (s["k_count"] == 1) & (v["split_reduction"] == 1)
        ok &= runs_an_iteration(stage, v) <= MOST_PREFETCHES
    return ok


def prefetches_panels(
    stage: TileStage, v: dict[str, IntArray], s: dict[str, IntArray]
) -> BoolArray:
    """(P,) whether the next batch's panels are prefetched: a batch is one block of everything, and
    has enough tiles of rows to share the prefetches out."""
    if not stage.next_batch_panels:
        return np.zeros(len(v["prefetch"]), np.bool_)
    one = (s["col_blocks"] == 1) & (s["row_blocks"] == 1) & (s["k_count"] == 1)
    asks: BoolArray = (
        (v["prefetch"] > 0) & (v["pack_columns"] == 1) & one & (v["split_reduction"] == 1)
    )
    return asks & (panel_lines_a_step(s) <= MOST_PREFETCHES)


def panel_lines_a_step(s: dict[str, IntArray]) -> IntArray:
    """(P,) prefetches in one iteration of the innermost loop: a line of each column, shared out."""
    return -(-s["nr"] // s["row_per"])


def columns_an_iteration(
    stage: TileStage, v: dict[str, IntArray], s: dict[str, IntArray]
) -> IntArray:
    """(P,) the most prefetches of a streamed operand in an iteration of the innermost loop that is
    not written out, shared out over tiles of rows; more than may be if it is not read forwards."""

    def count(tile: int, taps: int, shared: int) -> tuple[float]:
        inside = {stage.roles.columns.name: tile}
        inside |= {loop.name: loop.extent for loop in stage.short_taps()[:taps]}
        lines = (stage.target.line_bytes // read.dtype.bytes for read in stage.nonresident)
        runs = [
            PrefetchRun.of(r.index, inside, n)
            for r, n in zip(stage.nonresident, lines, strict=True)
        ]
        forward = all(run.is_forward for run in runs)
        most = max(run.prefetches(shared) for run in runs) if forward else MOST_PREFETCHES + 1
        return (most,)

    shared = np.maximum(s["row_per"], s["row2_per"])
    return map_unique(count, s["nr"], v["unroll_window"], shared)[0].astype(np.int64)


def runs_an_iteration(stage: TileStage, v: dict[str, IntArray]) -> IntArray:
    """(P,) different runs that one iteration of the loop around the innermost one reads."""
    roles = stage.roles

    def count(rows: int, rows2: int, taps: int) -> tuple[float]:
        inside = {roles.main.name: roles.main.extent}
        inside |= dict(zip((x.name for x in roles.rows[:2]), (rows, rows2), strict=True))
        inside |= {loop.name: loop.extent for loop in stage.short_taps()[:taps]}
        places = (prod(len(offsets(i, inside)) for i in r.index[:-1]) for r in stage.short_runs)
        return (sum(places),)

    (found,) = map_unique(count, v["tile_rows"], v["tile_rows2"], v["unroll_window"])
    return found.astype(np.int64)


def write_prefetches(
    w: TraceWriter,
    stage: TileStage,
    buffer: str,
    v: dict[str, int],
    s: dict[str, int],
    tiles: list[str],
    depth: list[str],
) -> None:
    """Add the prefetches for tiles with knob values `v` and sizes `s` whose sums are in `buffer`.
    `tiles` are the loops over tiles and `depth` those of the reduction that are not written out,
    outermost first."""
    leaf, chain = w.update_of(buffer)
    names = [loop.var for loop in chain]
    around = [loop for loop in chain[: names.index(depth[-1])] if loop.extent > 1]
    row_tile = tiles[-1] if v["row_tiles_innermost"] else tiles[-2:][0]
    # Of what, inside of which loops its pieces lie, and in which one each prefetch stands.
    asked = [
        (read, depth, depth[-1]) for read in (*stage.nonresident, *stage.page_strided_operands)
    ]
    one, sizes = ({name: np.asarray([x]) for name, x in d.items()} for d in (v, s))
    if prefetches_panels(stage, one, sizes)[0]:
        asked += [(read, tiles + depth, depth[-1]) for read in stage.next_batch_panels]
    asked += [(r, [row_tile, *depth], (tiles + depth)[-2]) for r in stage.prefetched_runs]
    for read, inside, within in asked:
        indices = (
            index for ld in loads(leaf.value) if ld.tensor == read.tensor for index in ld.index
        )
        moving = {name for index in indices for name in index.vars()}
        own = [n for n, x in enumerate(around) if x.var in moving and x.var not in inside]
        if not own:
            continue
        first, *others = around[own[-1] :]
        again = [x for x in others if x.var not in moving and within == depth[-1]]
        shared = max(again, key=lambda loop: loop.extent).var if again else ""
        line = stage.target.line_bytes // read.dtype.bytes
        w.do(Prefetch(read.tensor, first.var, 1, within, shared, line))
