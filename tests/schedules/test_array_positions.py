"""Running results and positions of whole arrays, and operations that only integers have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.schedules import (
    Workload,
    WorkloadError,
    argmax,
    argmin,
    compute,
    cummax,
    cumsum,
    exp,
    flip,
    placeholder,
    reduce_axis,
)
from tilewright.schedules.reference.evaluate import evaluate

Array = npt.NDArray[Any]

X = placeholder("X", (3, 4, 5), "f64")
N = placeholder("N", (3, 4), "i32")
VALUES = np.random.default_rng(0).normal(size=(3, 4, 5))
WHOLE = np.random.default_rng(1).integers(-50, 50, (3, 4)).astype(np.int32)


def value_of(array: Any, *inputs: Array) -> Array:
    (found,) = evaluate(Workload.of(array), list(inputs))
    return found


@given(st.integers(-3, 2), st.booleans(), st.booleans())
def test_scans_are_those_of_numpy(axis: int, reverse: bool, exclusive: bool) -> None:
    turned = np.flip(VALUES, axis) if reverse else VALUES
    running = np.cumsum(turned, axis) - (turned if exclusive else 0.0)
    expected = np.flip(running, axis) if reverse else running
    found = value_of(X.cumsum(axis, reverse=reverse, exclusive=exclusive), VALUES)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    found = value_of(cumsum(X * 1.0, axis, reverse=reverse, exclusive=exclusive), VALUES)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(st.integers(-3, 2), st.booleans())
def test_positions_are_those_of_numpy(axis: int, last: bool) -> None:
    for function, numpy in ((argmax, np.argmax), (argmin, np.argmin)):
        turned = np.flip(VALUES, axis) if last else VALUES
        position = numpy(turned, axis)
        expected = VALUES.shape[axis] - 1 - position if last else position
        np.testing.assert_array_equal(value_of(function(X, axis, last=last), VALUES), expected)


def test_scans_are_read_by_views_and_other_expressions() -> None:
    np.testing.assert_allclose(
        value_of(flip(X.cumsum(1), 1)[:, 1:] * 2.0, VALUES), np.cumsum(VALUES, 1)[:, -2::-1] * 2
    )
    np.testing.assert_allclose(value_of(X.cumsum(2)[..., -1], VALUES), VALUES.sum(2))
    shifted = exp(X - cummax(X, 1)).sum(0).cumprod(1)
    largest = np.maximum.accumulate(VALUES, 1)
    np.testing.assert_allclose(
        value_of(shifted, VALUES), np.cumprod(np.exp(VALUES - largest).sum(0), 1)
    )
    moved = X.transpose(2, 0, 1).reshape(5, 12).cumsum(0).T
    expected = np.cumsum(VALUES.transpose(2, 0, 1).reshape(5, 12), 0).T
    np.testing.assert_allclose(value_of(moved, VALUES), expected)


def test_arrays_and_lambdas_have_the_same_key() -> None:
    k = reduce_axis(5, "k")
    scan = compute("S", (3, 4, 5), lambda a, b, c: cumsum(X[a, b, c], axis=c))
    assert Workload.of(X.cumsum(2)).key == Workload.of(scan).key
    place = compute("A", (3, 4), lambda a, b: argmax(X[a, b, k], axis=k))
    assert Workload.of(X.argmax(2)).key == Workload.of(place).key


@pytest.mark.parametrize(
    "meaning",
    [
        lambda n: n // 7 % 3 ^ ~n & 15 | n << 2,
        lambda n: (100 // (n | 1) + 100 % (n | 1)) >> 1,
        lambda n: 255 & (7 ^ (1 << (n & 7))) | (1024 >> (n & 3)),
    ],
)
def test_integers_have_the_operators_of_numpy(meaning: Callable[[Any], Any]) -> None:
    np.testing.assert_array_equal(value_of(meaning(N), WHOLE), meaning(WHOLE))


def test_powers_variances_and_deviations() -> None:
    for exponent in (1, 2, 3, 7, 10):
        np.testing.assert_allclose(value_of(X**exponent, VALUES), VALUES**exponent)
    np.testing.assert_array_equal(value_of(N**3, WHOLE), WHOLE**3)
    positive = np.abs(VALUES)
    for power in (-1, -3, 0.5, -0.5, 1.5, -2.25, 100):
        np.testing.assert_allclose(value_of(X**power, positive), positive**power, rtol=1e-12)
    np.testing.assert_allclose(value_of(2.0**X, VALUES), 2.0**VALUES)
    np.testing.assert_allclose(value_of(pow(abs(X), X), VALUES), positive**VALUES)
    assert Workload.of(pow(X, 2)).key == Workload.of(X * X).key
    for axis in (None, 1, (0, 2)):
        np.testing.assert_allclose(
            np.squeeze(value_of(X.var(axis), VALUES)), VALUES.var(axis), rtol=1e-12
        )
    found = value_of(X.std(-1, keepdims=True, correction=1), VALUES)
    np.testing.assert_allclose(found, VALUES.std(-1, keepdims=True, ddof=1))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: X.cumsum(3), "axes are -3..2, got 3"),
        (lambda: argmax(X, None), "an axis of an array is an integer"),
        (lambda: cumsum(X, None), "an axis of an array is an integer"),
        (lambda: X // 2, "only integers have it"),
        (lambda: ~X, "only integers have it"),
        (lambda: N**-1, "constant exponent of 0 to 64"),
        (lambda: N**N, "only floats have it"),
        (lambda: X[:, :1].var(1, correction=1), "divides by 0"),
    ],
)
def test_mistakes_are_explained(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        build()
