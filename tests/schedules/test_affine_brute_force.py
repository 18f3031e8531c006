"""The affine core against Python's integers, on every point of small ranges."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.schedules.affine_cases import (
    Tree,
    both,
    bounds,
    build,
    by,
    const,
    named,
    points,
    trees,
    value,
)
from tilewright.schedules.algebra.affine import (
    Affine,
    FloorDiv,
    Interval,
    Mod,
    Var,
    floor_div,
    interval,
    modulo,
    recombine,
    simplify,
    split_by_step,
)
from tilewright.schedules.algebra.comparisons import (
    Cond,
    Eq0,
    Ge0,
    holds,
    prove,
    substitute_cond,
    tighten,
)

Ranges = dict[str, Interval]
relations: st.SearchStrategy[type[Ge0] | type[Eq0]] = st.sampled_from([Ge0, Eq0])


def is_normal(index: Affine) -> bool:
    """The promises of the normal form: sorted, no zero coefficient, no empty division."""
    keys = [(not isinstance(a, Var), str(a)) for a, _ in index.terms]
    return (
        keys == sorted(set(keys))
        and all(c != 0 for _, c in index.terms)
        and all(
            a.divisor > 1 and bool(a.numerator.terms) and is_normal(a.numerator)
            for a, _ in index.terms
            if isinstance(a, FloorDiv | Mod)
        )
    )


@settings(max_examples=400)
@given(trees(), bounds())
def test_an_index_means_what_was_written(tree: Tree, ranges: Ranges) -> None:
    index = build(tree)
    assert is_normal(index)
    for env in points(ranges):
        assert index.evaluate(env) == value(tree, env)


@settings(max_examples=300)
@given(trees())
def test_text_is_python_for_the_same_index(tree: Tree) -> None:
    index = build(tree)
    code = compile(str(index), "index", "eval")
    for env in ({"a": 0, "b": 0, "c": 0}, {"a": 5, "b": -7, "c": 11}, {"a": -4, "b": 9, "c": -1}):
        assert eval(code, {}, env) == value(tree, env)


@settings(max_examples=300)
@given(trees(), bounds())
def test_interval_covers_every_value(tree: Tree, ranges: Ranges) -> None:
    found = interval(build(tree), ranges)
    values = [value(tree, env) for env in points(ranges)]
    assert found.lo <= min(values) <= max(values) <= found.hi


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(-9, 9), min_size=1),
    st.integers(-9, 9),
    bounds(),
)
def test_interval_of_a_plain_sum_is_tight(
    coefficients: dict[str, int], offset: int, ranges: Ranges
) -> None:
    index = build(const(offset))
    for name, c in coefficients.items():
        index = index + build(by("*", named(name), c))
    values = [index.evaluate(env) for env in points(ranges)]
    assert interval(index, ranges) == Interval(min(values), max(values))


@settings(max_examples=400)
@given(trees(), bounds())
def test_simplify_keeps_the_value_within_the_ranges(tree: Tree, ranges: Ranges) -> None:
    index = build(tree)
    simple = simplify(index, ranges)
    assert is_normal(simple)
    for env in points(ranges):
        assert simple.evaluate(env) == value(tree, env)


@settings(max_examples=300)
@given(trees(), bounds())
def test_simplify_leaves_variables_without_a_range_alone(tree: Tree, ranges: Ranges) -> None:
    known = {"a": ranges["a"]}
    index = build(tree)
    if index.vars() <= known.keys():
        simple = simplify(index, known)
        assert all(simple.evaluate(env) == value(tree, env) for env in points(ranges))


@settings(max_examples=400)
@given(trees(), relations, bounds())
def test_tighten_keeps_the_truth_within_the_ranges(
    tree: Tree, relation: type[Ge0] | type[Eq0], ranges: Ranges
) -> None:
    cond: Cond = relation(build(tree))
    tight = tighten(cond, ranges)
    for env in points(ranges):
        assert holds(tight, env) == holds(cond, env)


@settings(max_examples=500)
@given(trees(), relations, bounds())
def test_proofs_are_right(tree: Tree, relation: type[Ge0] | type[Eq0], ranges: Ranges) -> None:
    cond: Cond = relation(build(tree))
    proved = prove(cond, ranges)
    truths = {holds(cond, env) for env in points(ranges)}
    if proved is not None:
        assert truths == {proved}


@settings(max_examples=300)
@given(trees(), st.dictionaries(st.sampled_from("abc"), trees()), bounds())
def test_substitution_is_composition(
    tree: Tree, replacements: dict[str, Tree], ranges: Ranges
) -> None:
    index = build(tree).substitute({name: build(t) for name, t in replacements.items()})
    assert is_normal(index)
    for env in points(ranges):
        inner = {**env, **{name: value(t, env) for name, t in replacements.items()}}
        assert index.evaluate(env) == value(tree, inner)


@settings(max_examples=200)
@given(trees(), relations, st.sampled_from([Interval(0, 0), Interval(-3, 5)]))
def test_conditions_are_substituted_like_their_index(
    tree: Tree, relation: type[Ge0] | type[Eq0], b_range: Interval
) -> None:
    cond: Cond = relation(build(tree))
    moved = substitute_cond(cond, {"a": build(both("+", named("b"), const(2)))})
    for b in range(b_range.lo, b_range.hi + 1):
        assert holds(moved, {"b": b, "c": 3}) == holds(cond, {"a": b + 2, "b": b, "c": 3})


@settings(max_examples=200)
@given(trees(), bounds())
def test_substituting_nothing_keeps_identity(tree: Tree, ranges: Ranges) -> None:
    index = build(tree)
    assert index.substitute({"z": build(const(1))}) is index


@settings(max_examples=300)
@given(trees(), st.integers(1, 12))
def test_division_and_remainder_fit_together(tree: Tree, divisor: int) -> None:
    index = build(tree)
    quotient, remainder = floor_div(index, divisor), modulo(index, divisor)
    for env in ({"a": 0, "b": 0, "c": 0}, {"a": 5, "b": -7, "c": 11}, {"a": -4, "b": 9, "c": -1}):
        rest = remainder.evaluate(env)
        assert 0 <= rest < divisor
        assert quotient.evaluate(env) * divisor + rest == value(tree, env)


@settings(max_examples=200)
@given(trees(), st.integers(1, 12))
def test_splitting_by_a_step_loses_nothing(tree: Tree, step: int) -> None:
    index = build(tree)
    coarse, fine = split_by_step(index, step)
    assert coarse * step + fine == index
    assert 0 <= fine.const < step
    assert all(c % step for _, c in fine.terms)


@settings(max_examples=300)
@given(trees(), trees())
def test_equal_normal_forms_have_equal_hashes_and_text(left: Tree, right: Tree) -> None:
    x, y = build(both("+", left, right)), build(both("+", right, left))
    assert x == y
    assert hash(x) == hash(y)
    assert str(x) == str(y)


@settings(max_examples=200)
@given(trees(), relations, bounds())
def test_condition_text_is_python_for_the_same_condition(
    tree: Tree, relation: type[Ge0] | type[Eq0], ranges: Ranges
) -> None:
    cond: Cond = relation(build(tree))
    code = compile(str(cond), "cond", "eval")
    for env in points(ranges):
        assert eval(code, {}, dict(env)) == holds(cond, env)


@settings(max_examples=300)
@given(trees())
@example(by("//", both("-", const(0), named("a")), 2))
def test_vars_are_those_the_value_may_depend_on(tree: Tree) -> None:
    index = build(tree)
    base = {"a": 1, "b": 2, "c": 3}
    for name in "abc":
        moved = {index.evaluate({**base, name: v}) for v in range(-13, 14)}
        assert len(moved) == 1 or name in index.vars()
        assert (f"{name}" in re.findall(r"[abc]", str(index))) == (name in index.vars())


@settings(max_examples=200)
@given(trees())
def test_linear_means_a_constant_step(tree: Tree) -> None:
    index = build(tree)
    base = {"a": 1, "b": -2, "c": 3}
    for name in "abc":
        if index.is_linear_in(name):
            steps = {
                index.evaluate({**base, name: v + 1}) - index.evaluate({**base, name: v})
                for v in range(-9, 9)
            }
            assert steps == {index.coefficient(name)}


@given(trees())
def test_atoms_are_never_divisions_of_constants(tree: Tree) -> None:
    for atom, _ in build(tree).terms:
        if isinstance(atom, FloorDiv | Mod):
            assert atom.numerator.vars()


@settings(max_examples=300)
@given(trees(), bounds(), st.sampled_from([2, 3, 4, 6]), st.sampled_from([2, 3, 5, 8]))
def test_recombining_keeps_the_value(tree: Tree, ranges: Ranges, n: int, m: int) -> None:
    whole = build(tree)
    for index in (
        whole,
        floor_div(whole, n) * n + modulo(whole, n),
        modulo(floor_div(whole, n), m) * n + modulo(whole, n),
        floor_div(whole, n * m) * n * m + modulo(floor_div(whole, n), m) * n + modulo(whole, n),
    ):
        found = recombine(index)
        assert all(found.evaluate(env) == index.evaluate(env) for env in points(ranges))
