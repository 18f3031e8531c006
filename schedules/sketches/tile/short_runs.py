"""Row operands of which a tile uses short runs, lines apart: a group's channels of each pixel.

No prefetcher follows them, and a tile asks for a handful of lines at a time: each comes with most
of the third cache's latency. Hints for the next row of the image, given while one is computed,
bring them in time. 16 of 64 channels, 56x56, batch 16, on Zen 5: 2.3 ms, with hints 1.0 ms.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ...primitives.prefetching import MOST_HINTS
from ..analysis import Read, offsets, once

if TYPE_CHECKING:
    from .sketch import TileSketch

MOST_LINES = 2
"""Runs of more lines than this are long enough for prefetchers to follow."""

COST_OF_A_LINE = 10.0
"""Of a line that nobody asked for, in misses of a cache near by (50 cycles, as measured above)."""


def short_run_reads(sketch: TileSketch) -> tuple[Read, ...]:
    """Row operands larger than a core's own cache, of which the loops inside of batches walk short
    runs of the last dimension, with other batches' elements in between; two axes of rows."""
    roles, target = sketch.roles, sketch.target
    line_bytes = target.caches[0].line_bytes
    if len(roles.rows) < 2 or sketch.passing:
        return ()
    return tuple(
        read
        for read in once(roles.row_reads)
        if all(read.uses(loop.name) for loop in roles.rows[:2])
        and prod(read.shape) * read.dtype.bytes > target.own_cache_bytes
        and _run(sketch, read) * read.dtype.bytes <= MOST_LINES * line_bytes
        and (read.shape[-1] - _run(sketch, read)) * read.dtype.bytes >= line_bytes
        and not any(read.index[-1].vars() & {loop.name} for loop in roles.rows)
    )


def _run(sketch: TileSketch, read: Read) -> int:
    """Elements in a row that a batch reads of the last dimension."""
    batch = {loop.name for loop in (*sketch.roles.batch, *sketch.roles.outer_rows)}
    loops = {x.name: x.extent for x in (*sketch.view.spatial, *sketch.view.reduce)}
    last, run = read.index[-1], 1
    for name in last.vars() - batch:
        run += abs(last.coefficient(name)) * (loops[name] - 1)
    return run


def asks_ahead(sketch: TileSketch) -> bool:
    """Whether hints for such rows are offered: an epilogue's tiles of columns may lie across two
    groups, and read runs of both."""
    columns = sketch.roles.columns
    across = sketch.epilogue and any(loop.dim == columns.dim for loop in sketch.roles.batch)
    return bool(sketch.short_runs) and not across


def can_ask_ahead(sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether rows are read in place, a block has a next row, and hints are not too many."""
    ok: BoolArray = (v["copy_rows"] == 0) & (s["row2_per"] > 1) & (s["k_count"] == 1)
    ok &= (v["parts"] == 1) & (_hints_an_iteration(sketch, v) <= MOST_HINTS)
    return ok


def _hints_an_iteration(sketch: TileSketch, v: dict[str, IntArray]) -> IntArray:
    """(P,) different runs that one iteration of the loop around the innermost one reads."""
    shape = np.stack([v["rows"], v["rows2"], v["tap_unroll"]], axis=1)
    settings, place = np.unique(shape, axis=0, return_inverse=True)
    roles, counts = sketch.roles, []
    for rows, rows2, taps in settings.tolist():
        inside = {roles.main.name: roles.main.extent}
        inside |= dict(zip((x.name for x in roles.rows[:2]), (rows, rows2), strict=True))
        inside |= {loop.name: loop.extent for loop in sketch.short_taps()[:taps]}
        counts.append(sum(_places(read, inside) for read in sketch.short_runs))
    return np.asarray(counts, np.int64)[place.reshape(-1)]


def _places(read: Read, inside: dict[str, int]) -> int:
    """How many places a read is at in all dimensions but the last."""
    return prod(len(offsets(index, inside)) for index in read.index[:-1])


def hints_a_tile(
    sketch: TileSketch, v: dict[str, IntArray], f: dict[str, FloatArray]
) -> FloatArray:
    """(P,) hints while one tile is computed, all of its taps."""
    if not sketch.short_runs:
        return np.zeros_like(f["nr"])
    times = prod(loop.extent for loop in sketch.roles.taps) / f["taps_inside"]
    return np.asarray(np.where(f["fetch"] > 0, times * _hints_an_iteration(sketch, v), 0.0))


def late_runs(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) waits for lines that nobody asked for: all, or those of the first row of a block. A copy
    asks for many at a time."""
    total = np.zeros_like(f["nr"])
    line_bytes = sketch.target.caches[0].line_bytes
    for read in sketch.short_runs:
        lines = float(prod(read.shape) * read.dtype.bytes // line_bytes)
        share = np.where(f["fetch"] > 0, 1.0 / f["row2_per"], 1.0)
        total = total + np.where(f["copy_rows"] > 0, 0.0, share * lines * COST_OF_A_LINE)
    return total
