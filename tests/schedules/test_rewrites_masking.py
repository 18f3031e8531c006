"""Conditions on products move to where tiles skip work: when, what is refused, and the same
results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.golden_text import Golden
from tests.support.schedules.regrouping import MACHINE, expression, same_meaning
from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning
from tilewright.schedules.algebra.scalar import conditional_loads
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import For, Nest, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.rewrites import MaskResult, RepeatConditions
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.masking import masked_products
from tilewright.schedules.trace import Trace

PRODUCT = "A=f32[24,9] B=f32[9,24]"
LARGER = "A=f32[96,9] B=f32[9,96]"
SCORES = "S[i,j] += A[i,k] * B[k,j]"
PROBABILITIES = "M[i] max= where(j <= i, {s}, -inf); E[i,j] = where(j <= i, exp({s} - M[i]), 0.0)"
OWN = "Y[i,j] += where(j <= i, A[i,k] * B[k,j], 0.0)"
STORED = "P[i,k] = where(k <= i, exp(A[i,k]), 0.0); Y[i,j] += P[i,k] * B[k,j]"
SQUARES = "A=f32[24,24] B=f32[24,9]"

MOVED = {
    "terms": (OWN, PRODUCT, [MaskResult]),
    "greatest of terms": (
        "Y[i,j] max= where(j <= i, A[i,k] + B[k,j], -inf)", PRODUCT, [MaskResult],
    ),
    "terms under two conditions": (
        "Y[i,j] += where(j <= i && k <= i, A[i,k] * B[k,j], 0.0)", PRODUCT, [MaskResult],
    ),
    "band": ("Y[i,j] += where(i - 4 <= j && j <= i + 4, A[i,k] * B[k,j], 0.0)", PRODUCT,
             [MaskResult]),
    "then an epilogue": (
        "T[i,j] += where(j <= i, A[i,k] * B[k,j], 0.0); Y[i,j] = max(T[i,j] + 1.0, 0.0)", PRODUCT,
        [MaskResult],
    ),
    "all readers": (f"{SCORES}; {PROBABILITIES.format(s='S[i,j]')}", PRODUCT, [MaskResult]),
    "readers after a scale": (
        f"{SCORES}; D[i,j] = S[i,j] * 0.5; {PROBABILITIES.format(s='D[i,j]')}; F[i] += D[i,j]"
        .replace("F[i] += D[i,j]", "F[i] += where(j <= i, D[i,j], 0.0)"),
        PRODUCT, [MaskResult],
    ),
    "stored zeros": (STORED, SQUARES, [RepeatConditions]),
    "stored zeros of the other operand": (
        "P[k,j] = where(j < k, exp(B[k,j]), 0.0); Y[i,j] += A[i,k] * P[k,j]",
        "A=f32[9,24] B=f32[24,24]", [RepeatConditions],
    ),
    "stored products with zeros": (
        "P[i,k] = where(k <= i, A[i,k], 0.0) * exp(A[i,k]); Y[i,j] += P[i,k] * B[k,j]", SQUARES,
        [RepeatConditions],
    ),
    "stored products with zeros, read by a sum of products": (
        "P[i,k] = exp(A[i,k]) * where(k <= i, A[i,k], 0.0); Y[i,j] += (B[k,j] - 2.0) * -P[i,k]",
        SQUARES, [RepeatConditions],
    ),
    "stored zeros read backwards": (
        "P[i,k] = where(k <= i, exp(A[i,k]), 0.0); Y[i,j] += P[23-i,k] * B[k,j]; Z[i] += P[i,k]",
        SQUARES, [RepeatConditions],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_conditions_move_to_where_work_is_skipped(name: str) -> None:
    text, tensors, kinds = MOVED[name]
    workload = expression(text, tensors)
    form = masked_products(Form(workload))
    assert [type(step) for step in form.steps] == kinds
    assert same_meaning(workload, form.steps) == form.workload
    assert masked_products(Form(form.workload)).steps == ()
    space = space_for(workload, MACHINE)
    labels = [step.label for step in form.steps]
    assert space.sketches[0].name.split("+")[: len(labels)] == labels
    assert not space.dropped
    for sketch in space.sketches:
        for setting in (sketch.default(), *drawn(sketch, 3)):
            if sketch.feasible(np.asarray([setting]))[0]:
                trace = sketch.trace(setting)
                assert Trace.from_json(trace.to_json()) == trace
                check_meaning(workload, lower(workload, trace))


KEPT = {
    "stored zeros of rows at data": (
        STORED.replace("P[i,k] *", "P[clamp(R[i]),k] *"), f"{SQUARES} R=i32[24]",
    ),
    "stored zeros at data": (
        STORED.replace("P[i,k] *", "P[i,wrap(R[k])] *"), f"{SQUARES} R=i32[24]",
    ),
    "whole product": (SCORES, PRODUCT),
    "few zeros": ("Y[i,j] += where(j <= i + 20, A[i,k] * B[k,j], 0.0)", PRODUCT),
    "an output": (f"{SCORES}; Y[i,j] = where(j <= i, S[i,j], 0.0)", PRODUCT),
    "one reader uses all": (
        f"{SCORES}; Y[i] += where(j <= i, S[i,j], 0.0); Z[i] max= S[i,j]", PRODUCT,
    ),
    "readers use different parts": (
        f"{SCORES}; Y[i] += where(j <= i, S[i,j], 0.0); Z[i] += where(j > i, S[i,j], 0.0)", PRODUCT,
    ),
    "no product": ("Y[i] += where(j <= i, A[i,j], 0.0)", "A=f32[24,24]"),
    "the other branch": (
        "P[i,k] = where(k <= i, 0.0, exp(A[i,k])); Y[i,j] += P[i,k] * B[k,j]", SQUARES,
    ),
    "a function of stored products with zeros": (
        "P[i,k] = where(k <= i, A[i,k], 0.0) * exp(A[i,k]); Y[i,j] += exp(P[i,k]) * B[k,j]",
        SQUARES,
    ),
    "stored products with zeros, of which one read is inside a function": (
        "P[i,k] = where(k <= i, A[i,k], 0.0) * exp(A[i,k]);"
        "Y[i,j] += (P[i,k] + exp(P[i,k])) * P[i,k] * B[k,j]", SQUARES,
    ),
    "a maximum of stored products with zeros": (
        "P[i,k] = where(k <= i, A[i,k], 0.0) * exp(A[i,k]); Y[i,j] max= P[i,k] * B[k,j]", SQUARES,
    ),
    "stored ones": (
        "P[i,k] = where(k <= i, exp(A[i,k]), 1.0); Y[i,j] += P[i,k] * B[k,j]", SQUARES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_other_conditions_stay(name: str) -> None:
    form = Form(expression(*KEPT[name]))
    assert masked_products(form) is form


def test_a_reader_may_use_a_stage_under_conditions_on_other_axes() -> None:
    """Only conditions on the axes of the stage say which of its elements are used."""
    workload = expression(
        f"{SCORES}; Y[i,j,l] = where(l <= i, S[i,j] * C[l], 0.0)", f"{PRODUCT} C=f32[24]"
    )
    with pytest.raises(ScheduleError, match="no condition limits"):
        MaskResult("s0").rewrite(workload)


def test_what_has_no_conditions_is_refused() -> None:
    workload = expression(STORED, SQUARES)
    for step, reason in (
        (MaskResult("s7"), "no stage"),
        (MaskResult("s1"), "no condition limits the results"),
        (RepeatConditions("s7"), "no stage"),
        (RepeatConditions("s0"), "no reduction"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            step.rewrite(workload)
    repeated = RepeatConditions("s1").rewrite(workload)
    with pytest.raises(ScheduleError, match="no read of 's1' has conditions"):
        RepeatConditions("s1").rewrite(repeated)


def test_conditions_that_would_be_on_data_are_not_repeated() -> None:
    stored = (
        "P[i,k] = where(k <= i && k >= 2, exp(A[i,k]), 0.0); Y[i,j] += P[wrap(R[i]),k] * B[k,j]"
    )
    workload = expression(stored, f"{SQUARES} R=i32[24]")
    form = same_meaning(workload, (RepeatConditions("s1"),))
    (kept,) = (
        conds for load, conds in conditional_loads(form.stage("s1").body) if load.tensor == "s0"
    )
    assert list(map(str, kept)) == ["r0 >= 2"]


def test_conditions_that_keep_reads_in_bounds_stay() -> None:
    """Padding along an axis of the result: without the condition, B would be read outside."""
    padded = "Y[i,j] += where(j >= 1, A[i,k] * B[k,j-1], 0.0)"
    workload = expression(padded, "A=f32[24,9] B=f32[9,23]", j=24)
    with pytest.raises(ScheduleError, match="no condition limits"):
        MaskResult("s0").rewrite(workload)
    both = padded.replace("j >= 1", "j >= 1 && j <= i")
    workload = expression(both, "A=f32[24,9] B=f32[9,23]", j=24)
    form = same_meaning(workload, (MaskResult("s0"),))
    kept = [
        conds for load, conds in conditional_loads(form.stage("s0").body) if load.tensor == "i1"
    ]
    assert all(len(conds) == 1 for conds in kept)


def test_scans_use_their_own_elements() -> None:
    workload = expression(
        "S[i,k] = cumsum(X[i,k], k); Y[i] += where(k > i, S[i,k], 0.0)", "X=f32[5,9]"
    )
    with pytest.raises(ScheduleError, match="no condition limits"):
        MaskResult("s0").rewrite(workload)


def conditional(nest: Nest) -> list[For]:
    return [loop for loop in loops(nest.body) if loop.reduce and loop.bounds]


@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_above_the_diagonal_are_skipped(threads: int) -> None:
    workload = expression(f"{SCORES}; Y[i,j] = where(j <= i, S[i,j], 0.0)", LARGER)
    sketch = space_for(workload, target(threads)).sketches[0]
    (part,) = sketch.parts
    assert part.used_share == pytest.approx(97 / 192)  # type: ignore[attr-defined]
    nest = lower(workload, sketch.trace(sketch.default()))
    assert conditional(nest)
    check_meaning(workload, nest)


def test_the_nest_of_a_lower_triangle(golden: Golden) -> None:
    workload = expression(OWN, LARGER)
    sketch = space_for(workload, target(1)).sketches[0]
    assert to_text(lower(workload, sketch.trace(sketch.default()))) == golden


@pytest.mark.parametrize(
    "text",
    [
        SCORES,
        f"{SCORES}; Y[i,j] = max(S[i,j], 0.0)",
        f"{SCORES}; Y[i,j] = where(j <= i, S[i,j], S[i,j] * 2.0)",
        f"{SCORES}; Y[i,j] = where(S[i,j] > 1.0, S[i,j], 0.0)",
    ],
)
def test_nothing_is_skipped_that_is_used(text: str) -> None:
    workload = expression(text, LARGER)
    sketch = space_for(workload, target(1)).sketches[0]
    assert not conditional(lower(workload, sketch.trace(sketch.default())))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_conditions_mean_the_same(data: st.DataObject) -> None:
    """A chain of a product, an elementwise stage and a product or sum with conditions anywhere."""
    names = {"i": 7, "j": 6, "k": 5}
    drawn_conds = st.sampled_from(
        ("j <= i", "i < j", "k <= i", "j <= k", "i + j < 6", "j == i", "2*j <= i + k", "i >= 2")
    )

    def guarded(value: str, axes: str) -> str:
        conds = [
            c
            for c in data.draw(st.lists(drawn_conds, max_size=2))
            if set(c) & set("ijk") <= set(axes)
        ]
        other = data.draw(st.sampled_from(("0.0", "0.0", "1.0")))
        return f"where({' && '.join(conds)}, {value}, {other})" if conds else value

    first = guarded("A[i,k] * B[k,j]", "ijk")
    second = guarded("exp(S[i,j] * 0.125)", "ij")
    third = guarded("P[i,j] * C[j,k]", "ijk")
    text = f"S[i,j] += {first}; P[i,j] = {second}; Y[i,k] += {third}"
    if data.draw(st.booleans(), "second reader"):
        text += f"; Z[i] max= {guarded('S[i,j]', 'ij')}"
    workload = expression(text, "A=f32[7,5] B=f32[5,6] C=f32[6,5]", **names)
    steps = []
    form = workload
    for _ in range(4):
        kinds = [
            kind(stage.name) for stage in form.stages for kind in (MaskResult, RepeatConditions)
        ]
        step = data.draw(st.sampled_from(kinds), "step")
        try:
            form = step.rewrite(form)
        except ScheduleError:
            continue
        steps.append(step)
    same_meaning(workload, tuple(steps))
