"""What copies that are transposed in registers wait for, beside what their nests do."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.sketches.hardware import PAGE_BYTES
from tilewright.schedules.sketches.knobs import Values
from tilewright.schedules.sketches.transpose.blocks import pitch
from tilewright.schedules.sketches.transpose.copies import TransposeSketch
from tilewright.schedules.sketches.transpose.pieces import BlockNest

from .exposed import exposed_misses
from .plans import plan_counts
from .table import Counts


def transpose_counts(sketch: TransposeSketch, settings: IntArray) -> Counts:
    """See the module."""
    v, found = sketch.values(settings), plan_counts(sketch, settings)
    return found | _collected(sketch, settings) | {"exposed_lines": _exposed_lines(sketch, v)}


def _collected(sketch: TransposeSketch, settings: IntArray) -> Counts:
    """Bytes of pieces that are collected, of last columns that are no vector among them, and of the
    largest buffer for one."""
    nest, size = BlockNest(sketch, sketch.plan(settings)), sketch.view.dtype.bytes
    packed, single, panel = (np.zeros(nest.plan.num_settings) for _ in range(3))
    for piece, collected in sketch.pieces(nest, settings):
        wide, column = piece.sides[nest.along], collected * piece.sides[nest.across] * size
        packed += piece.runs * wide * column
        single += piece.runs * (wide % sketch.lanes == 1) * column
        panel = np.maximum(panel, -(-wide // sketch.lanes) * sketch.lanes * column)
    return {"packed_bytes": packed, "strided_packed_bytes": single, "panel_bytes": panel}


def conflict_share(pitch_bytes: int) -> float:
    """How much rows this far apart compete: fully a multiple of a page apart, half as much a
    multiple of half a page."""
    whole, half = pitch_bytes % PAGE_BYTES == 0, pitch_bytes % (PAGE_BYTES // 2) == 0
    return 1.0 if whole else 0.5 if half else 0.0


def _exposed_lines(sketch: TransposeSketch, v: Values) -> FloatArray:
    """(P,) exposed lines of rows that end with a piece, where a core's own caches do not hold
    all: those that are read, and those of a result that is not streamed. Where rows crowd, lines
    that are fetched ahead are gone before they are used, unless results are collected."""
    size, line = sketch.view.dtype.bytes, sketch.target.line_bytes
    lines, along = float(sketch.view.points * size / line), sketch.transposed.along
    are_near = 2 * lines * line <= sketch.target.own_cache_bytes

    def waits(blocks: IntArray, followed: FloatArray | float) -> FloatArray:
        run = blocks * np.float64(sketch.lanes * size / line)
        return exposed_misses(lines, run * followed) - (
            exposed_misses(lines, run) if are_near else 0.0
        )

    pitches = (pitch(read, along) * read.dtype.bytes for read in sketch.transposed.reads)
    read = waits(v["tile_rows"], 1.0 - max(map(conflict_share, pitches)))
    followed = np.where(v["buffer_output"] > 0, 1.0, 1.0 - conflict_share(along.extent * size))
    return read + np.where(v["nontemporal_stores"] > 0, 0.0, waits(v["tile_columns"], followed))
