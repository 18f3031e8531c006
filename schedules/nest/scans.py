"""Scans in a nest: stores that combine a value with the element of the iteration before.

    for k: S[k] = op(S[k - 1] if k >= 1 else start, value)

The iterations of such a loop depend on each other. Because `op` is associative, they can still be
the lanes of a vector: each lane combines the values up to its own, and the element before the first
lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..algebra.affine import ZERO, Interval, Ranges, simplify, var
from ..algebra.comparisons import Cond, Ge0, prove
from ..algebra.scalar import All, Binary, BinaryOp, Load, Reducer, Scalar, Select, loads
from .loop_ir import For, PrefetchHint, StoreElement, Update

REDUCER_OF = {reducer.op: reducer for reducer in Reducer}


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The store `element = op(before if all conds else start, value)`, where `before` is another
    element of the same buffer."""

    op: BinaryOp
    previous: Scalar
    """The first operand: `before`, or the select of `before` and the start."""
    before: Load
    conds: tuple[Cond, ...]
    value: Scalar

    @property
    def reducer(self) -> Reducer:
        return REDUCER_OF[self.op]


def recurrence(leaf: StoreElement | Update | PrefetchHint) -> Recurrence | None:
    """Return the recurrence by an associative operation that `leaf` is, or None if it is something
    else. The value and the start read no elements of the buffer."""
    if not isinstance(leaf, StoreElement) or not isinstance(leaf.value, Binary):
        return None
    op, previous, value = leaf.value.op, leaf.value.a, leaf.value.b
    if op not in REDUCER_OF:
        return None
    conds: tuple[Cond, ...] = ()
    before, others = previous, [value]
    if isinstance(previous, Select) and isinstance(previous.cond, All):
        conds, before = previous.cond.conds, previous.on_true
        others.append(previous.on_false)
    if not isinstance(before, Load) or before.tensor != leaf.buffer:
        return None
    if any(load.tensor == leaf.buffer for other in others for load in loads(other)):
        return None
    return Recurrence(op, previous, before, conds, value)


def scan_step(
    leaf: StoreElement | Update | PrefetchHint, loop: For, around: Ranges
) -> Recurrence | None:
    """Return `leaf` as a step of a scan along `loop`, which directly contains it, or None if it is
    something else. `around` has the ranges of the enclosing loops.

    In all iterations but the first, the recurrence reads the element of the iteration before. The
    start may only be used in the first iteration. If a guard excludes an iteration, it must exclude
    all later ones, which depend on it.
    """
    found = recurrence(leaf)
    if found is None or all(loop.var not in i.vars() for i in leaf.index):
        return None
    later = {**around, loop.var: Interval(1, max(loop.extent - 1, 1))}
    before = (i.substitute({loop.var: var(loop.var) - 1}) for i in leaf.index)
    pairs = zip(before, found.before.index, strict=True)
    is_before = all(simplify(a - b, later) == ZERO for a, b in pairs)
    if not is_before or not all(prove(cond, later) for cond in found.conds):
        return None
    guards = () if isinstance(leaf, PrefetchHint) else leaf.guards
    return found if all(excludes_the_end(guard, loop.var) for guard in guards) else None


def excludes_the_end(guard: Cond, name: str) -> bool:
    """Return whether `guard` is false in all iterations after one in which it is false."""
    if name not in guard.index.vars():
        return True
    is_linear = guard.index.is_linear_in(name)
    return isinstance(guard, Ge0) and is_linear and guard.index.coefficient(name) < 0
