"""Lines that a tile waits for because neither hardware nor a prefetch has brought them in time."""

from __future__ import annotations

from math import prod

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.hardware import LINE_BYTES
from schedules.sketches.tile.far_reads import is_followed
from schedules.sketches.tile.prefetch import (
    panel_lines_a_step,
    prefetches_panels,
    runs_an_iteration,
)
from schedules.sketches.tile.sketch import TileSketch

COST_OF_A_LATE_LINE = 4.0
"""In misses of a cache near by: several are under way at a time."""

LOADS_A_HINT = 0.5
"""Hints share the ports of loads, and nothing waits for them."""

LATE_PANEL_SHARE = 0.1
"""Lines of panels that are late where nobody asked for them, in a quiet hour."""

LATE_ROW_SHARE = 0.04
"""Lines of such rows that are late where nobody asked for them, in a quiet hour."""

COST_OF_A_LINE = 10.0
"""Of a line that nobody asked for, in misses of a cache near by (50 cycles, as measured above)."""


def hints_a_step(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) hints in one step of the innermost loop: shared out over the tiles of rows."""
    lines = np.zeros_like(f["nr"])
    for read in sketch.passing:
        lines = lines + np.ceil(f["nr"] * read.dtype.bytes / sketch.target.caches[0].line_bytes)
    shared = np.maximum(f["row_per"], f["row2_per"])
    return np.asarray(np.where(f["prefetch"] > 0, np.ceil(lines / shared) * f["unroll"], 0.0))


def row_hints_a_step(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) what hints cost in one step of the innermost loop, in loads: one hint a row."""
    hints = f["mr"] * len(sketch.far_rows)
    return np.asarray(np.where(f["prefetch"] > 0, LOADS_A_HINT * hints, 0.0))


def panel_hints_a_step(
    sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]
) -> FloatArray:
    """(P,) what hints cost in one step of the innermost loop, in loads."""
    if not sketch.next_panels:
        return np.zeros(len(v["prefetch"]))
    hints = LOADS_A_HINT * panel_lines_a_step(s) * len(sketch.next_panels)
    return np.where(prefetches_panels(sketch, v, s), hints, 0.0)


def hints_a_tile(
    sketch: TileSketch, v: dict[str, IntArray], f: dict[str, FloatArray]
) -> FloatArray:
    """(P,) hints while one tile is computed, all of its taps."""
    if not sketch.short_runs:
        return np.zeros_like(f["nr"])
    times = prod(loop.extent for loop in sketch.roles.taps) / f["taps_inside"]
    return np.asarray(np.where(f["prefetch"] > 0, times * runs_an_iteration(sketch, v), 0.0))


UNASKED_LATE, UNASKED_NEAR, CROWDED_OUT, ROW_LATE = 0.35, 0.03, 0.3, 0.2
"""Shares of the lines that are late: where nobody asked for them, what prefetchers do not foresee,
or do foresee where rows are less than a page apart; where hints did, more as tiles that wait take
more than a fifth of the cache they wait in (8x4096 by 4096x1024: 200 us at an eighth, 220 at a
quarter, 290 at a half); and once a row of a tile, since rows are far apart:
a tile of one vector has one line a row. 14x14x256 to 512 on Zen 5, rows of 2 KB: 254 us, 287 with
hints; 8x4096 by 4096x1024, rows of a page: 1.5 times as fast with hints."""


def late_lines(sketch: TileSketch, f: dict[str, FloatArray], batch: float) -> FloatArray:
    """(P,) waits for lines of operands that pass by, read in place or to be packed. The first tile
    of each run of tiles is nobody's next one."""
    roles, total = sketch.roles, np.zeros_like(f["nr"])
    if not sketch.passing:
        return total
    taps = float(prod(loop.extent for loop in roles.taps))
    many = f["col_per"] > 1
    first = np.where(many, 1.0 / f["col_per"], np.where(f["k_count"] > 1, 1.0 / f["k_count"], 0.0))
    line_bytes = sketch.target.caches[0].line_bytes
    for read in sketch.passing:
        waiting = f["kc"] * taps * f["nr"] * read.dtype.bytes * (1.0 + f["prefetch"])
        crowded = np.clip(8.0 * waiting / sketch.target.own_cache_bytes - 1.5, 0.0, 1.0)
        a_row = ROW_LATE / np.maximum(f["nr"] * read.dtype.bytes / line_bytes, 1.0)
        unasked = UNASKED_NEAR if is_followed(read, sketch.roles.main) else UNASKED_LATE + a_row
        share = np.where(f["prefetch"] > 0, first + CROWDED_OUT * crowded + a_row, unasked)
        share = np.where(f["pack_columns"] == 0, np.minimum(share, 1.0), UNASKED_LATE)
        blocks = f["row_blocks"] * f["row2_blocks"] * batch
        elements = float(roles.main.extent) * taps * roles.columns.extent * blocks
        lines = elements * read.dtype.bytes / line_bytes
        ahead = (f["pack_columns"] == 2) & (read in sketch.operands.packed_ahead)
        total = total + np.where(ahead, 0.0, share * lines * COST_OF_A_LATE_LINE)
    return total


def late_rows(sketch: TileSketch, f: dict[str, FloatArray], batch: float) -> FloatArray:
    """(P,) waits for lines of rows that nobody asked for. Rows that are walked again for the next
    tile of columns wait in a cache if there are few of them."""
    roles, own = sketch.roles, sketch.target.own_cache_bytes
    total = np.zeros_like(f["nr"])
    for read in sketch.far_rows:
        size = read.dtype.bytes
        block = f["mr"] * f["row_per"] * f["kc"] * size
        again = (f["row_tiles_inside"] == 1) & (block > own // 2)
        walks = np.where(again, f["col_tiles"], f["col_blocks"])
        lines = float(roles.rows[0].extent * roles.main.extent * size) / LINE_BYTES * walks * batch
        late = LATE_ROW_SHARE * COST_OF_A_LATE_LINE * lines
        total = total + np.where(f["prefetch"] > 0, 0.0, late)
    return total


def late_panels(sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]) -> FloatArray:
    """(P,) waits for lines of panels that nobody asked for."""
    size = sum(prod(read.shape) * read.dtype.bytes for read in sketch.next_panels)
    lines = float(size // sketch.target.caches[0].line_bytes)
    return np.where(
        prefetches_panels(sketch, v, s), 0.0, LATE_PANEL_SHARE * COST_OF_A_LATE_LINE * lines
    )


def late_runs(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) waits for lines that nobody asked for: all, or those of the first row of a block. A copy
    asks for many at a time."""
    total = np.zeros_like(f["nr"])
    line_bytes = sketch.target.caches[0].line_bytes
    for read in sketch.short_runs:
        lines = float(prod(read.shape) * read.dtype.bytes // line_bytes)
        share = np.where(f["prefetch"] > 0, 1.0 / f["row2_per"], 1.0)
        total = total + np.where(f["copy_rows"] > 0, 0.0, share * lines * COST_OF_A_LINE)
    return total


def loads_a_step(
    sketch: TileSketch,
    v: dict[str, IntArray],
    s: dict[str, IntArray],
    f: dict[str, FloatArray],
) -> FloatArray:
    """(P,) what hints cost in one step of the innermost loop, in loads."""
    rows = hints_a_step(sketch, f) + row_hints_a_step(sketch, f)
    return rows + panel_hints_a_step(sketch, v, s)


def lines_late(
    sketch: TileSketch,
    v: dict[str, IntArray],
    s: dict[str, IntArray],
    f: dict[str, FloatArray],
    batches: float,
    walks: float,
) -> FloatArray:
    """(P,) waits for lines that nobody asked for, in misses of a cache near by. `walks` counts what
    is walked around tiles and their blocks: `batches`, and further rows in each."""
    columns = late_lines(sketch, f, batches) + late_panels(sketch, v, s)
    return columns + late_rows(sketch, f, walks) + late_runs(sketch, f)
