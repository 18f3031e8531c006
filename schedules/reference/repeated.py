"""Subexpressions that occur several times in an expression, so that each is evaluated once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from ..algebra.scalar import (
    Binary,
    Cast,
    Compare,
    Components,
    Load,
    Scalar,
    Select,
    Unary,
    children,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """An expression, compared by identity: to compare two large ones takes long."""

    root: Scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.root is other.root

    def __hash__(self) -> int:
        return id(self.root)


@dataclass(frozen=True, slots=True)
class Repetitions:
    """The subexpressions of an expression that occur several times."""

    expression: Expression
    """The expression, whose nodes live as long as this object, so that their ids are theirs."""
    numbers: Mapping[int, int]
    """The number of each node that occurs several times, by the id of the node. Equal nodes have
    the same number."""
    uses: Mapping[int, int]
    """How often the node with a number is an operand, if each operation is evaluated once."""
    distinct: tuple[Scalar, ...]
    """One of each set of equal nodes, operands first. A read is a node without operands."""


@lru_cache(maxsize=64)
def repetitions(expression: Expression) -> Repetitions:
    """Return the subexpressions of `expression` that occur several times.

    Nodes are numbered bottom up by their operation and the numbers of their operands, so that no
    subexpression is compared as a whole.
    """
    numbers: dict[int, int] = {}
    known: dict[Hashable, int] = {}
    uses: dict[int, int] = {}
    distinct: list[Scalar] = []

    def number(node: Scalar) -> int:
        found = numbers.get(id(node))
        if found is None:
            below = () if isinstance(node, Load) else tuple(map(number, children(node)))
            key = (type(node), _operation(node), below)
            found = known.setdefault(key, len(known))
            if found not in uses:
                uses[found] = 0
                distinct.append(node)
                for operand in below:
                    uses[operand] += 1
            numbers[id(node)] = found
        return found

    number(expression.root)
    several = {found: count for found, count in uses.items() if count > 1}
    repeated = {key: found for key, found in numbers.items() if found in several}
    return Repetitions(expression, repeated, several, tuple(distinct))


def _operation(node: Scalar) -> Hashable:
    """Return what distinguishes `node` from nodes of its type with the same operands."""
    match node:
        case Unary() | Binary() | Compare():
            return node.op
        case Cast():
            return node.dtype
        case Select() | Components():
            return None
        case _:
            return node


class Once(Generic[T]):
    """Evaluates each subexpression of an expression once. A result is kept until its last use."""

    def __init__(self, expression: Expression) -> None:
        self._repeated = repetitions(expression)
        self._left = dict(self._repeated.uses)
        self._results: dict[int, T] = {}

    def result(self, node: Scalar, evaluate: Callable[[Scalar], T]) -> T:
        """Return `evaluate(node)`, or the result for an equal node if it is known."""
        number = self._repeated.numbers.get(id(node))
        if number is None:
            return evaluate(node)
        found = self._results.pop(number, None)
        if found is None:
            found = evaluate(node)
        self._left[number] -= 1
        if self._left[number] > 0:
            self._results[number] = found
        return found
