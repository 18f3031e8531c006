"""The reference against a slow evaluator, its fast path against its general path."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.support.schedules.reference_cases import (
    F32,
    axes,
    conv2d,
    conv2d_transposed,
    grouped_conv1d,
    layernorm,
    load,
    map_workload,
    matmul,
    mul,
    padded,
    random_workload,
    slow_evaluate,
    small_integers,
    softmax,
    stage,
    vector,
)
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.comparisons import Ge0
from tilewright.schedules.algebra.narrow import narrowed, round_to, widened
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    IndexValue,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.reference import contract as reference_contract
from tilewright.schedules.reference import evaluate as reference
from tilewright.schedules.reference.contract import recognise
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload


def assert_same(workload: Workload, inputs: list[np.ndarray[Any, Any]]) -> None:
    for name, got, wanted in zip(
        workload.outputs, evaluate(workload, inputs), slow_evaluate(workload, inputs), strict=True
    ):
        tensor = workload.tensors[name]
        assert got.shape == tensor.shape
        if tensor.dtype.is_float:
            np.testing.assert_allclose(got.ravel(), wanted, rtol=1e-12)
        else:
            assert got.dtype == tensor.dtype.numpy
            assert got.ravel().tolist() == wanted


@pytest.mark.parametrize("block", range(10))
def test_random_workloads_mean_what_a_slow_evaluator_says(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        rng = random.Random(seed)
        workload = random_workload(rng)
        assert_same(workload, small_integers(workload, rng))


@pytest.mark.parametrize("block", range(4))
def test_tiny_boxes_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MAX_BOX_POINTS", 5)
    monkeypatch.setattr(reference_contract, "MAX_FACTOR_POINTS", 7)
    for seed in range(1000 + block * 25, 1000 + block * 25 + 25):
        rng = random.Random(seed)
        workload = random_workload(rng)
        assert_same(workload, small_integers(workload, rng))


CONTRACTIONS = [
    matmul(7, 13, 17),
    matmul(5, 6, 8, DType.F64),
    matmul(6, 5, 9, DType.I8, accumulate=DType.I32),
    matmul(6, 7, 5, DType.I32),
    matmul(6, 7, 5, DType.I64),
    matmul(9, 7, 5, DType.U8),
    conv2d(7, 3, 8, 3, pad=1),
    conv2d(7, 3, 8, 3, pad=2, stride=2),
    conv2d(5, 2, 9, 1, pad=0),
    conv2d_transposed(4, 3, 8, 3, pad=1, stride=2),
    grouped_conv1d(9, 3, 4, 5, 3),
]


@pytest.mark.parametrize("workload", CONTRACTIONS, ids=lambda w: w.name)
@pytest.mark.parametrize("pieces", ["one", "many"])
def test_contractions_equal_the_general_path(
    workload: Workload, pieces: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recognise(workload.stages[-1]) is not None
    if pieces == "many":
        monkeypatch.setattr(reference_contract, "MAX_FACTOR_POINTS", 50)
    inputs = small_integers(workload, random.Random(0))
    fast = evaluate(workload, inputs)
    assert_same(workload, inputs)
    monkeypatch.setattr(reference, "recognise", lambda *_, **__: None)
    for got, wanted in zip(fast, evaluate(workload, inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_three_factors_and_sums_of_one_factor_are_contracted() -> None:
    a, b, d = Tensor("A", (5, 6), F32), Tensor("B", (6, 7, 2), F32), Tensor("D", (6,), F32)
    product = mul(mul(load(a, "i", "k"), load(d, "k")), load(b, "k", "j", "l"))
    c = stage("C", axes(i=5, j=7), product, Reducer.SUM, axes(k=6, l=2))
    workload = Workload((a, b, d), (c,), ("C",))
    plan = recognise(c)
    assert plan is not None
    assert [x.name for x in plan.right_sums + plan.left_sums] == ["l"]
    assert_same(workload, small_integers(workload, random.Random(0)))


def test_an_infinity_outside_of_a_moved_condition_does_not_leak() -> None:
    workload = conv2d_transposed(4, 3, 8, 3, pad=1, stride=2)
    inputs = small_integers(workload, random.Random(0))
    inputs[1][0, 0] = np.inf  # meets zeros of the mask in most outputs
    (got,) = evaluate(workload, inputs)
    np.testing.assert_array_equal(got.ravel(), slow_evaluate(workload, inputs)[0])


@pytest.mark.parametrize("dtype", [DType.I64, DType.I32, DType.I8, DType.U8])
def test_integer_products_wrap_over_their_full_range(dtype: DType) -> None:
    workload = matmul(6, 5, 7, dtype)
    low, high = dtype.integer_range
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(low, high, t.shape, dtype.numpy.type, endpoint=True) for t in workload.inputs
    ]
    inputs[0][0, :] = low
    inputs[1][:, 0] = low
    assert_same(workload, inputs)


def test_multi_stage_graphs() -> None:
    for workload in (softmax(3, 7), layernorm(2, 13)):
        assert_same(workload, small_integers(workload, random.Random(1)))


def test_float_to_integer_truncates_saturates_and_turns_nan_to_zero() -> None:
    x = vector(DType.F64, 7)
    values = np.array([1.9, -1.9, 1e30, -1e30, np.nan, np.inf, 2.0**63])
    for dtype in (DType.I8, DType.U8, DType.I32, DType.I64):
        workload = map_workload(Cast(load(x, "i"), dtype), (x,), i=7)
        low, high = dtype.integer_range
        wanted = [1, max(-1, low), high, low, 0, high, high]
        assert evaluate(workload, [values])[0].tolist() == wanted


def test_rounding_to_bf16_is_to_nearest_even_and_once() -> None:
    tie = 1 + 2.0**-8
    values = np.array([1.0, tie, 1 + 3 * 2.0**-8, tie + 2.0**-40, -tie, 3.4e38, 2.0**-133 * 1.5])
    wanted = [1.0, 1.0, 1 + 2.0**-6, 1 + 2.0**-7, -1.0, np.inf, 2.0**-132]
    np.testing.assert_array_equal(round_to(values, DType.BF16), wanted)
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = every[np.isfinite(widened(every, DType.BF16))]
    same = round_to(widened(finite, DType.BF16).astype(np.float64), DType.BF16)
    np.testing.assert_array_equal(narrowed(same, DType.BF16), finite)


def test_bf16_inputs_are_bits_and_outputs_are_rounded() -> None:
    x = vector(DType.BF16, 3)
    doubled = mul(Cast(load(x, "i"), F32), Const(1.01, F32))
    workload = map_workload(Cast(doubled, DType.BF16), (x,), i=3)
    bits = narrowed(np.array([1.0, -2.0, 0.5]), DType.BF16)
    assert evaluate(workload, [bits])[0].tolist() == [1.0078125, -2.015625, 0.50390625]


def test_constants_of_bf16_are_scalars() -> None:
    x = vector(DType.BF16, 4)
    workload = map_workload(Cast(padded(x, (var("i") - 1,), 0.3), F32), (x,), i=4)
    out = evaluate(workload, [narrowed(np.ones(4), DType.BF16)])[0]
    assert out.tolist() == [0.30078125, 1, 1, 1]


def test_a_read_on_the_side_not_taken_does_not_matter() -> None:
    x = vector(F32, 4)
    far = var("i") * 1000 - 5000
    both = All((Ge0(far), Ge0(3 - far)))
    workload = map_workload(Select(both, load(x, far), Const(7.0, F32)), (x,), i=20)
    out = evaluate(workload, [np.arange(4, dtype=np.float32)])[0]
    assert out.tolist() == [7.0] * 5 + [0.0] + [7.0] * 14


def test_padding_of_a_maximum_is_its_identity() -> None:
    x = vector(F32, 4)
    body = padded(x, (var("i") + var("r") - 1,), float("-inf"))
    pooled = stage("Y", axes(i=4), body, Reducer.MAX, axes(r=3))
    values = np.array([-5, -4, -3, -2], np.float32)
    assert evaluate(Workload((x,), (pooled,), ("Y",)), [values])[0].tolist() == [-4, -3, -2, -2]


@pytest.mark.parametrize("op", list(UnaryOp))
def test_functions(op: UnaryOp) -> None:
    x = vector(DType.F64, 5)
    workload = map_workload(Unary(op, load(x, "i")), (x,), i=5)
    values = np.array([0.25, 0.5, 1.0, 3.5, 20.0])
    inside = [v for v in (*values, 0.125, 0.75, 1.5, 2.5) if op.function.defined(v, v)]
    assert_same(workload, [np.array(inside[:5] if len(inside) > 4 else (inside * 5)[:5])])


def test_sigmoid_is_accurate_and_silent_far_out() -> None:
    x = vector(DType.F64, 2)
    workload = map_workload(Unary(UnaryOp.SIGMOID, load(x, "i")), (x,), i=2)
    low, high = evaluate(workload, [np.array([-700.0, 1000.0])])[0]
    assert low == pytest.approx(np.exp(-700.0), rel=1e-14)
    assert high == 1.0


def test_intermediate_f32_values_are_not_rounded() -> None:
    x = vector(F32, 1)
    third = stage("T", axes(i=1), Binary(BinaryOp.DIV, load(x, "i"), Const(3.0, F32)))
    y = stage("Y", axes(i=1), mul(load(third.tensor, "i"), Const(3.0, F32)))
    assert evaluate(Workload((x,), (third, y), ("T", "Y")), [np.ones(1, np.float32)])[0] == 1 / 3


def test_constants_are_numbers_of_their_type() -> None:
    x = vector(F32, 1)
    workload = map_workload(add_constant(load(x, "i"), 0.1), (x,), i=1)
    assert evaluate(workload, [np.zeros(1, np.float32)])[0] == np.float64(np.float32(0.1))


def add_constant(x: Scalar, value: float) -> Scalar:
    return Binary(BinaryOp.ADD, x, Const(value, x.dtype))


@pytest.mark.parametrize("op", [UnaryOp.EXP, UnaryOp.SQRT])
def test_functions_of_integers_have_no_meaning(op: UnaryOp) -> None:
    workload = map_workload(Unary(op, IndexValue(var("i"), DType.I32)), (), i=3)
    with pytest.raises(ValueError, match=f"{op} is defined for floats, got values of type int32"):
        evaluate(workload, [])


def test_integers_are_not_divided() -> None:
    i = IndexValue(var("i"), DType.I32)
    workload = map_workload(Binary(BinaryOp.DIV, i, i), (), i=3)
    with pytest.raises(ValueError, match="div is defined for floats, got values of type int32"):
        evaluate(workload, [])


def test_inputs_must_fit() -> None:
    workload = matmul(2, 3, 4)
    a, b = np.zeros((2, 4), np.float32), np.zeros((4, 3), np.float32)
    with pytest.raises(WorkloadError, match="matmul takes 2 inputs, got 1"):
        evaluate(workload, [a])
    with pytest.raises(WorkloadError, match=r"input B must be float32 of shape \(4, 3\), got "):
        evaluate(workload, [a, b.T])
    with pytest.raises(WorkloadError, match=r"input A must be float32 .* got float64"):
        evaluate(workload, [a.astype(np.float64), b])
