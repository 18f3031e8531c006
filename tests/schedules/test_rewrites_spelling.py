"""Expressions that are the same but for spelling are scheduled alike: sums over taps, formulas
written twice, padding as a stage of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedules.regrouping import (
    MACHINE,
    SCATTERED,
    TRANSPOSED,
    TWICE,
    expression,
    same_meaning,
)
from tilewright.schedules.algebra.scalar import Reducer, Scalar, Unary, rewrite, walk
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.limits import MAX_STAGES
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import (
    ExtractCommonStage,
    GatherOverTaps,
    ReadThrough,
    ReverseAxis,
    Rewrite,
    common_stage,
)
from tilewright.schedules.rewrites.searches import search_of
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.rewriting import (
    common_formulas,
    gather_over_taps,
    regrouped,
)
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.workload.tensors import Axis
from tilewright.schedules.workload.workload import Workload

PADDED = (
    "P[b,y,x,c] = where(y>=1 && y<=14 && x>=1 && x<=14, X[b,y-1,x-1,c], 0);"
    "Y[b,h,w,o] += P[b,h+r,w+s,c] * W[r,s,c,o]"
)


def test_a_transposed_convolution_as_it_is_defined_becomes_the_library_s() -> None:
    workload = expression(SCATTERED, "I=f32[1,6,7,3] W=f32[4,4,3,5]", y=12, x=14)
    steps = regrouped(workload).steps
    assert {type(step) for step in steps} == {ReverseAxis, GatherOverTaps}
    (sum_,) = Form(workload).after(*steps).workload.stages
    (library,) = regrouped(parse_workload(TRANSPOSED).normalised()).workload.stages
    assert (sum_.axes, sum_.kind) == (library.axes, library.kind)
    assert len(same_meaning(workload, steps).stages) == 1


def test_a_softmax_that_writes_its_exponential_twice_becomes_the_library_s() -> None:
    workload = expression(TWICE, "A=f32[9,50]")
    steps = regrouped(workload).steps
    assert [type(step) for step in steps] == [ExtractCommonStage]
    library = parse_workload("softmax_mn:M=9,N=50").normalised()
    assert Form(workload).after(*steps).workload == library
    assert not regrouped(library).steps
    same_meaning(workload, steps)


@pytest.mark.parametrize(
    ("text", "tensors", "library"),
    [
        (SCATTERED, "I=f32[1,6,7,3] W=f32[4,4,3,5]", TRANSPOSED),
        (TWICE, "A=f32[9,50]", "softmax_mn:M=9,N=50"),
    ],
)
def test_all_sketches_of_the_library_s_spelling_are_offered_first(
    text: str, tensors: str, library: str
) -> None:
    ranges = {"y": 12, "x": 14} if "y+1" in text else {}
    workload = expression(text, tensors, **ranges)
    ours, theirs = (
        space_for(w, MACHINE).sketches for w in (workload, parse_workload(library).normalised())
    )
    count = len(regrouped(workload).steps)
    assert len(ours) >= len(theirs)
    for mine, other in zip(ours, theirs, strict=False):
        assert mine.knobs == other.knobs
        assert mine.trace(mine.default()).steps[count:] == other.trace(other.default()).steps


def test_sums_read_through_padding_that_is_a_stage() -> None:
    workload = expression(PADDED, "X=f32[1,14,14,8] W=f32[3,3,8,16]", y=16, x=16)
    library = parse_workload("conv2d_nhwc:N=1,H=14,W=14,CI=8,CO=16,K=3,pad=1").normalised()
    ours, theirs = (space_for(w, MACHINE).sketches for w in (workload, library))
    assert [s.name for s in ours] == [f"through+{s.name}" for s in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.knobs == other.knobs
        through, *steps = mine.trace(mine.default()).steps
        assert through == ReadThrough("s0")
        assert tuple(steps) == other.trace(other.default()).steps


def test_padding_with_another_zero_is_no_padding() -> None:
    workload = expression(PADDED.replace(", 0)", ", -0.0)"), "X=f32[1,14,14,8] W=f32[3,3,8,16]",
                          y=16, x=16)  # fmt: skip
    assert any(
        "Inline" not in str(s.trace(s.default())) for s in space_for(workload, MACHINE).sketches
    )


TAPS = {
    "flipped": ("Y[y] += W[y-i] * I[i]", "I=f32[20] W=f32[3]", {"y": 22}, 1),
    "steps of three, other way round": (
        "Y[y] += W[3*i-y+2] * I[i]", "I=f32[9] W=f32[7]", {"y": 25}, 1,
    ),
    "the element is used elsewhere": (
        "Y[y,z] += W[y+1-2*i] * I[i] * V[i,z]", "I=f32[9] W=f32[3] V=f32[9,4]", {"y": 17}, 1,
    ),
    "the filter alone": ("Y[y] += W[y+1-2*i] * 2.0", "W=f32[3]", {"y": 17, "i": 9}, 1),
    "both are padded": ("Y[y] += W[y+1-2*i] * I[i-2]", "I=f32[9] W=f32[3]", {"y": 17, "i": 13}, 1),
    "an index with two sums": (
        "Y[y] += W[y-2*i-j] * I[i,j]", "I=f32[9,8] W=f32[4]", {"y": 20}, 1,
    ),
    "whole numbers": ("Y[y] += W[y-2*i] * I[i]", "I=i32[20] W=i32[3]", {"y": 40}, 1),
    "a filter as long as the input": ("Y[y] += W[y-i] * I[i]", "I=f32[5] W=f32[5]", {"y": 9}, 0),
    "hardly a longer input": ("Y[y] += W[y-i] * I[i]", "I=f32[6] W=f32[5]", {"y": 10}, 1),
    "a plain convolution": ("Y[y] += W[r] * I[y+r-1]", "I=f32[20] W=f32[3]", {"y": 20}, 0),
    "a filter for each element": (
        "Y[y] += W[y+1-2*i,i] * I[i]", "I=f32[20] W=f32[4,20]", {"y": 44}, 1,
    ),
    "a filter with a diagonal": (
        "Y[y,x] += W[y+1-2*i,x+i] * I[i]", "I=f32[20] W=f32[4,30]", {"y": 44, "x": 5}, 1,
    ),
    "a maximum": ("Y[y] max= W[y-i] * I[i]", "I=f32[20] W=f32[3]", {"y": 22}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", TAPS)
def test_sums_over_taps_mean_the_same(name: str) -> None:
    text, tensors, ranges, count = TAPS[name]
    workload = expression(text, tensors, **ranges)
    steps = Form(workload).apply_until_fixpoint(gather_over_taps).steps
    assert len(steps) == count
    if steps:
        same_meaning(workload, steps)


def test_a_filter_stays_inside_where_its_taps_did_not_say_so() -> None:
    """`k + x <= 0` keeps `2*x` inside as well, and no tap says it."""
    workload = expression("Y[x] += W[k+x,2*x] * X[k]", "W=f32[1,3] X=f32[2]", x=31)
    same_meaning(workload, (GatherOverTaps("s0", "r0"),))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_filter_means_the_same(data: st.DataObject) -> None:
    step = data.draw(st.sampled_from([-4, -3, -2, -1, 1, 2, 3]), "step")
    shift = data.draw(st.integers(-3, 9), "shift")
    taps, count = data.draw(st.integers(1, 6), "taps"), data.draw(st.integers(2, 9), "elements")
    outputs = data.draw(st.integers(2, 20), "outputs")
    sign = data.draw(st.sampled_from(["y", "2*y", "-y"]), "output")
    text = f"Y[y] += W[{sign} + {shift} + {step}*i] * I[i]".replace("+ -", "- ")
    workload = expression(text, f"I=f32[{count}] W=f32[{taps}]", y=outputs)
    try:
        form = Form(workload).after(GatherOverTaps("s0", "r0")).workload
    except ScheduleError:
        return
    assert form.stages
    same_meaning(workload, (GatherOverTaps("s0", "r0"),))


SHARED = {
    "in two stages": (TWICE, "A=f32[9,50]", 1),
    "turned": (
        "S[j] += exp(A[i,j]); Y[i,j] = exp(A[i,j]) / S[j]", "A=f32[9,50]", 1,
    ),
    "a part of another": (
        "S[i] += tanh(exp(A[i,k])); Y[i,j] = tanh(exp(A[i,j])) + S[i] + exp(A[i,j])",
        "A=f32[9,50]", 2,
    ),
    "two of them": (
        "S[i] += exp(A[i,k]) * tanh(B[i,k]); Y[i,j] = exp(A[i,j]) + tanh(B[i,j]) / S[i]",
        "A=f32[9,50] B=f32[9,50]", 2,
    ),
    "another tensor": ("S[i] += exp(A[i,k]); Y[i,j] = exp(B[i,j]) / S[i]",
                       "A=f32[9,50] B=f32[9,50]", 0),
    "another extent": ("S[i] += exp(A[i,k]); Y[i,j] = exp(A[i,j+1]) / S[i]", "A=f32[9,50]", 0),
    "no function": ("S[i] += A[i,k] - 1.0; Y[i,j] = (A[i,j] - 1.0) / S[i]", "A=f32[9,50]", 0),
    "under a condition": (
        "S[i] += where(k >= 3, exp(A[i,k]), 0); Y[i,j] = where(j >= 3, exp(A[i,j]), 0) / S[i]",
        "A=f32[9,50]", 0,
    ),
    "in a condition": (
        "S[i] += where(exp(A[i,k]) > 2, A[i,k], 0); Y[i,j] = exp(A[i,j]) / (S[i] + 1)",
        "A=f32[9,50]", 1,
    ),
    "in conditions only": (
        "S[i] += where(exp(A[i,k]) * 3 > 2, 1.0, 0); Y[i,j] = where(exp(A[i,j]) * 3 > 2, S[i], 0)",
        "A=f32[9,50]", 1,
    ),
    "in a condition under a condition": (
        "S[i] += where(k >= 3, where(exp(A[i,k]) > 2, A[i,k], 0), 0); "
        "Y[i,j] = exp(A[i,j]) / (S[i] + 1)", "A=f32[9,50]", 0,
    ),
    "larger than all there is": (
        "S[0] += exp(A[i] - B[k]); Y[0] += exp(A[i] - B[k]) * A[i]", "A=f32[9] B=f32[50]", 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_shared_formulas_mean_the_same(name: str) -> None:
    text, tensors, count = SHARED[name]
    workload = expression(text, tensors)
    steps = Form(workload).apply_until_fixpoint(common_formulas).steps
    assert len(steps) == count
    if steps:
        same_meaning(workload, steps)


def test_formulas_are_spelled_once_for_all_steps_of_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step asks for the formulas of all stages again, and changes those of a few."""
    sums = [f"S{n}[i] += exp(X[i,j] * {n // 2}.5) * tanh(X[i,j] + {n}.5)" for n in range(16)]
    total = " + ".join(f"S{n}[i]" for n in range(16))
    workload = expression("; ".join([*sums, f"Y[i] = {total}"]), "X=f32[8,9]")
    spelled: list[Scalar] = []
    spell = common_stage._formula

    def counted(node: Scalar, every: Mapping[str, Axis]) -> common_stage.Formula:
        spelled.append(node)
        return spell(node, every)

    monkeypatch.setattr(common_stage, "_formula", counted)
    common_stage._formulas.cache_clear()
    steps = Form(workload).apply_until_fixpoint(common_formulas).steps
    formulas = sum(len(common_stage.formulas(stage)) for stage in workload.stages)
    assert len(steps) == 8
    assert len(spelled) <= 4 * formulas


def test_what_is_shared_does_not_hang_on_which_objects_a_body_is_made_of() -> None:
    """A front end may use one object twice, a document makes two: both are the same stage."""
    workload = expression(
        "S[i] += exp(A[i,k]) + where(k >= 3, exp(A[i,k]), 0); Y[i,j] = exp(A[i,j]) / S[i]",
        "A=f32[9,50]",
    )
    stage = next(s for s in workload.stages if s.is_reduction)
    (once, *_) = [n for n in walk(stage.body) if isinstance(n, Unary)]
    one_object = replace(stage, body=rewrite(stage.body, lambda n: once if n == once else None))
    stages = tuple(one_object if s is stage else s for s in workload.stages)
    alike = replace(workload, stages=stages)
    (step,) = Form(workload).apply_until_fixpoint(common_formulas).steps
    assert alike == workload
    assert step.rewrite(alike) == step.rewrite(workload)


@pytest.mark.parametrize("part", range(3))
def test_a_formula_named_by_a_later_stage_is_computed_before_the_first(part: int) -> None:
    workload = expression(TWICE, "A=f32[9,50]")
    form = same_meaning(workload, (ExtractCommonStage(workload.stages[-1].name, part),))
    assert len(form.stages) == len(workload.stages) + 1


@pytest.mark.parametrize("inner", ["A[i]", "A[j]", "A[i] + A[j]"])
def test_axes_that_occur_in_conditions_only_are_axes_of_a_formula(inner: str) -> None:
    formula = f"exp(where(j <= i + k, {inner}, 0.0))"
    text = f"Y[i,j,k] = {formula} * B[i,j,k]; Z[i,j,k] = {formula} + B[i,j,k]"
    workload = expression(text, "A=f32[9] B=f32[9,9,4]")
    form = Form(workload).apply_until_fixpoint(common_formulas)
    assert len(form.steps) == 1
    same_meaning(workload, form.steps)


def test_a_formula_is_read_under_conditions_too_if_all_points_have_it() -> None:
    """Otherwise an extreme of stored quotients is compared with quotients that are computed, and
    rounded, again."""
    text = "P[i] = argmax(exp(A[i,k]) / s[i], k)"
    workload = expression(text, "A=f32[9,50] s=f32[9]")
    form = Form(workload).apply_until_fixpoint(common_formulas)
    assert len(form.steps) == 1
    same_meaning(workload, form.steps)
    calls = [n for s in form.workload.stages for n in walk(s.body) if isinstance(n, Unary)]
    assert len(calls) == 1
    (search,) = (
        search_of(s, form.workload) for s in form.workload.stages if s.reduces_by(Reducer.MIN)
    )
    assert search is not None


def test_special_values_come_through_a_shared_formula() -> None:
    workload = expression(TWICE, "A=f32[4,6]")
    rng = np.random.default_rng(1)
    a = rng.standard_normal((4, 6)).astype(np.float32)
    a[1, 2], a[2, 3], a[3, 3] = np.nan, np.inf, -np.inf
    form = Form(workload).apply_until_fixpoint(common_formulas).workload
    for x, y in zip(evaluate(workload, [a]), evaluate(form, [a]), strict=True):
        assert np.array_equal(x, y, equal_nan=True)


def test_what_cannot_be_rewritten_is_refused() -> None:
    workload = expression("C[i] += A[i,k] * W[k]", "A=f32[4,3] W=f32[3]")
    cases: list[tuple[Rewrite, str]] = [
        (GatherOverTaps("nobody", "r0"), "no stage"),
        (GatherOverTaps("s0", "d0"), "a filter along 'd0'"),
        (GatherOverTaps("s0", "r0"), "a filter along 'r0'"),
        (ExtractCommonStage("nobody", 0), "no stage"),
        (ExtractCommonStage("s0", 7), "has 1 formulas"),
        (ExtractCommonStage("s0", -1), "has 1 formulas"),
    ]
    for step, reason in cases:
        with pytest.raises(ScheduleError, match=reason):
            step.rewrite(workload)


def test_there_must_be_room_for_a_stage() -> None:
    chain = "; ".join(f"T{n}[i] = exp(T{n - 1}[i])" for n in range(1, MAX_STAGES + 1))
    full: Workload = expression(chain.replace("T0[", "A["), "A=f32[4]")
    with pytest.raises(ScheduleError, match=f"more than {MAX_STAGES} stages"):
        ExtractCommonStage("s1", 0).rewrite(full)
