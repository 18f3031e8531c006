"""Reductions of tuples in a nest: stores that combine each component with its element before.

    for i: for k: P[i] = combine1(state, value); M[i] = combine0(state, value)

where `state` are the elements of the components, or their identities in the first iteration of the
reduction. The component that the stage computes is stored in its tensor, the others in the
workspace. A component is stored after all others that need its old element. If components need each
other, some combinations are stored elsewhere first.

No statement is new to the primitives: the reduction loops carry the dependence of the components on
their old elements and keep their order, and all other loops are independent.
"""

from __future__ import annotations

from ..algebra.affine import Cond, Index
from ..algebra.scalar import All, Components, Load, Scalar, Select
from ..algebra.tuples import LEFT, combined, components_read
from ..nest.loop_ir import Buffer, BufferScope, StoreElement
from ..workload.tensors import Stage, TupleReduction


def component_buffers(stage: Stage) -> tuple[Buffer, ...]:
    """Return the private buffers of a reduction of tuples, each with one element for each element
    of its tensor; none for other stages."""
    kind = stage.kind
    if not isinstance(kind, TupleReduction):
        return ()
    early = [n for n, is_early in _order(kind) if is_early]
    others = [n for n in range(len(kind.combine)) if n != kind.position]
    names = [(_state(stage, kind, n), n) for n in others] + [(_new(stage, n), n) for n in early]
    shape = stage.tensor.shape
    return tuple(
        Buffer(name, shape, kind.identities[n].dtype, BufferScope.WORKSPACE) for name, n in names
    )


def tuple_leaves(
    stage: Stage, kind: TupleReduction, index: Index, value: Scalar, first: tuple[Cond, ...]
) -> tuple[StoreElement, ...]:
    """Return the stores of one iteration of a reduction of tuples. `value` is the body, in which
    the loops are named. The conditions `first` hold in the first iteration."""
    assert isinstance(value, Components)
    names = [_state(stage, kind, n) for n in range(len(kind.combine))]
    old = [
        Select(All(first), identity, Load(name, index, identity.dtype))
        for name, identity in zip(names, kind.identities, strict=True)
    ]
    new = combined(kind.combine, old, value.values)
    order = _order(kind)
    early = [n for n, is_early in order if is_early]
    leaves = [StoreElement(_new(stage, n), index, new[n]) for n in early]
    for n, is_early in order:
        stored = Load(_new(stage, n), index, new[n].dtype) if is_early else new[n]
        leaves.append(StoreElement(names[n], index, stored))
    return tuple(leaves)


def _state(stage: Stage, kind: TupleReduction, component: int) -> str:
    return stage.name if component == kind.position else f"{stage.name}.c{component}"


def _new(stage: Stage, component: int) -> str:
    return f"{stage.name}.new{component}"


def _order(kind: TupleReduction) -> list[tuple[int, bool]]:
    """Return the components in the order in which they are stored, each with whether its
    combination is computed before all of them."""
    count = len(kind.combine)
    reads = [components_read(node, LEFT, count) for node in kind.combine]
    early, order, left = set[int](), list[int](), list(range(count))
    while left:
        free = [
            n for n in left if not any(n in reads[m] for m in left if m != n and m not in early)
        ]
        if free:
            order.append(free[0])
            left.remove(free[0])
        else:
            early.add(next(n for n in left if n not in early))
    return [(n, n in early) for n in order]
