"""Hints for the panels of the next batch: many small products, whose operands come from far away.

A product of a batch is packed into panels, and all of its rows wait for that. Where the operands of
all batches together do not fit a core's own cache, each packing begins with misses that nobody
foresaw. While the tiles of one product are computed, the next one's columns are asked for: 192
products of 128x128x128, operands strided by heads, on two threads of Zen 5 in a busy hour: 2.21 to
2.06 ms, of 128x64x128 1.16 to 1.05 ms.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ..analysis import Read
from ..hardware import COST_OF_A_LATE_LINE, LOADS_A_HINT

if TYPE_CHECKING:
    from .sketch import TileSketch

MOST_HINTS_A_STEP = 4
"""Hints in one iteration of the innermost loop; with fewer tiles of rows there would be more (64
rows of 64 columns: 7, and no difference)."""

LATE_PANEL_SHARE = 0.1
"""Lines of panels that are late where nobody asked for them, in a quiet hour."""


def next_panels(sketch: TileSketch) -> tuple[Read, ...]:
    """The column operands to ask for a batch ahead, where rows are asked for: each batch has its
    own part, contiguous along the reduction, and all parts are more than a core keeps."""
    own, roles = sketch.target.own_cache_bytes, sketch.roles
    batches = [loop for loop in roles.batch if loop.extent > 1]
    if not sketch.far_rows or not batches or roles.outer_rows or sketch.epilogue:
        return ()
    return tuple(
        read
        for read in sketch.operands.packable
        if read not in sketch.operands.packed_ahead
        and not read.padded
        and all(read.uses(loop.name) for loop in batches)
        and read.element_stride(roles.main.name) == 1
        and _batch_bytes(sketch, read) <= own // 4
        and prod(read.shape) * read.dtype.bytes > own // 2
    )


def _batch_bytes(sketch: TileSketch, read: Read) -> int:
    return sketch.roles.columns.extent * sketch.roles.main.extent * read.dtype.bytes


def asks_for_panels(
    sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]
) -> BoolArray:
    """(P,) whether the next batch's panels are asked for: hints are wanted, a batch is one block of
    everything, and it has enough tiles of rows to share the hints out."""
    one = (s["col_blocks"] == 1) & (s["row_blocks"] == 1) & (s["k_count"] == 1)
    asks: BoolArray = (v["fetch"] > 0) & (v["pack_columns"] == 1) & one & (v["parts"] == 1)
    return asks & (_hints(s) <= MOST_HINTS_A_STEP) & bool(sketch.next_panels)


def _hints(s: dict[str, IntArray]) -> IntArray:
    """(P,) hints in one iteration of the innermost loop: a line of each column, shared out."""
    return -(-s["nr"] // s["row_per"])


def panel_hints_a_step(
    sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]
) -> FloatArray:
    """(P,) what hints cost in one step of the innermost loop, in loads."""
    hints = LOADS_A_HINT * _hints(s) * len(sketch.next_panels)
    return np.where(asks_for_panels(sketch, v, s), hints, 0.0)


def late_panels(sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]) -> FloatArray:
    """(P,) waits for lines of panels that nobody asked for."""
    size = sum(prod(read.shape) * read.dtype.bytes for read in sketch.next_panels)
    lines = float(size // sketch.target.caches[0].line_bytes)
    return np.where(
        asks_for_panels(sketch, v, s), 0.0, LATE_PANEL_SHARE * COST_OF_A_LATE_LINE * lines
    )
