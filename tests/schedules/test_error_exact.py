"""What the error analysis takes for exact is equal in any order; what is likely is no promise that
sums of equal or vanishing terms break."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.schedules.reference_cases import F32, layernorm, matmul, softmax
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.reference.error_bound import bounded_outputs, evaluate_with_bound
from tilewright.schedules.reference.error_exact import (
    NO_STEP,
    common_step,
    exact_product,
    exact_quotient,
    exact_sum,
    exact_sums,
)

Array = np.ndarray[Any, Any]


def test_a_sum_that_float64_rounds_is_not_exact() -> None:
    a, b = np.array([1.0, 1.0, 1.5]), np.array([2.0**-60, 2.0**-23, 2.0**-24])
    exact = exact_sum(a, b, a + b, F32)
    assert exact is not None
    assert exact.tolist() == [False, True, False]


def test_products_and_quotients_are_exact_where_f32_holds_them() -> None:
    a, b = np.array([3.0, 1 + 2.0**-23, 0.0]), np.array([5.0, 1 + 2.0**-23, 7.0])
    product = exact_product(a, b, a * b, F32)
    assert product is not None
    assert product.tolist() == [True, False, True]
    quotient = exact_quotient(np.array([3.0, 6.0, 0.0]), np.array([4.0, 3.0, 3.0]),
                              np.array([0.75, 2.0, 0.0]), F32)  # fmt: skip
    assert quotient is not None
    assert quotient.tolist() == [True, False, True]  # 6 * (1 / 3) may be anything near 2


@pytest.mark.parametrize(
    ("values", "step"),
    [([0.0, 0.0], NO_STEP), ([3.0, 8.0], 0), ([0.5, 0.0, 1024.0], -1), ([2.0**14, 0.0], 14),
     ([1 / 3, 2.0**10], None), ([np.inf, 1.0], None)],
)  # fmt: skip
def test_the_common_step(values: list[float], step: int | None) -> None:
    assert common_step(np.array(values), F32) == step


def test_sums_are_exact_up_to_the_bits_of_the_type() -> None:
    magnitude = np.array([2.0**24, 2.0**24 + 1])
    exact = exact_sums(0, magnitude, np.zeros(2), F32)
    assert exact is not None
    assert exact.tolist() == [True, False]
    assert exact_sums(None, magnitude, None, F32) is None


def test_a_softmax_of_zeros_and_far_below_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random((3, 5000)) < 0.5, 0.0, -(2.0**14)).astype(np.float32)
    ((values, bound),) = evaluate_with_bound(softmax(3, 5000), [x])
    assert bound[x < 0].max() == 0.0
    assert (bound <= 3 * 2.0**-24 * values).all()


def test_a_balanced_variance_is_as_exact_as_its_root() -> None:
    x = np.tile(np.array([1, -1, 3, -3], np.float32), (2, 1000))
    ((values, bound),) = evaluate_with_bound(layernorm(2, 4000), [x, np.ones(4000, np.float32)])
    assert (bound <= 16 * 2.0**-24 * np.abs(values)).all()


@pytest.mark.parametrize("dtype", [F32, DType.F64])
def test_a_product_with_one_term_has_the_bits_of_the_other_factor(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((7, 5000)).astype(dtype.numpy)
    b = np.zeros((5000, 4), dtype.numpy)
    b[[3, 4999, 17, 2000], np.arange(4)] = [1, -2, 0.25, 4]
    ((values, bound),) = evaluate_with_bound(matmul(7, 4, 5000, dtype), [a, b])
    assert np.array_equal(values, a[:, [3, 4999, 17, 2000]] * np.array([1, -2, 0.25, 4]))
    assert (bound <= (0.0 if dtype is F32 else 2.0**-49) * np.abs(values)).all()


TERMS = {
    "normal": "X[i,j]",
    "squares": "X[i,j]*X[i,j]",
    "two values": "where(X[i,j] > 0, 0.1, 0.3)",
    "equal": "0.1 + 0.0*X[i,j]",
    "spread": "exp(8.0*X[i,j])",
    "positive": "exp(X[i,j])",
}


@pytest.mark.parametrize("name", TERMS)
def test_what_is_likely_covers_the_usual_orders(name: str) -> None:
    """Also of equal terms, rounded the same way each time, and of terms far below the sum."""
    rows, length = 40, 30_000
    workload = from_notation(
        f"S[i] += {TERMS[name]}", [parse_tensor_spec(f"X=f32[{rows},{length}]")]
    )
    x = np.random.default_rng(1).standard_normal((rows, length)).astype(np.float32)
    ((values, bound),) = bounded_outputs(workload, [x], continuous=True)
    assert bound is not None
    ((_, worst),) = evaluate_with_bound(workload, [x])
    assert (bound <= worst).all()
    t = {
        "normal": x,
        "squares": x * x,
        "two values": np.where(x > 0, np.float32(0.1), np.float32(0.3)),
        "equal": np.full_like(x, 0.1),
        "spread": np.exp(8 * x),
        "positive": np.exp(x),
    }[name]
    for order in (t, t[:, ::-1], -np.sort(-t, axis=1), np.sort(t, axis=1)):
        one_by_one = np.add.accumulate(order, axis=1, dtype=np.float32)[:, -1]
        lanes = np.add.accumulate(order.reshape(rows, -1, 16), axis=1, dtype=np.float32)[:, -1]
        for sums in (one_by_one, lanes.sum(axis=1, dtype=np.float32), order.sum(axis=1)):
            assert (np.abs(sums - values) <= bound / 2).all()
