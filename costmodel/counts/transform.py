"""Counts of small transforms written out in registers."""

from __future__ import annotations

from math import ceil, prod

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.fused.group_sketch import TASKS_A_THREAD
from schedules.sketches.fused.transform import OUTSIDE, TransformSketch

from .conflicts import lost_levels
from .each_setting import ALONE, Shared, Values, each_setting
from .table import Counts, with_zeros
from .vectors import vectors_along


def transform_counts(sketch: TransformSketch, settings: IntArray) -> Counts:
    """Of a stage's formulas each point computes one: an even share is counted."""
    v = sketch.values(settings)
    places = v["place"]
    ones = np.ones(len(places))
    again = np.where(places == OUTSIDE, float(sketch.planes[0].extent), 1.0)
    last, ops, read = sketch.group.last, sketch.operations, sketch.reads
    vectors = last.points / sketch.lanes
    whole = any(r.element_stride(last.spatial[-1].name) == 1 for r in last.reads)
    entering = sum(prod(r.shape) for r in sketch.group.stages[0].reads[:1])
    # Values go through registers, more of them than there are: as copies of half of them would.
    carried = float(last.points + entering) * last.dtype.bytes / 2.0 * OPS_A_CARRIED_BYTE
    along = last.spatial[-1].extent
    tasks, regions = _shared(sketch, v)
    found: Counts = {
        "flops": ones * ops,
        "vector_ops": ones * ops / sketch.lanes,
        "vector_loads": again * read / sketch.lanes,
        "lost_ops": ones * carried,
        "vector_stores": ones * last.outputs / along * vectors_along(along, _width(sketch)),
        "scalar_accesses": ones * (0.0 if whole else read),
        "conflict_misses": _lost_stores(sketch, places),
        "live_registers": ones * float(min(sketch.target.vector_registers, 32)),
        "inner_trips": ones,
        "inner_entries": again * vectors / sketch.written,
        "code_ops": ones * ops / max(last.points, 1) * sketch.written,
        "tasks": tasks,
        "regions": regions,
    }
    return with_zeros(found)


OPS_A_CARRIED_BYTE = 1 / 8
"""Two multiply-adds a cycle, and 16 bytes."""


def _width(sketch: TransformSketch) -> int:
    """Lanes of a vector: all, or a power of two that a short axis fills."""
    lanes, extent = sketch.lanes, sketch.group.last.spatial[-1].extent
    while lanes > extent and lanes > 1:
        lanes //= 2
    return lanes


def _shared(sketch: TransformSketch, v: Values) -> list[FloatArray]:
    """(P,) iterations that threads share, and parallel regions: all tiles, or with formulas
    outside the outermost loops that give enough tasks."""
    last, choices, threads = sketch.group.last, sketch.choices, sketch.target.threads
    sizes = []  # iterations of each loop outside of formulas and lanes, a last one as a part
    for loop in last.spatial[:-1]:
        period = choices.get(loop.name)
        if period is None:
            sizes.append(float(loop.extent))
        elif 0 < period < loop.extent:
            tiles = loop.extent / period
            # Values between stages are computed for whole tiles, the last one's too.
            sizes.append(float(ceil(tiles)) if sketch.group.inside else tiles)
    sizes.append(float(vectors_along(last.spatial[-1].extent, _width(sketch))))

    def count(place: int, parallel: int) -> Shared:
        if not parallel:
            return ALONE
        tasks, whole = 1.0, 1
        for size in sizes:
            if place != OUTSIDE or whole < TASKS_A_THREAD * threads:
                tasks, whole = tasks * size, whole * ceil(size)
        return (tasks, 1.0) if whole > 1 else ALONE

    return each_setting(v, ("place", "parallel"), count)


def _lost_stores(sketch: TransformSketch, places: IntArray) -> FloatArray:
    """(P,) lines written to planes whose distance maps them to few sets, all caches."""
    last, planes = sketch.group.last, sketch.planes
    apart = prod(last.shape[planes[-1].dim + 1 :]) * last.dtype.bytes
    at_once = sketch.written / np.where(places == OUTSIDE, float(planes[0].extent), 1.0)
    lost = lost_levels(sketch.target, apart, np.ones_like(at_once), at_once)
    return np.asarray(lost * last.points / sketch.lanes)
