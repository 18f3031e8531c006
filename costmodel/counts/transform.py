"""Counts of small transforms written out in registers."""

from __future__ import annotations

from math import prod

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.fused.transform import OUTSIDE, TransformSketch

from .conflicts import lost_levels
from .table import Counts, with_zeros


def transform_counts(sketch: TransformSketch, settings: IntArray) -> Counts:
    """Of a stage's formulas each point computes one: an even share is counted."""
    v = sketch.values(settings)
    places, parallel = v["place"], v["parallel"].astype(np.float64)
    ones = np.ones(len(places))
    again = np.where(places == OUTSIDE, float(sketch.planes[0].extent), 1.0)
    last, ops, read = sketch.group.last, sketch.operations, sketch.reads
    vectors = last.points / sketch.lanes
    whole = any(r.element_stride(last.spatial[-1].name) == 1 for r in last.reads)
    entering = sum(prod(r.shape) for r in sketch.group.stages[0].reads[:1])
    found: Counts = {
        "flops": ones * ops,
        "vector_ops": ones * ops / sketch.lanes,
        "vector_loads": again * read / sketch.lanes,
        "vector_stores": ones * vectors,
        "scalar_accesses": ones * (0.0 if whole else read),
        "conflict_misses": _lost_stores(sketch, places),
        "live_registers": ones * float(min(sketch.target.vector_registers, 32)),
        "inner_trips": ones,
        "inner_entries": again * vectors / sketch.written,
        "code_ops": ones * ops / max(last.points, 1) * sketch.written,
        "packed_bytes": ones * float((last.points + entering) * last.dtype.bytes) / 2.0,
        "tasks": np.where(parallel > 0, float(sketch.tasks), 1.0),
        "regions": parallel,
    }
    return with_zeros(found)


def _lost_stores(sketch: TransformSketch, places: IntArray) -> FloatArray:
    """(P,) lines written to planes whose distance maps them to few sets, all caches."""
    last, planes = sketch.group.last, sketch.planes
    apart = prod(last.shape[planes[-1].dim + 1 :]) * last.dtype.bytes
    at_once = sketch.written / np.where(places == OUTSIDE, float(planes[0].extent), 1.0)
    lost = lost_levels(sketch.target, apart, np.ones_like(at_once), at_once)
    return np.asarray(lost * last.points / sketch.lanes)
