"""Random index expressions over small ranges, and their meaning by brute force."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from hypothesis import strategies as st

from tilewright.schedules.algebra.affine import Affine, Interval, affine, floor_div, modulo, var

Env: TypeAlias = Mapping[str, int]

NAMES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Tree:
    """An index as it was written: const, var, +, -, * by a number, // or % by a number."""

    op: str
    parts: tuple[Tree, ...] = ()
    number: int = 0
    name: str = ""

    def __repr__(self) -> str:
        if not self.parts:
            return self.name or str(self.number)
        right = repr(self.parts[1]) if len(self.parts) > 1 else str(self.number)
        return f"({self.parts[0]!r} {self.op} {right})"


def const(number: int) -> Tree:
    return Tree("const", number=number)


def named(name: str) -> Tree:
    return Tree("var", name=name)


def both(op: str, left: Tree, right: Tree) -> Tree:
    return Tree(op, (left, right))


def by(op: str, left: Tree, number: int) -> Tree:
    return Tree(op, (left,), number)


def leaf_trees() -> st.SearchStrategy[Tree]:
    return st.one_of(st.sampled_from(NAMES).map(named), st.integers(-9, 9).map(const))


def wider(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    divisors = st.sampled_from([1, 2, 3, 4, 6, 8, 12])
    return st.one_of(
        st.builds(both, st.sampled_from(["+", "-"]), inner, inner),
        st.builds(by, st.just("*"), inner, st.integers(-8, 8)),
        st.builds(by, st.sampled_from(["//", "%"]), inner, divisors),
    )


def trees() -> st.SearchStrategy[Tree]:
    """Indices of up to about a dozen operations, with nested divisions and remainders."""
    return st.recursive(leaf_trees(), wider, max_leaves=8)


def bounds() -> st.SearchStrategy[dict[str, Interval]]:
    """A small range for every variable, also below zero and of one value."""
    interval = st.tuples(st.integers(-6, 6), st.integers(0, 6)).map(
        lambda pair: Interval(pair[0], pair[0] + pair[1])
    )
    return st.fixed_dictionaries(dict.fromkeys(NAMES, interval))


def value(tree: Tree, env: Env) -> int:
    """What the index means, by Python's own integers."""
    if tree.op == "var":
        return env[tree.name]
    if tree.op == "const":
        return tree.number
    left, *others = (value(part, env) for part in tree.parts)
    return _PYTHON[tree.op](left, others[0] if others else tree.number)


def build(tree: Tree) -> Affine:
    """The same index in the normal form."""
    if tree.op == "var":
        return var(tree.name)
    if tree.op == "const":
        return affine(tree.number)
    left, *others = map(build, tree.parts)
    match tree.op:
        case "+":
            return left + others[0]
        case "-":
            return left - others[0]
        case "*":
            return left * tree.number
        case "//":
            return floor_div(left, tree.number)
        case _:
            return modulo(left, tree.number)


_PYTHON: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def points(ranges: Mapping[str, Interval]) -> Iterator[dict[str, int]]:
    """Every assignment within `ranges`."""
    axes = [range(r.lo, r.hi + 1) for r in ranges.values()]
    for values in product(*axes):
        yield dict(zip(ranges, values, strict=True))
