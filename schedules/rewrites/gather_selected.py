"""Sums of the one term that data select, as with one-hot vectors, are reads at an index of data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import Affine, var
from ..algebra.gathers import DataPosition, Outside, place_of
from ..algebra.neutral import identity_of, is_identity, without_unit_factors
from ..algebra.scalar import (
    DATA_TYPES,
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    rewrite,
    substitute,
    vars_of,
    walk,
)
from ..dtypes import DType
from ..errors import require
from ..workload.tensors import Axis, Elementwise, Reduction, Stage
from ..workload.workload import Workload
from .masks import with_masks_inlined
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class GatherSelected(Rewrite):
    """Read the one term of a reduction along `axis` that a comparison with data selects.

        Y[n,d] += T[v,d] if v == I[n] else 0
    ->  Y[n,d] = T[clamp(I[n]),d] if 0 <= I[n] < V else 0

        H[n,v] = 1 if v == I[n] else 0;  Y[n,d] += H[n,v] * T[v,d]    ->    the same

    The rewrite is legal for a reduction whose term is the identity unless the position along the
    axis is an integer that does not depend on it, and uses the position as an index only. Products
    with implicit zeros are left out, even if the other factor is infinite or NaN (docs/math.md).
    """

    label: ClassVar[str] = "gather"

    axis: str

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload without the reduction axis, in normal form.

        Raise ScheduleError if there is no such stage, if data do not select its terms along the
        axis, or if a read would be out of bounds.
        """
        stage = self.stage_of(workload)
        selected = selection_of(stage, self.axis, workload)
        require(selected is not None, self, f"data select no terms of {stage.name!r}")
        assert selected is not None
        assert isinstance(stage.kind, Reduction)
        others = tuple(axis for axis in stage.kind.axes if axis.name != self.axis)
        kind = replace(stage.kind, axes=others) if others else Elementwise()
        new = replace(stage, body=selected.term(), kind=kind)
        self.require_in_bounds(new, workload)
        stages = tuple(new if old is stage else old for old in workload.stages)
        return replace(workload, stages=stages).normalised()


@dataclass(frozen=True, slots=True)
class Selection:
    """The term of the reduction `stage` at the position `place` of `axis`. All others are the
    reducer's identity."""

    stage: Stage
    axis: Axis
    place: Scalar
    value: Scalar
    """The value of the term, if there is such a position."""

    def term(self) -> Scalar:
        """Return the value of the selected term, or the identity if there is no such position."""
        assert isinstance(self.stage.kind, Reduction)
        at, tests = place_of(DataPosition(self.place, Outside.ZERO), self.axis.extent)
        found = substitute(self.value, {self.axis.name: at})
        for test in reversed(tests):
            found = Select(test, found, identity_of(self.stage.kind.reducer, found))
        return found


def selection_of(stage: Stage, axis: str, workload: Workload) -> Selection | None:
    """Return how data select the terms of `stage` along `axis`, or None if they do not."""
    along = next((one for one in stage.reduce_axes if one.name == axis), None)
    if along is None or not isinstance(stage.kind, Reduction):
        return None
    body = with_masks_inlined(stage, workload)
    for test, place in _equalities(body, axis):
        if not is_identity(_decided(body, test, holds=False), stage.kind.reducer):
            continue
        value = without_unit_factors(_decided(body, test, holds=True))
        if _only_in_reads(value, axis):
            return Selection(stage, along, place, value)
    return None


def _equalities(body: Scalar, axis: str) -> Iterator[tuple[Compare, Scalar]]:
    """Yield the comparisons that hold at one position of `axis` at most, with this position."""
    for node in dict.fromkeys(walk(body)):
        if not isinstance(node, Compare) or node.op not in (CompareOp.EQ, CompareOp.NE):
            continue
        for number, other in ((node.a, node.b), (node.b, node.a)):
            if not isinstance(number, IndexValue) or number.dtype not in DATA_TYPES:
                continue
            rest = number.index - var(axis)
            if number.index.coefficient(axis) == 1 and axis not in rest.vars() | vars_of(other):
                # Differences wrap around, and so do positions that are compared: both are integers
                # of the same type.
                yield node, _minus(other, rest)


def _minus(value: Scalar, index: Affine) -> Scalar:
    if index.is_const and index.const == 0:
        return value
    return Binary(BinaryOp.SUB, value, IndexValue(index, value.dtype))


def _decided(body: Scalar, test: Compare, *, holds: bool) -> Scalar:
    """Return `body` simplified under the assumption that the equality or inequality `test` is one
    of equal values, or if not `holds`, of different values."""
    outcome = Const(int(holds is (test.op is CompareOp.EQ)), DType.BOOL)

    def leaf(node: Scalar) -> Scalar | None:
        match node:
            case Compare() if node == test:
                return outcome
            case Select(cond, on_true, on_false):
                decided = rewrite(cond, leaf)
                if isinstance(decided, Const):
                    return rewrite(on_true if decided.value else on_false, leaf)
                return Select(decided, rewrite(on_true, leaf), rewrite(on_false, leaf))
            case Cast(x, dtype) if x.dtype is DType.BOOL:
                decided = rewrite(x, leaf)
                if isinstance(decided, Const):
                    return Const(decided.value, dtype)
                return Cast(decided, dtype)
            case Binary(BinaryOp.BIT_AND | BinaryOp.BIT_OR as op, a, b) if a.dtype is DType.BOOL:
                return _joined(op, rewrite(a, leaf), rewrite(b, leaf))
            case _:
                return None

    return rewrite(body, leaf)


def _joined(op: BinaryOp, a: Scalar, b: Scalar) -> Scalar:
    """Return `a & b` or `a | b` of bools, simplified if one of them is a constant."""
    for known, other in ((a, b), (b, a)):
        if isinstance(known, Const):
            return other if (known.value == 1) is (op is BinaryOp.BIT_AND) else known
    return Binary(op, a, b)


def _only_in_reads(value: Scalar, axis: str) -> bool:
    """Return whether `axis` occurs in `value` only in indices of reads, outside of data."""
    for node in walk(value):
        match node:
            case IndexValue(index) if index.mentions(axis):
                return False
            case All(conds) if any(cond.index.mentions(axis) for cond in conds):
                return False
            case Load(_, indices) if any(
                axis in datum.vars() for index in indices for datum in index.data()
            ):
                return False
    return True
