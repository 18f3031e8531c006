"""Combinations of tuples: scalar expressions over the components of a left and of a right tuple.

Component n of the left tuple is the read `left<n>`, of the right one `right<n>`, both without an
index. The names are meaningful in combinations only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dtypes import DType
from .operations import COMMUTATIVE, Reducer
from .scalar import (
    Binary,
    Cast,
    Components,
    Load,
    Scalar,
    Unary,
    UnaryOp,
    children,
    loads,
    rewrite,
    walk,
)

LEFT, RIGHT = "left", "right"

_REDUCER_OF = {reducer.op: reducer for reducer in Reducer}


def component(side: str, number: int, dtype: DType) -> Load:
    """Return component `number` of the tuple `side`, LEFT or RIGHT."""
    return Load(f"{side}{number}", (), dtype)


def components_read(node: Scalar, side: str, count: int) -> frozenset[int]:
    """Return the components of the tuple `side` that `node` reads, of tuples of `count`."""
    read = {load.tensor for load in loads(node)}
    return frozenset(n for n in range(count) if f"{side}{n}" in read)


def combined(
    combine: Sequence[Scalar], left: Sequence[Scalar], right: Sequence[Scalar]
) -> tuple[Scalar, ...]:
    """Return the components of the combination of the tuples `left` and `right`."""
    given = {f"{LEFT}{n}": value for n, value in enumerate(left)}
    given |= {f"{RIGHT}{n}": value for n, value in enumerate(right)}
    return tuple(_with_reads(node, given) for node in combine)


def _with_reads(node: Scalar, given: Mapping[str, Scalar]) -> Scalar:
    def leaf(n: Scalar) -> Scalar | None:
        return given[n.tensor] if isinstance(n, Load) else None

    return rewrite(node, leaf)


def components_needed(combine: Sequence[Scalar], position: int) -> tuple[int, ...]:
    """Return the components on which component `position` of a reduction depends, in order."""
    needed, pending = {position}, [position]
    while pending:
        node = combine[pending.pop()]
        for side in (LEFT, RIGHT):
            found = components_read(node, side, len(combine)) - needed
            needed |= found
            pending += sorted(found)
    return tuple(sorted(needed))


def restricted(combine: Sequence[Scalar], kept: Sequence[int]) -> tuple[Scalar, ...]:
    """Return the combination of the components `kept` only, numbered in this order. They must not
    depend on other components."""
    new = {old: n for n, old in enumerate(kept)}

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Load):
            return None
        side = LEFT if _is_left(node) else RIGHT
        return component(side, new[int(node.tensor.removeprefix(side))], node.dtype)

    return tuple(rewrite(combine[n], leaf) for n in kept)


def chain_length(node: Scalar) -> int:
    """Return the number of dependent operations between the components of the left tuple and the
    value of `node`."""
    if isinstance(node, Load):
        return 0
    below = (child for child in children(node) if any(_is_left(load) for load in loads(child)))
    lengths = [chain_length(child) for child in below]
    return 1 + max(lengths) if lengths else 0


def _is_left(load: Load) -> bool:
    return load.tensor.startswith(LEFT)


def reducer_of(node: Scalar, number: int) -> Reducer | None:
    """Return the reducer that combines the components `number` of both tuples, without any other
    component, or None if `node` is something else."""
    if not isinstance(node, Binary):
        return None
    reducer = _REDUCER_OF.get(node.op)
    left, right = (component(side, number, node.dtype) for side in (LEFT, RIGHT))
    pairs = ((left, right), (right, left)) if node.op in COMMUTATIVE else ((left, right),)
    return reducer if (node.a, node.b) in pairs else None


def may_round(node: Scalar) -> bool:
    """Return whether evaluating `node` may round. If it does not, every grouping of an associative
    combination gives the same result for the same values."""
    return any(_rounds(n) for n in walk(node))


def _rounds(node: Scalar) -> bool:
    match node:
        case Binary(op):
            return node.dtype.is_float and _REDUCER_OF.get(op) not in (Reducer.MAX, Reducer.MIN)
        case Unary(op):
            exact = op in (UnaryOp.NEG, UnaryOp.ABS) or op.function.rounds_to_integer
            return node.dtype.is_float and not exact
        case Cast(x, dtype) if dtype.is_float:
            if x.dtype.is_float:
                return dtype.binary.precision < x.dtype.binary.precision
            return x.dtype.bits > dtype.binary.precision
        case _:
            return False


def only_selects(node: Scalar) -> bool:
    """Return whether the value of `node` is always one of its reads or constants."""
    match node:
        case Binary(op):
            extreme = _REDUCER_OF.get(op) in (Reducer.MAX, Reducer.MIN)
            return extreme and only_selects(node.a) and only_selects(node.b)
        case Unary() | Cast() | Components():
            return False
        case _:
            sides = getattr(node, "on_true", None), getattr(node, "on_false", None)
            return all(only_selects(side) for side in sides if side is not None)


__all__ = [
    "LEFT", "RIGHT", "chain_length", "combined", "component", "components_needed",
    "components_read", "may_round", "only_selects", "reducer_of", "restricted",
]  # fmt: skip
