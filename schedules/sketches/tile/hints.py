"""The knob `fetch` of a tile: what is asked for ahead, where that can be done, and what it spares.

There are four reasons to ask, each in a file of its own. A tile has one at most, or the two in the
middle:

    passing       a column operand that is used for few rows      its next tile
    next_rows     a row operand whose rows lie far apart          the rows of its next tile
    next_batch    a column operand that is packed             the panels of its next batch
    short_runs    a row operand of which short runs are used      the next row of the image
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...algebra.scalar import Load, loads
from ...arrays import BoolArray, FloatArray, IntArray
from ...primitives import FetchAhead
from ..analysis import Read
from ..writer import TraceWriter
from .next_batch import asks_for_panels, late_panels, panel_hints_a_step
from .next_rows import can_fetch_rows, late_rows, row_hints_a_step
from .passing import can_fetch_tile, hints_a_step, late_lines
from .short_runs import asks_ahead, can_ask_ahead, hints_a_tile, late_runs

if TYPE_CHECKING:
    from .sketch import TileSketch


def has_hints(sketch: TileSketch) -> bool:
    """Whether there is something to ask for."""
    return bool(sketch.passing or sketch.far_rows) or asks_ahead(sketch)


def can_hint(sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether what hints are for is read in place and has a next tile, or row."""
    ok: BoolArray = np.ones(len(v["fetch"]), np.bool_)
    if sketch.passing:
        ok &= can_fetch_tile(v, s)
    if sketch.far_rows:
        ok &= can_fetch_rows(v, s)
    if asks_ahead(sketch):
        ok &= can_ask_ahead(sketch, v, s)
    return ok


def loads_a_step(
    sketch: TileSketch,
    v: dict[str, IntArray],
    s: dict[str, IntArray],
    f: dict[str, FloatArray],
) -> FloatArray:
    """(P,) what hints cost in one step of the innermost loop, in loads."""
    rows = hints_a_step(sketch, f) + row_hints_a_step(sketch, f)
    return rows + panel_hints_a_step(sketch, v, s)


def loads_a_tile(
    sketch: TileSketch, v: dict[str, IntArray], f: dict[str, FloatArray]
) -> FloatArray:
    """(P,) what hints cost outside of that loop, while one tile is computed, in loads."""
    return hints_a_tile(sketch, v, f)


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


def write_hints(
    w: TraceWriter,
    sketch: TileSketch,
    buffer: str,
    v: dict[str, int],
    s: dict[str, int],
    tiles: list[str],
    depth: list[str],
    batch: list[str],
) -> None:
    """Add the hints for tiles with knob values `v` and sizes `s` whose sums are in `buffer`.
    `tiles` are the loops over tiles, `depth` those of the reduction that are not written out,
    outermost first, and `batch` those over batches."""
    _ask_for_next_tiles(w, sketch, buffer, v["fetch"], depth)
    one, sizes = ({name: np.asarray([x]) for name, x in d.items()} for d in (v, s))
    if sketch.next_panels and asks_for_panels(sketch, one, sizes)[0]:
        _ask_for_next_batch(w, sketch, buffer, depth, batch)
    for read in sketch.short_runs:
        next_row = tiles[1] if v["row_tiles_inside"] else tiles[0]
        within = depth[-2] if len(depth) > 1 else tiles[-1]
        w.do(FetchAhead(read.tensor, next_row, 1, within, "", _line(sketch, read)))


def _ask_for_next_tiles(
    w: TraceWriter, sketch: TileSketch, buffer: str, fetch: int, depth: list[str]
) -> None:
    """Hints for what the column operands are in the next tile of columns, or in the next block of
    the reduction where a block has one tile, shared out over the tiles of rows; or for the rows of
    the next tile of them."""
    leaf, chain = w.update_of(buffer)
    names = [loop.var for loop in chain]
    around = [loop for loop in chain[: names.index(depth[-1])] if loop.extent > 1]
    for read in (*sketch.passing, *sketch.far_rows):
        moves = {v for x in loads(leaf.value) if x.tensor == read.tensor for v in _vars_at(x)}
        moving = [n for n, x in enumerate(around) if x.var in moves and x.var not in depth]
        if not moving:
            continue
        shared = [x for x in around[moving[-1] + 1 :] if x.var not in moves]
        deal = max(shared, key=lambda loop: loop.extent).var if shared else ""
        next_loop = around[moving[-1]].var
        step = _line(sketch, read)
        w.do(FetchAhead(read.tensor, next_loop, fetch, depth[-1], deal, step))


def _ask_for_next_batch(
    w: TraceWriter, sketch: TileSketch, buffer: str, depth: list[str], batch: list[str]
) -> None:
    """Hints for what is packed for the next batch, shared out over the tiles of rows."""
    leaf, chain = w.update_of(buffer)
    names = [loop.var for loop in chain]
    around = [loop for loop in chain[: names.index(depth[-1])] if loop.extent > 1]
    at = max(n for n, loop in enumerate(around) if loop.var in batch)
    for read in sketch.next_panels:
        moves = {v for x in loads(leaf.value) if x.tensor == read.tensor for v in _vars_at(x)}
        shared = [loop for loop in around[at + 1 :] if loop.var not in moves]
        deal = max(shared, key=lambda loop: loop.extent).var
        step = _line(sketch, read)
        w.do(FetchAhead(read.tensor, around[at].var, 1, depth[-1], deal, step))


def _vars_at(load: Load) -> set[str]:
    """The loops that move a read."""
    return {name for index in load.index for name in index.vars()}


def _line(sketch: TileSketch, read: Read) -> int:
    """How many elements of `read` a line has."""
    return sketch.target.caches[0].line_bytes // read.dtype.bytes
