"""The position of an extreme in one pass: a reduction of pairs of values and positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import Affine, Index, affine, fresh, var
from ..algebra.comparisons import Ge0
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
from ..workload.tensors import Axis, Stage, Tensor, TupleReduction
from ..workload.workload import Workload
from .rewrite import Rewrite
from .searches import Search, search_of


@dataclass(frozen=True, slots=True)
class LocateExtreme(Rewrite):
    """Find the extreme and its first or last position in one pass, where `stage` searches the
    extreme that another stage has found (`searches.py`).

        M[i] max= X[i,k];  P[i] min= k if X[i,k] == M[i] else K
    ->  P[i] = position of the combination of (X[i,k], k) over k

    The pairs are combined in the order of the axis. With `parts` > 0, partial results of
    interleaved positions come first: part p has the positions p, p + parts, ..., each in order.
    Their combination decides between equal values by their positions. The last position is found
    without parts only. No value changes: all results are positions.
    """

    keeps_operations: ClassVar[bool] = True

    parts: int = 0

    @property
    def label(self) -> str:
        return "locate"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the position found in one pass, in normal form.

        Raise ScheduleError if there is no such stage, if it does not look for an extreme, if the
        axis is not longer than the parts, if parts would find the last position, or if there are
        too many stages.
        """
        stage = self.stage_of(workload)
        found = search_of(stage, workload)
        require(found is not None, self, f"{stage.name!r} does not look for an extreme")
        assert found is not None
        extent = found.axis.extent
        problem = f"{extent} positions are not divided into {self.parts} parts"
        require(self.parts == 0 or 1 < self.parts < extent, self, problem)
        require(not (self.parts and found.last), self, "parts do not find the last position")
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
        if found.last:
            none = found.none(axis.extent)
        identities, unordered = (found.worst, Const(none, DType.I32)), self.parts > 0
        combine = _combine(found, by_position=unordered or found.last)
        kind = TupleReduction((axis,), identities, combine, 1, commutative=unordered)
        position = replace(stage, kind=kind, body=Components(pair))
        if not found.value.dtype.is_float:
            return (*before, position)
        first, second = _of_both(position, taken)
        best, at_best = (Load(s.name, _at(stage.axes), s.tensor.dtype) for s in (first, second))
        shift = Const(-found.nan_shift(found.axis.extent), DType.I32)
        shifted = Binary(BinaryOp.SUB, at_best, shift)
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
            (step,), (found.worst, Const(0, DType.I32)), _combine(found, by_position=False), 1
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


def _combine(found: Search, *, by_position: bool) -> tuple[Scalar, Scalar]:
    """Return the combination of two pairs of a value and its position. The right one is later,
    or if `by_position`, positions decide between equal values."""
    dtype = found.value.dtype
    a, b = component(LEFT, 0, dtype), component(RIGHT, 0, dtype)
    m, n = component(LEFT, 1, DType.I32), component(RIGHT, 1, DType.I32)
    less, more = (a, b) if found.reducer is Reducer.MAX else (b, a)
    takes: Scalar = Compare(CompareOp.LT, less, more)
    same: Scalar = Compare(CompareOp.EQ, a, b)
    if dtype.is_float:
        left, right = (Compare(CompareOp.NE, x, x) for x in (a, b))
        takes = _either(takes, _both(right, Compare(CompareOp.EQ, a, a)))
        same = _either(same, _both(left, right))
    if by_position:
        earlier, later = (m, n) if found.last else (n, m)
        takes = _either(takes, _both(same, Compare(CompareOp.LT, earlier, later)))
    return Select(takes, b, a), Select(takes, n, m)
