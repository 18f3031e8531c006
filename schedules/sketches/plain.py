"""The plain sketch: unscheduled loops. The outermost loops are parallel if that is legal.

It is the fallback for stages that no rule matches, so that every valid expression has a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Generic

from ..algebra.scalar import loads
from ..arrays import IntArray
from ..errors import ScheduleError
from ..leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ..nest.loop_ir import For, outermost
from ..plan import Access, Level, LoopAxis, Outline, Plan
from ..primitives import Parallel
from ..target import Target
from ..workload.workload import Workload
from .knobs import Knobbed, N, parallel_knob, settings
from .writer import TraceWriter


@settings
class PlainSettings(Generic[N]):
    """The knob of the plain sketch: whether threads divide the top-level loops."""

    parallel: N = parallel_knob()


@dataclass(frozen=True)
class PlainSketch(Knobbed[PlainSettings[IntArray], PlainSettings[int]]):
    """The plain sketch of `stages`."""

    workload: Workload
    target: Target
    stages: tuple[str, ...]

    name = "plain"
    SETTINGS = PlainSettings

    @property
    def points(self) -> int:
        stages = map(self.workload.stage, self.stages)
        return sum(prod(axis.extent for axis in stage.all_axes) for stage in stages)

    @cached_property
    def _outline(self) -> Outline:
        bodies = (self.workload.stage(name).body for name in self.stages)
        reads = {load.tensor for body in bodies for load in loads(body)}
        accesses = (
            Access(t.name, t.dtype.bytes, ((1,),), t.name in self.workload.outputs)
            for t in self.workload.tensors.values()
            if t.name in reads or t.name in self.stages
        )
        return Outline((LoopAxis("points", self.points),), tuple(accesses))

    def plan(self, settings: IntArray) -> Plan:
        """Return a plan with a single loop over all evaluations."""
        shared = self.values(settings).parallel > 0
        return Plan(self._outline, (Level(0, 1, shared),), len(shared))

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """Return one leaf that computes one point per iteration, with an access pattern without a
        tensor."""
        shared, axes = self.values(settings).parallel > 0, frozenset({"points"})
        does = Statement((Operations(axes, 1, 1),), (AccessPattern("", ("",), {"points": 1}),))
        return [Leaf(LeafLoop(axes, self.points, None, shared), does)]

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Make the outermost loops parallel, except loops that are not proved independent."""
        roots = [
            stmt
            for stmt in outermost(writer.nest.body)
            if isinstance(stmt, For) and not stmt.inside.written.isdisjoint(self.stages)
        ]
        for root in roots if self.chosen(setting).parallel else ():
            try:
                writer.do(Parallel(root.var))
            except ScheduleError:
                continue
