"""What the sketches that walk row by row have in common: one stage, several, rows that overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import BoolArray, IntArray
from ...plan import Access, Axis, Level, Outline, Plan
from ...space import Knob
from ..analysis import StageView
from .group_sketch import GroupSketch
from .walks import contiguous_reduction

VECTORS = Knob("vectors", (1, 2, 4, 8))


def own_rows(view: StageView) -> int:
    """How many leading axes of a stage that is alone are walked outside: all that vectors and
    reductions do not need."""
    if contiguous_reduction(view) is not None:
        return len(view.spatial)
    return max(len(view.spatial) - 1, 0)


@dataclass(frozen=True)
class RowPart(GroupSketch):
    """Stages of a group, whose shared axes are the rows."""

    @property
    def name(self) -> str:
        return "rows"

    @property
    def can_divide(self) -> bool:
        """Whether there are too few rows for the threads, which can share the one reduction: it is
        over contiguous data, and needs no other stage."""
        first, *others = self.group.stages
        fits = contiguous_reduction(first) and not any(view.is_reduction for view in others)
        return bool(fits) and self.group.repeats < self.target.threads

    def parallel_knob(self) -> Knob:
        several = self.group.last.outputs > 1 or self.can_divide
        return Knob("parallel", (0, 1) if self.target.threads > 1 and several else (0,))

    def parts_knob(self) -> Knob:
        """Into how many parts a reduction is divided that threads share."""
        threads = self.target.threads
        return Knob("split_k", (1, threads, 2 * threads, 4 * threads) if self.can_divide else (1,))

    def divides_for_threads(self, v: dict[str, IntArray]) -> BoolArray:
        """(P,) whether a reduction is divided for the threads if for anything, and threads have
        something to share."""
        ok: BoolArray = (v["split_k"] == 1) | (v["parallel"] > 0)
        if self.group.repeats == 1 and self.can_divide:
            ok &= (v["split_k"] > 1) | (v["parallel"] == 0)
        return ok

    def walks(self) -> list[int]:
        """Elements that each stage walks along in a row."""
        return [view.points // max(self.group.repeats, 1) for view in self.group.stages]

    @cached_property
    def _outline(self) -> Outline:
        """Rows, and the longest walk within a row."""
        last = self.group.last
        found = {
            r.tensor: Access(r.tensor, r.dtype.bytes, ((1, 0), (0, 1)))
            for view in self.group.stages
            for r in view.reads
        }
        out = Access(last.name, last.dtype.bytes, ((1, 0), (0, 1)), is_output=True)
        axes = (Axis("rows", max(self.group.repeats, 1)), Axis("walk", max(*self.walks(), 1)))
        return Outline(axes, (*found.values(), out))

    def plan(self, settings: IntArray) -> Plan:
        """Row by row, each walked along."""
        return Plan(self._outline, (Level(0, 1), Level(1, 1)), len(np.atleast_2d(settings)))
