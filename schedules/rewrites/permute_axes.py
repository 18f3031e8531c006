"""Axis permutation: a stage is computed with its axes in another order, then transposed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.scalar import Load
from ..errors import ScheduleError
from ..workload.tensors import Scan, Stage, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class PermuteAxes(Rewrite):
    """Compute `stage` into a temporary tensor and transpose that tensor into the result.

    The last axis of the temporary tensor is dimension `dim` of the result.

        Y[o,h,w] += X[c,h+r,w+s] * W[o,c,r,s]
    ->  T[h,w,o] += X[c,h+r,w+s] * W[o,c,r,s];  Y[o,h,w] = T[h,w,o]

    Vectors can then be contiguous along this dimension. No value changes. The rewrite is legal for
    every dimension except the last.
    """

    keeps_operations: ClassVar[bool] = True

    dim: int

    @property
    def label(self) -> str:
        return f"permute{self.dim}"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with two stages in place of `stage`, in normal form.

        Raise ScheduleError if there is no such stage or dimension, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        if not 0 <= self.dim < len(stage.axes) - 1:
            raise ScheduleError(self, f"dimension {self.dim} is the last one or does not exist")
        self.require_room(workload)
        order = [*(d for d in range(len(stage.axes)) if d != self.dim), self.dim]
        axes = [stage.axes[d] for d in order]
        kind = stage.kind
        if isinstance(kind, Scan):
            kind = replace(kind, dim=order.index(kind.dim))
        name = fresh("permuted", set(workload.tensors))
        tensor = Tensor(name, tuple(axis.extent for axis in axes), stage.tensor.dtype)
        index = tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in axes)
        first = replace(stage, tensor=tensor, axes=tuple(axes), kind=kind)
        second = Stage(stage.tensor, stage.axes, Load(name, index, tensor.dtype))
        pairs = ((first, second) if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for pair in pairs for s in pair)).normalised()
