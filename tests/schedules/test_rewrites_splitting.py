"""One axis becomes two: which can be split, which must not be, and that splits undo merges."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedules.regrouping import expression, same_meaning
from tests.support.schedules.spellings import MERGING, RANGES, drawn_spellings
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.lowering.lower import start
from tilewright.schedules.rewrites import MergeAxes, PrecomputeFactors, Rewrite, SplitAxis
from tilewright.schedules.rewrites.split_axis import undoing
from tilewright.schedules.sketches.forms.spellings import merges
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

SOFTMAX = (
    "M[n,p] max= X[n,c,p]; E[n,c,p] = exp(X[n,c,p] - M[n,p]);"
    "S[n,p] += E[n,c,p]; Y[n,c,p] = E[n,c,p] / S[n,p]"
)
SPLITTING = {
    "elementwise": ("Y[i] = 2.0 * X[i]", "X=f32[12]", SplitAxis("s0", "d0", 4), (3, 4)),
    "sum": ("Y[i] += X[i,j]", "X=f32[5,12]", SplitAxis("s0", "r0", 3), (5,)),
    "softmax over channels": (SOFTMAX, "X=f32[2,5,21]", SplitAxis("s0", "d1", 7), (2, 5, 3, 7)),
    "product": ("C[i,j] += A[i,k] * B[k,j]", "A=f32[5,6] B=f32[6,9]", SplitAxis("s0", "d1", 3),
                (5, 3, 3)),
    "scan": ("Y[i,t] = cumsum(X[i,t], t)", "X=f32[6,5]", SplitAxis("s0", "d0", 2), (3, 2, 5)),
    "the first maximum": ("Y[i] = argmax(X[i,j], j)", "X=f32[6,8]", SplitAxis("s0", "d0", 3),
                          (2, 3)),
    "read twice": ("Y[i] = X[i,i]", "X=f32[15,15]", SplitAxis("s0", "d0", 5), (3, 5)),
    "window elsewhere": ("Y[t,p] += X[t+r-1,p] * k[r]", "X=f32[6,15] k=f32[3]",
                         SplitAxis("s0", "d1", 5), (6, 3, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLITTING)
def test_an_axis_becomes_two(name: str) -> None:
    text, tensors, step, shape = SPLITTING[name]
    workload = expression(text, tensors)
    form = same_meaning(workload, (step,))
    assert form.output_tensors[0].shape == shape


APART = {
    "no divisor": ("Y[i] = X[i]", "X=f32[12]", SplitAxis("s0", "d0", 5), "divisor"),
    "zero": ("Y[i] = X[i]", "X=f32[12]", SplitAxis("s0", "d0", 0), "divisor"),
    "negative": ("Y[i] = X[i]", "X=f32[12]", SplitAxis("s0", "d0", -4), "divisor"),
    "no stage": ("Y[i] = X[i]", "X=f32[12]", SplitAxis("s1", "d0", 4), "no stage"),
    "no axis": ("Y[i] = X[i]", "X=f32[12]", SplitAxis("s0", "d1", 4), "no axis"),
    "condition": ("Y[i] = where(i < 5, X[i], 0.0)", "X=f32[12]", SplitAxis("s0", "d0", 4),
                  "condition or index value"),
    "index value": ("Y[i] = X[i] * f32(i)", "X=f32[12]", SplitAxis("s0", "d0", 4),
                    "condition or index value"),
    "window": ("Y[i] += X[i+r] * w[r]", "X=f32[14] w=f32[3]", SplitAxis("s0", "d0", 4),
               "by more than"),
    "divided": ("Y[i] = X[i//2]", "X=f32[6]", SplitAxis("s0", "d0", 4), "by more than"),
    "part of a dimension": ("Y[i] = X[i] + Z[i]", "X=f32[12] Z=f32[14]",
                            SplitAxis("s0", "d0", 4), "divisor"),
    "scan along it": ("Y[i] = cumsum(X[i], i)", "X=f32[12]", SplitAxis("s0", "d0", 4), "scans"),
    "a fixed element in another stage": (
        "Y[i] = X[i] * 2.0; Z[j] = X[3] + b[j]", "X=f32[12] b=f32[4]", SplitAxis("s0", "d0", 4),
        "not indexed by an axis",
    ),
    "read by data": ("Y[i] = X[i] * 2.0; Z[j] = Y[n[j]]", "X=f32[12] n=i32[4]",
                     SplitAxis("s0", "d0", 4), "not indexed by an axis"),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_an_axis_that_is_used_in_another_way_is_not_split(name: str) -> None:
    text, tensors, step, reason = APART[name]
    workload = expression(text, tensors, i=12)
    with pytest.raises(ScheduleError, match=reason):
        step.rewrite(workload)


def undone(workload: Workload, steps: tuple[Rewrite, ...]) -> tuple[SplitAxis, ...]:
    """The steps that make `workload` of the result of merges of it."""
    found: tuple[SplitAxis, ...] = ()
    for step in steps:
        assert isinstance(step, MergeAxes)
        found = (undoing(step, workload), *found)
        workload = step.rewrite(workload)
    return found


@pytest.mark.parametrize("name", MERGING)
def test_splits_undo_merges(name: str) -> None:
    text, tensors, _ = MERGING[name]
    workload = expression(text, tensors, **RANGES.get(name, {}))
    form = Form(workload).apply_until_fixpoint(merges)
    assert form.steps
    assert same_meaning(form.workload, undone(workload, form.steps)) == workload


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_splits_undo_merges_of_random_expressions(data: st.DataObject) -> None:
    split, _, count = drawn_spellings(data)
    form = Form(split).apply_until_fixpoint(merges)
    assert len(form.steps) >= count
    assert same_meaning(form.workload, undone(split, form.steps)) == split


def test_rewrites_that_change_operations_precede_splits() -> None:
    workload = expression("C[i,j] += A[i,k] * d[k] * B[k,j]", "A=f32[15,7] d=f32[7] B=f32[7,9]")
    factors = PrecomputeFactors("s0", (0, 1))
    form, _ = start(workload, Trace((factors, SplitAxis("s1", "d0", 5))))
    assert form.output_tensors[0].shape == (3, 5, 9)
    with pytest.raises(ScheduleError, match="must precede"):
        start(workload, Trace((SplitAxis("s0", "d0", 5), factors)))
