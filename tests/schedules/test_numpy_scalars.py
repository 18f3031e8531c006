"""NumPy's scalars count as Python's numbers wherever an expression or a shape has numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.schedules.errors import WorkloadError

X = tw.placeholder("x", (4, 6))
N = tw.placeholder("i", (4, 6), "i32")

SPELLINGS: list[Callable[[Any], Any]] = [
    lambda n: X * n(2),
    lambda n: n(2) - X,
    lambda n: X ** n(2),
    lambda n: tw.maximum(X, n(1)),
    lambda n: tw.where(n(0) < X, X, n(1)),
    lambda n: X.sum(n(1)),
    lambda n: X[n(1)],
    lambda n: X[: n(3), n(-1)],
    lambda n: X.reshape(n(8), n(3)),
    lambda n: tw.roll(X, n(1), n(0)),
    lambda n: tw.concat(tw.split(X, n(2), n(1)), n(0)),
    lambda n: N << n(2),
    lambda n: N // n(3),
    lambda n: tw.placeholder("z", (n(4), n(6))) + X,
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_integers_of_numpy_are_integers(
    spelling: Callable[[Any], Any],
) -> None:
    plain, numpy = (tw.Workload.of(spelling(kind)) for kind in (int, np.int64))
    assert numpy.key == plain.key


def of_elements(body: Callable[[Any, Any], Any]) -> Any:
    return tw.compute("y", (4, 6), body)


ELEMENTS: list[Callable[[Any], Any]] = [
    lambda n: of_elements(lambda i, j: tw.select(i < n(3), X[i, j], n(0))),
    lambda n: of_elements(lambda i, j: tw.select(n(1) <= i, n(2) * X[i, j], X[i, j] - n(1))),
    lambda n: of_elements(lambda i, j: tw.select(tw.eq(i, n(2)), X[i, j] ** n(2), 0)),
    lambda n: of_elements(lambda i, j: tw.select(tw.ne(n(2), j), tw.maximum(n(1), X[i, j]), 0)),
    lambda n: of_elements(lambda i, j: tw.select(n(0) < X[i, j], X[i, j], n(1))),
    lambda n: tw.pad(X, 1, value=n(1)),
    lambda n: tw.compute("y", (6,), lambda j: n(1)),
]
"""Beside elements and indices, where floats are numbers, too."""


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, np.int64])
@pytest.mark.parametrize("spelling", ELEMENTS)
def test_numbers_of_numpy_stand_beside_elements_and_indices(
    spelling: Callable[[Any], Any], kind: Any
) -> None:
    plain, numpy = (
        tw.Workload.of(spelling(one))
        for one in (float if issubclass(kind, np.floating) else int, kind)
    )
    assert numpy.key == plain.key


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_roots_and_extents_of_numpy_are_those_of_python(kind: Any) -> None:
    def root(n: Any) -> Any:
        return of_elements(lambda i, j: X[i, j] ** n)

    def sums(n: Any) -> Any:
        k = tw.reduce_axis(n, "k")
        return tw.compute("y", (n,), lambda j: tw.sum(X[k % 4, j], axis=k))

    assert tw.Workload.of(root(kind(0.5))).key == tw.Workload.of(root(0.5)).key
    assert tw.Workload.of(sums(np.int64(6))).key == tw.Workload.of(sums(6)).key


def test_numbers_that_are_no_floats_are_refused() -> None:
    huge: Any = Fraction(10**400)
    with pytest.raises(WorkloadError, match="must be an array or a number"):
        _ = X * huge


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_of_numpy_take_the_type_of_the_array(kind: Any) -> None:
    assert tw.Workload.of(X * kind(0.5)).key == tw.Workload.of(X * 0.5).key
    assert tw.Workload.of(kind(0.5) / X).key == tw.Workload.of(0.5 / X).key


def test_a_bool_of_numpy_is_no_number() -> None:
    truth: Any = np.bool_(True)
    with pytest.raises(WorkloadError, match="must be an array or a number"):
        _ = X * truth
