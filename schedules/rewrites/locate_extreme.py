"""The position of an extreme in one pass: a reduction of pairs of values and positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import Affine, Index, affine, fresh, var
from ..algebra.comparisons import Ge0
from ..algebra.neutral import identity_of
from ..algebra.scalar import (
    All,
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
from ..limits import MAX_STAGES
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
    all numbers. The pairs are combined in the order of the axis. With `parts` > 0, partial results
    of interleaved positions come first: part p has the positions p, p + parts, ..., each in order.
    Their combination decides between equal values by their positions. No value changes: all results
    are positions.
    """

    keeps_operations: ClassVar[bool] = True

    parts: int = 0

    @property
    def label(self) -> str:
        return "locate"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the position found in one pass, in normal form.

        Raise ScheduleError if there is no such stage, if it does not look for the first position of
        an extreme, if the axis is not longer than the parts, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        found = search_of(stage, workload)
        require(found is not None, self, f"{stage.name!r} does not look for an extreme")
        assert found is not None
        extent = found.axis.extent
        problem = f"{extent} positions are not divided into {self.parts} parts"
        require(self.parts == 0 or 1 < self.parts < extent, self, problem)
        room = len(workload.stages) + 4 <= MAX_STAGES
        require(room, self, f"the result would have more than {MAX_STAGES} stages")
        pair = self._stages(stage, found, set(workload.tensors))
        stages = ((*pair,) if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for part in stages for s in part)).normalised()

    def _stages(self, stage: Stage, found: Search, taken: set[str]) -> tuple[Stage, ...]:
        before, axis, none = tuple[Stage, ...](), found.axis, 0
        pair: tuple[Scalar, Scalar] = (found.value, _number(var(axis.name)))
        if self.parts:
            before, axis = self._partial(stage, found, taken)
            at = (*_at(stage.axes), var(axis.name))
            value, step = (Load(one.name, at, one.tensor.dtype) for one in before)
            number = Binary(BinaryOp.MUL, step, Const(self.parts, DType.I32))
            place = Binary(BinaryOp.ADD, number, _number(var(axis.name)))
            pair, none = (value, place), found.axis.extent  # after all positions
            taken = taken | {one.name for one in before}
        identities, unordered = (found.worst, Const(none, DType.I32)), self.parts > 0
        combine = found.combine(by_position=unordered)
        kind = TupleReduction((axis,), identities, combine, 1, commutative=unordered)
        position = replace(stage, kind=kind, body=Components(pair))
        if not found.value.dtype.is_float:
            return (*before, position)
        first, second = _of_both(position, taken)
        best, at_best = (Load(s.name, _at(stage.axes), s.tensor.dtype) for s in (first, second))
        shifted = Binary(BinaryOp.SUB, at_best, Const(found.axis.extent, DType.I32))
        chosen = Select(Compare(CompareOp.NE, best, best), shifted, at_best)
        return *before, first, second, Stage(stage.tensor, stage.axes, chosen)

    def _partial(
        self, stage: Stage, found: Search, taken: set[str]
    ) -> tuple[tuple[Stage, ...], Axis]:
        """Return the stages of the partial results, whose positions are numbers of steps, and the
        axis of the parts."""
        extent = found.axis.extent
        part = Axis(fresh("part", {axis.name for axis in stage.all_axes}), self.parts)
        step = Axis(found.axis.name, -(-extent // self.parts))
        place = var(step.name) * self.parts + var(part.name)
        value = substitute(found.value, {found.axis.name: place})
        if step.extent * self.parts > extent:
            value = Select(All((Ge0(affine(extent - 1) - place),)), value, found.worst)
        axes = (*stage.axes, part)
        tensor = replace(stage.tensor, shape=tuple(axis.extent for axis in axes))
        kind = TupleReduction(
            (step,), (found.worst, Const(0, DType.I32)), found.combine(by_position=False), 1
        )
        whole = Stage(tensor, axes, Components((value, _number(var(step.name)))), kind)
        return _of_both(whole, taken), part


def _of_both(stage: Stage, taken: set[str]) -> tuple[Stage, Stage]:
    """Return the stages of the value and the position of a reduction of pairs."""
    assert isinstance(stage.kind, TupleReduction)
    names = fresh("extreme", taken), fresh("position", taken)
    types = (identity.dtype for identity in stage.kind.identities)
    first, second = (
        replace(
            stage,
            tensor=Tensor(name, stage.tensor.shape, dtype),
            kind=replace(stage.kind, position=number),
        )
        for number, (name, dtype) in enumerate(zip(names, types, strict=True))
    )
    return first, second


def _at(axes: tuple[Axis, ...]) -> Index:
    return tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in axes)


def _number(index: Affine) -> IndexValue:
    return IndexValue(index, DType.I32)


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

    @property
    def worst(self) -> Const:
        return identity_of(self.reducer, self.value)

    def combine(self, *, by_position: bool) -> tuple[Scalar, Scalar]:
        """Return the combination of two pairs of a value and its position. The right one is later,
        or if `by_position`, positions decide between equal values."""
        dtype = self.value.dtype
        a, b = component(LEFT, 0, dtype), component(RIGHT, 0, dtype)
        m, n = component(LEFT, 1, DType.I32), component(RIGHT, 1, DType.I32)
        less, more = (a, b) if self.reducer is Reducer.MAX else (b, a)
        takes: Scalar = Compare(CompareOp.LT, less, more)
        same: Scalar = Compare(CompareOp.EQ, a, b)
        if dtype.is_float:
            left, right = (Compare(CompareOp.NE, x, x) for x in (a, b))
            takes = _either(takes, _both(right, Compare(CompareOp.EQ, a, a)))
            same = _either(same, _both(left, right))
        if by_position:
            takes = _either(takes, _both(same, Compare(CompareOp.LT, n, m)))
        return Select(takes, b, a), Select(takes, n, m)


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
