"""Reading through: a sum reads a tensor itself, not a copy of it with zeros around or between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.comparisons import Cond
from ..algebra.quotients import limiting_quotients
from ..algebra.scalar import All, Const, Load, Reducer, Scalar, Select, loads, substitute
from ..algebra.scalar import rewrite as rewrite_scalar
from ..algebra.values import const
from ..errors import ScheduleError
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class ReadThrough(Rewrite):
    """Let the sums that read the copy `stage` of a tensor read the tensor itself.

        U[u] = X[u/2] if u is even else 0;  Y[y] += U[y + r] * W[r]
    ->  Y[y] += (X[(y + r)/2] if y + r is even and inside U else 0) * W[r]

    The zeros that the copy has around the tensor (padding) or between its elements (a transposed
    convolution over an input with inserted zeros) become conditions of the terms of the sums.
    Kernels may then leave these terms out. The rewrite is legal for a stage that copies elements of
    one tensor or zeros, is no output, and is read by sums only.
    """

    label: ClassVar[str] = "through"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload without the copy, in normal form.

        Raise ScheduleError if there is no such stage, or if it is needed.
        """
        copy = self.stage_of(workload)
        if not is_copy_with_zeros(copy, workload) or copy.name in workload.outputs:
            raise ScheduleError(self, f"{self.stage!r} does not copy a tensor into an intermediate")
        readers = workload.consumers(copy.name)
        if not all(reader.reduces_by(Reducer.SUM) for reader in readers):
            raise ScheduleError(self, f"not only sums read {self.stage!r}")
        names = {reader.name for reader in readers}
        stages = tuple(
            replace(old, body=_reading_through(old.body, copy)) if old.name in names else old
            for old in workload.stages
            if old is not copy
        )
        return replace(workload, stages=stages).normalised()


def is_copy_with_zeros(stage: Stage, workload: Workload) -> bool:
    """Return whether every element of `stage` is an element of a tensor of the same type, or a zero
    that an index condition chooses, and no index of the copy is data."""
    match stage.body:
        case Load() as load:
            pass
        case Select(All(), Load() as load, Const() as other) if other.is_plus_zero:
            pass
        case _:
            return False
    same = workload.tensors[load.tensor].dtype is stage.tensor.dtype
    readers = workload.consumers(stage.name)
    reads = [load, *(r for s in readers for r in loads(s.body) if r.tensor == stage.name)]
    by_data = any(i.has_data for read in reads for i in read.index)
    return stage.is_elementwise and same and not by_data


def _reading_through(body: Scalar, copy: Stage) -> Scalar:
    """Return `body` with reads of the tensor that `copy` copies, in place of reads of `copy`."""

    def leaf(node: Scalar) -> Scalar | None:
        match node:
            case Select(All(conds), Load(copy.name) as load, Const() as other) if (
                other.is_plus_zero
            ):
                inner = _element(copy, load)
                return _guarded((*conds, *_conditions(inner)), inner, other)
            case Load(copy.name):
                inner = _element(copy, node)
                return _guarded(_conditions(inner), inner, const(0, node.dtype))
            case _:
                return None

    return rewrite_scalar(body, leaf)


def _element(copy: Stage, load: Load) -> Scalar:
    """Return the element of `copy` that `load` reads."""
    axes = (axis.name for axis in copy.axes)
    return substitute(copy.body, dict(zip(axes, load.index, strict=True)))


def _conditions(element: Scalar) -> tuple[Cond, ...]:
    return (
        element.cond.conds if isinstance(element, Select) and isinstance(element.cond, All) else ()
    )


def _guarded(conds: tuple[Cond, ...], element: Scalar, other: Scalar) -> Scalar:
    """Return the load in `element` if `conds` hold, else `other`. Limits of a divided index are
    stated for the quotient, which is the same in all notations."""
    (load,) = loads(element)
    return limiting_quotients(Select(All(conds), load, other)) if conds else load
