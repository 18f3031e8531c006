"""Scans in a nest: stores that combine a value with the element of the iteration before.

    for k: S[k] = op(S[k - 1] if k >= 1 else identity, value)

The iterations of such a loop depend on each other. Because `op` is associative, they can still be
the lanes of a vector: each lane combines the values up to its own, and the element before the first
lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..algebra.affine import ZERO, Cond, Ge0, Interval, Ranges, prove, simplify, var
from ..algebra.neutral import identity_of
from ..algebra.scalar import All, Binary, BinaryOp, Load, Reducer, Scalar, Select, loads
from .loop_ir import For, PrefetchHint, StoreElement, Update

REDUCER_OF = {reducer.op: reducer for reducer in Reducer}


@dataclass(frozen=True, slots=True)
class ScanStep:
    """The store `element = op(previous, value)` in a loop, where `previous` is the element of the
    iteration before, or the identity of `op` in the first iteration of the scan."""

    op: BinaryOp
    previous: Scalar
    value: Scalar


def scan_step(
    leaf: StoreElement | Update | PrefetchHint, loop: For, around: Ranges
) -> ScanStep | None:
    """Return `leaf` as a step of a scan along `loop`, which directly contains it, or None if it is
    something else. `around` has the ranges of the enclosing loops.

    If a guard excludes an iteration, it must exclude all later ones, which depend on it.
    """
    if not isinstance(leaf, StoreElement) or not isinstance(leaf.value, Binary):
        return None
    op, previous, value = leaf.value.op, leaf.value.a, leaf.value.b
    found = _previous(previous, REDUCER_OF[op]) if op in REDUCER_OF else None
    if found is None or any(load.tensor == leaf.buffer for load in loads(value)):
        return None
    load, conds = found
    if load.tensor != leaf.buffer or all(loop.var not in i.vars() for i in leaf.index):
        return None
    later = {**around, loop.var: Interval(1, max(loop.extent - 1, 1))}
    before = (i.substitute({loop.var: var(loop.var) - 1}) for i in leaf.index)
    pairs = zip(before, load.index, strict=True)
    is_before = all(simplify(a - b, later) == ZERO for a, b in pairs)
    if not is_before or not all(prove(cond, later) for cond in conds):
        return None
    if not all(_excludes_the_end(guard, loop.var) for guard in leaf.guards):
        return None
    return ScanStep(op, previous, value)


def _previous(node: Scalar, reducer: Reducer) -> tuple[Load, tuple[Cond, ...]] | None:
    """Return the load of the previous element and the conditions under which it is read. Otherwise
    it is the identity."""
    match node:
        case Load():
            return node, ()
        case Select(All(conds), Load() as load, other) if other == identity_of(reducer, node):
            return load, conds
        case _:
            return None


def _excludes_the_end(guard: Cond, name: str) -> bool:
    """Return whether `guard` is false in all iterations after one in which it is false."""
    if name not in guard.index.vars():
        return True
    is_linear = guard.index.is_linear_in(name)
    return isinstance(guard, Ge0) and is_linear and guard.index.coefficient(name) < 0
