"""Outputs that are copies of intermediate stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.scalar import Load
from ..errors import require
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class CopyOutput(Rewrite):
    """Compute the output `stage` in an intermediate stage, which other stages read instead.

        B[i] = f(X[i]);  Y[i] = B[i] + B[i+1]      (outputs B and Y)
    ->  T[i] = f(X[i]);  B[i] = T[i];  Y[i] = T[i] + T[i+1]

    An iteration of a loop over Y may then compute those elements of T again that another iteration
    stores. No value changes. The rewrite is legal if other stages read the output, and if the
    workload has fewer than `MAX_STAGES` stages.
    """

    label: ClassVar[str] = "copy"
    keeps_operations: ClassVar[bool] = True

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the copy, in normal form.

        Raise ScheduleError if there is no such stage, if it is no output, if no other stage reads
        it, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        require(stage.name in workload.outputs, self, f"{stage.name!r} is no output")
        require(bool(workload.consumers(stage.name)), self, f"nothing reads {stage.name!r}")
        self.require_room(workload)
        name = fresh("copy", set(workload.tensors))
        at = tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in stage.axes)
        read = Load(stage.name, at, stage.tensor.dtype)
        copy = Stage(replace(stage.tensor, name=name), stage.axes, read)
        outputs = tuple(name if output == stage.name else output for output in workload.outputs)
        return replace(workload, stages=(*workload.stages, copy), outputs=outputs).normalised()
