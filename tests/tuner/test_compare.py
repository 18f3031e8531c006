"""The judge accepts correct kernels in any order of summation and rejects planted mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.schedules.reference_cases import (
    F32,
    conv2d,
    layernorm,
    load,
    map_workload,
    matmul,
    mul,
    norm,
    softmax,
    vector,
)
from tilewright.schedules.algebra.narrow import narrowed
from tilewright.schedules.algebra.scalar import Binary, BinaryOp, Cast, Const, Unary, UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.workload.tensors import Tensor
from tilewright.tuner.judge.compare import Case, expect
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle

Array = np.ndarray[Any, Any]


def f32_matmul(a: Array, b: Array, order: Array) -> Array:
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for k in order:
        c += a[:, k, None] * b[k]
    return c


def f32_softmax(x: Array, keep: slice = slice(None)) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e[:, keep].sum(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8"])
@pytest.mark.parametrize(("reducer", "combine"), [("max", np.maximum), ("min", np.minimum)])
def test_a_maximum_or_minimum_that_starts_from_zero_is_caught(
    reducer: str, combine: np.ufunc, dtype: str
) -> None:
    """Of 300 numbers of both signs some are on the right side of zero: that shows nothing."""
    x = parse_tensor_spec(f"X={dtype}[5,300]")
    workload = from_notation(f"m[i] {reducer}= X[i,j]", [x])
    wrong = 0
    for case in Oracle(workload).full():
        (values,) = case.inputs
        best = combine.reduce(values, axis=1)
        from_zero = combine(best, best.dtype.type(0))
        for result, right in ((best, True), (from_zero, (from_zero == best).all())):
            assert (case.check([result]) is None) == right
        wrong += not (from_zero == best).all()
    assert wrong


def test_scores_whose_maximum_starts_from_zero_are_caught() -> None:
    """Scores of inputs that are all negative are positive: the signs of the inputs differ."""
    tensors = [parse_tensor_spec(t) for t in ("Q=f32[7,24]", "K=f32[90,24]")]
    text = "S[i,j] += Q[i,d]*K[j,d]; m[i] max= S[i,j]; e[i,j] = exp(S[i,j]-m[i]); "
    workload = from_notation(text + "z[i] += e[i,j]; Y[i,j] = e[i,j]/z[i]", tensors)
    sunk = [case for case in Oracle(workload).full() if case.kind is InputKind.SUNK]
    for case in sunk:
        scores = case.inputs[0] @ case.inputs[1].T
        assert case.check([f32_softmax(scores)]) is None
        with np.errstate(all="ignore"):
            e = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), 0))
            assert case.check([e / e.sum(axis=1, keepdims=True)]) is not None
    assert sunk


def test_every_order_of_summation_passes_every_case() -> None:
    workload = matmul(16, 18, 65)
    rng = np.random.default_rng(0)
    cases = list(Oracle(workload, seed=3).full())
    assert [c.kind for c in cases] == [
        InputKind.INTEGERS,
        InputKind.INTEGERS,
        InputKind.SPIKES,
        InputKind.NORMAL,
        InputKind.UNIFORM,
        InputKind.SPECIAL,
        InputKind.SINGLE,
        InputKind.SINGLE,
    ]
    assert [c.exact for c in cases] == [True] * 3 + [False] * 5
    for case in cases:
        for _ in range(3):
            a, b = case.inputs
            assert case.check([f32_matmul(a, b, rng.permutation(65))]) is None
        assert case.judged_fraction == 1.0


@pytest.mark.parametrize("k", [0, 31, 63])
def test_a_dropped_term_is_caught_by_the_quick_check(k: int) -> None:
    oracle = Oracle(matmul(16, 16, 64))
    a, b = oracle.quick.inputs
    dropped = f32_matmul(a, b, np.delete(np.arange(64), k))
    assert oracle.check([f32_matmul(a, b, np.arange(64))]) is None
    assert "elements are wrong" in str(oracle.check([dropped]))


@pytest.mark.parametrize("keep", [slice(0, -1), slice(0, 31984), slice(64, None)])
def test_a_dropped_part_of_a_long_softmax_is_caught(keep: slice) -> None:
    oracle = Oracle(softmax(32, 32000))
    assert oracle.quick.kind is InputKind.SPIKES
    (x,) = oracle.quick.inputs
    assert oracle.check([f32_softmax(x)]) is None
    assert oracle.check([f32_softmax(x, keep)]) is not None


def test_a_dropped_term_of_a_norm_is_caught_because_its_sum_is_exact() -> None:
    oracle = Oracle(norm(4, 10000))
    (x,) = oracle.quick.inputs
    assert not oracle.quick.exact
    assert oracle.check([np.sqrt((x * x).sum(axis=1))]) is None
    assert oracle.check([np.sqrt((x[:, 1:] * x[:, 1:]).sum(axis=1))]) is not None


def test_the_message_names_the_first_wrong_element() -> None:
    oracle = Oracle(matmul(3, 4, 5), seed=9)
    a, b = oracle.quick.inputs
    out = a @ b
    out[1, 2] += 1
    out[2, 3] = np.nan
    wanted = int((a @ b)[1, 2])
    assert oracle.check([out]) == (
        f"C[1, 2] is {wanted + 1}, expected {wanted} (exactly); 2 of 12 elements are wrong; "
        "inputs: integers, seed 9"
    )


def test_the_message_says_what_would_be_allowed() -> None:
    oracle = Oracle(softmax(2, 3))
    (x,) = oracle.quick.inputs
    out = f32_softmax(x)
    out[0, 0] = 2.0
    assert " to " in str(oracle.check([out]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_never_pass_unless_expected(bad: float) -> None:
    oracle = Oracle(matmul(3, 4, 5))
    for kind in (InputKind.INTEGERS, InputKind.NORMAL):
        case = oracle.case(kind, 0)
        a, b = case.inputs
        out = a @ b
        assert case.check([out]) is None
        out[2, 3] = bad
        assert "1 of 12 elements" in str(case.check([out]))


def test_expected_nan_and_infinity_pass() -> None:
    tensor = Tensor("Y", (3,), F32)
    expected = expect(tensor, np.array([np.nan, np.inf, 1.0]), None)
    assert expected.wrong(np.array([np.nan, np.inf, 1.0], np.float32)) is None
    assert expected.wrong(np.array([1.0, np.inf, 1.0], np.float32)) is not None
    assert expected.wrong(np.array([np.nan, np.nan, 1.0], np.float32)) is not None


def test_zeros_of_both_signs_are_equal() -> None:
    expected = expect(Tensor("Y", (1,), F32), np.zeros(1), None)
    assert expected.wrong(np.array([-0.0], np.float32)) is None


def test_limits_are_the_last_numbers_within_the_bound() -> None:
    tensor = Tensor("Y", (1,), F32)
    step = 2.0**-23  # between neighbours of 1.5
    expected = expect(tensor, np.array([1.5]), np.array([2.5 * step]))
    for steps, right in ((2, True), (3, False), (-2, True), (-3, False)):
        problem = expected.wrong(np.array([1.5 + steps * step], np.float32))
        assert (problem is None) is right


def test_an_infinite_bound_leaves_its_element_free_and_no_other() -> None:
    expected = expect(Tensor("Y", (2,), F32), np.array([1e39, 1.0]), np.array([np.inf, 0.0]))
    assert expected.wrong(np.array([np.nan, 1.0], np.float32)) is None
    assert expected.wrong(np.array([np.inf, 1.0], np.float32)) is None
    assert expected.wrong(np.array([np.inf, 1.5], np.float32)) is not None
    case = Case(InputKind.NORMAL, 0, False, (), (expected,))
    assert case.judged_fraction == 0.5


def test_integers_are_exact_over_their_full_range() -> None:
    oracle = Oracle(matmul(6, 7, 8, DType.I32))
    cases = list(oracle.full())
    assert {c.kind for c in cases} == {InputKind.INTEGERS, InputKind.EXTREMES}
    for case in cases:
        assert case.exact
        a, b = case.inputs
        out = a @ b
        assert case.check([out]) is None
        out[0, 0] ^= 1
        assert case.check([out]) is not None


def test_64_bit_integers_keep_their_last_bit() -> None:
    tensor = Tensor("Y", (2,), DType.I64)
    values = np.array([2**62 + 1, 5])
    expected = expect(tensor, values, np.array([0.0, 1.0]))
    assert expected.wrong(values + np.array([0, 1])) is None
    assert expected.wrong(values + np.array([1, 0])) is not None
    assert expected.wrong(values + np.array([0, 2])) is not None


def test_requantised_outputs_may_be_off_by_one_only_next_to_an_integer() -> None:
    x, scale = vector(DType.I32, 1000), vector(F32, 1000, "scale")
    scaled = mul(Cast(load(x, "i"), F32), load(scale, "i"))
    body = Cast(Unary(UnaryOp.FLOOR, scaled), DType.I8)
    case = Oracle(map_workload(body, (x, scale), i=1000)).case(InputKind.SPIKES, 0)
    exact = case.expected[0].values
    assert case.check([exact]) is None
    assert case.check([np.where(np.arange(1000) == 3, exact + 1, exact).astype(np.int8)])


def test_bf16_outputs_are_compared_as_numbers() -> None:
    x = vector(DType.BF16, 64)
    body = Cast(mul(Cast(load(x, "i"), F32), Const(3.0, F32)), DType.BF16)
    oracle = Oracle(map_workload(body, (x,), i=64))
    case = oracle.quick
    assert case.exact
    right = narrowed(case.expected[0].values, DType.BF16)
    assert case.check([right]) is None
    assert case.check([right ^ np.uint16(1)]) is not None


@pytest.mark.parametrize("workload", [layernorm(5, 33), conv2d(6, 3, 8, 3, pad=1)],
                         ids=lambda w: w.name)  # fmt: skip
def test_the_rounded_reference_passes_every_case(workload: Any) -> None:
    for case in Oracle(workload).full():
        outputs = [e.values.astype(e.tensor.dtype.numpy) for e in case.expected]
        assert case.check(outputs) is None
        # Swept inputs reach the ends of their type, where a right kernel may overflow.
        assert case.judged_fraction > (0.5 if case.kind is InputKind.SWEPT else 0.95)


def test_workloads_of_positive_inputs_are_judged_everywhere() -> None:
    body = Binary(BinaryOp.DIV, Const(1.0, F32), load(vector(F32), "i"))
    for case in Oracle(map_workload(body, (vector(F32),), i=8)).full():
        has_reciprocal = np.abs(case.inputs[0]) > 2.0**-127  # swept: 1 / x overflows below that
        assert case.judged_fraction >= has_reciprocal.mean()
        assert has_reciprocal.all() or case.kind is InputKind.SWEPT
        with np.errstate(over="ignore"):
            assert case.check([np.float32(1) / case.inputs[0]]) is None


def test_other_inputs_are_tried_where_the_first_kind_overflows() -> None:
    x = load(vector(F32), "i")
    fourth = mul(mul(x, x), mul(x, x))
    grown = Unary(UnaryOp.EXP, mul(fourth, Const(0.9, F32)))  # exp(0.9 * 3**4) is 4.6e31
    case = Oracle(map_workload(mul(grown, grown), (vector(F32),), i=8)).quick
    assert case.kind is InputKind.UNIFORM
    assert case.judged_fraction == 1.0


def test_a_workload_nothing_can_be_said_about_is_refused() -> None:
    huge = mul(Unary(UnaryOp.EXP, load(vector(F32), "i")), Const(3e38, F32))
    oracle = Oracle(map_workload(mul(huge, huge), (vector(F32),), i=8))
    with pytest.raises(WorkloadError, match="map cannot be verified: for every kind of inputs"):
        _ = oracle.quick


def test_an_output_that_is_free_is_not_hidden_by_another() -> None:
    free = expect(Tensor("Y", (2,), F32), np.ones(2), np.array([np.inf, np.inf]))
    held = expect(Tensor("Z", (2,), F32), np.ones(2), None)
    assert Case(InputKind.NORMAL, 0, False, (), (free, held)).judged_fraction == 0.0


def test_heavy_workloads_have_fewer_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tuner.judge.oracle.HEAVY_POINTS", 50)
    kinds = [case.kind for case in Oracle(matmul(3, 4, 5)).full()]
    drawn = [InputKind.INTEGERS, InputKind.NORMAL, InputKind.SPECIAL]
    assert kinds == [*drawn, InputKind.SINGLE, InputKind.SINGLE]


def test_outputs_must_fit() -> None:
    case = Oracle(matmul(3, 4, 5)).quick
    with pytest.raises(ValueError, match="1 outputs are expected, got 0"):
        case.check([])
    with pytest.raises(ValueError, match=r"output C must be float32 of shape \(3, 4\), got"):
        case.check([np.zeros((4, 3), np.float32)])


def test_the_quick_case_is_built_once() -> None:
    oracle = Oracle(matmul(3, 4, 5))
    assert oracle.quick is oracle.quick
    assert next(oracle.full()) is oracle.quick


@pytest.mark.parametrize(
    ("reducer", "text", "combine"),
    [("max", "X[i,k] - b[i]", np.maximum), ("min", "X[i,k] - b[i]", np.minimum)],
)
@pytest.mark.parametrize("tensors", [("b=f32[1]", "X=f32[1,400]"), ("X=f32[1,400]", "b=f32[1]")])
def test_a_maximum_of_differences_that_starts_from_zero_is_caught(
    tensors: tuple[str, ...], reducer: str, text: str, combine: np.ufunc
) -> None:
    """Where what is sunk is subtracted all terms are raised instead, and of 400 terms of both signs
    the greatest is never below zero: each input is sunk in its turn."""
    workload = from_notation(f"m[i] {reducer}= {text}", [parse_tensor_spec(t) for t in tensors])
    names = [t.split("=")[0] for t in tensors]
    shown = 0
    for case in Oracle(workload).full():
        values = dict(zip(names, case.inputs, strict=True))
        best = combine.reduce(values["X"] - values["b"][:, None], axis=1)
        from_zero = combine(best, np.float32(0))
        assert case.check([best]) is None
        shown += case.check([from_zero]) is not None
    assert shown


def test_a_maximum_of_logarithms_that_starts_from_zero_is_caught() -> None:
    """Inputs of a logarithm are positive, and of 400 numbers in 0.5 to 1.5 the greatest is above 1.
    Logarithms of probabilities are below zero in every call that users make."""
    workload = from_notation("m[i] max= log(X[i,k])", [parse_tensor_spec("X=f32[1,400]")])
    shown = 0
    for case in Oracle(workload).full():
        best = np.log(case.inputs[0]).max(axis=1)
        assert case.check([best]) is None
        shown += case.check([np.maximum(best, np.float32(0))]) is not None
    assert shown


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
def test_limits_that_are_computed_in_advance_decide_alike(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    count = 200_000
    values = rng.normal(size=count) * 2.0 ** rng.integers(-140, 120, count)
    bound = np.abs(values) * rng.choice([0.0, 2.0**-24, 1e-6, 0.5, np.inf], count)
    values[:5] = (np.inf, -np.inf, np.nan, 0.0, 1.0)
    bound[:5] = (0.0, np.inf, 0.0, 1e-45, np.inf)
    slow = expect(Tensor("Y", (count,), dtype), values, bound)
    fast = slow.with_span()
    finite = np.where(np.isfinite(bound), bound, 0.0)
    for steps in ((0.0,), (-0.999, 0.5, 0.999), (-1.001, 0.5, 3.0), (np.nan, np.inf)):
        with np.errstate(all="ignore"):
            output = narrowed(values + finite * rng.choice(steps, count), dtype)
        assert fast.wrong(output) == slow.wrong(output)
