"""Integer ranges for which nothing is rounded: found where they exist, and true."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

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
    padded,
    random_workload,
    softmax,
    stage,
    vector,
)
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.scalar import (
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
from tilewright.schedules.reference.error_bound import exact_inputs_range
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.exactness import ValueRange, fits, integer_span, value_ranges
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

X = load(vector(F32), "i")
TINY = mul(X, Const(2.0**-12, F32))


def of(body: Scalar) -> int | None:
    return exact_inputs_range(map_workload(body, (vector(F32),), i=8))


@pytest.mark.parametrize(
    ("terms", "limit"), [(1 << 20, 4), ((1 << 20) + 1, 3), (1 << 24, 1), ((1 << 24) + 1, None)]
)
def test_a_sum_of_products_is_exact_up_to_the_precision_of_its_type(
    terms: int, limit: int | None
) -> None:
    assert exact_inputs_range(matmul(2, 2, terms)) == limit
    assert exact_inputs_range(matmul(2, 2, terms, DType.F64)) == 4


def test_operators_with_and_without_an_exact_case() -> None:
    assert exact_inputs_range(conv2d(7, 3, 8, 3, pad=1)) == 4
    assert exact_inputs_range(matmul(4, 4, 64, DType.BF16, accumulate=F32)) == 4
    assert exact_inputs_range(matmul(4, 4, 1 << 30, DType.I8, accumulate=DType.I32)) == 4
    for workload in (softmax(3, 4), layernorm(3, 4), norm(3, 4)):
        assert exact_inputs_range(workload) is None


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (Binary(BinaryOp.MAX, X, Const(0.0, F32)), 4),
        (mul(X, Const(0.5, F32)), 4),
        (Binary(BinaryOp.DIV, X, Const(8.0, F32)), 4),
        (Binary(BinaryOp.DIV, X, Const(7.0, F32)), None),
        (mul(X, Const(0.1, F32)), 1),  # the nearest f32 has 24 significant bits itself
        (mul(add(X, Const(8.0, F32)), Const(0.1, F32)), None),
        (add(X, Const(1e-9, F32)), None),
        (add(mul(TINY, TINY), Const(1.0, F32)), None),
        (add(mul(TINY, X), Const(1.0, F32)), 4),
        (Unary(UnaryOp.FLOOR, mul(X, Const(0.25, F32))), 4),
        (Unary(UnaryOp.CEIL, mul(X, Const(0.25, F32))), 4),
        (Unary(UnaryOp.TRUNC, mul(X, Const(0.25, F32))), 4),
        (Unary(UnaryOp.ROUND, mul(X, Const(0.25, F32))), 4),
        (Unary(UnaryOp.EXP, X), None),
        (Unary(UnaryOp.ABS, Unary(UnaryOp.NEG, X)), 4),
        (Select(Compare(CompareOp.LT, X, Const(1.0, F32)), X, Const(float("-inf"), F32)), 4),
        (Select(Compare(CompareOp.LT, Unary(UnaryOp.EXP, X), Const(1.0, F32)), X, X), None),
        (Cast(Unary(UnaryOp.EXP, X), DType.I32), None),
        (Cast(Cast(X, DType.I8), F32), 4),
        (mul(X, IndexValue(var("i") + (1 << 22), F32)), 3),
        (IndexValue(var("i") + (1 << 24), F32), None),
    ],
)
def test_single_operations(body: Scalar, limit: int | None) -> None:
    assert of(body) == limit


def test_products_of_many_small_numbers_are_exact_until_they_are_too_large() -> None:
    x = Tensor("X", (4, 12), F32)
    y = stage("Y", axes(i=4), load(x, "i", "j"), Reducer.PROD, axes(j=12))
    workload = Workload((x,), (y,), ("Y",))
    assert exact_inputs_range(workload) == 4  # 4**12 == 2**24
    halves = stage(
        "Y", axes(i=4), mul(load(x, "i", "j"), Const(0.5, F32)), Reducer.PROD, axes(j=12)
    )
    assert exact_inputs_range(Workload((x,), (halves,), ("Y",))) == 4


def test_padding_with_minus_infinity_is_exact_under_a_maximum() -> None:
    x = vector(F32, 4)
    body = padded(x, (var("i") + var("r") - 1,), float("-inf"))
    y = stage("Y", axes(i=4), body, Reducer.MAX, axes(r=3))
    assert exact_inputs_range(Workload((x,), (y,), ("Y",))) == 4


def test_spans_hold_every_value_and_exact_ones_are_computed_exactly_in_f32() -> None:
    exact = 0
    for seed in range(150):
        rng = random.Random(seed)
        workload = random_workload(rng)
        ranges = value_ranges(workload, {t.name: integer_span(t, 3) for t in workload.inputs})
        inputs = inputs_within(workload, 3, rng)
        for name, values in zip(workload.outputs, evaluate(workload, inputs), strict=True):
            span, dtype = ranges.tensors[name], workload.tensors[name].dtype
            assert span.lo <= values.min()
            assert values.max() <= span.hi
            if span.step is not None and dtype is F32:
                exact += 1
                np.testing.assert_array_equal(values.astype(np.float32), values)
                scaled = values / 2.0**span.step
                np.testing.assert_array_equal(scaled, np.round(scaled))
    assert exact > 20


def inputs_within(workload: Workload, limit: int, rng: random.Random) -> list[np.ndarray[Any, Any]]:
    arrays = []
    for t in workload.inputs:
        low = -limit if t.dtype.is_signed else 0
        flat = [rng.choice([low, rng.randint(low, limit), limit]) for _ in range(t.elements)]
        arrays.append(np.array(flat).reshape(t.shape).astype(t.dtype.numpy))
    return arrays


def test_domains() -> None:
    """Roots and quotients of what may be negative or zero are found by ranges."""
    real = ValueRange(-8.0, 8.0, None)
    positive = ValueRange(0.5, 1.5, None)
    for body, defined in (
        (Unary(UnaryOp.SQRT, mul(X, X)), True),
        (Unary(UnaryOp.RSQRT, mul(X, X)), False),
        (Unary(UnaryOp.RSQRT, add(mul(X, X), Const(1e-5, F32))), True),
        (Unary(UnaryOp.LOG, X), False),
        (Binary(BinaryOp.DIV, Const(1.0, F32), X), False),
        (Binary(BinaryOp.DIV, X, Unary(UnaryOp.EXP, X)), True),
    ):
        workload = map_workload(body, (vector(F32),), i=8)
        assert value_ranges(workload, {"X": real}).defined is defined
        assert value_ranges(workload, {"X": positive}).defined
    for graph in (softmax(3, 4), norm(3, 4)):
        assert value_ranges(graph, {"X": real}).defined
    assert value_ranges(layernorm(3, 4), {"X": real, "gamma": real}).defined


def test_overflow_is_foreseen() -> None:
    workload = map_workload(mul(X, X), (vector(F32),), i=8)
    assert value_ranges(workload, {"X": ValueRange(-(2.0**60), 2.0**60, None)}).bounded
    assert not value_ranges(workload, {"X": ValueRange(-(2.0**63), 2.0**63, None)}).bounded


def test_what_fits_a_float() -> None:
    assert fits(ValueRange(-(2.0**24), 2.0**24, 0), F32)
    assert not fits(ValueRange(0, 2.0**24 + 1, 0), F32)
    assert fits(ValueRange(0, 2.0**30, 6), F32)
    assert not fits(ValueRange(0, 1, None), F32)
    assert not fits(ValueRange(0, math.inf, 0), F32)
    assert not fits(ValueRange(0, 2.0**-149, -150), F32)
