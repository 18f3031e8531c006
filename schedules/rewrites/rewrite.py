"""The base class of rewrites: steps that compute a stage of a workload with other operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..errors import ScheduleError, WorkloadError, require
from ..limits import MAX_STAGES
from ..workload.tensors import Stage
from ..workload.validate import stage_ranges
from ..workload.validate_body import check_reads
from ..workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Rewrite(ABC):
    """A rewrite of `stage`. Fields are strings, integers and tuples of them, as in JSON traces."""

    keeps_operations: ClassVar[bool] = False
    """Whether every element that is used is computed by the same operations as before, up to the
    order of a reduction, so that a correct kernel has the same bound on its rounding error and the
    same special values. Such a rewrite only moves elements and conditions."""
    keeps_shapes: ClassVar[bool] = True
    """Whether inputs and outputs keep their shapes. Their memory is always the same."""

    stage: str

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of the rewrite in the names of sketches."""

    @abstractmethod
    def rewrite(self, workload: Workload) -> Workload:
        """Return `workload` rewritten. Both are in normal form, with the same inputs and outputs
        (of the same shapes if `keeps_shapes`).

        Raise ScheduleError if the structure does not match or the error is not allowed.
        """

    def stated_error(self, workload: Workload) -> float:
        """Return the proven bound on the relative error, in the unit of `Workload.allowed_error`.

        The bound is zero if sums and products are only reassociated.
        """
        return 0.0

    def stage_of(self, workload: Workload) -> Stage:
        """Return the stage that is rewritten. Raise ScheduleError if it does not exist."""
        try:
            return workload.stage(self.stage)
        except KeyError:
            raise ScheduleError(self, f"no stage is called {self.stage!r}") from None

    def require_in_bounds(self, stage: Stage, workload: Workload) -> None:
        """Raise ScheduleError if a read of the new `stage` is not proved in bounds. The old stage
        may have had a condition around it."""
        require(reads_in_bounds(stage, workload), self, "a condition keeps the read in bounds")

    def require_room(self, workload: Workload) -> None:
        """Raise ScheduleError if the workload already has the maximum number of stages."""
        if len(workload.stages) >= MAX_STAGES:
            raise ScheduleError(self, f"the result would have more than {MAX_STAGES} stages")


def reads_in_bounds(stage: Stage, workload: Workload) -> bool:
    """Return whether all reads of `stage` are proved in bounds. They are of tensors of
    `workload`."""
    try:
        check_reads(stage, stage.body, workload.tensors, stage_ranges(stage), "")
    except WorkloadError:
        return False
    return True


def changing_operations(steps: Sequence[Rewrite]) -> tuple[Rewrite, ...]:
    """Return `steps` without the last ones that keep all operations.

    A kernel of `steps` has the same allowed error as a kernel of the result, whose inputs and
    outputs have the shapes of the original workload (see `check_order`).
    """
    last = max((n for n, step in enumerate(steps) if not step.keeps_operations), default=-1)
    return tuple(steps[: last + 1])


def check_order(steps: Sequence[Rewrite]) -> None:
    """Raise ScheduleError if a rewrite that changes operations follows one that changes the shapes
    of inputs or outputs. A check of kernels could not compare the two forms element by element."""
    shapes_changed = False
    for step in steps:
        problem = "a rewrite that changes operations must precede all rewrites that change shapes"
        require(step.keeps_operations or not shapes_changed, step, problem)
        shapes_changed = shapes_changed or not step.keeps_shapes
