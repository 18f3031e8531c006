"""Tensors of bools: spellings, types, the form in which they are scheduled, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.schedules.workloads import notation
from tilewright import schedules
from tilewright.schedules import (
    Workload,
    WorkloadError,
    cast,
    compute,
    const,
    eq,
    placeholder,
    reduce_axis,
    select,
    where,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate

X = placeholder("X", (6, 9))
B = placeholder("B", (9,), "bool")
RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal((6, 9)).astype(np.float32)
FLAGS = RNG.integers(0, 2, 9).astype(np.bool_)


def value_of(array: Any, *inputs: Any) -> Any:
    (found,) = evaluate(Workload.of(array), list(inputs))
    return found


@pytest.mark.parametrize(
    ("build", "meaning"),
    [
        (lambda: X > 0, lambda x, b: x > 0),
        (lambda: (X > 0) & (X < 1) | ~(X > -1), lambda x, b: (x > 0) & (x < 1) | ~(x > -1)),
        (lambda: (X > 0) & B, lambda x, b: (x > 0) & b),
        (lambda: B ^ (X > 0), lambda x, b: b ^ (x > 0)),
        (lambda: ~B | (X > 0), lambda x, b: ~b | (x > 0)),
        (lambda: (X > 0).any(1), lambda x, b: (x > 0).any(1)),
        (lambda: X.all(0), lambda x, b: x.all(0)),
        (lambda: (X > 0).sum(1), lambda x, b: (x > 0).sum(1)),
        (lambda: where(B, X, 0.0), lambda x, b: np.where(b, x, 0)),
        (lambda: X * B, lambda x, b: x * b),
        (lambda: (X > 0) * 1.5, None),
        (lambda: eq(X > 0, B), lambda x, b: (x > 0) == b),
        (lambda: B.astype("f64") + cast(X, "f64"), lambda x, b: b + x.astype(np.float64)),
        (lambda: cast(X, "bool"), lambda x, b: x != 0),
        (lambda: (X > 0).astype("bool"), lambda x, b: x > 0),
    ],
)
def test_arrays_of_bools_are_those_of_numpy(
    build: Callable[[], Any], meaning: Callable[[Any, Any], Any] | None
) -> None:
    if meaning is None:
        with pytest.raises(WorkloadError, match="not a value of i32"):
            build()
        return
    array = build()
    given = {"X": VALUES, "B": FLAGS}
    found = value_of(array, *(given[t.name] for t in Workload.of(array).inputs))
    wanted = meaning(VALUES, FLAGS)
    np.testing.assert_allclose(found, wanted)
    assert (found.dtype == np.bool_) == (wanted.dtype == np.bool_)


def test_all_spellings_of_a_mask_have_one_key() -> None:
    k = reduce_axis(9, "k")
    text = notation("M[i,j] = X[i,j] > 0.0", X="f32[6,9]")
    lambdas = compute("M", (6, 9), lambda i, j: X[i, j] > 0.0)
    chosen = compute(
        "M", (6, 9), lambda i, j: select(X[i, j] > 0.0, const(True, "bool"), const(False, "bool"))
    )
    keys = {text.key, Workload.of(lambdas).key, Workload.of(X > 0.0).key, Workload.of(chosen).key}
    assert keys == {Workload.from_json(text.to_json()).key}
    some = compute("A", (6,), lambda i: schedules.any(X[i, k] > 0.0, axis=k))
    assert Workload.of(some).key == notation("A[i] max= X[i,k] > 0.0", X="f32[6,9]").key
    assert Workload.of(some).key == Workload.of((X > 0.0).any(1)).key
    every = compute("A", (6,), lambda i: schedules.all(X[i, k], axis=k))
    assert Workload.of(every).key == notation("A[i] min= bool(X[i,k])", X="f32[6,9]").key


def test_conditions_and_bools_are_joined_in_lambdas() -> None:
    mask = compute("M", (6, 9), lambda i, j: (X[i, j] > 0) & B[j] ^ (i < 3) | ~B[j])
    rows = np.arange(6)[:, None] < 3
    found = value_of(mask, VALUES, FLAGS)
    np.testing.assert_array_equal(found, ((VALUES > 0) & FLAGS) ^ rows | ~FLAGS)


def test_they_are_scheduled_as_bytes() -> None:
    workload = notation("M[i] = X[i] > t; N += M[i] && B[i-1]", X="f32[9]", t="f32[]", B="bool[9]")
    stored = workload.stored()
    assert {t.dtype for t in stored.tensors.values()} == {DType.F32, DType.U8, DType.I32}
    assert all(t.shape for t in stored.tensors.values())
    assert [t.bytes for t in stored.arguments] == [t.bytes for t in workload.arguments]
    assert stored.stored() is stored
    plain = notation("Y[i] = X[i] + 1.0", X="f32[9]")
    assert plain.stored() is plain.normalised()


def test_other_bytes_are_true() -> None:
    workload = notation("N[i] = !B[i]; C[i] = B[i]", B="bool[4]")
    flags = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    negated, copied = evaluate(workload, [flags])
    assert negated.tolist() == [True, False, False, False]
    assert copied.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_a_doubtful_condition_is_a_doubtful_bool() -> None:
    """Where a sum may round to either side of the limit, both bools are right, and both counts."""
    text = "S[i] += X[i,j]; Z[i] = bool(S[i]); B[i] = S[i] > 0.0; N[i] = i32(B[i]) * 3"
    workload = notation(text, X="f32[2,3]")
    data = np.array([[1, 2, 3], [3e7, 1.3, -3e7]], np.float32)
    (_, zeros), (_, counts) = evaluate_with_bound(workload, [data])
    assert np.floor(zeros).tolist() == [0, 1]
    assert np.floor(counts).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Y[i] = exp(B[i])", "exp of i32: cast"),
        ("Y[i] = where(X[i], 1.0, 2.0)", "needs a condition, such as i >= j, or a bool"),
        ("Y[i] = B[i] & X[i]", "only integers have it"),
        ("Y[i] = !X[i]", "needs a condition"),
    ],
)
def test_mistakes_are_explained(text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        notation(text, X="f32[9]", B="bool[9]")


def test_a_condition_is_needed_in_python_too() -> None:
    with pytest.raises(WorkloadError, match="or a bool, got a value of type f32"):
        compute("Y", (6,), lambda i: select(X[i, 0], 1.0, 2.0))
    with pytest.raises(WorkloadError, match="bools, such as x > 0"):
        where(X, 1.0, X)


def test_a_conjunction_of_many_disjunctions_does_not_repeat_what_it_chooses() -> None:
    """Written as choices between choices, n disjunctions have 2**n paths."""
    mask: Any = X > -9.0
    expected = VALUES > -9.0
    for n in range(20):
        mask &= (n / 10 > X) | (n / 20 < X)
        expected &= (n / 10 > VALUES) | (n / 20 < VALUES)
    np.testing.assert_array_equal(
        value_of(where(mask, X, 0), VALUES), np.where(expected, VALUES, 0)
    )
    text = " && ".join(f"(X[i] < {n / 10} || X[i] > {n / 20})" for n in range(12))
    workload = notation(f"Y[i] = where(1 <= i && ({text}), X[i-1], -1)", X="f32[9]")
    (found,) = evaluate(workload, [VALUES[0]])
    holds = np.all([(VALUES[0] < n / 10) | (VALUES[0] > n / 20) for n in range(12)], axis=0)
    expected = np.where(holds[1:], VALUES[0, :-1], -1)
    np.testing.assert_array_equal(found, [-1, *expected])


@pytest.mark.parametrize("joins", ["and", "or"])
@pytest.mark.parametrize("place", [0, 7, 15])
def test_tests_of_indices_may_stand_anywhere_in_a_chain(joins: str, place: int) -> None:
    """Values after the test of an index are joined with each other before they are joined with
    it."""

    def chosen(i: Any, _: Any = 0) -> Any:
        parts = []
        for n in range(16):
            low, high = X[i, 0] > n / 10, X[i, 1] < n / 20
            parts.append(low | high if joins == "and" else low & high)
        parts.insert(place, i < 3)
        found = parts[0]
        for part in parts[1:]:
            found = found & part if joins == "and" else found | part
        return select(found, X[i, 0], -1.0)

    pairs = [(n / 10 < VALUES[:, 0], n / 20 > VALUES[:, 1]) for n in range(16)]
    first = np.arange(len(VALUES)) < 3
    if joins == "and":
        holds = first & np.all([a | b for a, b in pairs], axis=0)
    else:
        holds = first | np.any([a & b for a, b in pairs], axis=0)
    found = value_of(compute("Y", (len(VALUES),), chosen), VALUES)
    np.testing.assert_array_equal(found, np.where(holds, VALUES[:, 0], -1))
