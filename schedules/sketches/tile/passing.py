"""Operands that pass by: too large for a core's own caches, and used for a few rows only.

Reading such an operand takes about as long as computing with it, and a packed copy of it is made
for too few uses. It is read in place instead, a few hundred rows deep, while hints ask for the
next tile: 48x4096x1024 on Zen 5 takes 0.86 of the peak of a core so, 0.60 with packed panels.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ...target import Target
from ..analysis import Loop, Read
from ..hardware import BUSY_CHAINS, COST_OF_A_LATE_LINE, PAGE_BYTES

if TYPE_CHECKING:
    from .sketch import TileSketch

MOST_USES = 256
"""An element that is used more often than this pays for a copy of it."""

SHORTEST_ROW_BYTES = 512
"""Rows of an operand that are shorter are one stream with their neighbours."""

PASSING_DEPTHS = (32, 64, 128, 256, 512)
"""How deep blocks of the reduction are tried: rows of an operand that is read in place."""


def passing_reads(
    reads: tuple[Read, ...], columns: Loop, rows: int, target: Target
) -> tuple[Read, ...]:
    """Those of `reads`, column operands all `rows` share, that pass by: contiguous along columns,
    larger than half of what a core has to itself, and of long rows: short ones lie one behind the
    other, and what reads them has no need of hints."""
    return tuple(
        read
        for read in reads
        if 1 < rows <= MOST_USES
        and columns.extent * read.dtype.bytes >= SHORTEST_ROW_BYTES
        and read.element_stride(columns.name) == 1
        and _bytes(read) > target.own_cache_bytes // 2
    )


def _bytes(read: Read) -> int:
    return prod(read.shape) * read.dtype.bytes


def can_fetch_tile(v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether one tile of columns at a time is read in place by all rows of a block, and there
    is a next one. Steps of several rows of the operand are slower, with hints more so."""
    in_place = (v["pack_columns"] == 0) & (v["rows_outside"] == 0)
    ok: BoolArray = in_place & (v["row_tiles_inside"] == 1) & (v["unroll"] == 1)
    return ok & (s["col_tiles"] * s["k_count"] > 1)


def hints_a_step(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) hints in one step of the innermost loop: shared out over the tiles of rows."""
    lines = np.zeros_like(f["nr"])
    for read in sketch.passing:
        lines = lines + np.ceil(f["nr"] * read.dtype.bytes / sketch.target.caches[0].line_bytes)
    shared = np.maximum(f["row_per"], f["row2_per"])
    return np.asarray(np.where(f["fetch"] > 0, np.ceil(lines / shared) * f["unroll"], 0.0))


def passing_default(sketch: TileSketch) -> tuple[int, ...] | None:
    """A setting in place that is sensible with no model, with hints where rows lie far apart: each
    thread has one run of columns, in tiles as deep as wait in a quarter of its cache, and of the
    rows that waste the least. None where no such setting is feasible."""
    knobs = {knob.name: knob.values for knob in sketch.knobs}
    base = {name: values[0] for name, values in knobs.items()}
    hints = int(not all(_is_near(sketch, read) for read in sketch.passing))
    base |= {"row_tiles_inside": 1, "fetch": hints, "parallel": min(1, knobs["parallel"][-1])}
    base["column_blocks"] = max(c for c in knobs["column_blocks"] if c <= sketch.target.threads)
    open_knobs = ("skip_padding", "tap_unroll", "tails", "vectors", "rows", "k_blocks")
    settings, scores = [], []
    for values in product(*(knobs[name] for name in open_knobs)):
        chosen = base | dict(zip(open_knobs, values, strict=True))
        wasteful = chosen["tap_unroll"] > 0 and not chosen["skip_padding"]
        if wasteful or _waiting_share(sketch, chosen) > 1.0:
            continue
        settings.append([knobs[name].index(value) for name, value in chosen.items()])
        scores.append(_worth(sketch, chosen))
    if not settings:
        return None
    array = np.asarray(settings)
    feasible = np.flatnonzero(sketch.feasible(array))
    if not len(feasible):
        return None
    best = feasible[np.argmax(np.asarray(scores)[feasible])]
    return tuple(int(i) for i in array[best])


def _waiting_share(sketch: TileSketch, chosen: dict[str, int]) -> float:
    """How much a tile and the next one take of the quarter of a cache that they wait in."""
    taps = prod(loop.extent for loop in sketch.roles.taps)
    rows = taps * -(-sketch.roles.main.extent // chosen["k_blocks"])
    tile = rows * chosen["vectors"] * sketch.lanes * sketch.view.dtype.bytes
    return 8.0 * tile / sketch.target.own_cache_bytes


def _worth(sketch: TileSketch, chosen: dict[str, int]) -> float:
    """Which share of its time a tile computes what is wanted, roughly."""
    rows, columns = chosen["rows"], chosen["vectors"]
    chains, width = rows * columns, columns * sketch.lanes
    extent = sketch.roles.rows[0].extent if sketch.roles.rows else 1
    rest = extent % rows
    if rest:
        least = max(FEWEST_ROWS, int(BUSY_CHAINS) // columns)
        rest = max(rest, min(rows, least)) if chosen["tails"] else rows
    useful = extent / (extent // rows * rows + rest)
    useful *= sketch.roles.columns.extent / (-(-sketch.roles.columns.extent // width) * width)
    useful /= sketch.useful_share if chosen["skip_padding"] else 1.0
    crowded = chains + columns + 1 > sketch.target.vector_registers - 2
    busy = min(1.0, chains / BUSY_CHAINS) * (0.95 if crowded else 1.0) * (1.0 - 0.05 * bool(rest))
    # Deeper blocks read and write the result less often; tails cost code.
    return useful * busy * chains / (chains + columns + rows) - 1e-4 * chosen["k_blocks"]


FEWEST_ROWS = 6
"""One of several tiles with fewer rows takes as long: the second cache gives lines no faster."""


def _is_near(sketch: TileSketch, read: Read) -> bool:
    """Whether rows of an operand are so near that prefetchers follow from one to the next."""
    step = read.element_stride(sketch.roles.main.name)
    return step is not None and abs(step) * read.dtype.bytes < PAGE_BYTES


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
        waiting = f["kc"] * taps * f["nr"] * read.dtype.bytes * (1.0 + f["fetch"])
        crowded = np.clip(8.0 * waiting / sketch.target.own_cache_bytes - 1.5, 0.0, 1.0)
        a_row = ROW_LATE / np.maximum(f["nr"] * read.dtype.bytes / line_bytes, 1.0)
        unasked = UNASKED_NEAR if _is_near(sketch, read) else UNASKED_LATE + a_row
        share = np.where(f["fetch"] > 0, first + CROWDED_OUT * crowded + a_row, unasked)
        share = np.where(f["pack_columns"] == 0, np.minimum(share, 1.0), UNASKED_LATE)
        blocks = f["row_blocks"] * f["row2_blocks"] * batch
        elements = float(roles.main.extent) * taps * roles.columns.extent * blocks
        lines = elements * read.dtype.bytes / line_bytes
        ahead = (f["pack_columns"] == 2) & (read in sketch.operands.packed_ahead)
        total = total + np.where(ahead, 0.0, share * lines * COST_OF_A_LATE_LINE)
    return total
