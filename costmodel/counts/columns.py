"""Counts of stages computed together for blocks of columns."""

from __future__ import annotations

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.analysis import math_calls
from schedules.sketches.fused.columns import ColumnSketch
from schedules.sketches.hardware import LINE_BYTES

from .table import Counts, with_zeros
from .vectors import vectors_along


def column_counts(sketch: ColumnSketch, settings: IntArray) -> Counts:
    """See the module."""
    v = sketch.values(settings)
    group, ones = sketch.group, np.ones(len(v["vectors"]))
    block = sketch.block_vectors(v)
    vectors = (block // v["groups"]).astype(np.float64)
    width = block * sketch.lanes
    blocks = np.ceil(sketch.columns / width) * group.repeats
    # Groups of vectors that have a column: the last block has fewer of them.
    used = np.ceil(sketch.columns / (vectors * sketch.lanes)) * group.repeats
    # Lanes beyond the last column are computed and thrown away.
    wider = blocks * width / (sketch.columns * group.repeats)
    merges_with = sketch.merged
    merges = v["merge"] * float(len(merges_with))
    saved = v["merge"] * float(sum(x.points for x in group.stages if x.name in merges_with))
    points = float(sum(x.points for x in group.stages))
    loads = float(sum(x.points * len(x.reads) for x in group.stages))
    ops = float(sum(x.points * max(x.operations, 1) for x in group.stages))
    math = float(sum(x.points * math_calls(x.value) for x in group.stages))
    stages = len(group.stages) - merges
    walks = blocks * v["groups"] * stages
    parallel = v["parallel"].astype(np.float64)
    found: Counts = {
        "flops": ones * ops,
        "vector_ops": wider * ops / sketch.lanes,
        "vector_loads": wider * (loads - saved) / sketch.lanes,
        "vector_stores": _stores(sketch, used * vectors),
        "exposed_lines": _lost_lines(sketch, v),
        "math_calls": wider * math / sketch.lanes,
        "accumulators": vectors,
        "live_registers": vectors * 2.0 + 2.0,
        "inner_trips": np.ceil(points * wider / sketch.lanes / vectors / walks),
        "inner_entries": walks,
        "code_ops": np.asarray(ops / points * vectors * stages, np.float64),
        "streamed_bytes": np.asarray(v["stream"] * _output_bytes(sketch), np.float64),
        "tasks": np.where(parallel > 0, used / np.minimum(v["groups"], used / group.repeats), 1.0),
        "regions": parallel * (blocks > 1),
    }
    return with_zeros(found)


def _stores(sketch: ColumnSketch, vectors: FloatArray) -> FloatArray:
    """(P,) vectors that are stored: results along all columns, values between stages in whole
    groups, which are so many `vectors`."""
    group = sketch.group
    per_row = group.repeats * vectors_along(sketch.columns, sketch.lanes)
    each = {view.name: view.outputs / (group.repeats * sketch.columns) for view in group.stages}
    inside = sum(each[view.name] for view in group.inside)
    return np.asarray(each[group.last.name] * per_row + inside * vectors, np.float64)


def _output_bytes(sketch: ColumnSketch) -> float:
    return float(sketch.group.last.outputs * sketch.group.last.dtype.bytes)


def _lost_lines(sketch: ColumnSketch, v: dict[str, IntArray]) -> FloatArray:
    """(P,) lines of the values between stages that do not stay in a core's own caches, and of
    an output that is streamed although the last cache would hold it."""
    kept = sketch.kept_bytes()
    block = kept * sketch.block_vectors(v) * sketch.lanes
    lost = block > 0.75 * sketch.target.own_cache_bytes
    lines = 2.0 * kept * sketch.columns * sketch.group.repeats / LINE_BYTES
    wrong = v["stream"] * (not sketch.streams_pay_here) * _output_bytes(sketch) / LINE_BYTES
    return np.asarray(lost * lines + wrong, np.float64)
