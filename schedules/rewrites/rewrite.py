"""The base class of rewrites: steps that compute a stage of a workload in other operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ..errors import ScheduleError
from ..limits import MAX_STAGES
from ..workload.tensors import Stage
from ..workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Rewrite(ABC):
    """A rewrite of `stage`. Fields are strings, integers and tuples of them: a trace is JSON."""

    stage: str

    @property
    @abstractmethod
    def label(self) -> str:
        """Its name in the names of sketches."""

    @abstractmethod
    def rewrite(self, workload: Workload) -> Workload:
        """`workload` (in normal form) rewritten, in normal form, with the same inputs and outputs.
        ScheduleError where the structure does not fit or the error is not allowed."""

    def stated_error(self, workload: Workload) -> float:
        """The proven bound on the relative error, in the unit of `Workload.allowed_error`: zero
        where sums and products are only reassociated."""
        return 0.0

    def stage_of(self, workload: Workload) -> Stage:
        """The stage that is rewritten; ScheduleError if there is none of that name."""
        try:
            return workload.stage(self.stage)
        except KeyError:
            raise ScheduleError(self, f"no stage is called {self.stage!r}") from None

    def require_room(self, workload: Workload) -> None:
        """ScheduleError if the workload has as many stages as it may have."""
        if len(workload.stages) >= MAX_STAGES:
            raise ScheduleError(self, f"that takes more than {MAX_STAGES} stages")
