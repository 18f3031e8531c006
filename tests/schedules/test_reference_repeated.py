"""Subexpressions that occur several times are evaluated once, with the same bits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.schedules import Workload, exp, log1p, placeholder, tanh, where
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Const,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    children,
    walk,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference import error_nodes
from tilewright.schedules.reference import evaluate as reference
from tilewright.schedules.reference.cost import predicted_secs
from tilewright.schedules.reference.error_bound import bounded_outputs
from tilewright.schedules.reference.math import unary
from tilewright.schedules.reference.repeated import Expression, Once, repetitions

X = Load("x", (), DType.F32)


def trees() -> st.SearchStrategy[Scalar]:
    """Expressions of few different nodes, so that many subexpressions are equal."""
    leaves: st.SearchStrategy[Scalar] = st.sampled_from(
        [X, Const(1.0, DType.F32), Const(-0.0, DType.F32)]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Unary, st.sampled_from([UnaryOp.EXP, UnaryOp.NEG]), inner),
            st.builds(Binary, st.sampled_from([BinaryOp.ADD, BinaryOp.MUL]), inner, inner),
            st.builds(Select, inner, inner, inner),
        ),
        max_leaves=24,
    )


@given(trees())
def test_equal_nodes_have_one_number(root: Scalar) -> None:
    found = repetitions(Expression(root))
    assert Counter(found.distinct) == Counter(set(walk(root)))
    numbers: dict[Scalar, int] = {}
    for node in walk(root):
        number = found.numbers.get(id(node))
        assert numbers.setdefault(node, -1 if number is None else number) == (
            -1 if number is None else number
        )


@given(trees())
def test_each_node_is_evaluated_once_and_forgotten_after_its_last_use(root: Scalar) -> None:
    once, seen = Once[Scalar](Expression(root)), Counter[Scalar]()

    def of(node: Scalar) -> Scalar:
        return once.result(node, evaluated)

    def evaluated(node: Scalar) -> Scalar:
        seen[node] += 1
        for child in children(node):
            assert of(child) == child
        return node

    assert of(root) == root
    assert set(seen.values()) == {1}
    assert not once._results


def mish(x: Any) -> Any:
    return x * tanh(where(x > 20.0, x, log1p(exp(x))))


def test_values_and_bounds_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = placeholder("x", (40, 30))
    workload = Workload.of(mish(mish(x / 3.0) + 1.0), inputs=[x]).normalised()
    values = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32) * 20
    values[0, :3] = np.nan, np.inf, -np.inf
    calls = Counter[UnaryOp]()

    def counted(op: UnaryOp, values: Any) -> Any:
        calls[op] += 1
        return unary(op, values)

    monkeypatch.setattr(reference, "unary", counted)
    once = reference.evaluate(workload, [values]), bounded_outputs(workload, [values])
    evaluations = calls[UnaryOp.EXP]
    for module in (reference, error_nodes):
        monkeypatch.setattr(module, "Once", _Never)
    calls.clear()
    every = reference.evaluate(workload, [values]), bounded_outputs(workload, [values])
    assert evaluations < calls[UnaryOp.EXP]
    np.testing.assert_array_equal(once[0], every[0])
    for (a, a_errors), (b, b_errors) in zip(once[1], every[1], strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a_errors, b_errors)


class _Never(Once[Any]):
    """Evaluates every node again."""

    def result(self, node: Scalar, evaluate: Any) -> Any:
        return evaluate(node)


def test_predicted_times_count_repeated_subexpressions_once() -> None:
    x = placeholder("x", (4, 4))
    y = exp(x)
    once, twice, other = (
        predicted_secs(Workload.of(z, inputs=[x]).normalised(), bounded=True)
        for z in (y * 2.0, y * y, y * tanh(x))
    )
    assert twice <= once < other
