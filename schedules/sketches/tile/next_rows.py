"""Hints for the rows of the next tile: operands whose rows lie far apart and come from far away.

A tile of rows reads a few runs of the reduction side by side, and begins again at other places when
it is done. Prefetchers find out about each of them after a few misses, and about the next page
again. While one tile is computed, the next one's rows are asked for, a line a row at a time:
2048x2048x2048 on one thread of Zen 5 takes 0.91 to 0.96 of the time, more the busier the third
cache is.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ..analysis import Read, once
from ..hardware import COST_OF_A_LATE_LINE, LINE_BYTES, LOADS_A_HINT

if TYPE_CHECKING:
    from .sketch import TileSketch

FAR_ROW_BYTES = 2048
"""Rows of an operand that are nearer are soon followed by what prefetchers bring anyway."""

LATE_ROW_SHARE = 0.04
"""Lines of such rows that are late where nobody asked for them, in a quiet hour."""


def far_rows(sketch: TileSketch) -> tuple[Read, ...]:
    """The row operands to ask for a tile ahead: larger than half of what a core has to itself,
    contiguous along the reduction, which is one loop, in rows far apart, used as they are."""
    roles, own = sketch.roles, sketch.target.own_cache_bytes
    if len(roles.rows) != 1 or roles.taps:
        return ()
    return tuple(
        read
        for read in once(roles.row_reads)
        if not read.padded
        and read.element_stride(roles.main.name) == 1
        and abs(read.element_stride(roles.rows[0].name) or 0) * read.dtype.bytes >= FAR_ROW_BYTES
        and prod(read.shape) * read.dtype.bytes > own // 2
    )


def can_fetch_rows(v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether rows are read in place and there is a next tile of them in a block."""
    ok: BoolArray = (v["copy_rows"] == 0) & (s["row_per"] > 1) & (v["parts"] == 1)
    return ok


def row_hints_a_step(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) what hints cost in one step of the innermost loop, in loads: one hint a row."""
    hints = f["mr"] * len(sketch.far_rows)
    return np.asarray(np.where(f["fetch"] > 0, LOADS_A_HINT * hints, 0.0))


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
        total = total + np.where(f["fetch"] > 0, 0.0, late)
    return total
