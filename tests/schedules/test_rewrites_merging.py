"""Two axes that always lie together are one: which merge, which must not, and the same results."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedules.regrouping import MACHINE, expression, same_meaning
from tests.support.schedules.spellings import MERGING, RANGES, drawn_spellings
from tests.support.schedules.workloads import check_meaning
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.limits import MAX_EXTENT
from tilewright.schedules.lowering.lower import lower, start
from tilewright.schedules.rewrites import (
    MergeAxes,
    PermuteAxes,
    PrecomputeFactors,
    changing_operations,
)
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.merging import merge_axes
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload


@pytest.mark.parametrize("name", MERGING)
def test_axes_that_lie_together_become_one(name: str) -> None:
    text, tensors, shape = MERGING[name]
    workload = expression(text, tensors, **RANGES.get(name, {}))
    form = merge_axes(Form(workload), MACHINE)
    assert same_meaning(workload, form.steps) == form.workload
    assert form.workload.output_tensors[0].shape == shape
    assert merge_axes(form, MACHINE) == form


SLIDING = {
    "padded": ("Y[t,h,w] += X[t+r-1,h,w] * k[r]", "X=f32[6,3,5] k=f32[3]", (90,), {}),
    "along the outer axis": (
        "Y[y,x,c] += X[y+r,x+s,c]", "X=f32[9,11,3]", (7, 27), {"r": 3, "s": 3}),
    "of one stage": ("T[y,x,c] = X[y,x,c] * 2.0; Y[y,x,c] max= T[y,x+r,c]",
                     "X=f32[4,11,3]", (4, 27), {"r": 3}),
    "of one width": ("Y[n,o,h,w] += X[n,c,h+i,w] * W[o,c,i]",
                     "X=f32[2,3,9,5] W=f32[4,3,3]", (2, 4, 35), {}),
    "of width one": ("Y[n,o,h,w] += X[n,c,h+i,w+j] * W[o,c,i,j]",
                     "X=f32[2,3,9,5] W=f32[4,3,3,1]", (2, 4, 35), {}),
    "padded on both sides": ("Y[x,c] = X[x-1,c] + X[x+1,c]", "X=f32[6,3]", (18,), {"x": 6}),
    "backwards": ("Y[x,c] = X[x+2,c] - X[x,c]", "X=f32[6,3]", (12,), {"x": 4}),
}  # fmt: skip


@pytest.mark.parametrize("name", SLIDING)
def test_windows_slide_along_merged_axes(name: str) -> None:
    text, tensors, shape, ranges = SLIDING[name]
    workload = expression(text, tensors, **ranges)
    form = merge_axes(Form(workload), MACHINE)
    assert same_meaning(workload, form.steps) == form.workload
    assert form.workload.output_tensors[0].shape == shape
    for sketch in space_for(workload, MACHINE).sketches:
        check_meaning(workload, lower(workload, sketch.trace(sketch.default())))


def test_axes_of_one_element_are_left_out_of_sums() -> None:
    workload = expression(
        "T[h,w] += X[2*h+r,2*w+s]; Y[h,w] = T[h,w] * 2.0", "X=f32[3,5]", h=1, w=1, r=3, s=5
    )
    merged = MergeAxes("s1", "d0", "d1")
    check_meaning(workload, lower(workload, Trace((merged,))))


def test_a_condition_on_two_pairs_is_not_left_out() -> None:
    workload = expression("Y[i,j,k,l] = where(i <= k, X[i,j] * X[k,l], 0.0)", "X=f32[3,5]")
    for outer, inner in (("d0", "d1"), ("d2", "d3")):
        with pytest.raises(ScheduleError, match="two pairs"):
            MergeAxes("s0", outer, inner).rewrite(workload)


def test_long_rows_stay_rows_of_windows() -> None:
    lanes = MACHINE.lanes(DType.F32)
    for width, shape in (
        (8 * lanes - 1, (7 * (8 * lanes - 1),)),
        (8 * lanes + 1, (7, 8 * lanes + 1)),
    ):
        workload = expression("Y[y,x] += X[y+r,x]", f"X=f32[9,{width}]", r=3)
        form = merge_axes(Form(workload), MACHINE)
        assert form.workload.output_tensors[0].shape == shape


SEPARATE = {
    "condition": ("Y[i,j] = where(j < 3, X[i,j], 0.0)", "X=f32[3,5]", "condition or index value"),
    "index value": ("Y[i,j] = X[i,j] * f32(i)", "X=f32[3,5]", "condition or index value"),
    "transposed read": ("Y[i,j] = X[i,j] + Z[j,i]", "X=f32[5,5] Z=f32[5,5]", "alone"),
    "window": ("Y[i,j] += X[i,j+r] * w[r]", "X=f32[3,9] w=f32[3]", "alone"),
    "stepped window": ("Y[i,j] += X[2*i+r,j] * w[r]", "X=f32[9,5] w=f32[3]", "alone"),
    "part of a window": ("Y[i,j] += X[i+r,j] * w[r]", "X=f32[5,9] w=f32[3]", "alone"),
    "broadcast along one axis": ("Y[i,j] = X[i,j] * b[j]", "X=f32[3,5] b=f32[5]", "alone"),
    "part of the columns": ("Y[i,j] = X[i,j] + Z[i,j]", "X=f32[3,9] Z=f32[3,5]", "alone"),
    "diagonal": ("Y[i,j] = X[i,j] + Z[i,i]", "X=f32[3,5] Z=f32[3,3]", "alone"),
    "chain of pairs": ("Y[i,j,k] = X[i,j] * X[j,k]", "X=f32[5,5]", "alone|overlap"),
    "scan along the second": ("Y[i,j] = cumsum(X[i,j], j)", "X=f32[3,5]", "scans"),
    "scan along the first": ("Y[i,j] = cumsum(X[i,j], i)", "X=f32[3,5]", "scans"),
    "another pair in another stage": (
        "T[i,j] += X[i,j,k]; Y[i,j] = T[i,j] + T[j,i]", "X=f32[5,5,4]", "alone",
    ),
    "one of them summed in another stage": (
        "Y[i,j] = X[i,j] * 2.0; S[i] += Y[i,j]", "X=f32[3,5]", "alone",
    ),
    "a fixed column in another stage": (
        "Y[i,j] = X[i,j] * 2.0; S[i] = X[i,3]", "X=f32[3,5]", "not indexed by two axes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEPARATE)
def test_axes_that_are_used_apart_do_not_merge(name: str) -> None:
    text, tensors, reason = SEPARATE[name]
    workload = expression(text, tensors, **RANGES.get(name, {}))
    stages = [s for s in workload.stages if len(s.axes) > 1]
    for stage in stages:
        with pytest.raises(ScheduleError, match=reason):
            MergeAxes(stage.name, "d0", "d1").rewrite(workload)
    assert merge_axes(Form(workload), MACHINE).steps == ()
    sketches = space_for(workload, MACHINE).sketches
    assert not any(MergeAxes.label in sketch.name.split("+") for sketch in sketches)


def test_what_is_no_pair_of_axes_is_refused() -> None:
    workload = expression("Y[i,j] = X[i,j]", "X=f32[3,5]")
    for step, reason in (
        (MergeAxes("s1", "d0", "d1"), "no stage"),
        (MergeAxes("s0", "d0", "d2"), "no axes"),
        (MergeAxes("s0", "d0", "d0"), "overlap"),
        (MergeAxes("s0", "d1", "d0"), "alone"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            step.rewrite(workload)
    long = expression("Y[i,j] = X[i,j]", f"X=u8[{MAX_EXTENT},2]")
    with pytest.raises(ScheduleError, match="positions"):
        MergeAxes("s0", "d0", "d1").rewrite(long)


def test_rewrites_that_change_operations_come_first() -> None:
    """Their rounding is bounded in the shapes of the workload."""
    workload = expression(
        "C[b,i,j] += A[b,i,k] * d[k] * B[k,j]", "A=f32[3,5,7] d=f32[7] B=f32[7,9]"
    )
    factors, merge = PrecomputeFactors("s0", (0, 1)), MergeAxes("s1", "d0", "d1")
    form, _ = start(workload, Trace((factors, merge)))
    assert form.output_tensors[0].shape == (15, 9)
    with pytest.raises(ScheduleError, match="must precede"):
        start(workload, Trace((MergeAxes("s0", "d0", "d1"), factors)))
    permute = PermuteAxes("s1", 0)
    assert changing_operations((factors, merge, permute)) == (factors,)
    assert changing_operations((permute, factors, merge)) == (permute, factors)
    assert changing_operations((merge,)) == ()


def merged(workload: Workload) -> Form:
    """The form after all legal merges of any two axes."""

    def pairs(form: Workload) -> Iterator[MergeAxes]:
        for stage in form.stages:
            for outer, inner in permutations(stage.all_axes, 2):
                yield MergeAxes(stage.name, outer.name, inner.name)

    return Form(workload.normalised()).apply_until_fixpoint(pairs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_split_axes_of_random_expressions_merge_again(data: st.DataObject) -> None:
    split, whole, count = drawn_spellings(data)
    form = merged(split)
    assert len(form.steps) >= count
    assert form.workload == merged(whole).workload
    same_meaning(split, form.steps)


@pytest.mark.parametrize("name", MERGING)
def test_merged_sketches_are_offered_first_and_mean_the_same(name: str) -> None:
    text, tensors, _ = MERGING[name]
    workload = expression(text, tensors, **RANGES.get(name, {}))
    space = space_for(workload, MACHINE)
    names = [MergeAxes.label in sketch.name.split("+") for sketch in space.sketches]
    assert names[0]
    assert not names[-1], "the expression as it is written stays"
    assert not space.dropped
    for sketch in space.sketches:
        trace = sketch.trace(sketch.default())
        assert Trace.from_json(trace.to_json()) == trace
        check_meaning(workload, lower(workload, trace))


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        ("Y[i,j] = X[i,j] * 2.0", "X=f32[9,64]"),
        ("Y[a,c] += X[a,b,c]", "X=f32[9,5,7]"),
        ("C[i,j] += A[i,k] * B[k,j]", "A=f32[40,30] B=f32[30,50]"),
        ("C[b,i,j] += A[b,i,k] * B[k,j]", "A=f32[4,40,30] B=f32[30,50]"),
        ("Y[h,w,o] += X[h+r,w+s,c] * W[r,s,c,o]", "X=f32[9,9,8] W=f32[3,3,8,16]"),
    ],
)
def test_suitable_or_separate_last_axes_are_left_alone(text: str, tensors: str) -> None:
    assert merge_axes(Form(expression(text, tensors)), MACHINE).steps == ()
