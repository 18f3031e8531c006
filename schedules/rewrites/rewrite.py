"""The base class of rewrites: steps that compute a stage of a workload with other operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ..errors import ScheduleError
from ..limits import MAX_STAGES
from ..workload.tensors import Stage
from ..workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Rewrite(ABC):
    """A rewrite of `stage`. Fields are strings, integers and tuples of them, as in JSON traces."""

    stage: str

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of the rewrite in the names of sketches."""

    @abstractmethod
    def rewrite(self, workload: Workload) -> Workload:
        """Return `workload` rewritten. Both are in normal form, with the same inputs and outputs.

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

    def require_room(self, workload: Workload) -> None:
        """Raise ScheduleError if the workload already has the maximum number of stages."""
        if len(workload.stages) >= MAX_STAGES:
            raise ScheduleError(self, f"the result would have more than {MAX_STAGES} stages")
