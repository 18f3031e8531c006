"""Axis permutation: a stage is computed with its axes in another order, then transposed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import affine, fresh, var
from ..algebra.scalar import Load
from ..errors import ScheduleError
from ..workload.tensors import Stage, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class PermuteAxes(Rewrite):
    """Compute `stage` into a temporary tensor and transpose that tensor into the result.

    The last axis of the temporary tensor is dimension `dim` of the result.

        Y[o,h,w] += X[c,h+r,w+s] * W[o,c,r,s]
    ->  T[h,w,o] += X[c,h+r,w+s] * W[o,c,r,s];  Y[o,h,w] = T[h,w,o]

    Vectors are then contiguous along that axis. No value changes. Legal for every dimension of a
    stage except its last one.
    """

    dim: int

    @property
    def label(self) -> str:
        return f"permute{self.dim}"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the computation in two stages, in normal form.

        Raise ScheduleError if there is no such stage or dimension, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        if not 0 <= self.dim < len(stage.axes) - 1:
            raise ScheduleError(self, f"dimension {self.dim} is not one before the last")
        self.require_room(workload)
        first, second = self._in_two(workload, stage)
        stages = [
            s for old in workload.stages for s in ((first, second) if old is stage else (old,))
        ]
        return replace(workload, stages=tuple(stages)).normalised()

    def _in_two(self, workload: Workload, stage: Stage) -> tuple[Stage, Stage]:
        axes = [axis for d, axis in enumerate(stage.axes) if d != self.dim]
        axes.append(stage.axes[self.dim])
        name = fresh("permuted", set(workload.tensors))
        tensor = Tensor(name, tuple(axis.extent for axis in axes), stage.tensor.dtype)
        index = tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in axes)
        first = replace(stage, tensor=tensor, axes=tuple(axes))
        return first, Stage(stage.tensor, stage.axes, Load(name, index, tensor.dtype))
