"""Masked reductions, however the mask is written: equal keys where they are promised, the same
conditions that limit loops, the same values, and special values that are allowed."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.interpreter.interpret import interpret_for
from tests.support.schedule_fuzz.patterns import masks
from tests.support.schedules.masks import (
    GREATEST,
    KINDS,
    PRODUCT,
    Mask,
    N,
    band,
    blocks,
    inputs_of,
    padding,
    spellings,
    triangle,
    triangles,
)
from tests.support.schedules.regrouping import MACHINE, expression, same_meaning
from tests.support.schedules.workloads import check_meaning
from tilewright.schedules.algebra.index_tests import index_tests_first
from tilewright.schedules.algebra.neutral import neutral_conditions
from tilewright.schedules.algebra.scalar import Reducer
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import IndexTestsFirst
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.rewriting import canonical
from tilewright.schedules.sketches.forms.spellings import form_key
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.workload.size import json_nodes
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle

MASKS = {
    "triangle": triangle(0),
    "causal with an offset": triangle(-3),
    "band": band(3),
    "blocks": blocks(8),
    "triangles in blocks": triangles(8),
    "padding": padding(3),
    "triangle and data": triangle(0, on_data=True),
    "band and data": band(3, on_data=True),
    "blocks and data": blocks(6, on_data=True),
    "padding and data": padding(2, on_data=True),
}
EQUAL_KEYS = (
    "notation: &&", "notation: &", "notation: & backwards", "notation: outwards",
    "notation: inwards", "notation: negated", "python: &", "python: all_of", "python: bits",
    "python: bits backwards", "document: all", "document: selects",
)  # fmt: skip
"""Spellings whose keys are equal for masks without data: conditions are joined, sorted, and
nested selects merged (docs/workload.md, Key)."""


def drawn_data(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    a, m, b = (rng.integers(-4, 5, (N, N)).astype(np.float32) for _ in range(3))
    return a, m, b


def expected(mask: Mask, kind: str, a: np.ndarray, m: np.ndarray, b: np.ndarray) -> np.ndarray:
    i, k = np.indices((N, N))
    if mask.shift is not None:
        a = a[i, np.clip(k + i - mask.shift, 0, N - 1)]
    masked = np.where(mask.chosen(m), a, -np.inf if kind == GREATEST else 0)
    if kind == GREATEST:
        return np.asarray(masked.max(axis=1))
    return np.asarray(masked @ b if kind == PRODUCT else masked.sum(1))


def limits(workload: Workload) -> set[str]:
    """The conditions without which a term of the reduction does not count, in the form that is
    searched."""
    form = canonical(workload.stored()).workload
    (stage,) = (stage for stage in form.stages if stage.is_reduction)
    assert stage.kind.reducer in (Reducer.SUM, Reducer.MAX)  # type: ignore[union-attr]
    return {str(cond) for cond in neutral_conditions(stage.body, stage.kind.reducer)}  # type: ignore[union-attr]


def check_spellings(mask: Mask, kind: str, seed: int = 0) -> None:
    data = drawn_data(seed)
    wanted, inputs = expected(mask, kind, *data), inputs_of(mask, kind, *data)
    first = next(workload for _, workload in spellings(mask, kind)).normalised()
    assert limits(first)
    for name, workload in spellings(mask, kind):
        form = workload.normalised()
        if name in EQUAL_KEYS and not mask.on_data:
            assert form.key == first.key, name
        assert limits(form) == limits(first), name
        if not mask.on_data:
            assert form_key(form) == form_key(first), name
        assert np.array_equal(evaluate(form, inputs)[0], wanted), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MASKS)
def test_spellings_have_the_same_limits_and_values(name: str, kind: str) -> None:
    check_spellings(MASKS[name], kind)


@settings(max_examples=8, deadline=None)
@given(
    mask=st.one_of(
        st.builds(triangle, st.integers(-9, 9), on_data=st.booleans()),
        st.builds(band, st.integers(0, 9), on_data=st.booleans()),
        st.builds(blocks, st.sampled_from((2, 3, 8, 12)), on_data=st.booleans()),
        st.builds(triangles, st.sampled_from((3, 8)), on_data=st.booleans()),
        st.builds(padding, st.integers(1, 9), on_data=st.booleans()),
    ),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
)
def test_spellings_of_any_mask(mask: Mask, kind: str, seed: int) -> None:
    check_spellings(mask, kind, seed)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_test_has_the_same_value_with_tests_of_indices_first(seed: int) -> None:
    """With NaN, infinities and zeros of both signs, of which no product is left out."""
    workload = masks(random.Random(seed)).stored()
    rng = np.random.default_rng(seed)
    special = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -2.0)
    inputs = [rng.choice(special, t.shape).astype(np.float32) for t in workload.inputs]
    stages = tuple(replace(s, body=index_tests_first(s.body)) for s in workload.stages)
    with np.errstate(all="ignore"):
        pairs = zip(
            evaluate(workload, inputs),
            evaluate(replace(workload, stages=stages), inputs),
            strict=True,
        )
        for one, other in pairs:
            assert np.array_equal(one, other, equal_nan=True)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_kernels_of_any_test_are_right(seed: int) -> None:
    workload = masks(random.Random(seed)).normalised()
    sketch = space_for(workload, MACHINE).sketches[0]
    trace = sketch.trace(sketch.default())
    oracle, nest = Oracle(workload, rewrites=trace.rewrites), lower(workload, trace)
    for kind in (InputKind.INTEGERS, InputKind.SPECIAL):
        case = oracle.case(kind, 0)
        assert case.check(interpret_for(workload, nest, list(case.inputs))) is None


SKIPPING = {name: MASKS[name] for name in ("triangle", "band", "triangles in blocks",
                                           "triangle and data")}  # fmt: skip


@pytest.mark.parametrize("name", SKIPPING)
def test_products_skip_in_every_spelling(name: str) -> None:
    """The first sketch has the conditions that limit its loops, and its default kernel is right."""
    wanted, seen = None, set[Workload]()
    for spelling, workload in spellings(SKIPPING[name], PRODUCT):
        form = workload.normalised()
        if canonical(form.stored()).workload in seen:
            continue
        seen.add(canonical(form.stored()).workload)
        sketch = space_for(form, MACHINE).sketches[0]
        found = {str(c) for part in sketch.parts for c in getattr(part, "block_conds", ())}
        names = {knob.name: knob.values for part in sketch.parts for knob in part.knobs}
        wanted = found if wanted is None else wanted
        assert found, spelling
        assert len(found) == len(wanted), spelling
        assert len(names["skip_padding"]) > 1, spelling
        check_meaning(form, lower(form, sketch.trace(sketch.default())))


@pytest.mark.parametrize(
    "text",
    [
        "Y[i,j] += where(k <= i, D[i,k], 0.0) * A[i,k] * B[k,j]",
        "P[i,k] = f32(k <= i) * A[i,k]; Y[i,j] += P[i,k] * B[k,j]",
        "P[i,k] = where(k <= i, 1.0, 0.0) * exp(A[i,k]); Y[i,j] += P[i,k] * B[k,j]",
        "P[i,k] = where((D[i,k] > 0) & (k <= i), exp(A[i,k]), 0.0); Y[i,j] += P[i,k] * B[k,j]",
        "Q[i,k] = f32(D[i,k] > 0 && k <= i); Y[i,j] += Q[i,k] * A[i,k] * B[k,j]",
    ],
)
def test_conditions_of_factors_that_are_stored_limit_the_product(text: str) -> None:
    """Whether the program has a stage for them, or the space makes one."""
    tensors = "A=f32[24,24] B=f32[24,24]" + (" D=f32[24,24]" if "D[" in text else "")
    workload = expression(text, tensors)
    sketch = space_for(workload, MACHINE).sketches[0]
    assert any(getattr(part, "block_conds", ()) for part in sketch.parts)
    trace = sketch.trace(sketch.default())
    oracle, nest = Oracle(workload, rewrites=trace.rewrites), lower(workload, trace)
    for kind in (InputKind.NORMAL, InputKind.SPECIAL):
        case = oracle.case(kind, 0)
        assert case.check(interpret_for(workload, nest, list(case.inputs))) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["band", "triangle and data", "padding and data"])
def test_the_rewrite_keeps_values_and_is_done_once(name: str, kind: str) -> None:
    forms = {w.normalised().stored(): spelling for spelling, w in spellings(MASKS[name], kind)}
    for stored, spelling in forms.items():
        form = canonical(stored)
        steps = tuple(step for step in form.steps if isinstance(step, IndexTestsFirst))
        if not steps:
            continue
        result = same_meaning(stored, steps)
        for stage in result.stages:
            with pytest.raises(ScheduleError, match="are conditions of selects"):
                IndexTestsFirst(stage.name).rewrite(result)
        assert canonical(result).steps == form.steps[len(steps) :], spelling


@pytest.mark.parametrize("name", ["triangle", "triangle and data"])
@pytest.mark.parametrize("kind", KINDS)
def test_special_values_outside_a_mask(name: str, kind: str) -> None:
    """What a select excludes has no effect, in the form that is searched too. The product of a
    number that is a test and an excluded infinity may be left out."""
    mask, (a, m, b) = MASKS[name], drawn_data(1)
    a = np.where(mask.chosen(m), a, np.float32(np.inf))
    inputs = inputs_of(mask, kind, a, m, b)
    wanted = expected(mask, kind, a, m, b)
    for spelling, workload in spellings(mask, kind):
        form = canonical(workload.normalised().stored()).workload
        if "*" in spelling:
            continue
        values, bound = evaluate_with_bound(form, inputs)[0]
        assert np.array_equal(values, wanted), spelling
        assert np.isfinite(bound).all(), spelling


@pytest.mark.parametrize(
    "text",
    [
        "Y[i] += exp(f32(k <= i) * A[i,k])",
        "Y[i] max= f32(k <= i) * A[i,k]",
        "Y[i] *= f32(k <= i) * A[i,k]",
        "Z[i] += A[i,k]; Y[i,k] = f32(k <= i) * A[i,k]",
        "Y[i] += max(where(k <= i, 1.0, 0.0) * A[i,k], -1.0)",
        "Y[i] += where(k <= i, 1.0, -0.0) * A[i,k]",
        "Y[i] += where(k <= i, 2.0, 0.0) / A[i,k]",
    ],
)
def test_factors_that_are_no_factors_of_terms_stay(text: str) -> None:
    """NaN times 0 is NaN there, by docs/math.md."""
    workload = expression(text, "A=f32[8,8]").stored()
    form = canonical(workload).workload
    a = np.full((8, 8), 0.5, np.float32)
    a[2, 5] = np.nan
    for one, other in zip(evaluate(workload, [a]), evaluate(form, [a]), strict=True):
        assert np.array_equal(one, other, equal_nan=True)
        assert np.isnan(one).any()


def test_a_test_of_data_alone_stays() -> None:
    for text in (
        "Y[i] += where(M[i,k] > 0, A[i,k], 0.0)",
        "Y[i] += f32(M[i,k] > 0) * A[i,k]",
        "Y[i] += where(!(M[i,k] > 0), 0.0, A[i,k])",
        "Y[i] = where((i >= 3) & (M[i,0] > 0), A[i,0], 0.0)",
    ):
        form = Form(expression(text, "A=f32[8,8] M=f32[8,8]").stored())
        assert canonical(form.workload).steps == (), text


def test_two_conditions_of_which_one_fails_stay() -> None:
    """The negation of two conditions is none of them."""
    workload = expression("Y[i] += where((k <= i) & (i <= k + 2), 0.0, A[i,k])", "A=f32[8,8]")
    assert limits(workload) == set()
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    i, k = np.indices((8, 8))
    wanted = np.where((k <= i) & (i <= k + 2), 0, a).sum(1)
    assert np.array_equal(evaluate(canonical(workload).workload, [a])[0], wanted)


OPERATORS = (
    "scaled_dot_product_attention:B=1,H=2,S=16,D=8,causal=1",
    "conv2d_nhwc:N=1,H=7,W=7,CI=4,CO=8,K=3,pad=1",
    "conv2d_transpose_nhwc:N=1,H=4,W=4,CI=4,CO=4,K=4,stride=2,pad=1",
    "max_pool2d_nhwc:N=1,H=7,W=7,C=4,K=3,pad=1",
    "cross_entropy:M=4,N=16",
)


@pytest.mark.parametrize("text", OPERATORS)
def test_operators_have_their_conditions_in_selects(text: str) -> None:
    form = canonical(parse_workload(text).normalised().stored())
    assert not any(isinstance(step, IndexTestsFirst) for step in form.steps)


def test_conditions_beside_tests_of_data_say_which_scores_are_used() -> None:
    """Scores that no reader uses are not computed, also beside a mask of data (ADR 109)."""
    workload = expression(
        "S[i,j] += A[i,k] * B[k,j]; M[i] max= where((j <= i) & (D[i,j] > 0), S[i,j], -inf);"
        "E[i,j] = where((D[i,j] > 0) & (j <= i), exp(S[i,j] - M[i]), 0.0)",
        "A=f32[24,9] B=f32[9,24] D=f32[24,24]",
    )
    assert space_for(workload, MACHINE).sketches[0].name.startswith("tests+tests+mask")


def test_no_test_of_indices_is_refused() -> None:
    workload = expression("Y[i] += A[i,k]", "A=f32[8,8]")
    with pytest.raises(ScheduleError, match="are conditions of selects"):
        IndexTestsFirst("s0").rewrite(workload)
    with pytest.raises(ScheduleError, match="no stage is called"):
        IndexTestsFirst("s7").rewrite(workload)


@pytest.mark.parametrize("name", ["triangle", "triangle and data"])
def test_kernels_of_numbers_that_are_tests_pass_their_checks(name: str) -> None:
    """With infinities and NaN in the inputs: what a kernel leaves out is allowed."""
    for spelling, workload in spellings(MASKS[name], PRODUCT):
        if spelling not in ("notation: number && *", "document: casts *", "array: numbers *"):
            continue
        form = workload.normalised()
        sketch = space_for(form, MACHINE).sketches[0]
        trace = sketch.trace(sketch.default())
        assert any(isinstance(step, IndexTestsFirst) for step in trace.rewrites)
        oracle = Oracle(form, rewrites=trace.rewrites)
        nest = lower(form, trace)
        for kind in (InputKind.NORMAL, InputKind.SPECIAL):
            case = oracle.case(kind, 0)
            assert case.check(interpret_for(form, nest, list(case.inputs))) is None, spelling


@pytest.mark.parametrize("twice", ["where({0}*k <= {0}*i + i, M[i,k], M[k,i])",
                                   "M[i,k] && M[k,i] || {0}*k <= i"])  # fmt: skip
def test_masks_that_read_masks_twice_do_not_double(twice: str) -> None:
    """Written again in each other, 20 of them would have a million tests."""
    masks = [f"M{n}[i,k] = " + twice.format(n).replace("M[", f"M{n - 1}[") for n in range(1, 20)]
    text = "; ".join(["M0[i,k] = k <= i", *masks, "Y[i] += where(M19[i,k], A[i,k], 0)"])
    workload = from_notation(text, {"A": ("f32", (8, 8))}, {"k": 8, "i": 8}).normalised()
    form = canonical(workload).workload
    assert sum(json_nodes(stage.body) for stage in form.stages) < 20_000
    values = [np.arange(64, dtype=np.float32).reshape(8, 8)]
    for before, after in zip(evaluate(workload, values), evaluate(form, values), strict=True):
        np.testing.assert_array_equal(before, after)
