"""Searches: reductions that look for the first or last position of an extreme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..algebra.affine import var
from ..algebra.neutral import identity_of
from ..algebra.scalar import (
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    substitute,
    walk,
)
from ..dtypes import DType
from ..workload.tensors import Axis, Reduction, Stage
from ..workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Search:
    """The search for the first or last position of the extreme of `value` along `axis`.

        P[i] min= k if value == M[i] else K,  or max= k if value == M[i] else -1

    For floats, a NaN at position k gives k - K, or k + K if the last position is searched, so that
    it takes precedence over all numbers.
    """

    reducer: Reducer
    """The reducer of the extreme, MAX or MIN."""
    value: Scalar
    axis: Axis
    best: Load
    """The read of the extreme, which another stage has found."""
    last: bool

    @property
    def worst(self) -> Const:
        return identity_of(self.reducer, self.value)

    @property
    def pick(self) -> Reducer:
        """The reducer of the positions."""
        return Reducer.MAX if self.last else Reducer.MIN

    def none(self, extent: int) -> int:
        """Return the position that stands for no position along an axis of `extent` positions."""
        return -1 if self.last else extent

    def nan_shift(self, extent: int) -> int:
        """Return what is added to the position of a NaN along an axis of `extent` positions."""
        return extent if self.last else -extent

    def body(self, value: Scalar, best: Scalar, axis: Axis, *, swapped: bool = False) -> Scalar:
        """Return the body of a search for the positions along `axis` at which `value` is `best`. If
        `swapped`, `best` is the first operand of the comparison."""
        extent, dtype = axis.extent, DType.I32
        at, none = IndexValue(var(axis.name), dtype), Const(self.none(extent), dtype)
        pair = (best, value) if swapped else (value, best)
        found = Select(Compare(CompareOp.EQ, *pair), at, none)
        if not value.dtype.is_float:
            return found
        moved = IndexValue(var(axis.name) + self.nan_shift(extent), dtype)
        return Select(Compare(CompareOp.NE, value, value), moved, found)


def search_of(stage: Stage, workload: Workload) -> Search | None:
    """Return the search for an extreme that `stage` is, or None if it is something else."""
    kind = stage.kind
    if not isinstance(kind, Reduction) or len(kind.axes) != 1:
        return None
    if kind.reducer not in (Reducer.MAX, Reducer.MIN):
        return None
    (axis,), last = kind.axes, kind.reducer is Reducer.MAX
    for value, best in _compared(stage.body):
        reducer = _reducer_of(best, value, axis, workload)
        if reducer is None or not isinstance(best, Load):
            continue
        found = Search(reducer, value, axis, best, last)
        ways = (found.body(value, best, axis, swapped=order) for order in (False, True))
        if stage.body in ways:
            return found
    return None


def _compared(body: Scalar) -> Iterator[tuple[Scalar, Scalar]]:
    """Yield the pairs of values whose equality `body` tests, in both orders."""
    for node in walk(body):
        if isinstance(node, Compare) and node.op is CompareOp.EQ:
            yield node.a, node.b
            yield node.b, node.a


def _reducer_of(best: Scalar, value: Scalar, axis: Axis, workload: Workload) -> Reducer | None:
    """Return MAX or MIN if `best` reads a stage that has reduced `value` by it along `axis`."""
    if not isinstance(best, Load) or value.dtype is not best.dtype:
        return None
    if any(i.mentions(axis.name) for i in best.index):
        return None
    stages = {stage.name: stage for stage in workload.stages}
    before = stages.get(best.tensor)
    if before is None or not isinstance(before.kind, Reduction) or len(before.reduce_axes) != 1:
        return None
    (along,) = before.reduce_axes
    if before.kind.reducer not in (Reducer.MAX, Reducer.MIN) or along.extent != axis.extent:
        return None
    at = {own.name: i for own, i in zip(before.axes, best.index, strict=True)}
    same = substitute(before.body, at | {along.name: var(axis.name)}) == value
    return before.kind.reducer if same else None
