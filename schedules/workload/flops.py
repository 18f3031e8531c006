"""Count arithmetic operations: the published flops of a workload, and the useful flops.

Every `+ - * / min max` and every function (`exp`, `sqrt`, `abs`, ...) is one operation per point of
the iteration space. A reduction or scan adds one operation per point that it combines, so a sum of
products has 2 operations per point; a reduction of tuples adds those of its combination. Casts,
comparisons, selections and index arithmetic are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import prod
from typing import assert_never

from ..algebra.comparisons import Cond, substitute_cond
from ..algebra.counting import points_where
from ..algebra.scalar import All, Binary, Cast, Load, Scalar, Select, Unary, walk
from ..limits import MAX_ALL_CONDS
from .computation import Computation
from .tensors import Elementwise, Reduction, Scan, Stage, TupleReduction


def published_flops(computation: Computation) -> int:
    """Return the number of operations of one call: the count declared by the operator library, or
    else `counted_flops`."""
    declared = computation.declared_flops
    return counted_flops(computation) if declared is None else declared


def counted_flops(computation: Computation) -> int:
    """Return the number of operations of one call, counted as the module docstring describes. Every
    guard counts as true."""
    return sum(_points(s) * _per_point(s) for s in computation.stages)


def useful_flops(computation: Computation) -> int:
    """Return `published_flops` without the products and sums with padding and inserted zeros.

    If the declared count is smaller, it is returned instead: the operator library excludes these
    operations for transposed convolutions. `points_where` states which guards are counted as true.
    """
    guards = _zero_guards_of({s.name: s for s in computation.stages})
    useful = sum(_useful_points(s, guards[s.name]) * _per_point(s) for s in computation.stages)
    return min(useful, published_flops(computation))


def _points(stage: Stage) -> int:
    return prod(a.extent for a in stage.all_axes)


def _per_point(stage: Stage) -> int:
    operations = _operations(stage.body)
    match stage.kind:
        case Elementwise():
            return operations
        case Reduction() | Scan():
            return operations + 1
        case TupleReduction(combine=combine):
            return operations + sum(map(_operations, combine))
        case _:
            assert_never(stage.kind)


def _operations(node: Scalar) -> int:
    return sum(isinstance(n, Binary | Unary) for n in walk(node))


def useful_points(stage: Stage, stages: Mapping[str, Stage]) -> int:
    """Return the number of iteration points at which no guard makes a factor of the body zero.
    `stages` are in program order."""
    match stage.kind:
        case Elementwise() | Scan() | TupleReduction():
            return _points(stage)
        case Reduction():
            return _useful_points(stage, _zero_guards_of(stages)[stage.name])
        case _:
            assert_never(stage.kind)


def _useful_points(stage: Stage, conds: tuple[Cond, ...]) -> int:
    match stage.kind:
        case Elementwise() | Scan() | TupleReduction():
            return _points(stage)
        case Reduction():
            return points_where({a.name: a.extent for a in stage.all_axes}, conds)
        case _:
            assert_never(stage.kind)


def _zero_guards_of(stages: Mapping[str, Stage]) -> dict[str, tuple[Cond, ...]]:
    """Return conditions for each stage of `stages`, which are in program order. If one of them is
    false, the body of the stage is zero.

    At most `MAX_ALL_CONDS` conditions are stored, because they multiply along chains of readers.
    """
    found: dict[str, tuple[Cond, ...]] = {}
    for name, stage in stages.items():
        guards = dict.fromkeys(_zero_guards(stage.body, stages, found))
        found[name] = tuple(islice(guards, MAX_ALL_CONDS))
    return found


def _zero_guards(
    node: Scalar, stages: Mapping[str, Stage], before: Mapping[str, tuple[Cond, ...]]
) -> list[Cond]:
    """Return conditions. If one of them is false, `node` is zero.

    The conditions of elementwise stages that `node` reads are included. `before` maps earlier
    stages to their conditions.
    """
    match node:
        case Select(All(conds), on_true, on_false):
            zero = getattr(on_false, "value", None) == 0
            return [*conds, *_zero_guards(on_true, stages, before)] if zero else []
        case Binary(op="mul"):
            return _zero_guards(node.a, stages, before) + _zero_guards(node.b, stages, before)
        case Unary(op="neg"):
            return _zero_guards(node.x, stages, before)
        case Load(tensor, index) if tensor in before and stages[tensor].is_elementwise:
            if any(i.has_data for i in index):
                return []
            axes = stages[tensor].axes
            at = {axis.name: i for axis, i in zip(axes, index, strict=True)}
            return [substitute_cond(c, at) for c in before[tensor]]
        case Cast(x):
            return _zero_guards(x, stages, before)
        case _:
            return []
