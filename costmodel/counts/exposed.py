"""Exposed lines of a tile: those that neither hardware nor a prefetch brings in time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.plan import Plan
from tilewright.schedules.sketches.hardware import LINES_TO_FOLLOW, PAGE_BYTES
from tilewright.schedules.sketches.tile.loops import COLUMNS, Values
from tilewright.schedules.sketches.tile.operands import is_hw_prefetchable
from tilewright.schedules.sketches.tile.prefetch import (
    panel_lines_a_step,
    prefetches_panels,
    runs_an_iteration,
)
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.sketches.writer import BLOCKS

COST_OF_AN_EXPOSED_LINE = 4.0
"""In lines from the level that holds all data: several are under way at a time. Source: measured,
`python -m benchmarks.prior constants`."""

COST_OF_A_CONTENDED_LINE = 25.0
"""In the same unit: where two threads write side by side, hardware prefetches for one
take lines away from the other. Source: measured; a dilated window of 50x54x24 on Zen 5, two filters
a channel, takes 15 us where threads share rows and 60 where they share columns, and pooling of
112x112x64 on Zen 4 28 and 69."""


def exposed_misses(lines: FloatArray | float, lines_a_run: FloatArray | float) -> FloatArray:
    """What exposed lines cost, in lines from the level that holds all, of `lines` that nothing
    prefetches, in runs of so many. A run that would be followed by another is exposed in part.
    """
    share = LINES_TO_FOLLOW / (LINES_TO_FOLLOW + lines_a_run)
    return np.asarray(COST_OF_AN_EXPOSED_LINE * share * lines)


def contended_misses(sketch: TileSketch, plan: Plan) -> FloatArray:
    """(P,) what lines at the ends of threads' runs cost, where blocks of columns are shared and the
    loops around them that are shared too have fewer iterations than there are threads: some
    threads then write parts of the same rows, each with two ends."""
    outside = np.ones(plan.num_settings)
    columns = np.zeros(plan.num_settings, np.bool_)
    for level, trips in zip(plan.levels, plan.trips.T, strict=True):
        if level.axis == COLUMNS and level.role == BLOCKS:
            columns |= level.is_parallel & (trips > 1) & (outside < sketch.target.threads)
        outside = outside * np.where(level.is_parallel, trips, 1)
    rows = sketch.view.outputs / sketch.roles.columns.extent
    return np.asarray(2.0 * COST_OF_A_CONTENDED_LINE * rows * columns * (not sketch.is_scattered))


class _Far(NamedTuple):
    """An operand that comes from behind a core's own caches, each (P,): its `lines` in a call, in
    runs of so many, of which the share `exposed` is in no prefetch; and prefetches in a call."""

    lines: FloatArray
    lines_a_run: FloatArray | float
    exposed: FloatArray
    prefetches: FloatArray | float


def exposed_lines(
    sketch: TileSketch,
    v: Values,
    s: Values,
    tiles: FloatArray,
    steps: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """(P,) exposed lines, in lines from the level that holds all, and prefetches, where there are
    so many `tiles` and `steps` of their reductions."""
    batches = prod(loop.extent for loop in sketch.roles.batch)
    found = (
        *_columns(sketch, v, s, batches, steps),
        *_rows(sketch, v, s, batches, steps),
        *_panels(sketch, v, s, steps),
        *_runs(sketch, v, s, tiles),
    )
    total, prefetches = np.zeros_like(tiles), np.zeros_like(tiles)
    for far in found:
        total = total + far.exposed * exposed_misses(far.lines, far.lines_a_run)
        prefetches = prefetches + far.prefetches
    return total, prefetches


def _columns(
    sketch: TileSketch, v: Values, s: Values, batches: int, steps: FloatArray
) -> Iterator[_Far]:
    """Nonresident columns, read in place or to be packed. The first tile of each run of tiles is
    the next of none, and what half of the cache does not keep until its use is prefetched in
    vain. Rows that are near are one run, a page long."""
    roles, line_bytes = sketch.roles, sketch.target.line_bytes
    points = prod(loop.extent for loop in (roles.main, roles.columns, *roles.taps))
    depth = s["kc"] * prod(loop.extent for loop in roles.taps)
    packs, asks = v["pack_columns"] > 0, v["prefetch"] > 0
    first = np.where(s["col_per"] > 1, 1.0 / s["col_per"], (s["k_count"] > 1) / s["k_count"])
    for read in sketch.nonresident:
        size = read.dtype.bytes
        pair = 2 * depth * s["nr"] * size  # a tile and the next
        evicted = 2 * pair > sketch.target.own_cache_bytes
        run = s["nr"] * size / line_bytes
        near = is_hw_prefetchable(read, roles.main) & ~packs
        ahead = (v["pack_columns"] == 2) & (read in sketch.prepacked)
        a_step = -(-s["nr"] * size // line_bytes) / np.maximum(s["row_per"], s["row2_per"])
        yield _Far(
            np.asarray(points * size / line_bytes * s["row_blocks"] * s["row2_blocks"] * batches),
            np.where(near, PAGE_BYTES / line_bytes, run),
            np.where(ahead, 0.0, np.where(asks & ~evicted, first, 1.0)),
            asks * np.ceil(a_step) * v["unroll_reduction"] * steps,
        )


def _rows(
    sketch: TileSketch, v: Values, s: Values, batches: int, steps: FloatArray
) -> Iterator[_Far]:
    """Far rows. Those that are walked again for the next tile of columns stay in a cache if there
    are few of them."""
    roles, line_bytes = sketch.roles, sketch.target.line_bytes
    asks = v["prefetch"] > 0
    for read in sketch.page_strided_operands:
        size = read.dtype.bytes
        block = s["mr"] * s["row_per"] * s["kc"] * size
        again = (v["row_tiles_innermost"] == 1) & (2 * block > sketch.target.own_cache_bytes)
        walks = np.where(again, s["col_tiles"], s["col_blocks"]) * batches
        lines = roles.rows[0].extent * roles.main.extent * size / line_bytes
        run = s["kc"] * size / line_bytes
        yield _Far(lines * walks, run, np.where(asks, 0.0, 1.0), asks * s["mr"] * steps)


def _panels(sketch: TileSketch, v: Values, s: Values, steps: FloatArray) -> Iterator[_Far]:
    """Panels of the next batch."""
    line_bytes, asks = sketch.target.line_bytes, prefetches_panels(sketch, v, s)
    for read in sketch.next_batch_panels:
        lines = np.full_like(steps, read.bytes // line_bytes)
        run = sketch.roles.main.extent * read.dtype.bytes / line_bytes
        yield _Far(lines, run, np.where(asks, 0.0, 1.0), asks * panel_lines_a_step(s) * steps)


def _runs(sketch: TileSketch, v: Values, s: Values, tiles: FloatArray) -> Iterator[_Far]:
    """Short runs: all, or those of the first row of a block. A copy loads many at a time."""
    if sketch.short_runs:
        asks, line_bytes = v["prefetch"] > 0, sketch.target.line_bytes
        lines = sum(read.bytes // line_bytes for read in sketch.short_runs)
        taps = prod(loop.extent for loop in sketch.roles.taps) / s["taps_inside"]
        exposed = np.where(asks, 1.0 / s["row2_per"], 1.0) * (v["copy_rows"] == 0)
        prefetches = asks * taps * runs_an_iteration(sketch, v) * tiles
        yield _Far(np.full_like(tiles, lines), 1.0, exposed, prefetches)
