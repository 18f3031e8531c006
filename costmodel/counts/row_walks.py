"""How stages are walked along in vectors, counted: what is stored, and what threads share."""

from __future__ import annotations

from math import ceil, prod

import numpy as np

from schedules.arrays import FloatArray
from schedules.sketches.analysis import StageView
from schedules.sketches.fused.elementwise import (
    LONG_ROW,
    MOST_IN_A_PIECE,
    ElementwiseSketch,
    spread_tasks,
)
from schedules.sketches.fused.reduction import ReductionSketch
from schedules.sketches.fused.reduction_steps import column_piece
from schedules.sketches.fused.rows import RowSketch
from schedules.sketches.fused.staggered import ROWS_A_STEP, rows_a_task
from schedules.sketches.fused.walks import contiguous_reduction

from .each_setting import ALONE, Shared, Values, each_setting
from .vectors import vectors_along


def stores_of_elements(view: StageView, lanes: int, rows: int = 0) -> float:
    """Stores of a stage whose first axes are `rows`: along the last axis of several elements that
    is left, one by one where none is."""
    several = [loop for loop in view.spatial[rows:] if loop.extent > 1]
    if not several:
        return float(view.outputs)
    along = several[-1].extent
    return view.outputs / along * vectors_along(along, lanes)


def elementwise_length(sketch: ElementwiseSketch) -> int:
    """Elements in a row, short rows joined with the next."""
    view, lanes = sketch.group.last, sketch.lanes
    *outer, last = view.spatial
    length = last.extent
    while view.reads_only and len(outer) > 1 and length < LONG_ROW * lanes:
        above = outer.pop()
        inner = view.spatial[view.spatial.index(above) + 1]
        if not all(_goes_on(read.element_stride(above.name), read.element_stride(inner.name),
                            inner.extent) for read in view.reads):  # fmt: skip
            break
        length *= above.extent
    return length


def _goes_on(far: int | None, near: int | None, extent: int) -> bool:
    return far is not None and near is not None and far == near * extent


def elementwise_stores(sketch: ElementwiseSketch, v: Values) -> FloatArray:
    """(P,) vectors that are stored."""
    points, lanes = sketch.group.last.outputs, sketch.lanes
    length = elementwise_length(sketch)
    by_rows = points / length * vectors_along(length, lanes)
    return np.where(v["fuse_all"] > 0, float(vectors_along(points, lanes)), by_rows)


def elementwise_tasks(sketch: ElementwiseSketch, v: Values) -> list[FloatArray]:
    """(P,) tasks and regions."""
    points, lanes = sketch.group.last.outputs, sketch.lanes
    length, threads = elementwise_length(sketch), sketch.target.threads
    rows = points // length
    view = sketch.group.last
    beside = view.spatial[-2].name if len(view.spatial) > 1 else ""
    is_read_along_rows = any(read.element_stride(beside) == 1 for read in view.reads)

    def count(vectors: int, parallel: int, fuse_all: int) -> Shared:
        step = vectors * lanes
        if not parallel:
            return ALONE
        if fuse_all:
            piece = max(min(-(-points // 8), MOST_IN_A_PIECE) // step * step, step)
            return _of_pieces(1, points, piece, lanes) if points >= 4 * step else ALONE
        pieces = spread_tasks(rows, threads) // rows
        piece = ceil(ceil(length / pieces) / step) * step
        if pieces == 1 or piece >= length:
            at_once = 4 * vectors if is_read_along_rows else 1
            return (rows / at_once, 1.0) if rows > at_once else ALONE
        return _of_pieces(rows, length, piece, lanes)

    return each_setting(v, ("vectors", "parallel", "fuse_all"), count)


def _of_pieces(rows: int, extent: int, piece: int, lanes: int) -> Shared:
    """Tasks of rows that are cut into pieces, the last one shorter."""
    whole = vectors_along(min(piece, extent), lanes)
    tasks = rows * vectors_along(extent, lanes) / whole
    return (tasks, 1.0) if rows * -(-extent // piece) > 1 else ALONE


def parts_of(view: StageView, parts: int, vectors: int, lanes: int) -> int:
    """Parts that a reduction is divided into; 1 where no loop of it is long enough."""
    along, step = contiguous_reduction(view), lanes * vectors
    for loop in view.reduce:
        unit = step if loop.name == along else 1
        if parts > 1 and loop.extent >= 2 * parts * unit:
            factor = ceil(ceil(loop.extent / parts) / unit) * unit
            return -(-loop.extent // factor)
    return 1


def reduction_stores(sketch: ReductionSketch, v: Values) -> FloatArray:
    """(P,) results that are stored, and sums that wait."""
    view, lanes = sketch.group.last, sketch.lanes

    def count(vectors: int, parts: int, chunk: int, parallel: int) -> tuple[float]:
        divided = parts_of(view, parts, vectors, lanes) if parallel else 1
        if contiguous_reduction(view) is not None:
            return (float(view.outputs * (divided + (divided > 1))),)
        return (stores_along_columns(view, lanes, chunk),)

    return each_setting(v, ("vectors", "split_k", "chunk", "parallel"), count)[0]


def stores_along_columns(view: StageView, lanes: int, chunk: int) -> float:
    """Stores of a reduction with vectors along its results: each chunk of rows adds to them."""
    times = 1
    if chunk and view.reduce and view.reduce[-1].extent > chunk:
        times = prod(loop.extent for loop in view.reduce[:-1]) * -(-view.reduce[-1].extent // chunk)
    return stores_of_elements(view, lanes) * times


def reduction_tasks(sketch: ReductionSketch, v: Values) -> list[FloatArray]:
    """(P,) tasks and regions."""
    view, lanes, threads = sketch.group.last, sketch.lanes, sketch.target.threads
    rows = sketch.group.repeats

    def count(vectors: int, parallel: int, parts: int) -> Shared:
        if not parallel:
            return ALONE
        divided = parts_of(view, parts, vectors, lanes)
        if divided > 1:
            return float(rows * divided), 1.0
        if contiguous_reduction(view) is None and rows < threads and view.spatial:
            columns = view.spatial[-1].extent
            piece = column_piece(columns, threads, lanes * vectors)
            if piece < columns:
                tasks, regions = _of_pieces(1, columns, piece, lanes * vectors)
                return tasks, regions * prod(loop.extent for loop in view.spatial[:-1])
        return (float(rows), 1.0) if rows > 1 else ALONE

    return each_setting(v, ("vectors", "parallel", "split_k"), count)


def row_stores(sketch: RowSketch, v: Values) -> FloatArray:
    """(P,) values of all stages that are stored, one for each result of a sum along a row."""
    lanes, views = sketch.lanes, sketch.group.stages

    def count(
        vectors: int, parts: int, chunk: int, parallel: int, block: int, stagger: int
    ) -> tuple[float]:
        total = 0.0
        for view in views:
            if not view.is_reduction:
                stores = stores_of_elements(view, lanes, sketch.group.shared)
                at_once = 1 if stagger or stores < view.outputs else block
                total += stores / at_once * vectors_along(at_once, lanes)
            elif contiguous_reduction(view) is None:
                total += stores_along_columns(view, lanes, chunk)
            else:
                divided = parts_of(view, parts, vectors, lanes) if parallel else 1
                total += view.outputs * (divided + (divided > 1))
        return (total,)

    names = ("vectors", "split_k", "chunk", "parallel", "block", "stagger")
    return each_setting(v, names, count)[0]


def row_tasks(sketch: RowSketch, v: Values) -> list[FloatArray]:
    """(P,) tasks and regions."""
    rows, lanes, threads = sketch.group.repeats, sketch.lanes, sketch.target.threads
    first = sketch.group.stages[0]

    def count(vectors: int, parallel: int, parts: int, block: int, stagger: int) -> Shared:
        if not parallel:
            return ALONE
        divided = parts_of(first, parts, vectors, lanes)
        if divided > 1:
            return float(rows * divided), 1.0
        if stagger:
            piece = rows_a_task(rows, threads, ROWS_A_STEP * len(sketch.steps), block)
            return (rows / piece, 1.0) if piece < rows else ALONE
        tasks = rows // block
        return (float(tasks), 1.0) if tasks > 1 else ALONE

    return each_setting(v, ("vectors", "parallel", "split_k", "block", "stagger"), count)
