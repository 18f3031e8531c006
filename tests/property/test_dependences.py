"""Loops around recurrences: what the dependence test allows changes no result, in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from tests.support.interpreter.interpret import interpret
from tests.support.schedules.hand_nests import load, plus, store, tensor, times, update
from tilewright.schedules.algebra.affine import Affine, Index, Interval, affine, var
from tilewright.schedules.algebra.comparisons import Cond, less
from tilewright.schedules.algebra.independence import ElementAccess, meet_only_within
from tilewright.schedules.algebra.scalar import Reducer, Scalar
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.nest.editing import substitute_body
from tilewright.schedules.nest.finding import perfect_chain
from tilewright.schedules.nest.loop_ir import For, Nest, Stmt, StoreElement, Update, loops
from tilewright.schedules.nest.verify_nest import verify
from tilewright.schedules.primitives import Parallel, Primitive, Reorder, Vectorize

LENGTH = 240
"""Elements of the buffer of a recurrence: more than any index of `random_nest` reaches."""

I32 = DType.I32


def recurrence(*body: Stmt) -> Nest:
    """X starts as A, then `body` changes it."""
    fill = For("x", LENGTH, (store("X", (var("x"),), load("A", var("x"), dtype=I32)),))
    return Nest((tensor("A", LENGTH, dtype=I32),), (tensor("X", LENGTH, dtype=I32),), (fill, *body))


def random_nest(rng: random.Random) -> Nest:
    """Two or three loops around one or two statements that read and write X at various distances;
    each writes an element once at most, or combines into it."""
    names = ["i", "j", "k"][: rng.choice((2, 2, 3))]
    extents = {name: rng.choice((1, 2, 3, 4)) for name in names}
    reduced = rng.choice(names) if rng.random() < 0.3 else ""
    own = [name for name in names if name != reduced]
    body: tuple[Stmt, ...] = tuple(
        _statement(rng, own, extents, reduced) for _ in range(rng.choice((1, 1, 2)))
    )
    for name in reversed(names):
        body = (For(name, extents[name], body, reduce=name == reduced),)
    return recurrence(*body)


def _statement(
    rng: random.Random, own: list[str], extents: dict[str, int], reduced: str
) -> StoreElement | Update:
    steps = _steps(rng, own, extents)
    place = _place(rng, own, steps, extents)
    read = _read(rng, place, own, steps, reduced)
    other = load("A", place, dtype=I32)
    value: Scalar = plus(times(load("X", read, dtype=I32), _three()), other)
    guards: tuple[Cond, ...] = ()
    if rng.random() < 0.2:
        name = rng.choice(own)
        guards = (less(var(name), max(extents[name] - 1, 1)),)
    if reduced:
        reducer = rng.choice((Reducer.SUM, Reducer.MAX))
        moved = load("A", place + var(reduced), dtype=I32)
        value = plus(value, moved) if rng.random() < 0.5 else moved
        return update("X", (place,), value, reducer=reducer, guards=guards)
    return store("X", (place,), value, *guards)


def _three() -> Scalar:
    return load("A", 3, dtype=I32)


def _steps(rng: random.Random, own: list[str], extents: dict[str, int]) -> dict[str, int]:
    """Distances between neighbours of each loop, so that all iterations have elements of their
    own: rows of rows in some order, with room between them."""
    step, found = rng.choice((1, 1, 2)), {}
    for name in rng.sample(own, len(own)):
        found[name] = step
        step *= extents[name] + rng.choice((0, 0, 1))
    return found


def _place(
    rng: random.Random, own: list[str], steps: dict[str, int], extents: dict[str, int]
) -> Affine:
    """An index with these steps; one loop may be written as its quotient and remainder."""
    index = affine(rng.choice((0, 8, 40)))
    for name in own:
        if rng.random() < 0.2:
            index = index + (var(name) // 2) * (2 * steps[name]) + (var(name) % 2) * steps[name]
        else:
            index = index + var(name) * steps[name]
    return index


def _read(
    rng: random.Random, place: Affine, own: list[str], steps: dict[str, int], reduced: str
) -> Affine:
    """The element that is read: at some distance from `place`, or on a way of its own."""
    chosen = rng.random()
    if chosen < 0.15:
        return place
    if chosen < 0.3:
        return sum((var(name) * rng.choice((1, 2)) for name in own), affine(rng.choice((0, 9))))
    if chosen < 0.4 and reduced:
        return place + var(reduced)
    distance = sum(rng.choice((-1, 0, 0, 1)) * steps[name] for name in own)
    return place + distance if distance >= -place.const else place - distance


def result(nest: Nest) -> list[int]:
    rng = np.random.default_rng(7)
    (found,) = interpret(nest, [rng.integers(-9, 9, LENGTH, dtype=np.int32)])
    return [int(x) for x in found]


def in_other_orders(nest: Nest, name: str, rng: random.Random) -> Iterator[Nest]:
    """`nest` with the iterations of a loop written out backwards, and in a random order."""
    loop = next(one for one in loops(nest.body) if one.var == name)
    backwards = list(reversed(range(loop.extent)))
    for order in (backwards, rng.sample(backwards, len(backwards))):
        yield replace(nest, body=_replaced(nest.body, loop, order))


def _replaced(stmts: tuple[Stmt, ...], loop: For, order: Sequence[int]) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    for stmt in stmts:
        if stmt is loop:
            for value in order:
                found += substitute_body(loop.body, {loop.var: affine(value)})
        elif isinstance(stmt, For):
            found.append(replace(stmt, body=_replaced(stmt.body, loop, order)))
        else:
            found.append(stmt)
    return tuple(found)


def attempted(nest: Nest, step: Primitive) -> Nest | None:
    try:
        return step.apply(nest)
    except ScheduleError:
        return None


@pytest.mark.parametrize("seed", range(6))
def test_what_is_allowed_around_a_recurrence_changes_no_result(seed: int) -> None:
    rng = random.Random(seed)
    allowed: Counter[tuple[str, bool]] = Counter()
    for _ in range(60):
        nest = random_nest(rng)
        verify(nest)
        expected = result(nest)
        root = nest.body[1]
        assert isinstance(root, For)
        chain = [loop.var for loop in perfect_chain(root)]
        for name in chain:
            parallel = attempted(nest, Parallel(name))
            allowed["Parallel", parallel is not None] += 1
            if parallel is not None:
                assert result(parallel) == expected  # which fails where iterations meet, besides
                assert all(result(n) == expected for n in in_other_orders(nest, name, rng))
        lanes = attempted(nest, Vectorize(chain[-1]))
        allowed["Vectorize", lanes is not None] += 1
        if lanes is not None:
            assert result(lanes) == expected
        for order in permutations(chain):
            reordered = attempted(nest, Reorder(order))
            if order != tuple(chain):
                allowed["Reorder", reordered is not None] += 1
            if reordered is not None:
                assert result(reordered) == expected
    assert len(allowed) == 6, "each step is allowed here and refused there"
    assert min(allowed.values()) >= 5, allowed


ROWS = {"i": Interval(0, 4), "k": Interval(0, 6), "f": Interval(0, 11)}


def _meetings(one: Index, other: Index, name: str) -> bool:
    """Whether the two meet with different values of `name`, by looking at all pairs."""
    names = sorted(ROWS)
    every = [
        dict(zip(names, at, strict=True))
        for at in product(*(range(ROWS[n].lo, ROWS[n].hi + 1) for n in names))
    ]
    met: dict[tuple[int, ...], set[int]] = {}
    for env in every:
        met.setdefault(tuple(i.evaluate(env) for i in one), set()).add(env[name])
    return any(met.get(tuple(i.evaluate(env) for i in other), set()) - {env[name]} for env in every)


@pytest.mark.parametrize("seed", range(3))
def test_iterations_that_are_claimed_not_to_meet_do_not(seed: int) -> None:
    rng = random.Random(seed)
    claimed = met = 0
    for _ in range(150):
        one = tuple(_random_sum(rng) for _ in range(rng.choice((1, 2))))
        other = tuple(i + rng.choice((-1, 0, 0, 1, 5)) for i in one)
        if rng.random() < 0.3:
            other = tuple(_random_sum(rng) for _ in one)
        for name in ROWS:
            claim = meet_only_within(ElementAccess(one), ElementAccess(other), name, ROWS)
            truth = not _meetings(one, other, name)
            assert truth or not claim, (one, other, name)
            claimed, met = claimed + claim, met + truth
    assert claimed >= met * 0.5, "a proof is found for most of those that are true"


def _random_sum(rng: random.Random) -> Affine:
    terms = [
        var("i"), var("k"), var("f"), var("f") // 3, var("f") % 3, var("f") // 4, affine(2),
    ]  # fmt: skip
    chosen = rng.sample(terms, rng.choice((1, 2, 3)))
    return sum((term * rng.choice((1, 1, 2, 5, 7, 35)) for term in chosen), affine(0))
