"""Repetition: elements that a stage reads several times in a row are stored as often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import affine, fresh, recombine, var
from ..algebra.scalar import Load, loads, map_index, rewrite
from ..errors import require
from ..workload.tensors import Stage, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class RepeatElements(Rewrite):
    """Store what `stage` reads of a tensor in the order in which `stage` reads it.

        Y[n,p,c] = X[n,p,c] * s[n,c//4]   ->   R[n,c] = s[n,c//4];  Y[n,p,c] = X[n,p,c] * R[n,c]

    Lanes of vectors then load adjacent elements. The read is the one numbered `read` by the order
    of the body, in which equal reads count once. Its new tensor has the axes on which the read
    depends. No value changes. The rewrite is legal for every read in bounds, except a stage that is
    nothing but this read.
    """

    label: ClassVar[str] = "repeat"
    keeps_operations: ClassVar[bool] = True

    read: int

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with a stage that stores the elements, in normal form.

        Raise ScheduleError if there is no such stage or read, if the read depends on no axis, if a
        condition keeps it in bounds, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        reads = distinct_reads(stage)
        require(0 <= self.read < len(reads), self, f"{stage.name!r} has {len(reads)} reads")
        old = reads[self.read]
        require(stage.body != old, self, f"{stage.name!r} is nothing but this read")
        used = {name for index in old.index for name in index.vars()}
        axes = tuple(axis for axis in stage.all_axes if axis.name in used)
        require(bool(axes), self, "the read depends on no axis")
        self.require_room(workload)
        name = fresh("repeated", set(workload.tensors))
        tensor = Tensor(name, tuple(axis.extent for axis in axes), old.dtype)
        stored = Stage(tensor, axes, old)
        self.require_in_bounds(stored, workload)
        at = tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in axes)
        new = Load(name, at, old.dtype)
        body = rewrite(stage.body, lambda node: new if node == old else None)
        body = map_index(body, recombine)  # other reads may not need the quotient any longer
        pairs = (
            (stored, replace(stage, body=body)) if other is stage else (other,)
            for other in workload.stages
        )
        return replace(workload, stages=tuple(s for pair in pairs for s in pair)).normalised()


def distinct_reads(stage: Stage) -> tuple[Load, ...]:
    """Return the reads of a stage in the order of its body. Equal reads count once."""
    return tuple(dict.fromkeys(loads(stage.body)))
