"""Counts of stages computed together row by row."""

from __future__ import annotations

from math import prod

import numpy as np

from schedules.arrays import BoolArray, FloatArray, IntArray
from schedules.sketches.analysis import StageView, math_calls
from schedules.sketches.fused.rows import RowSketch
from schedules.sketches.fused.rows_trace import column_piece, spread_tasks
from schedules.sketches.fused.staggered import sums_at_once
from schedules.sketches.fused.walks import contiguous_reduction, is_along_columns
from schedules.sketches.hardware import LINE_BYTES, PAGE_BYTES
from schedules.sketches.knobs import as_floats
from schedules.sketches.streams import has_aligned_rows

from .table import Counts, with_zeros

LATE_BY_CHUNK = {0: 0.8, 2: 0.4, 4: 0.1, 8: 0.05, 16: 0.15}
"""Share of the lines of long rows that are waited for, by rows added up at a time: with all of
them each row is left after a few lines, with many too many rows are walked along at once."""

WAIT_FOR_A_ROW = 7.0
"""What the horizontal end of a row's sums takes, in misses of a cache near by: about 35 cycles."""


def row_counts(sketch: RowSketch, settings: IntArray) -> Counts:
    """Every stage is taken to be vectorised."""
    v = sketch.values(settings)
    f = as_floats(v)
    vectors, parallel, merge, staggered = (
        f[name] for name in ("vectors", "parallel", "merge", "stagger")
    )
    ones = np.ones_like(vectors)
    views = sketch.group.stages
    rows = max(prod(loop.extent for loop in sketch.group.last.spatial[: sketch.group.shared]), 1)
    points = float(sum(x.points for x in views))
    ops = float(sum(x.points * max(x.operations, 1) for x in views))
    reductions = sum(1 for x in views if x.is_reduction)
    strided = sum(x.points for x in views if not _has_contiguous(x))
    horizontal = rows * reductions * (vectors + 4.0) * np.where(staggered > 0, 0.25, 1.0)
    math = float(sum(x.points * math_calls(x.value) for x in views))
    loads = float(sum(x.points * len(x.reads) for x in views))
    saved = float(sum(x.points for x in views if x.name in sketch.merged))
    found: Counts = {
        "flops": ones * ops,
        "vector_ops": ops / sketch.lanes + horizontal,
        "vector_loads": (loads - merge * saved) / sketch.lanes,
        "vector_stores": ones * points / sketch.lanes,
        "scalar_accesses": ones * strided,
        "conflict_misses": _late_lines(sketch, v) + _late_rows(sketch, v),
        "math_calls": ones * math / sketch.lanes,
        "accumulators": vectors if reductions else 0.0 * ones,
        "live_registers": vectors * (1.0 + _sums_at_once(sketch, v)) + 2.0,
        "inner_trips": np.ceil(points / rows / len(views) / (vectors * sketch.lanes)),
        "inner_entries": np.where(
            staggered > 0, rows, rows * (len(views) - merge * len(sketch.merged))
        ),
        "code_ops": ops / points * vectors * len(views),
        "tasks": np.where(parallel > 0, _tasks(sketch, v), 1.0),
        "regions": parallel,
    }
    return with_zeros(found)


def _sums_at_once(sketch: RowSketch, v: dict[str, IntArray]) -> FloatArray:
    """(P,) sums whose partial results are in registers together, or room for one."""
    most = sums_at_once(sketch.steps, sketch.merged.values()) if sketch.can_stagger() else 1
    return np.where(v["stagger"] > 0, max(float(most), 1.0), 1.0)


def _late_rows(sketch: RowSketch, v: dict[str, IntArray]) -> FloatArray:
    """(P,) waits of later walks for the ends of rows' sums, those of a block together; and for
    half of the lines that are read where the rows at work crowd the first cache."""
    sums = any(contiguous_reduction(view) for view in sketch.group.stages)
    if not sums or sum(1 for walk in sketch.walks() if walk > 1) < 2:
        return np.zeros(len(v["block"]))
    crowded = (v["block"] > 1) & (v["block"] > sketch.uncrowded_rows())
    ends = WAIT_FOR_A_ROW * sketch.rows_in_all() * (len(sketch.blocks()) > 1) / v["block"]
    return np.asarray(ends + 0.5 * crowded * _read_bytes(sketch) / LINE_BYTES, np.float64)


def _late_lines(sketch: RowSketch, v: dict[str, IntArray]) -> FloatArray:
    """(P,) lines that are waited for: of inputs that are not asked for ahead, and of an output
    that is fetched to be written over, or streamed although the last cache would hold it."""
    inputs = sum(sketch.workload.tensors[name].bytes for name in sketch.fetched())
    output = sketch.workload.tensors[sketch.group.last.name].bytes
    can_stream = len(sketch.stream_choices()) > 1
    wrong = _is_streamed(sketch, v) != sketch.streams_pay_here
    late = np.where(v["ahead"] > 0, 0.0, 0.5 * inputs)
    late = np.where(v["stagger"] > 0, _late_bytes_staggered(sketch, v, inputs), late)
    late = late + can_stream * wrong * output
    late = late + _column_bytes(sketch) * np.asarray([LATE_BY_CHUNK[c] for c in v["chunk"]])
    return np.asarray(late / LINE_BYTES, np.float64)


def _late_bytes_staggered(sketch: RowSketch, v: dict[str, IntArray], fetched: int) -> FloatArray:
    """(P,) bytes of inputs that are waited for where rows are staggered: the first step reads
    them long before the others, so hints for what comes after that pay from memory only."""
    hints = v["ahead"] > 0
    late = np.where(hints, 0.0, 0.3) if sketch.streams_pay_here else np.where(hints, 0.2, 0.0)
    return np.asarray(late * fetched, np.float64)


def _read_bytes(sketch: RowSketch) -> int:
    own = {view.name for view in sketch.group.stages}
    reads = [r for view in sketch.group.stages for r in view.reads if r.tensor not in own]
    return sum({r.tensor: prod(r.shape) * r.dtype.bytes for r in reads}.values())


def _is_streamed(sketch: RowSketch, v: dict[str, IntArray]) -> BoolArray:
    """(P,) whether the output is written past the caches indeed: not where each chunk of a
    reduction adds to it, and rows that begin anywhere only where all are walked as one."""
    last = sketch.group.last
    streamed: BoolArray = v["stream"] > 0
    if is_along_columns(last):
        streamed &= v["chunk"] == 0
    if not has_aligned_rows(sketch.workload, last.name, sketch.target):
        streamed &= v["fuse_all"] > 0
    return streamed


def _column_bytes(sketch: RowSketch) -> int:
    """Bytes of long rows that are added up along columns."""
    stages = [view for view in sketch.group.stages if is_along_columns(view)]
    read = (sketch.workload.tensors[r.tensor] for view in stages for r in view.reads)
    long = [t for t in read if t.shape and t.shape[-1] * t.dtype.bytes > PAGE_BYTES]
    return sum(t.bytes for t in long if t.bytes > sketch.target.own_cache_bytes)


def _tasks(sketch: RowSketch, v: dict[str, IntArray]) -> FloatArray:
    """(P,) iterations of the parallel loop."""
    rows = max(sketch.rows_in_all(), 1)
    wide = spread_tasks(sketch.group, rows, sketch.target.threads)
    tasks: FloatArray = np.maximum(rows * v["parts"].astype(np.float64), float(wide))
    if not _divides_columns(sketch, rows):
        return tasks
    columns = sketch.group.last.spatial[-1].extent
    pieces = [
        -(-columns // column_piece(columns, sketch.target.threads, int(n) * sketch.lanes))
        for n in v["vectors"]
    ]
    return np.maximum(tasks, np.asarray(pieces, np.float64))


def _divides_columns(sketch: RowSketch, rows: int) -> bool:
    """Whether threads share the columns of a lone reduction that walks along them."""
    few = not sketch.group.shared or rows < sketch.target.threads
    return few and not sketch.group.inside and is_along_columns(sketch.group.last)


def _has_contiguous(view: StageView) -> bool:
    loops = (*view.spatial, *view.reduce)
    return (
        any(
            all(r.element_stride(loop.name) in (0, 1) for r in view.reads)
            and any(r.element_stride(loop.name) == 1 for r in view.reads)
            for loop in loops
        )
        or not view.reads
    )
