"""The plain sketch: the loops of a stage in order, with lanes and threads where that is legal.

It is the fallback for stages that no rule matches, so that every valid expression has a schedule.
The dependence and race tests of the primitives decide. Lanes are along the axis that is contiguous
in most accesses. Threads divide the first independent loop, which becomes the outermost one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Generic

import numpy as np

from ..algebra.scalar import loads
from ..arrays import IntArray
from ..errors import ScheduleError
from ..leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ..nest.loop_ir import LoopKind
from ..plan import Access, Level, LoopAxis, Outline, Plan
from ..primitives import Parallel
from ..target import Target
from ..workload.workload import Workload
from .knobs import Knobbed, N, knob, parallel_knob, settings, switch
from .writer import TraceWriter


@settings
class PlainSettings(Generic[N]):
    """The knobs of the plain sketch."""

    vectorise: N = knob(lambda sketch: switch(sketch.lanes > 1), usual=1)
    """Whether stages are vectorised."""
    parallel: N = parallel_knob()
    """Whether threads divide a loop of each stage."""


@dataclass(frozen=True)
class PlainSketch(Knobbed[PlainSettings[IntArray], PlainSettings[int]]):
    """The plain sketch of `stages`."""

    workload: Workload
    target: Target
    stages: tuple[str, ...]

    name = "plain"
    SETTINGS = PlainSettings

    @property
    def lanes(self) -> int:
        """The smallest number of lanes of a stage."""
        return min(self.target.lanes(self.workload.tensors[name].dtype) for name in self.stages)

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
        v, axes = self.values(settings), frozenset({"points"})
        does = Statement((Operations(axes, 1, 1),), (AccessPattern("", ("",), {"points": 1}),))
        lanes = np.where(v.vectorise > 0, self.lanes, 1)
        loop = LeafLoop(axes, self.points / lanes, None, v.parallel > 0)
        return [Leaf(loop, does, vector_axis="points", lanes=lanes)]

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Vectorise and parallelise each stage as far as the primitives accept it."""
        v = self.chosen(setting)
        for name in self.stages:
            if v.vectorise:
                lanes = self.target.lanes(self.workload.tensors[name].dtype)
                with suppress(ScheduleError):
                    writer.vectorise_writer(name, lanes, 1)
            if v.parallel:
                _parallelise(writer, name)


def _parallelise(writer: TraceWriter, name: str) -> None:
    """Let threads divide the outermost loop of a stage whose iterations are independent. Other
    loops move inside it."""
    _, chain = writer.writer_of(name)
    before: list[str] = []
    for loop in chain:
        if loop.kind is not LoopKind.SERIAL:
            return
        if not loop.reduce and loop.extent > 1:
            with suppress(ScheduleError):
                writer.reorder(loop.var, *before)
                writer.do(Parallel(loop.var))
                return
        # A rejected reordering or loop leaves the order as it was, or an equivalent one.
        passed = {*before, loop.var}
        before = [each.var for each in writer.writer_of(name)[1] if each.var in passed]
