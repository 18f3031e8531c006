"""Stages that share the contiguous axis are computed in blocks of columns: which they are, what
their loops look like, and that they mean what the expression does."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.counts.program import program
from benchmarks.counts.recount import recount
from tests.support.golden_text import Golden
from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import program_counts
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    BufferScope,
    For,
    LoopKind,
    leaves,
    loops,
    walk,
)
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.fused.columns import ColumnSketch
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.workload.workload import Workload

SOFTMAX = "m[j] max= X[i,j]; e[i,j] = exp(X[i,j] - m[j]); t[j] += e[i,j]; Y[i,j] = e[i,j] / t[j]"
SOFTMAX_MIDDLE = (
    "m[b,j] max= X[b,i,j]; e[b,i,j] = exp(X[b,i,j] - m[b,j]); t[b,j] += e[b,i,j];"
    "Y[b,i,j] = e[b,i,j] / t[b,j]"
)
BATCH_NORM = (
    "s[c] += X[n,h,w,c]; v[c] += (X[n,h,w,c] - s[c] / 30) * (X[n,h,w,c] - s[c] / 30);"
    "Y[n,h,w,c] = (X[n,h,w,c] - s[c] / 30) * rsqrt(v[c] / 30 + 0.00001) * g[c] + b[c]"
)
BY_COLUMN: dict[str, Workload] = {
    "softmax": notation(SOFTMAX, X="f32[9,43]"),
    "softmax of one block": notation(SOFTMAX, X="f32[5,9]"),
    "softmax along a middle axis": notation(SOFTMAX_MIDDLE, X="f32[3,7,21]"),
    "softmax of one matrix": notation(SOFTMAX_MIDDLE, X="f32[1,7,21]"),
    "softmax along the first of four": notation(
        "m[i,j,k] max= X[a,i,j,k]; e[a,i,j,k] = exp(X[a,i,j,k] - m[i,j,k]);"
        "t[i,j,k] += e[a,i,j,k]; Y[a,i,j,k] = e[a,i,j,k] / t[i,j,k]",
        X="f32[4,3,2,19]",
    ),
    "softmax along the third of four": notation(
        "m[a,i,k] max= X[a,i,j,k]; e[a,i,j,k] = exp(X[a,i,j,k] - m[a,i,k]);"
        "t[a,i,k] += e[a,i,j,k]; Y[a,i,j,k] = e[a,i,j,k] / t[a,i,k]",
        X="f32[2,3,4,43]",
    ),
    "norms": notation("n[j] += X[i,j] * X[i,j]; Y[i,j] = X[i,j] / sqrt(n[j])", X="f32[11,37]"),
    "means": notation("s[j] += X[i,j]; Y[i,j] = X[i,j] - s[j] / 11", X="f64[11,37]"),
    "batch norm": notation(BATCH_NORM, X="f32[2,3,5,26]", g="f32[26]", b="f32[26]"),
    "scaled by rows": notation(
        "s[j] += X[i,j]; Y[i,j] = (X[i,j] - s[j]) * g[i] + b[i]",
        X="f32[11,37]", g="f32[11]", b="f32[11]",
    ),
    "variance alone": notation(
        "s[j] += X[i,j]; v[j] += (X[i,j] - s[j] / 11) * (X[i,j] - s[j] / 11)", X="f32[11,37]"
    ),
    "whole numbers": notation("s[j] += X[i,j]; Y[i,j] = X[i,j] * s[j]", X="i32[11,37]"),
}  # fmt: skip
OTHERS: dict[str, Workload] = {
    "softmax of rows": notation(
        "m[i] max= X[i,j]; e[i,j] = exp(X[i,j] - m[i]); t[i] += e[i,j]; Y[i,j] = e[i,j] / t[i]",
        X="f32[9,43]",
    ),
    "sums alone": notation("s[j] += X[i,j]", X="f32[9,43]"),
    "no reduction": notation("e[i,j] = exp(X[i,j]); Y[i,j] = e[i,j] * e[0,j]", X="f32[9,43]"),
    "few columns": notation(SOFTMAX, X="f32[43,5]"),
    "padded window": notation(
        "m[i,j] max= X[i+r-1,j]; Y[i,j] = X[i,j] - m[i,j]", {"i": 9, "r": 3}, X="f32[9,37]"
    ),
    "turned": notation("s[j] += X[j,i]; Y[i,j] = X[j,i] - s[j]", X="f32[43,9]"),
    "neighbouring columns": notation("s[j] += X[i,j]; Y[j] = s[j] - s[42-j]", X="f32[9,43]"),
}


def part_of(sketch: Sketch) -> ColumnSketch:
    assert isinstance(sketch, ProgramSketch)
    return next(part for part in sketch.parts if isinstance(part, ColumnSketch))


@pytest.mark.parametrize("name", BY_COLUMN)
def test_all_stages_stand_in_one_loop_over_blocks_of_columns(name: str) -> None:
    workload = BY_COLUMN[name].normalised()
    sketch = space_for(workload, target()).sketches[0]
    assert sketch.name.replace("merge+", "") == "columns"
    nest = lower(workload, sketch.trace(sketch.default()))
    (block,) = [stmt for stmt in nest.body if isinstance(stmt, For)]
    assert {stage.name for stage in workload.stages} & {leaf.buffer for leaf in leaves((block,))}
    assert any(loop.kind is LoopKind.VECTORIZED for loop in loops(nest.body))


@pytest.mark.parametrize("name", BY_COLUMN)
def test_blocks_of_columns_mean_the_same(name: str) -> None:
    workload = BY_COLUMN[name].normalised()
    for threads in (1, 2):
        sketch = space_for(workload, target(threads)).sketches[0]
        for setting in (sketch.default(), *drawn(sketch, 4, threads)):
            if sketch.feasible(np.asarray([setting]))[0]:
                check_meaning(workload, lower(workload, sketch.trace(setting)))


@pytest.mark.parametrize("name", BY_COLUMN)
def test_all_results_are_counted(name: str) -> None:
    """Also those of a reduction that has several rows of them in a block."""
    workload = BY_COLUMN[name].normalised()
    sketch = space_for(workload, target()).sketches[0]
    stages = frozenset(stage.name for stage in workload.stages)
    for setting in (sketch.default(), *drawn(sketch, 4)):
        if sketch.feasible(np.asarray([setting]))[0]:
            nest = lower(workload, sketch.trace(setting))
            found = recount(program(nest, stages, nest.body))["vector_stores"]
            assert program_counts(sketch, np.asarray([setting]))["vector_stores"] == found


@pytest.mark.parametrize("name", OTHERS)
def test_other_expressions_have_no_blocks_of_columns(name: str) -> None:
    workload = OTHERS[name].normalised()
    names = [sketch.name for sketch in space_for(workload, target()).sketches]
    assert not any("columns" in name for name in names)


@pytest.mark.parametrize("widest", [1, 2, 4])
def test_blocks_whose_values_between_stages_leave_the_caches_are_not_offered(widest: int) -> None:
    rows = target().own_cache_bytes // (2 * widest * 8 * 4)  # half of them, in vectors of 8
    workload = notation(SOFTMAX, X=f"f32[{rows},64]").normalised()
    sketch = part_of(space_for(workload, target()).sketches[0])
    assert sketch.knobs[0].values[-1] == widest


def test_a_product_before_has_tiles_of_its_own() -> None:
    workload = notation(
        f"X[i,j] += A[i,k] * B[k,j]; {SOFTMAX}", A="f32[33,17]", B="f32[17,31]"
    ).normalised()
    assert space_for(workload, target()).sketches[0].name == "tile+columns"


def test_a_softmax_along_the_first_axis(golden: Golden) -> None:
    workload = notation(SOFTMAX, X="f32[9,64]").normalised()
    sketch = space_for(workload, target()).sketches[0]
    nest = lower(workload, sketch.trace(sketch.default()))
    assert to_text(nest) == golden
    check_meaning(workload, nest)


def test_exponentials_are_summed_up_where_they_are_computed() -> None:
    workload = notation(SOFTMAX, X="f32[9,64]").normalised()
    sketch = space_for(workload, target()).sketches[0]
    setting = list(sketch.default())
    place = [knob.name for knob in sketch.knobs].index("fuse_loops")
    walks = []
    for merge in (0, 1):
        setting[place] = merge
        nest = lower(workload, sketch.trace(setting))
        rows = [x for x in loops(nest.body) if x.extent == 9]
        walks.append(len(rows))
        accumulators = [s for s in walk(nest.body) if isinstance(s, Allocate)]
        assert sum(s.buffer.scope is BufferScope.REGISTER for s in accumulators) == 2
    assert walks == [4, 3]


def test_blocks_are_as_many_as_keep_all_threads_busy() -> None:
    workload = notation(SOFTMAX, X="f32[32,64]").normalised()
    sketch = part_of(space_for(workload, target()).sketches[0])
    for setting in drawn(sketch, 20):
        width = sketch.block_vectors(sketch.values(setting)) * sketch.lanes
        parallel = sketch.values(setting).parallel > 0
        assert (-(-64 // width) % 2 == 0)[parallel].all()


def test_threads_that_share_the_columns_of_a_sum_are_counted_as_tasks() -> None:
    workload = notation("s[j] += X[i,j]", X="f32[640,64]").normalised()
    (sketch,) = space_for(workload, target()).sketches
    names = [knob.name for knob in sketch.knobs]
    for setting in drawn(sketch, 30):
        if not sketch.feasible(np.asarray([setting]))[0]:
            continue
        nest = lower(workload, sketch.trace(setting))
        parallel = [x.extent for x in loops(nest.body) if x.kind is LoopKind.PARALLEL]
        tasks = program_counts(sketch, np.asarray([setting]))["tasks"]
        assert tasks[0] == (parallel[0] if parallel else 1), dict(zip(names, setting, strict=True))
