"""The position of an extreme by blocks: first the extreme of each block, then one block is
searched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import Affine, Index, affine, fresh, var
from ..algebra.scalar import (
    Binary,
    BinaryOp,
    Cast,
    Clamped,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    index_conds,
    loads,
    substitute,
    walk,
)
from ..dtypes import DType
from ..errors import require
from ..limits import MAX_STAGES
from ..workload.tensors import Axis, Elementwise, Reduction, Stage, StageKind, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite
from .searches import Search, search_of


@dataclass(frozen=True, slots=True)
class SearchBlocks(Rewrite):
    """Find the position of an extreme in one block of `length` positions, where `stage` searches
    the extreme that another stage has found (`searches.py`).

        M[i] max= X[i,k];  P[i] min= k if X[i,k] == M[i] else K
    ->  B[i,b] max= X[i, b*length + q];  M[i] max= B[i,b]
        C[i] min= b if B[i,b] == M[i] else the number of blocks
        D[i] = C[i]*length
        Q[i] min= q if X[i, D[i] + q] == M[i] else length;  P[i] = D[i] + Q[i]

    The last block ends at the last position: if `length` does not divide K, it overlaps the block
    before. That changes neither an extreme nor which position is the first or the last one. The
    extreme of a block of floats may lose a NaN, so another reduction of the same elements finds out
    whether the block has one, and B is NaN then. No value changes: all results are positions.
    """

    keeps_operations: ClassVar[bool] = True

    length: int

    @property
    def label(self) -> str:
        return f"search{self.length}"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the search in one block, in normal form.

        Raise ScheduleError if there is no such stage, if it does not look for an extreme, if the
        axis is not longer than a block, if the position is used in another way than as a plain
        index of a read, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        found = search_of(stage, workload)
        require(found is not None, self, f"{stage.name!r} does not look for an extreme")
        assert found is not None
        extent = found.axis.extent
        problem = f"{extent} positions are not divided into blocks of {self.length}"
        require(1 < self.length < extent, self, problem)
        extreme = workload.stage(found.best.tensor)
        (along,) = extreme.reduce_axes
        for value, axis in ((found.value, found.axis), (extreme.body, along)):
            problem = f"the position along {axis.name!r} is not a plain index of a read"
            require(_only_indexes(value, axis.name), self, problem)
        room = len(workload.stages) + 6 <= MAX_STAGES
        require(room, self, f"the result would have more than {MAX_STAGES} stages")
        first, then = self._stages(workload, stage, extreme, found)
        new = {extreme.name: first, stage.name: then}
        stages = (one for old in workload.stages for one in new.get(old.name, (old,)))
        return replace(workload, stages=tuple(stages)).normalised()

    def _stages(
        self, workload: Workload, stage: Stage, extreme: Stage, found: Search
    ) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
        """Return the stages that replace `extreme`, and those that replace `stage`."""
        names = _new_names(set(workload.tensors))
        blocks = self._blocks(extreme, found, names)
        top = blocks[-1]
        block = top.axes[-1]
        above = Load(top.name, (*_at(extreme.axes), var(block.name)), top.tensor.dtype)
        whole = replace(extreme, body=above).reducing_over((block,))
        number = Axis(fresh("block", {a.name for a in stage.all_axes}), block.extent)
        there = Load(top.name, (*found.best.index, var(number.name)), top.tensor.dtype)
        return (*blocks, whole), self._search(stage, found, names, there, number)

    def _blocks(self, extreme: Stage, found: Search, names: list[str]) -> tuple[Stage, ...]:
        """Return the stages that compute the extreme of each block; the last one has the result."""
        (along,) = extreme.reduce_axes
        axes = {axis.name for axis in extreme.all_axes}
        block = Axis(fresh("block", axes), -(-along.extent // self.length))
        step = Axis(along.name, self.length)
        start = var(block.name) * self.length
        if along.extent % self.length:
            start = _clamped(IndexValue(start, DType.I32), along.extent - self.length)
        value = substitute(extreme.body, {along.name: start + var(step.name)})
        outer = (*extreme.axes, block)
        shape = tuple(axis.extent for axis in outer)
        kind = Reduction(found.reducer, (step,))
        best = Stage(Tensor(names[0], shape, value.dtype), outer, value, kind)
        if not value.dtype.is_float:
            return (best,)
        # An integer as wide as the value has the same lanes.
        count = DType.I64 if value.dtype is DType.F64 else DType.I32
        is_nan = Cast(Compare(CompareOp.NE, value, value), count)
        nans = Stage(Tensor(names[1], shape, count), outer, is_nan, Reduction(Reducer.SUM, (step,)))
        at = _at(outer)
        number, counted = Load(names[0], at, value.dtype), Load(names[1], at, count)
        nan = Const(float("nan"), value.dtype)
        both = Select(Compare(CompareOp.EQ, counted, Const(0, count)), number, nan)
        return best, nans, Stage(Tensor(names[2], shape, value.dtype), outer, both)

    def _search(
        self, stage: Stage, found: Search, names: list[str], there: Load, number: Axis
    ) -> tuple[Stage, ...]:
        """Return the stages that find the block, its start, the position in it, and `stage`."""
        extent, count, dtype = found.axis.extent, number.extent, DType.I32
        shape, at = tuple(axis.extent for axis in stage.axes), _at(stage.axes)

        def made(name: str, body: Scalar, kind: StageKind) -> tuple[Stage, Load]:
            return Stage(Tensor(name, shape, dtype), stage.axes, body, kind), Load(name, at, dtype)

        def pick(axis: Axis) -> StageKind:
            return Reduction(found.pick, (axis,))

        chosen, block = made(names[3], found.body(there, found.best, number), pick(number))
        starts, start = made(names[4], self._start(found, block, count), Elementwise())
        step = Axis(found.axis.name, self.length)
        place = _clamped(start, extent - self.length) + var(step.name)
        value = substitute(found.value, {found.axis.name: place})
        within, inside = made(names[5], found.body(value, found.best, step), pick(step))
        position: Scalar = Binary(BinaryOp.ADD, start, inside)
        if found.value.dtype.is_float:  # a NaN is shifted by the whole extent, not by the length
            shift = found.nan_shift(extent) - found.nan_shift(self.length)
            moved = Select(_is_nan(found, block, count), Const(shift, dtype), Const(0, dtype))
            position = Binary(BinaryOp.ADD, position, moved)
        return chosen, starts, within, replace(stage, body=position, kind=Elementwise())

    def _start(self, found: Search, block: Scalar, count: int) -> Scalar:
        """Return the first position of the block with the number `block`, which is shifted if the
        block has a NaN."""
        if found.value.dtype.is_float:
            back = Const(-found.nan_shift(count), DType.I32)
            moved = Binary(BinaryOp.ADD, block, back)
            block = Select(_is_nan(found, block, count), moved, block)
        start = Binary(BinaryOp.MUL, block, Const(self.length, DType.I32))
        last = found.axis.extent - self.length
        return Binary(BinaryOp.MIN, start, Const(last, DType.I32))


_NAMES = ("extremes", "nans", "bests", "chosen", "start", "within")


def _new_names(taken: set[str]) -> list[str]:
    """Return names of the new tensors that are not in `taken`."""
    names = list[str]()
    for name in _NAMES:
        names.append(fresh(name, taken | set(names)))
    return names


def _only_indexes(value: Scalar, axis: str) -> bool:
    """Return whether `value` uses the position along `axis` in indices of reads only, neither
    divided nor in an integer that is data."""
    numbers = (node.index for node in walk(value) if isinstance(node, IndexValue))
    others = (*numbers, *(cond.index for cond in index_conds(value)))
    indices = (i for load in loads(value) for i in load.index)
    return not any(i.mentions(axis) for i in others) and all(
        i.is_linear_in(axis) and not (i.has_data and i.mentions(axis)) for i in indices
    )


def _clamped(start: Scalar, last: int) -> Affine:
    """Return the integer `start` as an index in 0..last."""
    return Affine(((Clamped(start, last + 1), 1),), 0)


def _is_nan(found: Search, block: Scalar, count: int) -> Scalar:
    """Return whether the number of a block, of `count` ones, is shifted because it has a NaN."""
    limit = Const(count if found.last else -1, block.dtype)
    return Compare(CompareOp.LE, *((limit, block) if found.last else (block, limit)))


def _at(axes: tuple[Axis, ...]) -> Index:
    return tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in axes)
