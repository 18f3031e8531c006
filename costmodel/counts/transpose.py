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

from .table import Counts, with_zeros

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
    tasks, regions = _shared(sketch, v)
    found: Counts = {
        "flops": ones * sketch.view.points * max(sketch.view.operations, 1),
        "vector_ops": ones * vectors * (shuffles + sketch.view.operations),
        "vector_loads": vectors * (len(sketch.view.reads) + collect),
        "vector_stores": vectors * (1.0 + collect),
        "conflict_misses": lines * (misses + 0.5 * reading / rows),
        "math_calls": ones * vectors * math_calls(sketch.view.value),
        "live_registers": ones * (sketch.lanes + 2.0),
        "inner_trips": wide * rows,
        "inner_entries": sketch.count() / (wide * rows),
        "code_ops": ones * sketch.lanes * (shuffles + 2.0),
        "packed_bytes": collect * sketch.view.points * size,
        "panel_bytes": collect * rows * wide * (sketch.lanes**2 * size),
        "streamed_bytes": stream * sketch.view.points * size,
        "tasks": tasks,
        "regions": regions,
    }
    return with_zeros(found)


def _shared(sketch: TransposeSketch, v: dict[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """(P,) iterations that threads share, and parallel regions: see `turn_trace`. What is left
    at the end of the shared axis is a region of its own."""
    blocks, threads = sketch.blocks, sketch.target.threads
    others = prod(sketch.view.spatial[n].extent for n in sketch.outside)
    ones: FloatArray = np.ones(len(v["rows"]))
    sizes = [np.minimum(v["rows"] * sketch.lanes, blocks.across.extent)]
    sizes.append(np.minimum(v["columns"] * sketch.lanes, blocks.along.extent))
    down, right = blocks.across.extent / sizes[0], blocks.along.extent / sizes[1]
    by_along = (np.floor(down) < threads) & (threads < np.floor(right))
    pieces = np.where(by_along, right, down)
    if others >= 2 * threads:
        tasks, regions = ones * float(others), ones
    else:
        tasks = np.asarray(np.ceil(pieces), np.float64)
        regions = np.asarray(others * (1.0 + (pieces % 1.0 > 0)), np.float64)
    shared = v["parallel"] > 0
    return np.where(shared, tasks, 1.0), np.where(shared, regions, 0.0)


def transposed_sum_counts(sketch: TransposedSumSketch, settings: IntArray) -> Counts:
    """Vectors that are turned cost shuffles."""
    v = as_floats(sketch.values(settings))
    ones = np.ones(len(v["columns"]))
    vectors = sketch.view.points / sketch.lanes
    shuffles = SHUFFLES_A_VECTOR * len(sketch.blocks.reads)
    pieces = np.ceil(sketch.blocks.along.extent / (v["columns"] * sketch.lanes))
    found: Counts = {
        "flops": ones * sketch.view.points * max(sketch.view.operations, 1),
        "vector_ops": ones * vectors * (shuffles + sketch.view.operations),
        "vector_loads": ones * vectors * len(sketch.view.reads),
        "vector_stores": ones * max(sketch.view.outputs / sketch.lanes, 1.0),
        "math_calls": ones * vectors * math_calls(sketch.view.value),
        "accumulators": v["columns"],
        "live_registers": v["columns"] + sketch.lanes + 2.0,
        "inner_trips": ones * max(sketch.blocks.across.extent / sketch.lanes, 1.0),
        "inner_entries": pieces * sketch.view.points
        / (sketch.blocks.along.extent * sketch.blocks.across.extent),
        "code_ops": v["columns"] * sketch.lanes * (shuffles + 2.0),
        "tasks": np.where(v["parallel"] > 0, sketch.others() * pieces, 1.0),
        "regions": v["parallel"],
    }  # fmt: skip
    return with_zeros(found)
