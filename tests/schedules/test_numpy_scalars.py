"""NumPy's scalars count as Python's numbers wherever an expression or a shape has numbers."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_of_numpy_take_the_type_of_the_array(kind: Any) -> None:
    assert tw.Workload.of(X * kind(0.5)).key == tw.Workload.of(X * 0.5).key
    assert tw.Workload.of(kind(0.5) / X).key == tw.Workload.of(0.5 / X).key


def test_a_bool_of_numpy_is_no_number() -> None:
    truth: Any = np.bool_(True)
    with pytest.raises(WorkloadError, match="must be an array or a number"):
        _ = X * truth
