"""The steps of a scatter."""

from __future__ import annotations

from dataclasses import dataclass

from ...primitives import (
    Initialise,
    Parallel,
    RFactor,
    SkipZeros,
    TakeSelected,
    TransformLayout,
    Unroll,
)
from ..analysis.stages import StageLoop, StageView
from ..writer import TraceWriter
from .roles import ScatterRoles

ALONE, OUTER, COLUMNS, TABLES = range(4)
"""What threads divide: nothing, the outer axes, the columns, or the steps, with a table for each
thread."""

PARTS = "parts of the steps"
"""Role of the loop over the tables."""

BLOCK_ELEMENTS = 4096
"""Outputs that are combined from all tables at a time: few enough for all to be in the first
cache."""


@dataclass(frozen=True, slots=True)
class ScatterTrace:
    """Emits the steps of one scatter."""

    w: TraceWriter
    view: StageView
    roles: ScatterRoles
    step: StageLoop
    """The loop over steps that threads divide, and that is unrolled if there are no lanes."""
    last: StageLoop | None
    """The axis of the lanes."""
    lanes: int
    unroll: int

    def write(self, divided: int, block: int) -> None:
        """Emit the loops. `divided` is what threads divide, in pieces of `block`."""
        w, name = self.w, self.view.name
        loops = {loop.name: loop.name for loop in self.roles.order}
        task = ""
        if divided == TABLES:
            task, loops[self.step.name] = w.split(self.step.name, block)
            name = f"{name}.tables"
            made = w.remake(RFactor(task, name))
            dims = len(self.view.spatial)
            w.do(TransformLayout(name, (), ((dims, 0), *((dim, 0) for dim in range(dims)))))
            self._combine([made[loop.name][0] for loop in self.view.spatial], made[task][0])
        elif divided == COLUMNS and self.last:
            task, loops[self.last.name] = w.split(self.last.name, block)
        unrolled = ""
        order = [loops[loop.name] for loop in self.roles.order]
        if self.last is None and self.unroll > 1:
            outside, unrolled = w.split(loops[self.step.name], self.unroll)
            at = order.index(loops[self.step.name])
            steps = [loops[loop.name] for loop in self.roles.steps if loop is not self.step]
            order[at] = outside
            # The unrolled steps are innermost among the steps.
            last = max([at, *(order.index(step) for step in steps)])
            order.insert(last + 1, unrolled)
        w.reorder(*([task] if task else []), *order)
        if divided == OUTER:
            task = w.fuse_all([loops[loop.name] for loop in self.roles.outer])
        made = w.remake(Initialise(name, task))
        if divided == TABLES and w.loop(task).extent * block > self.step.extent:
            w.do(SkipZeros(name))
        elif self.roles.has_guards:
            w.do(SkipZeros(name, loops[self.roles.selected[0].name]))
        w.do(*(TakeSelected(loops[loop.name]) for loop in self.roles.selected))
        if unrolled:
            w.do(Unroll(unrolled))
        if self.last:
            w.vectorise_loop(loops[self.last.name], self.lanes, self.unroll)
        begin = [loops[loop.name] for loop in self.view.spatial if loops[loop.name] in made]
        w.reorder(*(made[loop][0] for loop in begin))
        w.vectorise_loop(made[begin[-1]][0], self.lanes)
        if task:
            w.do(Parallel(task))

    def _combine(self, outputs: list[str], table: str) -> None:
        """Emit the loops that combine the tables."""
        w = self.w
        flat = w.fuse_all(outputs)
        blocks, within = w.split(flat, min(BLOCK_ELEMENTS, w.loop(flat).extent))
        w.reorder(blocks, table, within)
        w.vectorise_loop(within, self.lanes)
        if w.loop(blocks).extent > 1:
            w.do(Parallel(blocks))
