"""The plain sketch: loops as the expression has them, the outermost in parallel if that is legal.

Nobody wants its speed; it is there so that every valid expression has a correct schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ..arrays import IntArray
from ..errors import ScheduleError
from ..leaves import Leaf, Loop, Operations, Place, Statement
from ..nest.loop_ir import For
from ..plan import Access, Axis, Level, Outline, Plan
from ..primitives import Parallel
from ..space import Knob
from ..target import Target
from ..workload.workload import Workload
from .knobs import Knobbed
from .writer import TraceWriter


@dataclass(frozen=True)
class PlainSketch(Knobbed):
    """One knob: whether top-level loops are divided among threads."""

    workload: Workload
    target: Target

    @property
    def name(self) -> str:
        return "plain"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("parallel", (0, 1) if self.target.threads > 1 else (0,)),)

    @property
    def points(self) -> int:
        return sum(prod(a.extent for a in (*s.axes, *s.reduce_axes)) for s in self.workload.stages)

    @cached_property
    def _outline(self) -> Outline:
        """One axis: evaluations of all stages together."""
        accesses = (
            Access(t.name, t.dtype.bytes, ((1,),), t.name in self.workload.outputs)
            for t in self.workload.tensors.values()
        )
        return Outline((Axis("points", self.points),), tuple(accesses))

    def plan(self, settings: IntArray) -> Plan:
        """One loop over everything."""
        shared = self.values(settings)["parallel"] > 0
        return Plan(self._outline, (Level(0, 1, shared),), len(shared))

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """One evaluation after the other, of elements that may lie anywhere."""
        shared, axes = self.values(settings)["parallel"] > 0, frozenset({"points"})
        does = Statement((Operations(axes, 1, 1),), (Place("", ("",), {"points": 1}),))
        return [Leaf(Loop(axes, self.points, None, shared), does)]

    def default(self) -> tuple[int, ...]:
        return self.clipped({"parallel": 1})

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the step of one setting; loops that cannot be proven parallel stay serial."""
        if self.chosen(setting)["parallel"]:
            for root in _roots(writer):
                try:
                    writer.do(Parallel(root))
                except ScheduleError:
                    continue


def _roots(writer: TraceWriter) -> list[str]:
    found: list[str] = []
    pending = list(writer.nest.body)
    while pending:
        stmt = pending.pop(0)
        if isinstance(stmt, For):
            found.append(stmt.var)
        elif hasattr(stmt, "body"):
            pending = [*stmt.body, *pending]
    return found
