"""Deinterleaving: positions of the last axis with the same remainder lie together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.quotients import limiting_quotients
from ..algebra.scalar import Load, substitute
from ..errors import ScheduleError, WorkloadError
from ..workload.tensors import Axis, Scan, Stage, Tensor
from ..workload.validate import validate_stage
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class Deinterleave(Rewrite):
    """Compute `stage` into a temporary tensor in which every `step`-th position of the last axis
    lies next to the one before, and interleave that tensor into the result.

        Y[o,w] += (X[(w - r)/2] if w - r is even else 0) * W[o,r]
    ->  T[o,p,v] += (X[v + (p - r)/2] if p - r is even else 0) * W[o,r];  Y[o,w] = T[o, w%2, w//2]

    Vectors along `v` then read contiguous elements if positions at this distance do. No value
    changes. If `step` does not divide the extent, a few positions after the end are computed, too;
    the rewrite is legal if they read elements of tensors only.
    """

    label: ClassVar[str] = "deinterleave"
    keeps_operations: ClassVar[bool] = True

    step: int

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with two stages in place of `stage`, in normal form.

        Raise ScheduleError if there is no such stage, if its last axis is scanned or no longer than
        `step`, if positions after the end would read out of bounds, or if there are too many
        stages.
        """
        stage = self.stage_of(workload)
        extent = stage.axes[-1].extent if stage.axes else 0
        if not 1 < self.step < extent or isinstance(stage.kind, Scan):
            raise ScheduleError(self, f"the last axis of {self.stage!r} does not have such steps")
        self.require_room(workload)
        try:
            validate_stage(self._longer(stage), workload.tensors)
        except WorkloadError as error:
            raise ScheduleError(self, f"positions after the end: {error}") from error
        pair = self._pair(stage, fresh("deinterleaved", set(workload.tensors)))
        pairs = (pair if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for pair in pairs for s in pair)).normalised()

    def _longer(self, stage: Stage) -> Stage:
        """Return `stage` with all positions that are computed."""
        *outer, last = stage.axes
        axes = (*outer, Axis(last.name, -(-last.extent // self.step) * self.step))
        shape = tuple(axis.extent for axis in axes)
        return replace(stage, tensor=replace(stage.tensor, shape=shape), axes=axes)

    def _pair(self, stage: Stage, name: str) -> tuple[Stage, Stage]:
        *outer, last = stage.axes
        taken = {axis.name for axis in stage.all_axes}
        phase = Axis(fresh("phase", taken), self.step)
        place = Axis(fresh("place", taken), -(-last.extent // self.step))
        axes = (*outer, phase, place)
        position = var(place.name) * self.step + var(phase.name)
        tensor = Tensor(name, tuple(axis.extent for axis in axes), stage.tensor.dtype)
        # A proof that reads are in bounds needs limits of the indices that are read.
        body = limiting_quotients(substitute(stage.body, {last.name: position}))
        first = replace(stage, tensor=tensor, axes=axes, body=body)
        index = (
            *(var(axis.name) if axis.extent > 1 else affine(0) for axis in outer),
            var(last.name) % self.step,
            var(last.name) // self.step,
        )
        return first, Stage(stage.tensor, stage.axes, Load(name, index, tensor.dtype))
