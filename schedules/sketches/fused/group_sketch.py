"""What the sketches of fusion groups have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import BoolArray, IntArray
from ...target import Target
from ...workload.workload import Workload
from ..groups import FusionGroup
from ..knobs import Knobbed
from ..streams import stream_values, streams_pay

TASKS_A_THREAD = 4
"""Tasks that loops are divided into which are too few or too uneven for the threads."""


@dataclass(frozen=True)
class GroupSketch(Knobbed):
    """A sketch of the stages of a group."""

    workload: Workload
    group: FusionGroup
    target: Target

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.group.last.dtype)

    @cached_property
    def streams_pay_here(self) -> bool:
        return streams_pay(self.workload, self.target)

    @cached_property
    def stream_choices(self) -> tuple[int, ...]:
        return stream_values(self.workload, self.group.last.name, self.target)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) all of them, if the sketch has no limits."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)
