"""The sketch of sums that turn an operand: a reduction that reads one tensor along its loop and
another across it, as the diagonal of a product or a trace does.

Lanes lie along the axis that is contiguous in the straight reads; blocks of the other tensors are
read along the reduction, turned in registers and added up vector by vector. Where the result has no
such axis the reduction keeps one partial result for each of its places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ...arrays import BoolArray, IntArray
from ...plan import Access, Level, Outline, Plan, access_of, axes_of
from ...space import Knob
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Loop, Read, StageView
from ..knobs import Knobbed
from ..writer import TraceWriter
from .turn import Turn, can_be_turned
from .turned_sum_trace import write_turned_sum_trace

LEAST_EXTENT = 8
"""Shorter axes fill no block that is worth turning."""


def find_turned_sum(view: StageView) -> Turn | None:
    """How the reduction `view` reads both ways, if it does: the sum is over `across`."""
    if not view.is_reduction or view.presplit or view.presolve or view.guards:
        return None
    last = view.spatial[-1:] if view.spatial and view.spatial[-1].extent > 1 else ()
    for along in (*last, *reversed(view.reduce)):
        for across in view.reduce:
            turn = _turn(view, across, along)
            if turn is not None:
                return turn
    return None


def _turn(view: StageView, across: Loop, along: Loop) -> Turn | None:
    if across is along or min(across.extent, along.extent) < LEAST_EXTENT:
        return None
    turned: list[Read] = []
    straight = 0
    for read in view.reads:
        step = read.element_stride(along.name)
        if step is None or read.conditional:
            return None
        if step > 1 and can_be_turned(view, read, across, along):
            turned.append(read)
        elif step not in (0, 1):
            return None
        straight += step == 1 and (read.element_stride(across.name) or 0) > 1
    return Turn(across, along, tuple(turned)) if turned and straight else None


@dataclass(frozen=True)
class TurnedSumSketch(Knobbed):
    """See the module. `columns` is the vectors of sums that are kept at once."""

    workload: Workload
    view: StageView
    turn: Turn
    target: Target

    @property
    def name(self) -> str:
        return "turned_sum"

    @property
    def lanes(self) -> int:
        """Elements along each side of a block."""
        return self.turn.lanes(self.target, self.view.dtype)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        whole = max(self.turn.along.extent // self.lanes, 1)
        tasks = self.others() * whole
        return (
            Knob("columns", tuple(n for n in (1, 2, 4) if n <= whole)),
            Knob("parallel", (0, 1) if self.target.threads > 1 and tasks > 1 else (0,)),
        )

    def others(self) -> int:
        """Results that have sums of their own, but for those in the lanes."""
        return prod(loop.extent for loop in self.view.spatial if loop is not self.turn.along)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) every setting is legal."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)

    @property
    def _loops(self) -> tuple[Loop, ...]:
        return (*self.view.spatial, *self.view.reduce)

    @property
    def _outside(self) -> list[int]:
        """Axes that are neither turned nor turned to."""
        pair = (self.turn.across, self.turn.along)
        return [n for n, loop in enumerate(self._loops) if loop not in pair]

    @cached_property
    def _outline(self) -> Outline:
        names = [loop.name for loop in self._loops]
        found = [access_of(r.tensor, r.dtype.bytes, r.index, names) for r in self.view.reads]
        count = len(self.view.spatial)
        identity = tuple(tuple(int(a == b) for b in names) for a in names[:count])
        out = Access(self.view.name, self.view.dtype.bytes, identity, is_output=True)
        axes = axes_of((loop.name, loop.extent) for loop in self._loops)
        return Outline(axes, (*found, out))

    def plan(self, settings: IntArray) -> Plan:
        """Axes that are walked as they are, pieces of lanes, the reduction, and a block of both."""
        wide = self.values(settings)["columns"] * self.lanes
        along, across = (self._loops.index(x) for x in (self.turn.along, self.turn.across))
        levels = (
            *(Level(n, 1) for n in self._outside),
            Level(along, wide),
            Level(across, self.lanes),
            Level(along, 1),
            Level(across, 1),
        )
        return Plan(self._outline, levels, len(wide))

    def default(self) -> tuple[int, ...]:
        """Two vectors of sums, every thread."""
        return tuple(min(1, len(knob.values) - 1) for knob in self.knobs)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v, threads = self.chosen(setting), self.target.threads
        write_turned_sum_trace(writer, self.view, self.turn, self.lanes, threads, v)
