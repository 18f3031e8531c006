"""Groups of neighbouring columns are reduced last: when, what is refused, and the same results."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedules.regrouping import MACHINE, expression, same_meaning
from tests.support.schedules.workloads import check_meaning
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.limits import MAX_EXTENT
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.rewrites import ReduceAxisLast, RepeatElements
from tilewright.schedules.rewrites.repeat_elements import distinct_reads
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.grouping import columns_first
from tilewright.schedules.trace import Trace

CENTRED = "S[n,g] += X[n,p,3*g+k]; Y[n,p,c] = X[n,p,c] - S[n,c//3]"
NORMALISED = (
    "S[n,g] += X[n,p,3*g+k]; D[n,g] += (X[n,p,3*g+k] - S[n,g]) * (X[n,p,3*g+k] - S[n,g]);"
    "Y[n,p,c] = (X[n,p,c] - S[n,c//3]) * rsqrt(D[n,c//3] + 1.0)"
)
DIVIDED = {
    "sums": ("S[n,g] += X[n,p,3*g+k]", "X=f32[2,9,12]", {"k": 3}, 1, 0),
    "greatest": ("S[n,g] max= X[n,p,3*g+k]", "X=f32[2,9,12]", {"k": 3}, 1, 0),
    "two axes of rows": ("S[n,g] += X[n,h,w,3*g+k]", "X=f32[2,3,4,12]", {"k": 3}, 1, 0),
    "of integers": ("S[n,g] += X[n,p,5*g+k] * X[n,p,5*g+k]", "X=i32[2,8,15]", {"k": 5}, 1, 0),
    "weighted": (
        "S[n,g] += X[n,p,3*g+k] * w[k] * v[g]", "X=f32[2,9,12] w=f32[3] v=f32[4]", {}, 1, 2,
    ),
    "centred": (CENTRED, "X=f32[2,12,12]", {"k": 3}, 1, 1),
    "normalised": (NORMALISED, "X=f32[2,12,12]", {"k": 3}, 2, 3),
    "part of each row": (
        "S[n,g] += where(p <= n + 6, X[n,p,3*g+k], 0.0)", "X=f32[2,9,12]", {"k": 3}, 1, 0,
    ),
}  # fmt: skip
"""Expressions, and the numbers of divided reductions and of repeated reads."""


@pytest.mark.parametrize("name", DIVIDED)
def test_short_groups_of_columns_are_reduced_last(name: str) -> None:
    text, tensors, ranges, divided, repeated = DIVIDED[name]
    workload = expression(text, tensors, **ranges)
    form = columns_first(Form(workload), MACHINE)
    kinds = [type(step) for step in form.steps]
    assert kinds == [ReduceAxisLast] * divided + [RepeatElements] * repeated
    assert same_meaning(workload, form.steps) == form.workload
    assert columns_first(form, MACHINE) is form
    space = space_for(workload, MACHINE)
    assert any(ReduceAxisLast.label in sketch.name.split("+") for sketch in space.sketches)
    assert not space.dropped
    for sketch in space.sketches:
        trace = sketch.trace(sketch.default())
        assert Trace.from_json(trace.to_json()) == trace
        check_meaning(workload, lower(workload, trace))


KEPT = {
    "long groups": ("S[n,g] += X[n,p,64*g+k]", "X=f32[2,9,128]", {"k": 64}),
    "few rows": ("S[n,g] += X[n,p,3*g+k]", "X=f32[2,7,12]", {"k": 3}),
    "one group": ("S[n,g] += X[n,p,3*g+k]", "X=f32[2,9,3]", {"k": 3, "g": 1}),
    "overlapping windows": ("S[n,g] += X[n,p,2*g+k]", "X=f32[2,9,13]", {"k": 3}),
    "votes for each level": (
        "S[n,g,z] += where(i32(X[n,p,3*g+k]) == z, 1.0, 0.0)", "X=f32[2,9,12]", {"k": 3, "z": 8},
    ),
    "whole columns": ("S[n,c] += X[n,p,c]", "X=f32[2,9,12]", {}),
    "whole rows": ("S[n] += X[n,p,c]", "X=f32[2,9,12]", {}),
    "groups of planes": ("S[n,g] += X[n,3*g+k,p]", "X=f32[2,12,9]", {"k": 3}),
    "quotient without groups": ("Y[p,c] = X[p,c] * s[c//3]", "X=f32[9,12] s=f32[4]", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_other_reductions_stay_whole(name: str) -> None:
    text, tensors, ranges = KEPT[name]
    form = Form(expression(text, tensors, **ranges))
    assert columns_first(form, MACHINE) is form


def test_what_has_no_such_axes_or_reads_is_refused() -> None:
    workload = expression("S[n,g] += X[n,p,3*g+k] * w[g]", "X=f32[2,9,12] w=f32[4]", k=3)
    inner = next(axis.name for axis in workload.stages[0].reduce_axes if axis.extent == 3)
    other = next(axis.name for axis in workload.stages[0].reduce_axes if axis.extent == 9)
    for step, reason in (
        (ReduceAxisLast("s7", "d1", inner), "no stage"),
        (ReduceAxisLast("s0", "d2", inner), "is no axis"),
        (ReduceAxisLast("s0", other, inner), "is no axis"),
        (ReduceAxisLast("s0", "d1", "d0"), "no reduction axis"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            step.rewrite(workload)
    whole = expression("S[g] += X[3*g+k]", "X=f32[12]", k=3)
    with pytest.raises(ScheduleError, match="only"):
        ReduceAxisLast("s0", "d0", whole.stages[0].reduce_axes[0].name).rewrite(whole)
    long = expression("S[i] += X[i,p,k]", f"X=u8[{MAX_EXTENT},2,3]")
    innermost = next(axis.name for axis in long.stages[0].reduce_axes if axis.extent == 3)
    with pytest.raises(ScheduleError, match="positions"):
        ReduceAxisLast("s0", "d0", innermost).rewrite(long)


def test_reads_that_cannot_be_stored_are_refused() -> None:
    padded = expression("Y[i] = where(i >= 2, X[i-2], 0.0) + x[0]", "X=f32[9] x=f32[1]", i=11)
    reasons = set()
    for number in range(2):
        with pytest.raises(ScheduleError) as raised:
            RepeatElements("s0", number).rewrite(padded)
        reasons.add(str(raised.value).rpartition(": ")[2])
    assert reasons == {"a condition keeps the read in bounds", "the read depends on no axis"}
    with pytest.raises(ScheduleError, match="has 2 reads"):
        RepeatElements("s0", 2).rewrite(padded)
    inside = expression("Y[i,j] = X[clamp(I[i//2]),j] * 2.0", "X=f32[5,3] I=i32[4]", i=8)
    for number in range(len(distinct_reads(inside.stages[0]))):  # also the read inside the index
        same_meaning(inside, (RepeatElements("s0", number),))
    copy = expression("Y[i] = X[i//2]", "X=f32[5]", i=10)
    with pytest.raises(ScheduleError, match="nothing but this read"):
        RepeatElements("s0", 0).rewrite(copy)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_reductions_mean_the_same_after_any_axis(data: st.DataObject) -> None:
    """Any axis of the result with any reduction axis, adjacent in an operand or not."""
    extents = {n: data.draw(st.integers(1, 4), n) for n in "abxyz"}
    order = "".join(data.draw(st.permutations("abxyz")))
    size = data.draw(st.integers(1, 3), "second operand")
    second = "".join(data.draw(st.permutations("abxyz")))[:size]
    joined = data.draw(st.booleans(), "joined")
    index = f"{extents['x']}*a+x" if joined else "a,x"
    shape = [extents["a"] * extents["x"]] if joined else [extents["a"], extents["x"]]
    rest = [n for n in order if n not in "ax"]
    at = data.draw(st.integers(0, len(rest)), "place")
    text = ",".join([*rest[:at], index, *rest[at:]])
    sizes = [extents[n] for n in rest]
    tensors = f"A=f32[{','.join(map(str, [*sizes[:at], *shape, *sizes[at:]]))}]"
    tensors += f" B=f32[{','.join(str(extents[n]) for n in second)}]"
    sign = data.draw(st.sampled_from(("+=", "max=")))
    workload = expression(f"S[a,b] {sign} A[{text}] * B[{','.join(second)}]", tensors, **extents)
    stage = workload.stages[0]
    if len(stage.reduce_axes) < 2:
        return
    outer = data.draw(st.sampled_from(stage.axes), "outer").name
    inner = data.draw(st.sampled_from(stage.reduce_axes), "inner").name
    last = ReduceAxisLast(stage.name, outer, inner)
    form = same_meaning(workload, (last,))
    reads = [(s.name, n) for s in form.stages for n in range(2)]
    repeat = RepeatElements(*data.draw(st.sampled_from(reads), "repeated"))
    try:
        repeat.rewrite(form)
    except ScheduleError:
        return
    same_meaning(workload, (last, repeat))
