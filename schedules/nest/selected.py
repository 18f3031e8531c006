"""Selected loops: loops of which one iteration at most has an effect, as data decide.

    for v: H[v] += X[n] if I[n] == v else 0

The terms of all other iterations are identities, so that only iteration `I[n]` needs to be
executed, and none if there is no such iteration (a scatter). The nest has the same meaning if all
iterations are executed. Therefore the index of a store is an ordinary variable, and all proofs
about bounds and dependences hold for every content of the tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ..algebra.comparisons import Cond
from ..algebra.scalar import Scalar, loads, vars_of
from ..algebra.selection import SelectedTerm, selected_terms
from .editing import map_writes
from .loop_ir import (
    For,
    LoopKind,
    Stmt,
    StoreElement,
    Update,
    buffers_allocated,
    leaves,
    loops,
)


@dataclass(frozen=True, slots=True)
class SelectedIteration:
    """The only iteration of a loop that has an effect."""

    place: Scalar
    """An integer that does not depend on the loop. No iteration has an effect if it is outside of
    the loop's range."""
    guards: tuple[Cond, ...]
    """Conditions that do not depend on the loop or on loops inside it, the bounds of the loop among
    them. No iteration has an effect if one fails; `place` may then read outside of its tensors."""
    body: tuple[Stmt, ...]
    """The body of the loop, simplified for this iteration."""


def selected_iteration(loop: For) -> SelectedIteration | None:
    """Return the iteration of `loop` that data select, or None if its iterations are not selected
    by data.

    They are if the loop contains only updates of elements that were written before, and if in all
    updates, the value is the reducer's identity unless the loop's variable is equal to the same
    integer. What this integer depends on must not change in the loop. Products of floats with zero
    are no identities, because the other factor may be infinite or NaN.
    """
    found = _updates(loop)
    moving = any(loop.var in bound.index.vars() for bound in loop.bounds)
    if not found or loop.reduce or moving:
        return None
    inside = {each.var for each in loops((loop,))}
    written = {leaf.buffer for leaf in found}
    guards = tuple(
        guard
        for guard in found[0].guards
        if not guard.index.vars() & inside and all(guard in leaf.guards for leaf in found)
    )
    for place in (term.place for term in _terms(found[0], loop.var)):
        if vars_of(place) & inside or any(load.tensor in written for load in loads(place)):
            continue
        values = {leaf: _value_at(place, leaf, loop.var) for leaf in found}
        if None not in values.values():
            body = map_writes(loop.body, partial(_with_value, values))
            return SelectedIteration(place, (*loop.bounds, *guards), body)
    return None


def _updates(loop: For) -> list[Update]:
    """Return the updates in `loop`, or an empty list if it contains anything else, an update that
    may be the first one, or a loop that is executed in another way than iteration by iteration or
    in lanes."""
    found: list[Update] = []
    if any(stmt.kind not in _INSIDE for stmt in loops(loop.body)):
        return []
    if any(True for _ in buffers_allocated(loop.body)):
        return []
    for leaf in leaves(loop.body):
        if not isinstance(leaf, Update) or leaf.first is not None:
            return []
        found.append(leaf)
    return found


_INSIDE = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.SELECTED)


def _terms(leaf: Update, name: str) -> Iterator[SelectedTerm]:
    return selected_terms(leaf.value, name, leaf.reducer)


def _value_at(place: Scalar, leaf: Update, name: str) -> Scalar | None:
    """Return the value of `leaf` if the variable `name` is equal to `place`, or None if it is not
    known to be the identity otherwise."""
    return next((term.value for term in _terms(leaf, name) if term.place == place), None)


def _with_value(
    values: Mapping[Update, Scalar | None], leaf: StoreElement | Update
) -> StoreElement | Update:
    value = values[leaf] if isinstance(leaf, Update) else None
    return leaf if value is None else replace(leaf, value=value)
