"""The sketch of a scatter: a reduction in which data select the output of each term, such as a
histogram, the sum of the rows of each segment, or the gradient of an embedding.

All outputs are initialised. Then each term is combined into the output that data select:

    outer axes | steps of the reduction | selected output | other sums | columns | lanes

Lanes are along the last output axis if it is not selected. Otherwise several steps are unrolled.

Threads divide outer axes or columns. If there are none, they divide the steps, and each thread
combines its terms into a table of its own. The tables are combined at the end.

    part of the steps (parallel) | the loops above
    vectors of the outputs (parallel) | tables

Schedules that compare the position of every output with every integer are alternatives: for a few
outputs, they are faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Generic

import numpy as np

from ...algebra.scalar import loads, vars_of
from ...arrays import BoolArray, IntArray
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ...limits import factor_bound
from ...nest.loop_ir import LoopKind
from ...plan import Access, Level, LoopAxis, Outline, Plan, access_of
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import StageLoop, StageRead, StageView, once
from ..knobs import POWERS, Knobbed, N, knob, settings
from ..statements import own_names, own_place, statement_of
from ..vectors import share_of
from ..writer import BLOCKS, BODY, STEPS, TraceWriter
from .roles import ScatterRoles
from .trace import ALONE, COLUMNS, OUTER, PARTS, TABLES, ScatterTrace

LEAST_TERMS = 4096
"""Fewest terms that threads divide: a parallel region takes about as long as some thousand."""

FEW_OUTPUTS = 2
"""Outputs, or vectors of them, that are compared in the time in which one is selected, loaded and
stored. Measured on a Zen 3: a histogram of 16 bins takes 0.9 of the time if it compares, and one of
32 bins 1.3 times."""

TABLE_SHARE = 4
"""Tables of all threads have at most this many times as many bytes as all arguments."""


@settings
class ScatterSettings(Generic[N]):
    """Knobs of a scatter."""

    unroll: N = knob(lambda sketch: sketch.unrolls, usual=2)
    """Vectors of columns, or steps if there are no lanes, in one iteration."""
    threads_divide: N = knob(lambda sketch: sketch.divisions, usual=1, absent=ALONE)
    """What threads divide: nothing, outer axes, columns, or the steps."""


@dataclass(frozen=True)
class ScatterSketch(Knobbed[ScatterSettings[IntArray], ScatterSettings[int]]):
    """The sketch of one scatter."""

    workload: Workload
    view: StageView
    roles: ScatterRoles
    target: Target

    name = "scatter"
    SETTINGS = ScatterSettings

    @cached_property
    def last(self) -> StageLoop | None:
        """The axis that has the lanes, or None if there are no lanes."""
        long = [loop for loop in self.view.spatial if loop.extent > 1]
        last = long[-1] if long else None
        return last if last in self.roles.inner and self.roles.inner[-1] is last else None

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype) if self.last else 1

    @property
    def vectors(self) -> int:
        """Vectors of the lanes' axis; 1 if there are no lanes."""
        return -(-self.last.extent // self.lanes) if self.last else 1

    @property
    def has_few_outputs(self) -> bool:
        """Whether the outputs of which data select one fill two vectors at the most, or are two if
        each has several columns. Then it is as fast to combine each term with all of them."""
        most = FEW_OUTPUTS * (1 if self.last else self.target.lanes(self.view.dtype))
        return prod(loop.extent for loop in self.roles.selected) <= most

    @property
    def step(self) -> StageLoop:
        """The loop over steps that is divided and unrolled: the longest."""
        return max(self.roles.steps, key=lambda loop: loop.extent)

    @property
    def unrolls(self) -> tuple[int, ...]:
        """The values of the knob `unroll`."""
        most = self.vectors if self.last else self.step.extent
        return tuple(n for n in POWERS if n == 1 or n <= most)

    @property
    def part(self) -> int:
        """Steps of each thread's part."""
        return share_of(self.step.extent, self.target.threads, POWERS[-1])

    @property
    def column_block(self) -> int:
        """Columns of each thread's block."""
        assert self.last is not None
        return share_of(self.last.extent, self.target.threads, self.lanes)

    @cached_property
    def divisions(self) -> tuple[int, ...]:
        """The values of the knob `threads_divide`, the most promising second. There are none for
        one thread."""
        threads = self.target.threads
        if threads == 1 or self.roles.terms < LEAST_TERMS:
            return ()
        found = [ALONE]
        if prod(loop.extent for loop in self.roles.outer) >= threads:
            found.append(OUTER)
        if self.last and self.column_block < self.last.extent:
            found.append(COLUMNS)
        tables = threads * self.workload.tensors[self.view.name].bytes
        most = TABLE_SHARE * sum(tensor.bytes for tensor in self.workload.arguments)
        is_long = self.part < self.step.extent and self.part <= factor_bound(self.step.extent)
        if is_long and tables <= most:
            found.append(TABLES)
        return tuple(found) if len(found) > 1 else ()

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether a thread's block of columns has as many vectors as an iteration, shape
        (P,)."""
        v = self.values(settings)
        if self.last is None:
            return np.ones(len(v.unroll), np.bool_)
        vectors = np.full(len(v.unroll), self.vectors)
        if COLUMNS in self.divisions:
            block = self.column_block // self.lanes
            vectors = np.where(v.threads_divide == COLUMNS, block, vectors)
        return np.asarray(v.unroll <= vectors)

    @cached_property
    def _outline(self) -> Outline:
        """The axes are all loops but the selected ones. An output moves with the steps instead."""
        loops = [loop for loop in self.roles.order if loop not in self.roles.selected]
        names = [loop.name for loop in loops]
        found = [
            access_of(read.tensor, read.dtype.bytes, read.index, names)
            for read in once(self._reads)
        ]
        strides = []
        for loop in self.view.spatial:
            moving = {loop.name}
            if loop in self.roles.selected:
                moving = set(vars_of(self.roles.places[self.roles.selected.index(loop)]))
            strides.append(tuple(int(name in moving) for name in names))
        output = Access(self.view.name, self.view.dtype.bytes, tuple(strides), is_output=True)
        axes = tuple(LoopAxis(loop.name, loop.extent) for loop in loops)
        return Outline(axes, (*found, output))

    @cached_property
    def _reads(self) -> tuple[StageRead, ...]:
        """The reads of a selected term, and of the integers that select its output."""
        there = {(load.tensor, load.index) for load in loads(self.roles.computed)}
        return tuple(read for read in self.view.reads if (read.tensor, read.index) in there)

    def plan(self, settings: IntArray) -> Plan:
        """Return the plan with the loops of the module docstring."""
        v, roles = self.values(settings), self.roles
        at = {axis.name: number for number, axis in enumerate(self._outline.axes)}
        divides = v.threads_divide
        levels = list[Level]()
        if TABLES in self.divisions:
            divided = divides == TABLES
            levels.append(Level(at[self.step.name], self.part, divided, PARTS, present=divided))
        if COLUMNS in self.divisions and self.last:
            divided = divides == COLUMNS
            columns = Level(at[self.last.name], self.column_block, divided, BLOCKS, present=divided)
            levels.append(columns)
        shared = divides == OUTER
        levels += [Level(at[loop.name], 1, shared, BLOCKS) for loop in roles.outer]
        unrolled = 1 if self.last else v.unroll
        others = [loop for loop in roles.steps if loop is not self.step]
        levels += [Level(at[loop.name], 1, role=STEPS) for loop in others]
        levels.append(Level(at[self.step.name], unrolled, role=STEPS))
        levels.append(Level(at[self.step.name], 1, role=BODY, kind=LoopKind.UNROLLED))
        for loop in (*roles.inner_steps, *roles.summed, *roles.inner):
            if loop is not self.last:
                levels.append(Level(at[loop.name], 1, role=STEPS))
        if self.last:
            last = at[self.last.name]
            levels += [
                Level(last, v.unroll * self.lanes, role=STEPS),
                Level(last, self.lanes, role=BODY, kind=LoopKind.UNROLLED),
                Level(last, 1, role=BODY, kind=LoopKind.VECTORIZED),
            ]
        return Plan(self._outline, tuple(levels), len(v.unroll))

    @cached_property
    def _statement(self) -> Statement:
        """The combination of a term with its output, which is loaded and stored. The integers are
        compared with both ends of their range by one comparison and one branch each."""
        names = own_names(self.view)
        seen = replace(self.view, value=self.roles.computed, reads=self._reads)
        body = statement_of(seen, names)
        tests = tuple(Operations(vars_of(place), 2, 0) for place in self.roles.places)
        own = self._own
        before = AccessPattern(own.tensor, ("before", *own.key), own.steps)
        return Statement(
            (*body.operations, *tests),
            (*body.reads, before),
            own,
            dtype=self.view.dtype,
        )

    @cached_property
    def _own(self) -> AccessPattern:
        """The access pattern of the selected outputs, which are anywhere."""
        own = own_place(self.view, own_names(self.view))
        steps = dict(own.steps)
        for loop, place in zip(self.roles.selected, self.roles.places, strict=True):
            distance = steps.pop(loop.name)
            steps |= {name: distance for name in vars_of(place) if name not in steps}
        return AccessPattern(own.tensor, own.key, steps)

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaves that initialise the outputs, combine the terms, and combine the
        tables."""
        plan, v = self.plan(settings), self.values(settings)
        loop, copies = plan.leaf_loops[-1], plan.unroll_factors()
        shared = loop
        while shared.parent is not None:
            shared = shared.parent
        lanes = self.target.lanes(self.view.dtype)
        vectors = -(-self.view.outputs // lanes)
        begins = AccessPattern(self.view.name, ("begin",), {"output": 1})
        parts = np.where(np.isin(v.threads_divide, (OUTER, COLUMNS)), shared.trip_count, 1)
        each = LeafLoop(frozenset({"output"}), np.maximum(vectors / parts, 1), shared)
        yield Leaf(each, Statement(writes=begins), {}, "output", lanes)
        axis = self.last.name if self.last else ""
        filled = plan.mean_trips[-2] / copies[axis] if self.last else 1
        yield Leaf(
            loop, self._statement, copies, axis, self.lanes,
            active_fraction=filled, unrolls_reduction=not self.last,
        )  # fmt: skip
        if TABLES in self.divisions:
            yield self._combined(v, vectors, lanes)

    def _combined(self, v: ScatterSettings[IntArray], vectors: int, lanes: int) -> Leaf:
        """Return the leaf that combines the tables of all threads."""
        has_tables = v.threads_divide == TABLES
        axes, parts = frozenset({"output"}), self.target.threads
        loop = LeafLoop(axes, np.where(has_tables, vectors, 1), None, has_tables & (vectors > 1))
        add = Operations(axes | {"table"}, 1, 1)
        table = AccessPattern("tables", ("tables",), {"output": 1, "table": self.view.outputs})
        whole = AccessPattern(self.view.name, ("whole",), {"output": 1})
        does = Statement((add,), (table,), whole, dtype=self.view.dtype)
        return Leaf(loop, does, {"table": parts}, "output", lanes, frequency=has_tables)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit the loops of a setting."""
        v = self.chosen(setting)
        block = self.part if v.threads_divide == TABLES else 0
        if v.threads_divide == COLUMNS:
            block = self.column_block
        ScatterTrace(
            writer,
            self.view,
            self.roles,
            self.step,
            self.last,
            self.target.lanes(self.view.dtype),
            v.unroll,
        ).write(v.threads_divide, block)
