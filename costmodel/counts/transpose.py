"""Counts of blocks transposed in registers, copied or summed."""

from __future__ import annotations

from math import prod

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.analysis import math_calls
from schedules.sketches.hardware import LINE_BYTES
from schedules.sketches.knobs import as_floats
from schedules.sketches.transpose.blocks import crowding, pitch
from schedules.sketches.transpose.copies import TransposeSketch
from schedules.sketches.transpose.sums import TransposedSumSketch

from .each_setting import ALONE, Shared, Values, each_setting
from .table import Counts, with_zeros
from .vectors import vectors_along

SHUFFLES_A_VECTOR = 4.0
"""Shuffles a vector costs in a block of 16 by 16; smaller ones cost less."""

MISSES_A_LINE = 1.3
"""What a line costs that is written into rows whose distance maps them to one set."""


def transpose_counts(sketch: TransposeSketch, settings: IntArray) -> Counts:
    """Vectors that are turned cost shuffles; rows of the result whose distance
    maps them to few sets cost misses, unless they are collected or streamed."""
    v = as_floats(sketch.values(settings))
    rows, wide, collect, stream = (v[n] for n in ("rows", "columns", "collect", "stream"))
    ones = np.ones(len(rows))
    vectors = sketch.view.points / sketch.lanes
    size = sketch.view.dtype.bytes
    lines = sketch.view.points * size / LINE_BYTES
    reading = max(
        crowding(pitch(r, sketch.blocks.along) * r.dtype.bytes) for r in sketch.blocks.reads
    )
    alone = MISSES_A_LINE * (1 - 0.8 * stream)
    misses = np.where(collect > 0, 4.0 / wide**2, alone) * sketch.crowded_rows
    shuffles = SHUFFLES_A_VECTOR * len(sketch.blocks.reads)
    settings_of = sketch.values(settings)
    stores, packed, panel = _stored(sketch, settings_of)
    tasks, regions = _shared(sketch, settings_of)
    found: Counts = {
        "flops": ones * sketch.view.points * max(sketch.view.operations, 1),
        "vector_ops": ones * vectors * (shuffles + sketch.view.operations),
        "vector_loads": vectors * (len(sketch.view.reads) + collect),
        "vector_stores": stores,
        "conflict_misses": lines * (misses + 0.5 * reading / rows),
        "math_calls": ones * vectors * math_calls(sketch.view.value),
        "live_registers": ones * (sketch.lanes + 2.0),
        "inner_trips": wide * rows,
        "inner_entries": sketch.count() / (wide * rows),
        "code_ops": ones * sketch.lanes * (shuffles + 2.0),
        "packed_bytes": packed,
        "panel_bytes": panel,
        "streamed_bytes": stream * sketch.view.points * size,
        "tasks": tasks,
        "regions": regions,
    }
    return with_zeros(found)


def _stored(sketch: TransposeSketch, v: Values) -> list[FloatArray]:
    """(P,) vectors that are stored, bytes that are collected, and bytes of the largest piece: of
    pieces that are as wide as asked for, and of one with what is left."""
    view, blocks, lanes = sketch.view, sketch.blocks, sketch.lanes
    along, across = blocks.along.extent, blocks.across.extent
    lines = view.points // along

    def count(rows: int, columns: int, collect: int) -> tuple[float, float, float]:
        size = min(columns * lanes, along)
        parts = (along // size * size, along % size)
        collected = [n for n in parts if collect and min(n, size) > lanes]
        stores = vectors_along(along, lanes) + sum(vectors_along(n, lanes) for n in collected)
        wide = max((vectors_along(min(n, size), lanes) for n in collected), default=0) * lanes
        high = min(rows * lanes, across)
        width = view.dtype.bytes
        return float(lines * stores), float(lines * sum(collected) * width), wide * high * width

    return each_setting(v, ("rows", "columns", "collect"), count)


def _shared(sketch: TransposeSketch, v: Values) -> list[FloatArray]:
    """(P,) iterations that threads share, and parallel regions: see `copies.py`. What is left at
    the end of the shared axis is a region of its own."""
    blocks, threads, lanes = sketch.blocks, sketch.target.threads, sketch.lanes
    others = prod(sketch.view.spatial[n].extent for n in sketch.outside)
    extents = (blocks.across.extent, blocks.along.extent)

    def count(rows: int, columns: int, parallel: int) -> Shared:
        if not parallel:
            return ALONE
        if others >= 2 * threads:
            return float(others), 1.0
        axes = list(zip(extents, (rows * lanes, columns * lanes), strict=True))
        down, right = (extent // size for extent, size in axes)
        first, second = axes[::-1] if down < threads < right else axes
        inner = _pieces(*second)
        loops: list[tuple[int, int]] = []  # trips, and how much of the first axis is in each
        for trips, height in _pieces(*first):
            if trips > 1:
                loops.append((trips, trips * height))
            else:
                loops += [(n, height * n * width // second[0]) for n, width in inner if n > 1]
        if not loops:
            return ALONE
        return float(max(loops, key=lambda loop: loop[1])[0]), float(others * len(loops))

    return each_setting(v, ("rows", "columns", "parallel"), count)


def _pieces(extent: int, size: int) -> list[tuple[int, int]]:
    """How many pieces of which size an axis is cut into: whole ones, and one with what is left."""
    if extent < size:
        return [(1, extent)]
    rest = extent % size
    return [(extent // size, size), *([(1, rest)] if rest else [])]


def transposed_sum_counts(sketch: TransposedSumSketch, settings: IntArray) -> Counts:
    """Vectors that are turned cost shuffles."""
    v = as_floats(sketch.values(settings))
    ones = np.ones(len(v["columns"]))
    vectors = sketch.view.points / sketch.lanes
    shuffles = SHUFFLES_A_VECTOR * len(sketch.blocks.reads)
    pieces = np.ceil(sketch.blocks.along.extent / (v["columns"] * sketch.lanes))
    tasks, regions = _sums_shared(sketch, sketch.values(settings))
    found: Counts = {
        "flops": ones * sketch.view.points * max(sketch.view.operations, 1),
        "vector_ops": ones * vectors * (shuffles + sketch.view.operations),
        "vector_loads": ones * vectors * len(sketch.view.reads),
        "vector_stores": ones * _sums_stored(sketch),
        "math_calls": ones * vectors * math_calls(sketch.view.value),
        "accumulators": v["columns"],
        "live_registers": v["columns"] + sketch.lanes + 2.0,
        "inner_trips": ones * max(sketch.blocks.across.extent / sketch.lanes, 1.0),
        "inner_entries": pieces * sketch.view.points
        / (sketch.blocks.along.extent * sketch.blocks.across.extent),
        "code_ops": v["columns"] * sketch.lanes * (shuffles + 2.0),
        "tasks": tasks,
        "regions": regions,
    }  # fmt: skip
    return with_zeros(found)


def _sums_stored(sketch: TransposedSumSketch) -> float:
    """Vectors of sums; where lanes are added up as well, also each result."""
    along, view = sketch.blocks.along, sketch.view
    if not along.reduce:
        return view.outputs / along.extent * vectors_along(along.extent, sketch.lanes)
    return view.outputs * (1.0 + vectors_along(along.extent, sketch.lanes))


def _sums_shared(sketch: TransposedSumSketch, v: Values) -> list[FloatArray]:
    """(P,) iterations that threads share, and parallel regions: pieces of the lanes, then vectors,
    then what is left, each in a loop of its own."""
    along, lanes, threads = sketch.blocks.along, sketch.lanes, sketch.target.threads
    others = sketch.others()

    def count(columns: int, parallel: int) -> Shared:
        if not parallel:
            return ALONE
        if others >= 2 * threads:
            return float(others), 1.0
        size = columns * lanes
        pieces, rest = divmod(along.extent, size)
        counts = [pieces] if columns == 1 else [pieces, rest // lanes]
        shared = [n for n in counts if n > 1]
        return (float(shared[0]), float(others * len(shared))) if shared else ALONE

    return each_setting(v, ("columns", "parallel"), count)
