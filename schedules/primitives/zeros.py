"""SkipZeros: leave out updates that padding makes neutral, instead of computing them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..affine import Cond
from ..errors import ScheduleError
from ..loop_ir import Nest, Stmt, Update, transform
from ..scalar import All, Binary, BinaryOp, Const, Reducer, Scalar, Select
from .nest_edit import buffers_in, writes_of


@dataclass(frozen=True, slots=True)
class SkipZeros:
    """Turn the conditions of padding into guards of a reduction's updates.

        W[i] += (X[i + r - 1] if 1 <= i + r <= N else 0) * F[r]
                ->    if 1 <= i + r <= N: W[i] += X[i + r - 1] * F[r]

    A guard that depends on outer loops only is tested there, and one that a partitioned loop
    decides costs nothing. Legal where every update of `buffer` adds to a value that is there
    already (behind CacheWrite), and the other side of the choice is neutral: zero as a factor of
    what is summed up, or the reduction's identity as its whole value. A product of padding's zero
    with an infinity or NaN is left out with it.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with guards. ScheduleError: no such updates, or nothing to skip."""
        if self.buffer not in buffers_in(nest):
            raise ScheduleError(self, f"there is no buffer {self.buffer!r}")
        updates = [w for w in writes_of(nest.body, self.buffer) if isinstance(w, Update)]
        if not updates:
            raise ScheduleError(self, f"{self.buffer!r} is not reduced into")
        if any(update.first is not None for update in updates):
            raise ScheduleError(self, f"an update begins {self.buffer!r}; cache it first")
        if not any(neutral_conditions(update.value, update.reducer) for update in updates):
            raise ScheduleError(self, f"no update of {self.buffer!r} has padding to skip")

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if isinstance(stmt, Update) and stmt.buffer == self.buffer:
                return (_skipping(stmt),)
            return None

        return replace(nest, body=transform(nest.body, change))


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
