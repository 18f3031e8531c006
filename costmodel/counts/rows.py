"""Counts of stages computed together row by row."""

from __future__ import annotations

from math import prod

import numpy as np

from schedules.arrays import BoolArray, FloatArray, IntArray
from schedules.sketches.analysis import StageView, math_calls
from schedules.sketches.fused.elementwise import ElementwiseSketch
from schedules.sketches.fused.reduction import ReductionSketch
from schedules.sketches.fused.row_part import RowPart
from schedules.sketches.fused.rows import RowSketch
from schedules.sketches.fused.staggered import sums_at_once
from schedules.sketches.fused.walks import contiguous_reduction, is_along_columns
from schedules.sketches.hardware import LINE_BYTES, PAGE_BYTES
from schedules.sketches.knobs import as_floats
from schedules.sketches.streams import has_aligned_rows

from .row_walks import (
    elementwise_stores,
    elementwise_tasks,
    reduction_stores,
    reduction_tasks,
    row_stores,
    row_tasks,
)
from .table import Counts, with_zeros

LATE_BY_CHUNK = {0: 0.8, 2: 0.4, 4: 0.1, 8: 0.05, 16: 0.15}
"""Share of the lines of long rows that are waited for, by rows added up at a time: with all of
them each row is left after a few lines, with many too many rows are walked along at once."""

WAIT_FOR_A_ROW = 7.0
"""What the horizontal end of a row's sums takes, in misses of a cache near by: about 35 cycles."""


Values = dict[str, IntArray]
"""Of each knob, (P,)."""


def elementwise_counts(sketch: ElementwiseSketch, settings: IntArray) -> Counts:
    """Of one elementwise stage."""
    v = sketch.values(settings)
    streamed: BoolArray = v["stream"] > 0
    if not has_aligned_rows(sketch.workload, sketch.group.last.name, sketch.target):
        streamed = streamed & (v["fuse_all"] > 0)
    found = _counts(sketch, v)
    found["exposed_lines"] = _badly_streamed(sketch, sketch.stream_choices, streamed)
    found["vector_stores"] = elementwise_stores(sketch, v)
    found["streamed_bytes"] = _streamed_bytes(sketch, streamed)
    return _shared(found, elementwise_tasks(sketch, v))


def reduction_counts(sketch: ReductionSketch, settings: IntArray) -> Counts:
    """Of one reduction."""
    v = sketch.values(settings)
    found = _counts(sketch, v)
    late = _badly_streamed(sketch, sketch.stream_choices, _is_streamed(sketch, v))
    found["exposed_lines"] = late + _late_by_chunk(sketch, v)
    found["vector_stores"] = reduction_stores(sketch, v)
    found["streamed_bytes"] = _streamed_bytes(sketch, _is_streamed(sketch, v))
    return _shared(found, reduction_tasks(sketch, v))


def row_counts(sketch: RowSketch, settings: IntArray) -> Counts:
    """Of several stages, a row at a time. Every stage is taken to be vectorised."""
    v, views = sketch.values(settings), sketch.group.stages
    f, rows = as_floats(v), float(sketch.group.repeats)
    merge, staggered = f["merge"], f["stagger"] > 0
    saved = float(sum(x.points for x in views if x.name in sketch.merged))
    found = _counts(sketch, v, np.where(staggered, 0.25, 1.0))
    found["vector_loads"] = found["vector_loads"] - merge * saved / sketch.lanes
    most = sums_at_once(sketch.steps, sketch.merged.values()) if sketch.can_stagger else 1
    sums = np.where(staggered, max(float(most), 1.0), 1.0)
    found["live_registers"] = f["vectors"] * (1.0 + sums) + 2.0
    walks = rows * (len(views) - merge * len(sketch.merged))
    found["inner_entries"] = np.where(staggered, rows, walks)
    late = _badly_streamed(sketch, sketch.stream_choices, _is_streamed(sketch, v))
    late = late + _unasked(sketch, v) + _late_by_chunk(sketch, v)
    found["exposed_lines"] = late + _late_rows(sketch, v)
    found["vector_stores"] = row_stores(sketch, v)
    found["streamed_bytes"] = _streamed_bytes(sketch, _is_streamed(sketch, v))
    return _shared(found, row_tasks(sketch, v))


def _counts(sketch: RowPart, v: Values, ends: FloatArray | float = 1.0) -> Counts:
    """(P,) what all have in common. `ends` is what the end of a sum takes, where walks of other
    rows go on meanwhile."""
    vectors = v["vectors"].astype(np.float64)
    ones, views = np.ones_like(vectors), sketch.group.stages
    rows = float(sketch.group.repeats)
    points = float(sum(x.points for x in views))
    ops = float(sum(x.points * max(x.operations, 1) for x in views))
    reductions = sum(1 for x in views if x.is_reduction)
    horizontal = rows * reductions * (vectors + 4.0) * ends
    return {
        "flops": ones * ops,
        "vector_ops": ops / sketch.lanes + horizontal,
        "vector_loads": ones * sum(x.points * len(x.reads) for x in views) / sketch.lanes,
        "vector_stores": ones * points / sketch.lanes,
        "scalar_accesses": ones * sum(x.points for x in views if not _has_contiguous(x)),
        "math_calls": ones * sum(x.points * math_calls(x.value) for x in views) / sketch.lanes,
        "accumulators": vectors if reductions else 0.0 * ones,
        "live_registers": vectors * 2.0 + 2.0,
        "inner_trips": np.ceil(points / rows / len(views) / (vectors * sketch.lanes)),
        "inner_entries": ones * rows * len(views),
        "code_ops": ops / points * vectors * len(views),
    }


def _shared(found: Counts, shared: list[FloatArray]) -> Counts:
    """The counts with what threads share."""
    tasks, regions = shared
    return with_zeros({**found, "tasks": tasks, "regions": regions})


def _streamed_bytes(sketch: RowPart, streamed: BoolArray) -> FloatArray:
    """(P,) bytes of an output that is written past the caches."""
    output = sketch.workload.tensors[sketch.group.last.name]
    return np.asarray(streamed * float(output.bytes))


def _late_rows(sketch: RowSketch, v: Values) -> FloatArray:
    """(P,) waits of later walks for the ends of rows' sums, those of a block together; and for
    half of the lines that are read where the rows at work crowd the first cache."""
    sums = any(contiguous_reduction(view) for view in sketch.group.stages)
    if not sums or sum(1 for walk in sketch.walks() if walk > 1) < 2:
        return np.zeros(len(v["block"]))
    crowded = (v["block"] > 1) & (v["block"] > sketch.uncrowded_rows())
    ends = WAIT_FOR_A_ROW * sketch.group.repeats * (len(sketch.blocks) > 1) / v["block"]
    return np.asarray(ends + 0.5 * crowded * _read_bytes(sketch) / LINE_BYTES, np.float64)


def _badly_streamed(sketch: RowPart, choices: tuple[int, ...], streamed: BoolArray) -> FloatArray:
    """(P,) lines of an output that is fetched to be written over, or streamed although the last
    cache would hold it."""
    output = sketch.workload.tensors[sketch.group.last.name].bytes
    wrong = (len(choices) > 1) & (streamed != sketch.streams_pay_here)
    return np.asarray(wrong * output / LINE_BYTES, np.float64)


def _unasked(sketch: RowSketch, v: Values) -> FloatArray:
    """(P,) lines of inputs that are not prefetched. Where rows are staggered the first step reads
    them long before the others, so prefetching for what comes after that pays from memory only."""
    ahead = v["prefetch"] > 0
    alone = np.where(ahead, 0.0, 0.5)
    staggered = np.where(ahead, 0.0, 0.3) if sketch.streams_pay_here else np.where(ahead, 0.2, 0.0)
    inputs = sum(sketch.workload.tensors[name].bytes for name in sketch.fetched)
    return np.asarray(np.where(v["stagger"] > 0, staggered, alone) * inputs / LINE_BYTES)


def _late_by_chunk(sketch: RowPart, v: Values) -> FloatArray:
    """(P,) lines of long rows that are waited for where these are added up along columns."""
    share = np.asarray([LATE_BY_CHUNK[int(chunk)] for chunk in v["chunk"]], np.float64)
    return _column_bytes(sketch) * share / LINE_BYTES


def _read_bytes(sketch: RowPart) -> int:
    own = {view.name for view in sketch.group.stages}
    reads = [r for view in sketch.group.stages for r in view.reads if r.tensor not in own]
    return sum({r.tensor: prod(r.shape) * r.dtype.bytes for r in reads}.values())


def _is_streamed(sketch: RowPart, v: Values) -> BoolArray:
    """(P,) whether the output is written past the caches indeed: not where each chunk of a
    reduction adds to it, and not rows that begin anywhere."""
    last = sketch.group.last
    streamed: BoolArray = v["stream"] > 0
    if is_along_columns(last):
        streamed = streamed & (v["chunk"] == 0)
    return streamed & has_aligned_rows(sketch.workload, last.name, sketch.target)


def _column_bytes(sketch: RowPart) -> int:
    """Bytes of long rows that are added up along columns."""
    stages = [view for view in sketch.group.stages if is_along_columns(view)]
    read = (sketch.workload.tensors[r.tensor] for view in stages for r in view.reads)
    long = [t for t in read if t.shape and t.shape[-1] * t.dtype.bytes > PAGE_BYTES]
    return sum(t.bytes for t in long if t.bytes > sketch.target.own_cache_bytes)


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
