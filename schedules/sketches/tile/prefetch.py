"""The knob `prefetch` of a tile: the prefetched operands, their conditions, and the trace steps.

A piece of an operand is the part that is used until a loop advances to the next part. The innermost
such loop prefetches the next piece while it computes on the current one. The prefetches are
distributed over the longest of the loops that reuse a piece:

    nonresident columns     the next tile of columns, or block of the reduction
    page-strided rows       the rows of the next tile
    next batch's panels     the columns of the next batch, before they are packed
    short runs              the next row of an image
    distant windows         the same columns of the next tile of rows

Prefetches of nonresident columns exclude the others because they compete for the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...algebra.scalar import loads
from ...arrays import BoolArray, IntArray, map_unique
from ...primitives import Prefetch
from ...primitives.prefetching import MOST_PREFETCHES
from ..writer import TraceWriter
from .settings import M, TileSettings


def prefetches_panels(t: TileSettings[M]) -> BoolArray:
    """Return whether the panels of the next batch are prefetched, shape (P,).

    A batch must be one block along every axis, with enough tiles of rows to distribute the
    prefetches over.
    """
    stage = t.stage
    if not stage.next_batch_panels:
        return np.zeros_like(t.prefetch, np.bool_)
    one = (t.columns.blocks == 1) & (t.rows.blocks == 1) & (t.k_count == 1)
    found: BoolArray = t.prefetches & t.packs & ~t.prepacks & one & ~t.splits
    return found & (panel_lines_per_step(t) <= MOST_PREFETCHES)


def panel_lines_per_step(t: TileSettings[M]) -> M:
    """Return the number of prefetches per iteration of the innermost loop, shape (P,). Tiles of
    rows share the prefetches of one line per column."""
    return -(-t.nr // t.rows.per_block)


def columns_per_iteration(t: TileSettings[IntArray]) -> IntArray:
    """Return the largest number of prefetches of a nonresident operand, shape (P,). It is counted
    per iteration of the innermost loop that is not unrolled.

    Tiles of rows share the prefetches. If an operand is not read forwards, the result exceeds
    `MOST_PREFETCHES`.
    """
    stage = t.stage

    def count(tile: int, taps: int, shared: int) -> tuple[float]:
        runs = stage.column_runs(tile, taps)
        forward = all(run.is_forward for run in runs)
        most = max(run.prefetches(shared) for run in runs) if forward else MOST_PREFETCHES + 1
        return (most,)

    shared = np.maximum(t.rows.per_block, t.rows2.per_block)
    return map_unique(count, t.nr, t.unroll_window, shared)[0].astype(np.int64)


def runs_per_iteration(t: TileSettings[IntArray]) -> IntArray:
    """Return the number of distinct runs that one iteration of the loop around the innermost loop
    reads, shape (P,)."""
    (found,) = map_unique(t.stage.short_run_count, t.tile_rows, t.tile_rows2, t.unroll_window)
    return found.astype(np.int64)


def windows_per_iteration(t: TileSettings[IntArray]) -> IntArray:
    """Return the largest number of prefetches of a distant window, shape (P,), per iteration of the
    loop that contains them. If a window is not read forwards, the result exceeds
    `MOST_PREFETCHES`."""
    inside = (t.tile_rows, t.tile_rows2, t.nr, t.window_steps, t.unroll_window)
    (found,) = map_unique(t.stage.window_prefetches, *inside)
    return found.astype(np.int64)


def write_prefetches(
    w: TraceWriter, t: TileSettings[int], buffer: str, tiles: Mapping[str, str], depth: list[str]
) -> None:
    """Emit the prefetches for tiles whose sums are in `buffer`.

    `tiles` are the loops over tiles by axis. `depth` are the loops of the reduction that are not
    unrolled, outermost first.
    """
    stage = t.stage
    leaf, chain = w.update_of(buffer)
    names = [loop.var for loop in chain]
    around = [loop for loop in chain[: names.index(depth[-1])] if loop.extent > 1]
    row_tile, inner = tiles[t.tiled_axes[0].name], [*tiles.values(), *depth]
    # The operand, the loops that read one piece, and the loop that contains the prefetch.
    asked = [
        (read, depth, depth[-1]) for read in (*stage.nonresident, *stage.page_strided_operands)
    ]
    if prefetches_panels(t):
        asked += [(read, inner, depth[-1]) for read in stage.next_batch_panels]
    asked += [(r, [row_tile, *depth], inner[-2]) for r in stage.prefetched_runs]
    *_, inner_tile = tiles.values()
    within = depth[-1] if stage.steps_move_windows else inner[-2]
    asked += [(r, [inner_tile, *depth], within) for r in stage.distant_windows]
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
