"""The error bound holds for real f32 evaluations in any order, and is not so wide as to be idle."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import scalar_oracles
from tests.support.schedules.reference_cases import (
    F32,
    add,
    axes,
    conv2d,
    layernorm,
    load,
    map_workload,
    matmul,
    mul,
    norm,
    random_workload,
    small_integers,
    softmax,
    stage,
    vector,
)
from tests.support.schedules.workloads import notation
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.narrow import narrowed
from tilewright.schedules.algebra.scalar import (
    ON_INTEGERS_ONLY,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference import boxes as reference_boxes
from tilewright.schedules.reference import contract as reference_contract
from tilewright.schedules.reference import error_bound
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.exactness import integer_span, value_ranges
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

Array = np.ndarray[Any, Any]


def normal_inputs(workload: Workload, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in workload.inputs]


def shuffled_sum(terms: Array, rng: np.random.Generator) -> Array:
    """Sum over the last axis in the terms' own type: partial sums of random blocks."""
    terms = terms[..., rng.permutation(terms.shape[-1])]
    blocks = np.array_split(terms, rng.integers(1, 9), axis=-1)
    totals = [np.zeros(terms.shape[:-1], terms.dtype) for _ in blocks]
    for place, block in enumerate(blocks):
        for k in range(block.shape[-1]):
            totals[place] += block[..., k]
    result = totals[0]
    for partial in totals[1:]:
        result = result + partial
    return result


def f32_matmul(inputs: list[Array], rng: np.random.Generator) -> Array:
    a, b = inputs
    return shuffled_sum(a[:, None, :] * b.T[None, :, :], rng)


def f32_softmax(inputs: list[Array], rng: np.random.Generator) -> Array:
    x = inputs[0]
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / shuffled_sum(e, rng)[:, None])


def f32_layernorm(inputs: list[Array], rng: np.random.Generator) -> Array:
    x, gamma = inputs
    n = np.float32(x.shape[1])
    centred = x - (shuffled_sum(x, rng) / n)[:, None]
    variance = shuffled_sum(centred * centred, rng) / n
    return centred * (1 / np.sqrt(variance + np.float32(1e-5)))[:, None] * gamma


def f32_norm(inputs: list[Array], rng: np.random.Generator) -> Array:
    return np.asarray(np.sqrt(shuffled_sum(inputs[0] ** 2, rng)))


KERNELS: list[tuple[Workload, Callable[[list[Array], np.random.Generator], Array]]] = [
    (matmul(8, 9, 300), f32_matmul),
    (matmul(8, 9, 64, DType.F64), f32_matmul),
    (softmax(8, 200), f32_softmax),
    (softmax(8, 50, DType.F64), f32_softmax),
    (layernorm(8, 100), f32_layernorm),
    (norm(8, 300), f32_norm),
]


@pytest.mark.parametrize(("workload", "kernel"), KERNELS, ids=lambda x: getattr(x, "name", ""))
@pytest.mark.parametrize("scale", [1.0, 1e-22, 1e3])
def test_any_order_of_summation_stays_within_the_bound(
    workload: Workload, kernel: Callable[..., Array], scale: float
) -> None:
    if scale == 1e3 and workload.name == "softmax":
        scale = 10.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        inputs = [(x * scale).astype(x.dtype) for x in normal_inputs(workload, seed)]
        ((values, bound),) = evaluate_with_bound(workload, inputs)
        assert np.isfinite(bound).all()
        got = kernel(inputs, rng).astype(np.float64)
        assert (np.abs(got - values) <= bound).all()
        np.testing.assert_allclose(values, evaluate(workload, inputs)[0], rtol=1e-12)


@pytest.mark.parametrize(("workload", "kernel"), KERNELS, ids=lambda x: getattr(x, "name", ""))
def test_the_bound_is_useful(workload: Workload, kernel: Callable[..., Array]) -> None:
    inputs = normal_inputs(workload)
    ((values, bound),) = evaluate_with_bound(workload, inputs)
    limit = 1e-12 if workload.inputs[0].dtype is DType.F64 else 3e-3
    assert np.median(bound / np.abs(values)) < limit


def test_a_term_dropped_from_64_is_outside_of_the_bound() -> None:
    workload = matmul(8, 8, 64)
    a, b = normal_inputs(workload)
    ((values, bound),) = evaluate_with_bound(workload, [a, b])
    for k in range(64):
        without = values - np.outer(a[:, k], b[k]).astype(np.float64)
        assert (np.abs(without - values) > bound).any()


def f32_value(node: Scalar, x: Array) -> Array:
    """`node` evaluated in f32; its only tensor is `x`, read at its own index."""
    match node:
        case Const(value, _):
            return np.asarray(value, np.float32)
        case Unary(op, inner):
            v = f32_value(inner, x)
            function = scalar_oracles.of_array(op)
            assert function is not None
            return function(v)
        case Binary(op, left, right):
            ufuncs = {
                BinaryOp.ADD: np.add, BinaryOp.SUB: np.subtract, BinaryOp.MUL: np.multiply,
                BinaryOp.DIV: np.divide, BinaryOp.MIN: np.minimum, BinaryOp.MAX: np.maximum,
                BinaryOp.POW: np.power, BinaryOp.ATAN2: np.arctan2,
            }  # fmt: skip
            return np.asarray(ufuncs[op](f32_value(left, x), f32_value(right, x)))
        case Select(Compare(_, left, right), on_true, on_false):
            chosen = f32_value(left, x) < f32_value(right, x)
            return np.where(chosen, f32_value(on_true, x), f32_value(on_false, x))
        case _:
            return x


def random_f32_scalar(rng: random.Random, depth: int) -> Scalar:
    x = load(vector(F32, 400), "i")
    choice = rng.random()
    if depth == 0 or choice < 0.1:
        return Const(rng.choice([0.1, 2.0, -0.7]), F32) if rng.random() < 0.3 else x
    a, b = random_f32_scalar(rng, depth - 1), random_f32_scalar(rng, depth - 1)
    if choice < 0.5:
        return Binary(rng.choice([op for op in BinaryOp if op not in ON_INTEGERS_ONLY]), a, b)
    if choice < 0.6:
        return Select(Compare(CompareOp.LT, a, b), random_f32_scalar(rng, depth - 1), b)
    ops = [op for op in UnaryOp if scalar_oracles.of_array(op) is not None]
    return Unary(rng.choice(ops), a)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # f32 may overflow where nothing is promised
def test_random_scalar_functions_in_f32_stay_within_the_bound() -> None:
    bounded = 0
    for seed in range(300):
        rng = random.Random(seed)
        body = random_f32_scalar(rng, 4)
        x = vector(F32, 400)
        data = np.random.default_rng(seed).standard_normal(400).astype(np.float32)
        data[:20] = np.round(data[:20])  # ties, integers and zeros
        ((values, bound),) = evaluate_with_bound(map_workload(body, (x,), i=400), [data])
        got = np.broadcast_to(f32_value(body, data), (400,)).astype(np.float64)
        held = np.isfinite(bound) & np.isfinite(values)
        assert (np.abs(got - values) <= bound)[held].all(), (seed, body)
        bounded += int(held.sum())
    assert bounded > 300 * 400 * 0.6


def test_integer_workloads_have_no_error() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        workload = random_workload(rng)
        inputs = small_integers(workload, rng)
        results = evaluate_with_bound(workload, inputs)
        for name, (values, bound), wanted in zip(
            workload.outputs, results, evaluate(workload, inputs), strict=True
        ):
            held = np.isfinite(bound)
            np.testing.assert_allclose(
                values.astype(float)[held], wanted.astype(float)[held], rtol=1e-12, err_msg=name
            )
        if not any(t.dtype.is_float for t in workload.tensors.values()):
            assert not any(bound.any() for _, bound in results)


@pytest.mark.parametrize("reducer", [Reducer.PROD, Reducer.MAX, Reducer.MIN])
def test_other_reductions_stay_within_the_bound(reducer: Reducer) -> None:
    x = Tensor("X", (20, 30), F32)
    body = mul(load(x, "i", "j"), Const(1.1, F32))
    y = stage("Y", axes(i=20), body, reducer, axes(j=30))
    workload = Workload((x,), (y,), ("Y",))
    (data,) = normal_inputs(workload)
    ((values, bound),) = evaluate_with_bound(workload, [data])
    terms = data * np.float32(1.1)
    got = {
        Reducer.PROD: np.multiply.reduce(terms[:, ::-1], axis=1),
        Reducer.MAX: terms.max(axis=1),
        Reducer.MIN: terms.min(axis=1),
    }[reducer]
    assert (np.abs(got - values) <= bound).all()
    assert (bound <= 1e-5 * np.abs(values)).all()


def test_copies_and_maxima_are_exact() -> None:
    x = Tensor("X", (5, 6), F32)
    y = stage("Y", axes(i=5), load(x, "i", "j"), Reducer.MAX, axes(j=6))
    workload = Workload((x,), (y,), ("Y",))
    assert not evaluate_with_bound(workload, normal_inputs(workload))[0][1].any()


def bound_of(body: Scalar, *values: float, dtype: DType = F32) -> Array:
    x = vector(dtype, len(values))
    workload = map_workload(body, (x,), i=len(values))
    data = np.array(values)
    stored = narrowed(data, dtype)
    return evaluate_with_bound(workload, [stored])[0][1]


X2 = load(vector(F32, 2), "i")
SUMMED = add(X2, Const(1e-3, F32))  # carries one rounding


def test_a_floor_is_bounded_by_its_jump_next_to_an_integer_only() -> None:
    near, far = bound_of(Unary(UnaryOp.FLOOR, SUMMED), 2.999, 2.5)
    assert (near, far) == (pytest.approx(1.0), 0.0)


@pytest.mark.parametrize("op", [UnaryOp.CEIL, UnaryOp.TRUNC, UnaryOp.ROUND])
def test_every_rounding_is_bounded_by_its_jump_where_it_jumps_only(op: UnaryOp) -> None:
    jump = 2.499 if op is UnaryOp.ROUND else 2.999
    near, far = bound_of(Unary(op, SUMMED), jump, 2.25)
    assert (near, far) == (pytest.approx(1.0), 0.0)


def test_a_truncation_is_bounded_by_its_jump_and_saturates() -> None:
    bound = bound_of(Cast(SUMMED, DType.I8), 2.999, 1e6)
    assert bound.tolist() == [pytest.approx(1.0), 0.0]


def test_a_comparison_in_doubt_is_bounded_by_the_side_not_taken() -> None:
    body = Select(Compare(CompareOp.LT, SUMMED, Const(1.0, F32)), Const(5.0, F32), Const(-5.0, F32))
    assert bound_of(body, 0.999, 0.5).tolist() == pytest.approx([10.0, 0.0])


def test_rounding_to_bf16_is_exact_except_near_a_tie() -> None:
    near, far = bound_of(Cast(SUMMED, DType.BF16), 1 + 2.0**-8 - 1e-3, 1.4)
    assert near == pytest.approx(2.0**-7)
    assert far == 0.0


def test_nothing_is_promised_where_f32_may_overflow_or_a_root_be_negative() -> None:
    squared = mul(X2, X2)
    assert np.isinf(bound_of(squared, 3e19, 1.0)).tolist() == [True, False]
    root = Unary(UnaryOp.SQRT, Binary(BinaryOp.SUB, SUMMED, Const(1.001, F32)))
    assert np.isinf(bound_of(root, 1.0, 2.0)).tolist() == [True, False]
    quotient = Binary(BinaryOp.DIV, X2, Binary(BinaryOp.SUB, SUMMED, Const(1.001, F32)))
    assert np.isinf(bound_of(quotient, 1.0, 2.0)).tolist() == [True, False]


def test_nothing_is_promised_where_a_partial_sum_may_overflow() -> None:
    """The sum itself is a number of the type."""
    workload = notation("Y[i] = X[i] + X[i+1] + X[i+2] + X[i+3]", {"i": 2}, X="f32[5]")
    inputs = [np.array([1e38, 2.5e38, 1e38, -2e38, 1.0], np.float32)]
    ((values, bound),) = evaluate_with_bound(workload, inputs)
    assert np.isfinite(values.astype(np.float32)).all()
    assert np.isinf(bound).tolist() == [True, True]


def test_an_infinite_mask_is_exact() -> None:
    masked = add(X2, Select(Compare(CompareOp.LT, X2, Const(0.0, F32)),
                            Const(float("-inf"), F32), Const(0.0, F32)))  # fmt: skip
    assert bound_of(Unary(UnaryOp.EXP, masked), -1.0, 1.0)[0] == 0.0


def test_exact_stages_pass_no_error_on() -> None:
    workload = norm(4, 1000)
    inputs = [np.random.default_rng(0).integers(-4, 5, (4, 1000)).astype(np.float32)]
    spans = {"X": integer_span(workload.inputs[0], 4)}
    known = value_ranges(workload, spans).exact_tensors
    assert known == {"X", "S"}
    ((values, bound),) = evaluate_with_bound(workload, inputs, known)
    assert (bound <= 2 * 2.0**-23 * values).all()


def test_contractions_and_boxes_give_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for workload in (matmul(7, 9, 20), conv2d(6, 3, 8, 3, pad=1)):
        inputs = normal_inputs(workload)
        ((values, bound),) = evaluate_with_bound(workload, inputs)
        with monkeypatch.context() as patch:
            patch.setattr(reference_contract, "MAX_FACTOR_POINTS", 60)
            patch.setattr(error_bound, "recognise", lambda *_, **__: None)
            patch.setattr(error_bound, "MAX_BOX_POINTS", 50)
            ((general, general_bound),) = evaluate_with_bound(workload, inputs)
        np.testing.assert_allclose(general, values, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(general_bound, bound, rtol=0.5)
    assert reference_boxes.MAX_BOX_POINTS > 50


@pytest.mark.parametrize("inexact_first", [True, False])
def test_errors_of_inexact_factors_are_propagated(inexact_first: bool) -> None:
    a, b = Tensor("A", (6, 8), F32), Tensor("B", (8, 6), F32)
    scaled = stage("S", axes(i=6, k=8), Unary(UnaryOp.EXP, load(a, "i", "k")))
    x, y = load(scaled.tensor, "i", "k"), load(b, "k", "j")
    body = mul(x, y) if inexact_first else mul(y, x)
    c = stage("C", axes(i=6, j=6), body, Reducer.SUM, axes(k=8))
    workload = Workload((a, b), (scaled, c), ("C",))
    inputs = normal_inputs(workload)
    ((_, bound),) = evaluate_with_bound(workload, inputs)
    ((_, bound_of_exact),) = evaluate_with_bound(workload, inputs, {"S"})
    sizes = np.exp(inputs[0].astype(np.float64)) @ np.abs(inputs[1])
    assert (bound > bound_of_exact + 4 * 2.0**-24 * sizes).all()
    assert (bound < 30 * 2.0**-24 * sizes).all()


def test_errors_of_two_inexact_factors_add_up() -> None:
    a, b = Tensor("A", (6, 8), F32), Tensor("B", (8, 6), F32)
    left = stage("L", axes(i=6, k=8), Unary(UnaryOp.EXP, load(a, "i", "k")))
    right = stage("R", axes(k=8, j=6), Unary(UnaryOp.EXP, load(b, "k", "j")))
    body = mul(load(left.tensor, "i", "k"), load(right.tensor, "k", "j"))
    c = stage("C", axes(i=6, j=6), body, Reducer.SUM, axes(k=8))
    workload = Workload((a, b), (left, right, c), ("C",))
    inputs = normal_inputs(workload)
    bounds = [
        evaluate_with_bound(workload, inputs, s)[0][1] for s in ({"L", "R"}, {"L"}, {"R"}, ())
    ]
    none, only_right, only_left, both = bounds
    np.testing.assert_allclose(both - none, only_left + only_right - 2 * none, rtol=1e-4)
    assert (both > 2 * none).all()


def test_index_values_beyond_the_precision_of_f32_are_rounded() -> None:
    body = IndexValue(var("i") * 3 + (1 << 24), F32)
    workload = map_workload(body, (), i=2)
    ((_, bound),) = evaluate_with_bound(workload, [])
    assert bound[1] >= 1.0
