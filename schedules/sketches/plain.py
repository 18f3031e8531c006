"""The plain sketch: the loops of the expression, the outermost in parallel if that is legal.

It is slow, and guarantees that every valid expression has a correct schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic

from ..arrays import IntArray
from ..errors import ScheduleError
from ..leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ..nest.loop_ir import For, outermost
from ..plan import Access, Level, LoopAxis, Outline, Plan
from ..primitives import Parallel
from ..target import Target
from ..workload.size import iterations
from ..workload.workload import Workload
from .knobs import Knobbed, N, parallel_knob, settings
from .writer import TraceWriter


@settings
class PlainSettings(Generic[N]):
    """Whether top-level loops are divided among threads."""

    parallel: N = parallel_knob()


@dataclass(frozen=True)
class PlainSketch(Knobbed[PlainSettings[IntArray], PlainSettings[int]]):
    """See the module."""

    workload: Workload
    target: Target

    name = "plain"
    SETTINGS = PlainSettings

    @property
    def points(self) -> int:
        return iterations(self.workload)

    @cached_property
    def _outline(self) -> Outline:
        """One axis: the evaluations of all stages together."""
        accesses = (
            Access(t.name, t.dtype.bytes, ((1,),), t.name in self.workload.outputs)
            for t in self.workload.tensors.values()
        )
        return Outline((LoopAxis("points", self.points),), tuple(accesses))

    def plan(self, settings: IntArray) -> Plan:
        """One loop over all evaluations."""
        shared = self.values(settings).parallel > 0
        return Plan(self._outline, (Level(0, 1, shared),), len(shared))

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """One evaluation per iteration, of elements that may lie anywhere."""
        shared, axes = self.values(settings).parallel > 0, frozenset({"points"})
        does = Statement((Operations(axes, 1, 1),), (AccessPattern("", ("",), {"points": 1}),))
        return [Leaf(LeafLoop(axes, self.points, None, shared), does)]

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Make the outer loops parallel; loops that cannot be proven parallel stay serial."""
        roots = [stmt for stmt in outermost(writer.nest.body) if isinstance(stmt, For)]
        for root in roots if self.chosen(setting).parallel else ():
            try:
                writer.do(Parallel(root.var))
            except ScheduleError:
                continue
