"""Axis reversal: a reduction goes through its terms in the opposite direction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import var
from ..algebra.scalar import substitute
from ..errors import ScheduleError, require
from ..workload.tensors import TupleReduction
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class ReverseAxis(Rewrite):
    """Reverse the reduction axis `axis` of `stage`.

        Y[y] += X[y - r] * W[r]    ->    Y[y] += X[y + r - 2] * W[2 - r]

    Windows that go through a tensor backwards then go forwards. The terms are the same in another
    order, so the rewrite is legal for every reduction, except of tuples, which keep their order.
    """

    label: ClassVar[str] = "reverse"
    keeps_operations: ClassVar[bool] = True

    axis: str

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the axis reversed, in normal form.

        Raise ScheduleError if there is no such stage or reduction axis, or if it combines tuples.
        """
        stage = self.stage_of(workload)
        extents = {axis.name: axis.extent for axis in stage.reduce_axes}
        if self.axis not in extents:
            raise ScheduleError(self, f"{self.stage!r} has no reduction axis {self.axis!r}")
        ordered = isinstance(stage.kind, TupleReduction)
        require(not ordered, self, "tuples are combined in the order of the axis")
        last = extents[self.axis] - 1
        body = substitute(stage.body, {self.axis: last - var(self.axis)})
        changed = replace(stage, body=body)
        stages = tuple(changed if old is stage else old for old in workload.stages)
        return replace(workload, stages=stages).normalised()
