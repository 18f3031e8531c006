"""SkipZeros: leave out updates that padding makes neutral, instead of computing them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Cond
from ..algebra.scalar import All, Binary, BinaryOp, Const, Reducer, Scalar, Select
from ..errors import ScheduleError
from ..nest.finding import buffers_in, writes_of
from ..nest.loop_ir import Nest, Stmt, Update, loops, transform
from .places import find_loop
from .primitive import Primitive, Spelling


@dataclass(frozen=True, slots=True)
class SkipZeros(Primitive):
    """Turn the conditions of padding into guards of a reduction's updates.

        W[i] += (X[i + r - 1] if 1 <= i + r <= N else 0) * F[r]
                ->    if 1 <= i + r <= N: W[i] += X[i + r - 1] * F[r]

    With `loop`, only those that the loops around that one decide:

        for r: for s: W[i] += (X[r, i + s] if r >= 1 and i + s >= 1 else 0) * F[r, s]
                ->    for r: if r >= 1: for s: W[i] += (the same choice) * F[r, s]

    with `loop` s. The choice stays as it is then, so that a padded copy (CacheRead) can be made of
    what is read: where windows leave an image along an outer axis nothing is computed, where they
    leave it along the rows of a tile there are zeros.

    A guard that depends on outer loops only is tested there, and one that a partitioned loop
    decides costs nothing. Legal where every update of `buffer` adds to a value that is there
    already (behind CacheWrite), and the other side of the choice is neutral: zero as a factor of
    what is summed up, or the reduction's identity as its whole value. A product of padding's zero
    with an infinity or NaN is left out with it.
    """

    buffer: str
    loop: str = ""

    SPELLINGS = (
        Spelling("SkipZeros", ("buffer",)),
        Spelling("SkipZerosAround", ("buffer", "loop")),
    )

    def apply(self, nest: Nest) -> Nest:
        """The nest with guards. ScheduleError: no such updates, nothing to skip, or `loop` is not
        around an update."""
        updates = _updates(nest, self.buffer, self)
        new = self._around(nest, updates) if self.loop else self._everywhere(updates)

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            return (new[stmt],) if isinstance(stmt, Update) and stmt in new else None

        return replace(nest, body=transform(nest.body, change))

    def _everywhere(self, updates: list[Update]) -> dict[Update, Update]:
        """What each of `updates` becomes, under all conditions of padding."""
        if not any(neutral_conditions(update.value, update.reducer) for update in updates):
            raise ScheduleError(self, f"no update of {self.buffer!r} has padding to skip")
        return {update: _skipping(update) for update in updates}

    def _around(self, nest: Nest, updates: list[Update]) -> dict[Update, Update]:
        """What those of `updates` inside `loop` become, under conditions that loops around it
        decide."""
        place = find_loop(nest, self.loop, self)
        around = frozenset(loop.var for loop in place.outer)
        around |= {loop.var for loop in loops(place.loop.body) if loop.extent == 1}
        inside = writes_of(place.loop.body, self.buffer)
        guarded = {u: guards for u in updates if (guards := _decided(u, around)) and u in inside}
        if not guarded:
            raise ScheduleError(self, f"nothing around {self.loop!r} decides about padding")
        return {u: replace(u, guards=(*u.guards, *more)) for u, more in guarded.items()}


def _updates(nest: Nest, buffer: str, step: object) -> list[Update]:
    """The updates of a buffer that all add to a value that is there already."""
    if buffer not in buffers_in(nest):
        raise ScheduleError(step, f"there is no buffer {buffer!r}")
    updates = [w for w in writes_of(nest.body, buffer) if isinstance(w, Update)]
    if not updates:
        raise ScheduleError(step, f"{buffer!r} is not reduced into")
    if any(update.first is not None for update in updates):
        raise ScheduleError(step, f"an update begins {buffer!r}; cache it first")
    return updates


def _decided(update: Update, around: frozenset[str]) -> tuple[Cond, ...]:
    """Conditions of padding, not tested yet, in which there are only loops of `around`."""
    conds = dict.fromkeys(neutral_conditions(update.value, update.reducer))
    return tuple(c for c in conds if c.index.vars() <= around and c not in update.guards)


def neutral_conditions(value: Scalar, reducer: Reducer) -> tuple[Cond, ...]:
    """The conditions without which `value` changes nothing that it is combined into."""
    return _neutral(value, reducer, True)[0]


def _skipping(update: Update) -> Update:
    conds, value = _neutral(update.value, update.reducer, True)
    new = tuple(c for c in dict.fromkeys(conds) if c not in update.guards)
    return replace(update, value=value, guards=(*update.guards, *new))


def _neutral(value: Scalar, reducer: Reducer, whole: bool) -> tuple[tuple[Cond, ...], Scalar]:
    """Conditions without which `value` changes nothing, and what it is where they hold. `whole` is
    False for a factor of a product."""
    match value:
        case Select(cond=All(conds), on_true=inner, on_false=Const(value=other)):
            if other == (reducer.identity(value.dtype) if whole else 0):
                more, rest = _neutral(inner, reducer, whole)
                return (*conds, *more), rest
        case Binary(op=BinaryOp.MUL, a=a, b=b) if reducer is Reducer.SUM:
            left, first = _neutral(a, reducer, False)
            right, second = _neutral(b, reducer, False)
            if left or right:
                return (*left, *right), replace(value, a=first, b=second)
        case _:
            pass
    return (), value
