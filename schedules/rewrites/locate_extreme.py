"""The position of an extreme in one pass: a reduction of pairs of values and positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.scalar import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Components,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    substitute,
)
from ..algebra.tuples import LEFT, RIGHT, component
from ..dtypes import DType
from ..errors import require
from ..workload.tensors import Axis, Reduction, Stage, Tensor, TupleReduction
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class LocateExtreme(Rewrite):
    """Find the extreme and its first position in one pass, where `stage` compares with an extreme
    that another stage has found.

        M[i] max= X[i,k];  P[i] min= k if X[i,k] == M[i] else K
    ->  P[i] = position of the combination of (X[i,k], k) over k

    For floats, P also has the condition `k - K if X[i,k] != X[i,k]`, so that the first NaN precedes
    all numbers. The new stage combines in the order of the axis if `ordered`. Otherwise the
    combination is commutative: it decides between equal values by their positions, which takes a
    few more operations. No value changes: all results are positions.
    """

    keeps_operations: ClassVar[bool] = True

    ordered: bool = False

    @property
    def label(self) -> str:
        return "locate"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the position found in one pass, in normal form.

        Raise ScheduleError if there is no such stage, if it does not look for the first position of
        an extreme, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        found = search_of(stage, workload)
        require(found is not None, self, f"{stage.name!r} does not look for an extreme")
        assert found is not None
        self.require_room(workload)
        pair = self._stages(stage, found, set(workload.tensors))
        stages = ((*pair,) if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for part in stages for s in part)).normalised()

    def _stages(self, stage: Stage, found: Search, taken: set[str]) -> tuple[Stage, ...]:
        dtype = found.value.dtype
        worst = Const(found.reducer.identity(dtype), dtype)
        none = Const(0 if self.ordered else found.axis.extent, DType.I32)
        kind = TupleReduction(
            (found.axis,), (worst, none), self._combine(found), 1, commutative=not self.ordered
        )
        body = Components((found.value, IndexValue(var(found.axis.name), DType.I32)))
        position = replace(stage, kind=kind, body=body)
        if not dtype.is_float:
            return (position,)
        names = fresh("extreme", taken), fresh("position", taken)
        shape = stage.tensor.shape
        first, second = (
            replace(position, tensor=Tensor(name, shape, of), kind=replace(kind, position=n))
            for n, (name, of) in enumerate(zip(names, (dtype, DType.I32), strict=True))
        )
        at = tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in stage.axes)
        value, place = Load(names[0], at, dtype), Load(names[1], at, DType.I32)
        before = Binary(BinaryOp.SUB, place, Const(found.axis.extent, DType.I32))
        chosen = Select(Compare(CompareOp.NE, value, value), before, place)
        return first, second, Stage(stage.tensor, stage.axes, chosen)

    def _combine(self, found: Search) -> tuple[Scalar, Scalar]:
        dtype = found.value.dtype
        a, b = component(LEFT, 0, dtype), component(RIGHT, 0, dtype)
        m, n = component(LEFT, 1, DType.I32), component(RIGHT, 1, DType.I32)
        less, more = (a, b) if found.reducer is Reducer.MAX else (b, a)
        takes: Scalar = Compare(CompareOp.LT, less, more)
        same: Scalar = Compare(CompareOp.EQ, a, b)
        if dtype.is_float:
            left, right = (Compare(CompareOp.NE, x, x) for x in (a, b))
            number = Compare(CompareOp.EQ, a, a)
            takes = _either(takes, _both(right, number))
            same = _either(same, _both(left, right))
        if not self.ordered:
            takes = _either(takes, _both(same, Compare(CompareOp.LT, n, m)))
        return Select(takes, b, a), Select(takes, n, m)


def _both(a: Scalar, b: Scalar) -> Scalar:
    return Binary(BinaryOp.BIT_AND, a, b)


def _either(a: Scalar, b: Scalar) -> Scalar:
    return Binary(BinaryOp.BIT_OR, a, b)


@dataclass(frozen=True, slots=True)
class Search:
    """The search for the first position of the extreme of `value` along `axis`."""

    reducer: Reducer
    value: Scalar
    axis: Axis
    extreme: str
    """The stage that has found the extreme."""


def search_of(stage: Stage, workload: Workload) -> Search | None:
    """Return the search for an extreme that `stage` is, or None if it is something else."""
    kind = stage.kind
    if not isinstance(kind, Reduction) or kind.reducer is not Reducer.MIN or len(kind.axes) != 1:
        return None
    (axis,) = kind.axes
    body, nan = _without_nan(stage.body, axis)
    match body:
        case Select(
            Compare(CompareOp.EQ, a, b), IndexValue(index, DType.I32), Const(none, DType.I32)
        ) if index == var(axis.name) and none == axis.extent:
            pass
        case _:
            return None
    for value, extreme in ((a, b), (b, a)):
        reducer = _reducer_of(extreme, value, axis, workload)
        if reducer is not None and (nan == value if value.dtype.is_float else nan is None):
            assert isinstance(extreme, Load)
            return Search(reducer, value, axis, extreme.tensor)
    return None


def _without_nan(body: Scalar, axis: Axis) -> tuple[Scalar, Scalar | None]:
    """Return `body` without the condition that gives positions of NaN, and the value that it tests.
    Return `body` and None if there is no such condition."""
    match body:
        case Select(Compare(CompareOp.NE, a, b), IndexValue(moved, DType.I32), numbers) if (
            a == b and moved == var(axis.name) - axis.extent
        ):
            return numbers, a
        case _:
            return body, None


def _reducer_of(extreme: Scalar, value: Scalar, axis: Axis, workload: Workload) -> Reducer | None:
    """Return MAX or MIN if `extreme` reads a stage that has reduced `value` by it along `axis`."""
    if not isinstance(extreme, Load) or value.dtype is not extreme.dtype:
        return None
    if any(i.mentions(axis.name) for i in extreme.index):
        return None
    stages = {stage.name: stage for stage in workload.stages}
    before = stages.get(extreme.tensor)
    if before is None or not isinstance(before.kind, Reduction) or len(before.reduce_axes) != 1:
        return None
    (along,) = before.reduce_axes
    if before.kind.reducer not in (Reducer.MAX, Reducer.MIN) or along.extent != axis.extent:
        return None
    at = {own.name: i for own, i in zip(before.axes, extreme.index, strict=True)}
    same = substitute(before.body, at | {along.name: var(axis.name)}) == value
    return before.kind.reducer if same else None
