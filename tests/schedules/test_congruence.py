"""Equations solved for a variable, against trying every value."""

from __future__ import annotations

from itertools import product
from math import gcd

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedules.affine_cases import Tree, bounds, build, points, trees, value
from tilewright.schedules.algebra.affine import Affine, Interval, affine, modulo, var
from tilewright.schedules.algebra.comparisons import Eq0, Ge0, holds
from tilewright.schedules.algebra.congruence import collected, congruence_of, solved

X, Y, R = var("x"), var("y"), var("r")


@settings(max_examples=400)
@given(trees(), bounds())
def test_collecting_keeps_the_value(tree: Tree, ranges: dict[str, Interval]) -> None:
    index = collected(build(tree))
    for env in points(ranges):
        assert index.evaluate(env) == value(tree, env)


@given(trees())
def test_collecting_twice_changes_nothing_more(tree: Tree) -> None:
    once = collected(build(tree))
    assert collected(once) == once


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 2, 7])
@pytest.mark.parametrize("step", [-2, -1, 1, 2])
def test_what_a_remainder_was_taken_from_divides_plainly(n: int, offset: int, step: int) -> None:
    whole = X * step + offset
    assert collected((whole - modulo(whole, n)) // n) == whole // n
    assert collected((modulo(whole, n) - whole) // n) == -(whole // n)
    assert collected((whole - modulo(whole, n)) % n) == affine(0)
    assert collected(whole - modulo(whole, n) + Y * n) == (whole // n + Y) * n


def test_a_sum_that_nothing_was_taken_from_stays() -> None:
    for index in (X % 2, X * 2 + X % 2, X // 3 - X % 3, X * 2 - X % 2 + Y):
        assert collected(index) == index


equations = st.tuples(
    st.integers(-5, 5), st.integers(-5, 5), st.integers(-9, 9), st.sampled_from([0, 2, 3, 4, 6, 7])
)


@settings(max_examples=600)
@given(equations, st.integers(1, 9), st.integers(1, 7))
def test_a_solution_is_the_only_one_there_is(
    equation: tuple[int, int, int, int], x_extent: int, r_extent: int
) -> None:
    a, c, offset, n = equation
    total = X * a + R * c + offset
    congruence = congruence_of(Eq0(modulo(total, n) if n else total))
    ranges = {"x": Interval(0, x_extent - 1), "r": Interval(0, r_extent - 1)}
    found = None if congruence is None else solved(congruence, "r", ranges)
    if congruence is None or "r" not in congruence.index.vars():
        return
    if found is None:  # there may be more than one
        modulus = congruence.modulus
        assert gcd(congruence.index.coefficient("r"), modulus) > 1 or r_extent > modulus
        return
    index, needed = found
    assert "r" not in index.vars()
    for x in range(x_extent):
        values = [total.evaluate({"x": x, "r": r}) for r in range(r_extent)]
        wanted = [r for r, v in enumerate(values) if (v % n if n else v) == 0]
        env = {"x": x}
        given_ = [index.evaluate(env)] if all(holds(cond, env) for cond in needed) else []
        assert given_ == wanted


@pytest.mark.parametrize("rest", [0, 1, 2])
def test_a_remainder_may_be_any_number(rest: int) -> None:
    found = congruence_of(Eq0((X + R) % 3 - rest))
    assert found is not None
    for x, r in product(range(7), range(3)):
        equal = (x + r) % 3 == rest
        assert (found.index.evaluate({"x": x, "r": r}) % found.modulus == 0) == equal


def test_other_conditions_are_no_equations() -> None:
    nothing = Affine((), 0)
    for cond in (
        Ge0(X - R), Eq0(nothing), Eq0((X + R) % 3 - 3), Eq0((X + R) % 3 * 2 - 1),
        Eq0((X // 2 + R) % 3), Eq0((X + R) % 3 - Y),
    ):  # fmt: skip
        assert congruence_of(cond) is None


def test_an_equation_of_a_quotient_is_solved_for_another_variable() -> None:
    ranges = {"x": Interval(0, 11), "r": Interval(0, 5)}
    found = congruence_of(Eq0(X // 2 - R))
    assert found is not None
    assert solved(found, "r", ranges) == (X // 2, ())
    assert solved(found, "x", ranges) is None


def test_a_variable_that_is_also_divided_is_not_solved_for() -> None:
    found = congruence_of(Eq0(R // 2 + R - X))
    assert found is not None
    assert solved(found, "r", {"x": Interval(0, 11), "r": Interval(0, 5)}) is None
