"""Lines that caches lose because a stride maps them to few sets."""

from __future__ import annotations

from math import gcd

import numpy as np

from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.sketches.analysis.stages import once
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.target import Target


def lost_levels(
    target: Target, stride_bytes: int, lines_a_row: FloatArray, rows: FloatArray
) -> FloatArray:
    """(P,) how many caches cannot keep `rows` rows of `lines_a_row` lines because of a stride: all
    sets would hold them, those that such rows fall into do not."""
    lost = np.zeros_like(rows)
    for cache in target.caches[:2]:
        sets = max(cache.bytes // (cache.ways * cache.line_bytes), 1)
        # Rows at no multiple of a line begin at other places in theirs, and so reach all sets.
        period = sets * cache.line_bytes
        distance = max(gcd(stride_bytes, period) // cache.line_bytes, 1)
        reached = np.minimum(sets, sets // distance * lines_a_row)
        lines = lines_a_row * rows
        lost = lost + ((lines > reached * cache.ways) & (lines <= sets * cache.ways))
    return lost


def conflict_misses(
    sketch: TileSketch, f: dict[str, FloatArray], tiles: FloatArray, depth: FloatArray | float
) -> FloatArray:
    """(P,) lines of operands used in place that do not survive from one tile to the next, because
    rows at a stride of a large power of two share the sets of a cache."""
    roles, total = sketch.roles, np.zeros_like(tiles)
    line_bytes = sketch.target.line_bytes
    for read in once(roles.column_reads):
        step = read.element_stride(roles.main.name)
        if not step or sketch.roles.moves_with_rows(read):
            continue
        used = (f["pack_columns"] == 0) | (sketch.column_dim(read) is None)
        if not sketch.roles.is_reused:  # a line that is used up in one go need not survive
            used &= f["nr"] * read.dtype.bytes < line_bytes
        lines = np.ceil(f["nr"] * read.dtype.bytes / line_bytes)
        rows = np.minimum(f["kc"], roles.main.extent) * (depth / roles.main.extent)
        lost = lost_levels(sketch.target, step * read.dtype.bytes, lines, rows)
        used &= (f["prefetch"] == 0) | (read not in sketch.nonresident)
        total = total + np.where(used, tiles * depth * lines * lost, 0.0)
    for read in once(roles.row_reads):
        for loop in roles.rows[:1]:
            step = read.element_stride(loop.name)
            if not step:
                continue
            ones = np.ones_like(tiles)
            rows = f["mr"] * f["mr2"]
            lost = lost_levels(sketch.target, step * read.dtype.bytes, ones, rows)
            per_step = f["mr"] * f["mr2"] * read.dtype.bytes / line_bytes
            in_place = (f["copy_rows"] == 0) | (read not in sketch.copyable)
            total = total + np.where(in_place, tiles * depth * per_step * lost, 0.0)
    return total
