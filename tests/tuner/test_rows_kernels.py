"""Kernels of the rows and transpose sketches: any setting gives the result, at any extent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.spaces import settings
from tests.support.schedules.workloads import notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, loops, walk
from tilewright.schedules.operators import build
from tilewright.schedules.primitives import CacheRead, Merge, Stagger, Stream
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.analysis.reductions import contiguous_reduction
from tilewright.schedules.sketches.analysis.stages import view_stages
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

SMALL = (Cache(512, 8), Cache(1024, 8), Cache(4096, 16, shared=True))
"""Caches so small that every knob is open for tensors an interpreter can walk through."""


def small_target(threads: int, bits: int) -> Target:
    return replace(this_machine(threads, bits), caches=SMALL)


def holds(workload: Workload, seed: int = 0, count: int = 3) -> ScheduleSpace:
    """Drawn settings of every sketch are legal and compute the same; the space of two threads."""
    for threads, bits in ((1, 512), (2, 256)):
        space = space_for(workload, small_target(threads, bits))
        for sketch in space.sketches:
            for setting in settings(sketch, count, seed):
                trace = sketch.trace(setting)
                check_pair(Pair(sketch.name, workload, trace, threads, bits))
    return space


PERMUTATIONS = {
    "Y[i,j] = X[j,i]": 2,
    "Y[b,j,i] = X[b,i,j]": 3,
    "Y[k,i,j] = X[i,j,k]": 3,
    "Y[j,k,i] = X[i,j,k]": 3,
    "Y[k,j,i] = X[i,j,k]": 3,
}


@pytest.mark.parametrize("text", PERMUTATIONS)
@pytest.mark.parametrize("extents", [(1, 2, 3), (3, 7, 13), (17, 33, 2), (8, 16, 40), (35, 1, 20)])
def test_permutations(text: str, extents: tuple[int, ...]) -> None:
    shape = ",".join(map(str, extents[: PERMUTATIONS[text]]))
    for dtype in ("f32", "f64", "i8"):
        holds(notation(text, X=f"{dtype}[{shape}]"))


NEAR = {
    "every second element of one": ("s[i] += A[i,k] * B[2*k]", {"A": "f32[9,70]", "B": "f32[140]"}),
    "halves of bytes": (
        "s[i] += f32(i32(A[i,k]) >> 4) * B[2*k+1]; Y[i] = s[i] + B[0]",
        {"A": "u8[9,70]", "B": "f32[140]"},
    ),
    "complex numbers": (
        "s[i] += A[i,k,0]*B[i,k,0] - A[i,k,1]*B[i,k,1]",
        {"A": "f32[7,70,2]", "B": "f32[7,70,2]"},
    ),
    "one of three colours": ("m[i] max= A[i,k,2]", {"A": "f32[5,50,3]"}),
}


@pytest.mark.parametrize("name", NEAR)
def test_sums_of_elements_a_few_apart_have_vectors_along_the_sum(name: str) -> None:
    text, tensors = NEAR[name]
    workload = notation(text, None, **tensors)
    first, *_ = view_stages(workload.normalised(), ()).values()
    assert contiguous_reduction(first) is not None
    holds(workload)


ELSEWHERE = {
    "of a cube": ("Y[k,i] += X[i,j,k]", {"X": "f32[5,40,33]"}),
    "with a factor for each term": (
        "Y[k,i] += X[i,j,k] * V[j]",
        {"X": "f32[5,40,33]", "V": "f32[40]"},
    ),
    "greatest": ("Y[b,k,i] max= X[b,i,j,k]", {"X": "f32[2,19,7,24]"}),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_sums_contiguous_along_another_axis_of_the_result_are_turned(name: str) -> None:
    text, tensors = ELSEWHERE[name]
    space = holds(notation(text, None, **tensors))
    assert any("permute" in sketch.name for sketch in space.sketches)


def test_a_turned_read_among_others() -> None:
    workload = notation(
        "Y[i,j] = A[i,j] + 2*X[j,i]*b[j]", A="f32[37,21]", X="f32[21,37]", b="f32[21]"
    )
    space = holds(workload)
    assert [sketch.name for sketch in space.sketches] == ["transpose"]
    trace = space.trace(space.default())
    assert {step.tensor for step in trace.steps if isinstance(step, CacheRead)} == {"i1"}


def test_of_one_tensor_read_both_ways_the_turned_read_is_turned() -> None:
    space = holds(notation("Y[i,j] = X[j,i] + X[i,j]", X="f32[20,20]"))
    assert [sketch.name for sketch in space.sketches] == ["transpose"]


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("columns", [1, 7, 17, 64, 130])
def test_operators_of_rows(rows: int, columns: int) -> None:
    for name in ("softmax_mn", "layernorm_mn", "colsum_mn", "elementwise_add_relu"):
        holds(build(name, {"M": rows, "N": columns}), seed=rows)


EXPRESSIONS = {
    "log-sum-exp": "m[i] max= A[i,j]; s[i] += exp(A[i,j]-m[i]); Y[i] = log(s[i])+m[i]",
    "two outputs": "S[i] += A[i,j]; M[i] max= A[i,j]",
    "rows over their column sums": "S[j] += A[i,j]; Y[i,j] = A[i,j]/S[j]",
    "sums of rows and columns of the middle": "C[j] += B[b,i,j]",
    "values and their sum": "m[i] max= A[i,j]; e[i,j] = exp(A[i,j]-m[i]); s[i] += e[i,j]; "
    "t[i] += e[i,j]*e[i,j]; Y[i,j] = e[i,j]/s[i]*t[i]",
    "values and the sum, three dimensions": "e[b,i,j] = exp(B[b,i,j]); s[b,i] += e[b,i,j]*2.0; "
    "Y[b,i,j] = e[b,i,j]*s[b,i]",
    "values and the sum, another axis": "e[i,j] = exp(A[i,j]); s[j] += e[i,j]; "
    "Y[i,j] = e[i,j]/s[j]",
    "greatest of columns": "C[b,j] max= B[b,i,j]",
    "stencil": "Y[i,j] = A[i,j]+A[i,j+1]+A[i,j+2]",
}


@pytest.mark.parametrize("text", EXPRESSIONS.values(), ids=list(EXPRESSIONS))
@pytest.mark.parametrize("shape", ["1,70", "3,40", "19,33"])
def test_expressions_of_rows(text: str, shape: str) -> None:
    ranges = {"j": int(shape.split(",")[1]) - 2} if "j+2" in text else {}
    tensors = {"B": f"f32[2,{shape}]"} if "B[" in text else {"A": f"f32[{shape}]"}
    holds(notation(text, ranges, **tensors))


STAGGERED = {
    "softmax": "m[i] max= A[i,j]; e[i,j] = exp(A[i,j]-m[i]); s[i] += e[i,j]; Y[i,j] = e[i,j]/s[i]",
    "one value a row": "m[i] max= A[i,j]; s[i] += exp(A[i,j]-m[i]); Y[i] = log(s[i])+m[i]",
    "log-softmax": "m[i] max= A[i,j]; s[i] += exp(A[i,j]-m[i]); Y[i,j] = A[i,j]-m[i]-log(s[i])",
    "normalised twice": "m[i] += A[i,j]; v[i] += (A[i,j]-m[i])*(A[i,j]-m[i]); "
    "r[i] = rsqrt(v[i]+1.0); t[i] max= A[i,j]*r[i]; Y[i,j] = A[i,j]*r[i]+t[i]",
    "two values a row": "s[i] += A[i,j]; p[i] max= A[i,j]; Y[i,j] = (A[i,j]-s[i])*p[i]",
    "three dimensions": "m[b,i] max= B[b,i,j]; e[b,i,j] = exp(B[b,i,j]-m[b,i]); "
    "s[b,i] += e[b,i,j]; Y[b,i,j] = e[b,i,j]/s[b,i]",
    "a sum of sums": "e[i,j] = exp(A[i,j]); s[i] += e[i,j]; q[i,j] = e[i,j]/s[i]; "
    "t[i] += q[i,j]*q[i,j]; Y[i,j] = q[i,j]*t[i]",
}


@pytest.mark.parametrize("text", STAGGERED.values(), ids=list(STAGGERED))
@pytest.mark.parametrize("columns", [32, 45, 130])
def test_staggered_rows(text: str, columns: int) -> None:
    if "B[" in text:
        workload = notation(text, B=f"f32[4,24,{columns}]")
    else:
        workload = notation(text, A=f"f32[96,{columns}]")
    rng = np.random.default_rng(columns)
    for threads, bits in ((1, 512), (2, 256)):
        space = space_for(workload, small_target(threads, bits))
        for sketch in space.sketches:
            sizes = [len(knob.values) for knob in sketch.knobs]
            drawn = rng.integers(0, sizes, (60, len(sizes)))
            drawn[:, [knob.name for knob in sketch.knobs].index("software_pipelining")] = 1
            for row in drawn[sketch.feasible(drawn)][:5]:
                trace = sketch.trace(tuple(int(i) for i in row))
                assert any(isinstance(step, Stagger) for step in trace.steps)
                check_pair(Pair(sketch.name, workload, trace, threads, bits))


@pytest.mark.parametrize(
    "text",
    [
        "s[j] += A[i,j]; Y[i,j] = A[i,j]/s[j]",  # no rows in common
        "s[i] += A[i,j]; Y[i] = s[i]*2.0",  # nothing after the one walk
        "e[i,j] = exp(A[i,j]); s[i] += e[i,j]; Y[i,j] = e[i,129-j]/s[i]",  # another place
        "t[i] = log(A[i,0]); e[i,j] = exp(A[i,j]); Y[i,j] = e[i,j]*e[i,j]*t[i]",  # nothing waits
    ],
)
def test_what_has_no_steps_is_not_staggered(text: str) -> None:
    sketches = space_for(notation(text, A="f32[96,130]"), small_target(2, 256)).sketches
    assert not any(
        k.name == "software_pipelining" and len(k.values) > 1 for s in sketches for k in s.knobs
    )


def chosen(space: ScheduleSpace, **knobs: int) -> set[object]:
    """The kinds of loops and steps in the first sketch's trace with these knob values."""
    sketch = space.sketches[0]
    values = {k.name: k.values[i] for k, i in zip(sketch.knobs, sketch.default(), strict=True)}
    values |= knobs
    trace = sketch.trace([knob.values.index(values[knob.name]) for knob in sketch.knobs])
    nest = lower(space.workload, trace)
    found: set[object] = {loop.kind for loop in loops(nest.body)}
    return found | {type(s) for s in (*walk(nest.body), *trace.steps)}


def test_knobs_do_what_they_say() -> None:
    softmax = space_for(build("softmax_mn", {"M": 16, "N": 256}), small_target(2, 256))
    assert Stream in chosen(softmax, nontemporal_stores=1)
    assert LoopKind.PARALLEL not in chosen(softmax, parallel=0)
    assert {Merge, Stagger} <= chosen(softmax, software_pipelining=1)
    assert Stagger not in chosen(softmax, software_pipelining=0)
    columns = space_for(build("colsum_mn", {"M": 64, "N": 256}), small_target(2, 256))
    assert LoopKind.PARALLEL in chosen(columns, parallel=1, reduction_chunk=8)


def test_small_outputs_are_not_streamed() -> None:
    space = space_for(build("softmax_mn", {"M": 16, "N": 256}), this_machine(1))
    knobs = {knob.name: knob.values for knob in space.sketches[0].knobs}
    assert knobs["nontemporal_stores"] == (0,)


def test_stages_of_a_lone_row_may_be_divided_one_by_one() -> None:
    space = holds(build("softmax_mn", {"M": 1, "N": 600}))
    assert space.sketches[0].name == "rows"
    apart = space.sketches[1]
    nest = lower(space.workload, apart.trace(apart.default()))
    assert sum(loop.kind is LoopKind.PARALLEL for loop in loops(nest.body)) >= 2
