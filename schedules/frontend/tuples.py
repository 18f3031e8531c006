"""Reductions of tuples in expressions and of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..algebra import values
from ..algebra.scalar import Components, Const, Load, Scalar
from ..algebra.tuples import LEFT, RIGHT, component
from ..dtypes import DType
from ..errors import WorkloadError
from .expr_core import Expr, as_value, derived, number, operand, shown
from .references import Combination, LoopVar, NestedReduction

Combine = Callable[[tuple[Expr, ...], tuple[Expr, ...]], Any]
"""A function of two tuples of values that returns the values of their combination."""


def combination(
    dtypes: Sequence[DType],
    identity: Sequence[object],
    combine: Combine,
    *,
    commutative: bool,
) -> Combination:
    """Return how tuples of the types `dtypes` are combined, with the result of component 0. Raise
    WorkloadError if the identity or the combination does not have one value for each component."""
    identities = tuple(
        _constant(value, dtype)
        for value, dtype in zip(_all(identity, dtypes, "identity"), dtypes, strict=True)
    )
    left, right = (
        tuple(Expr(component(side, n, dtype), {}, {}, {}) for n, dtype in enumerate(dtypes))
        for side in (LEFT, RIGHT)
    )
    found = _all(combine(left, right), dtypes, "combine")
    nodes = (
        _combined(as_value(value, dtype), dtype) for value, dtype in zip(found, dtypes, strict=True)
    )
    return Combination(identities, tuple(nodes), commutative=commutative)


def tuples_over(
    given: Sequence[Expr], how: Combination, axes: tuple[LoopVar, ...]
) -> tuple[Expr, ...]:
    """Return all components of the combinations of the tuples `given` over `axes`, which they
    use."""
    nodes = tuple(value.node for value in given)
    bound = {v.name for v in axes}
    whole = derived(Components(nodes), *given)
    free = {name: v for name, v in whole.vars.items() if name not in bound}
    found: list[Expr] = []
    for position, node in enumerate(nodes):
        of_one = replace(how, position=position)
        one = NestedReduction(of_one, whole.node, axes, free, whole.reductions)
        name = f"{of_one}@{id(one):x}"
        found.append(
            Expr(
                Load(name, (), node.dtype),
                free,
                whole.tensors,
                {name: one},
                whole.size,
                whole.depth,
            )
        )
    return tuple(found)


def widened(value: Expr) -> Expr:
    """Return `value` in the type in which it is reduced: bools and narrow floats are cast."""
    narrow = value.dtype is DType.BOOL or value.dtype.is_narrow_float
    return derived(values.cast(value.node, value.dtype.wide), value) if narrow else value


def _all(given: object, dtypes: Sequence[DType], what: str) -> Sequence[object]:
    if not isinstance(given, tuple | list) or len(given) != len(dtypes):
        count = len(given) if isinstance(given, tuple | list) else shown(given)
        raise WorkloadError(
            f"reduce_tuple of {len(dtypes)} values needs as many of {what}, got {count}",
            code="bad_reduction",
        )
    return given


def _constant(value: object, dtype: DType) -> Const:
    found = operand(value)
    node = found.node if isinstance(found, Expr) else number(found, dtype).node
    if not isinstance(node, Const) or node.dtype is not dtype:
        raise WorkloadError(
            f"an identity is a number of type {dtype}, got {shown(value)}", code="bad_reduction"
        )
    return node


def _combined(value: Expr, dtype: DType) -> Scalar:
    if value.vars or value.tensors or value.reductions:
        raise WorkloadError("a combination depends on components only", code="bad_node")
    if value.dtype is not dtype:
        raise WorkloadError(
            f"a component is {dtype}, its combination {value.dtype}; cast it", code="dtype_clash"
        )
    return value.node
