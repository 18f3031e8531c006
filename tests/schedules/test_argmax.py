"""Positions of the greatest and least values: which of equals counts, and where NaN stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.schedules.workloads import notation
from tilewright.schedules import (
    Workload,
    WorkloadError,
    argmax,
    argmin,
    compute,
    placeholder,
    reduce_axis,
)
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.machine.native_target import native_target

Array = npt.NDArray[Any]


def expected(function: Callable[..., Array], values: Array, *, last: bool) -> Array:
    if not last:
        return np.asarray(function(values, axis=1))
    return np.asarray(values.shape[1] - 1 - function(values[:, ::-1], axis=1))


@settings(max_examples=60)
@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 9)),
        elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan]),
    ),
    st.booleans(),
)
def test_positions_are_those_of_numpy(values: Array, last: bool) -> None:
    words = ", last" if last else ""
    for name, function in (("argmax", np.argmax), ("argmin", np.argmin)):
        rows, columns = values.shape
        workload = notation(f"A[i] = {name}(X[i,k], k{words})", X=f"f32[{rows},{columns}]")
        (found,) = evaluate(workload, [values])
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected(function, values, last=last))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64", "f64"])
def test_positions_of_other_types(dtype: str) -> None:
    workload = notation("A[i] = argmin(X[i,k], k, last)", X=f"{dtype}[4,9]")
    numbers = np.random.default_rng(0).integers(0, 4, (4, 9))
    values = numbers.astype(workload.inputs[0].dtype.numpy)
    (found,) = evaluate(workload, [values])
    np.testing.assert_array_equal(found, expected(np.argmin, values, last=True))


def test_a_kernel_puts_nan_first() -> None:
    workload = notation("A[i] = argmax(X[i,k], k)", X="f32[5,77]").normalised()
    values = np.random.default_rng(1).normal(size=(5, 77)).astype(np.float32)
    values[1, 40], values[1, 50], values[3] = np.nan, np.nan, -np.inf
    out = np.empty(5, np.int32)
    compile_to_call(workload, target=native_target(threads=1))(values, out=out)
    np.testing.assert_array_equal(out, np.argmax(values, 1))


def test_python_and_notation_have_the_same_key() -> None:
    x, k = placeholder("X", (5, 9)), reduce_axis(9, "k")
    python = Workload.of(compute("A", (5,), lambda i: argmax(x[i, k] * 2.0, axis=k)))
    assert python.key == notation("A[i] = argmax(X[i,k] * 2.0, k)", X="f32[5,9]").key
    least = Workload.of(compute("A", (5,), lambda i: argmin(x[i, k] * 2.0, axis=k)))
    assert least.key != python.key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A[i,k] = argmax(X[i,k], k)", "'k' is an index of A"),
        ("A[i] = argmax(X[i,k], k) + i32(k)", "'k' is not an index of A"),
        ("A[i] = argmax(X[i,k], k, first)", "then last if wanted"),
        ("A[i] = X[i,0] + argmax()", "a value and an index name"),
    ],
)
def test_wrong_uses_are_told_with_their_place(text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        notation(text, X="f32[5,9]")


def test_the_axis_is_one_reduce_axis() -> None:
    x, k, j = placeholder("X", (5, 9)), reduce_axis(9, "k"), reduce_axis(5, "j")
    for axis in (1, (j, k), None):
        with pytest.raises(WorkloadError, match="axis=k, one axis"):
            compute("A", (1,), lambda i, axis=axis: argmax(x[j, k], axis=axis))
    huge = reduce_axis((1 << 30) + 1, "k")
    with pytest.raises(WorkloadError, match="at most"):
        compute("A", (1,), lambda i: argmax(x[0, huge % 9], axis=huge))
