"""Loop nests of rows. Rows are computed one after the other, in blocks, or software-pipelined.

`Rows` determines the passes over a row, which of them are fused, and their lengths. Leaves and
trace steps are both derived from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, zip_longest
from math import ceil, log2
from operator import mul
from typing import Generic, NamedTuple

import numpy as np

from ...algebra.affine import Index, var
from ...arrays import IntArray, map_unique
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ...nest.loop_ir import loops
from ...primitives import ComputeAt, Merge, Partition, Unroll, Vectorize
from ..analysis.reductions import contiguous_reduction
from ..analysis.stages import StageLoop, StageView
from ..groups import TASKS_PER_THREAD, FusionGroup, merged
from ..knobs import POWERS, N, knob, nontemporal_knob, parallel_knob, settings, switch
from ..statements import axis_names, own_place
from ..vectors import fitting
from ..writer import TraceWriter
from .reductions import ReductionSteps, chunks_of, divided
from .staggered import Steps, can_block, row_length, stagger_steps, staggered_steps
from .walks import RowStage, in_steps


@settings
class RowSettings(Generic[N]):
    """Knobs of rows. A single reduction does not have the knobs that concern several stages."""

    vectors: N = knob(lambda sketch: POWERS, usual=2)
    parallel: N = parallel_knob(
        lambda sketch: sketch.group.last.outputs > 1 or sketch.rows.can_divide
    )
    split_reduction: N = knob(lambda sketch: sketch.rows.reduction_parts, usual=1)
    """Number of parts of a reduction that threads divide."""
    interleave_rows: N = knob(
        lambda sketch: sketch.blocks if sketch.group.producers else (),
        usual=lambda sketch: sketch.default_block,
        absent=1,
    )
    """Number of rows whose stages are computed together."""
    reduction_chunk: N = knob(lambda sketch: chunks_of(sketch.stages), usual=len(POWERS))
    """Number of rows that a reduction along columns sums in one pass over the columns, or 0 for
    all."""
    software_pipelining: N = knob(
        lambda sketch: switch(sketch.can_stagger) if sketch.group.producers else (), usual=1
    )
    """Whether several rows are processed concurrently, each in a different step."""
    nontemporal_stores: N = nontemporal_knob(lambda sketch: sketch.nontemporal_choices)


class RowSizes(NamedTuple, Generic[N]):
    """Sizes of the nests of rows, derived from the knobs."""

    vectors: N
    """Vectors per iteration."""
    task: N
    """Rows per task."""
    threads: N
    """Threads that divide the columns of a reduction."""
    divided: N
    """Number of the reduction loop of the first stage that threads divide, or -1."""
    part: N
    """Iterations of each part of that loop."""
    parts: N
    """Number of parts of that loop."""


def sized_by(v: RowSettings[N]) -> tuple[N, N, N, N, N]:
    """Return the knobs that are the arguments of `Rows.sizes`, in their order."""
    return (
        v.vectors, v.parallel, v.split_reduction, v.interleave_rows, v.software_pipelining,
    )  # fmt: skip


class Visit(NamedTuple):
    """The loops over a row that compute one or two stages."""

    view: StageView
    also: StageView | None
    """The elementwise stage that shares the pass with the reduction `view`, or None."""
    step: int
    """Number of the step in the software pipeline, in the order of the passes."""
    is_joined: bool
    """Whether the loops are fused with those of the visit before it, which may follow them."""


@dataclass(frozen=True)
class Rows:
    """Properties that all nests of a group share. The shared axes of the group are the rows."""

    group: FusionGroup
    lanes: int
    threads: int

    @cached_property
    def merged(self) -> dict[str, str]:
        """The name of the elementwise stage that shares a pass with a reduction, by the name of the
        reduction."""
        return merged(self.group, _along_row)

    @cached_property
    def pass_of(self) -> dict[str, str]:
        """The pass of each stage, named after one of its stages. Reductions that directly follow
        each other and read common elements along the row share a pass."""
        found = {view.name: view.name for view in self.group.stages}
        adjacent = list[StageView]()
        for view in self.group.nest_order:
            adjacent = [*adjacent, view] if self._can_share_pass(view, adjacent) else [view]
            for other in adjacent[:-1]:
                if _row_elements(view) & _row_elements(other):  # unite their passes
                    old, new = found[other.name], found[view.name]
                    found = {name: new if one == old else one for name, one in found.items()}
        return found

    def _can_share_pass(self, view: StageView, others: Sequence[StageView]) -> bool:
        """Return whether a stage and `others`, directly before it, are reductions with equal loops
        within a row, and the stage does not read the result of another one."""
        return (
            all(map(self._is_whole_sum, (view, *others)))
            and not {one.name for one in (view, *others)} & self.merged.keys()
            and not {one.name for one in others} & {read.tensor for read in view.reads}
            and all(self._extents(view) == self._extents(one) for one in others)
        )

    def _is_whole_sum(self, view: StageView) -> bool:
        """Return whether a stage is a reduction along contiguous data of which the group needs all
        results. If it needs a part of them only, `ComputeAt` shortens the loops."""
        inner = view.spatial[self.group.shared_axes :]
        reads = [
            ({loop.name: loop.extent for loop in (*other.spatial, *other.reduce)}, read.index)
            for other in self.group.stages
            for read in other.reads
            if inner and read.tensor == view.name
        ]
        return (
            view in self.sums
            and len(view.reduce) == 1
            and not (view.axis_splits or view.phase_steps)
            and all(
                any(index[loop.dim] == var(name) and n == loop.extent for name, n in loops.items())
                for loops, index in reads
                for loop in inner
            )
        )

    def _extents(self, view: StageView) -> list[int]:
        """Return the extents of the loops within a row."""
        return [loop.extent for loop in (*view.spatial[self.group.shared_axes :], *view.reduce)]

    @cached_property
    def steps(self) -> Steps:
        return staggered_steps(self.group, self.lanes)

    @property
    def are_few(self) -> bool:
        """Whether the group is one stage with fewer rows than threads. Threads then divide its
        columns."""
        return not self.group.producers and self.group.repeats < self.threads

    @cached_property
    def can_divide(self) -> bool:
        """Whether threads can divide the reduction of the first stage. This requires that (1) there
        are fewer rows than threads, (2) the reduction is over contiguous data, and (3) no other
        stage is a reduction."""
        first, *others = self.group.stages
        fits = contiguous_reduction(first) and not any(view.is_reduction for view in others)
        return bool(fits) and self.group.repeats < self.threads

    @cached_property
    def walks(self) -> list[int]:
        """Number of elements that each stage iterates over per row."""
        return [view.points // max(self.group.repeats, 1) for view in self.group.stages]

    def rows_per_task(self, threads: int, block: int) -> int:
        """Return the number of rows per task if `threads` divide software-pipelined rows evenly,
        else 0.

        It is a multiple of `block`, and so large that all steps overlap at least half of the time.
        A task consists of whole rows of an axis or is an equal part of one, so that the results of
        different tasks can be proved distinct.
        """
        rows, least = self.group.repeats, 2 * len(self.steps) * block
        if block > 1 and not can_block(self.steps, self.group.shared_axes):
            return 0
        shared = self.group.last.spatial[: self.group.shared_axes]
        inner = list(accumulate((loop.extent for loop in reversed(shared)), mul))[:-1]
        for tasks in range(threads, 2 * TASKS_PER_THREAD * threads + 1, threads):
            task, rest = divmod(rows, tasks)
            if rest or task % block or not all(task % n == 0 or n % task == 0 for n in inner):
                continue
            return task if task >= least else 0
        return 0

    @property
    def reduction_parts(self) -> tuple[int, ...]:
        """Values of the knob `split_reduction`."""
        several = tuple(n * self.threads for n in POWERS[:3])
        return (1, *several) if self.can_divide else (1,)

    def sizes(
        self, vectors: int, parallel: int, split_k: int, block: int, stagger: int
    ) -> RowSizes[int]:
        task, threads = block, self.threads if parallel else 1
        if stagger:  # every pass over a row has at least two iterations
            vectors = fitting(vectors, row_length(self.steps) // (2 * self.lanes))
            task = self.rows_per_task(threads, block) or self.group.repeats
        first, step = self.group.stages[0], self.lanes * vectors
        parts = divided(first, split_k, step) if self.can_divide else (-1, 0, 1)
        return RowSizes(vectors, task, threads if self.are_few else 1, *parts)

    def visits(self, is_staggered: bool) -> list[Visit]:
        """Return the passes in the order of their loops. Those that are fused are from the last to
        the first, because `Merge` moves what follows a loop behind the loop that it is fused with.

        With software pipelining the last step is first. The last pass of a step is then fused with
        the first pass of the next step.
        """
        views = {view.name: view for view in self.group.stages}
        steps = self.steps[::-1] if is_staggered else (self.group.nest_order,)
        found = []
        for number, step in enumerate(steps):
            is_joined = number > 0
            for fused in self._passes(step):
                for place, view in enumerate(fused):
                    walks, also = self.walks_along(view), views.get(self.merged.get(view.name, ""))
                    joins = (is_joined and walks) or place > 0
                    found.append(Visit(view, also, number, joins))
                    is_joined = is_joined and not walks
        return found

    def _passes(self, step: Sequence[StageView]) -> list[list[StageView]]:
        """Return the passes of a step, each with the stages whose loops are fused, last first."""
        found: dict[str, list[StageView]] = {}
        for view in reversed(step):
            if view.name not in self.merged.values():
                found.setdefault(self.pass_of[view.name], []).append(view)
        return [*found.values()][::-1]

    def walks_along(self, view: StageView) -> bool:
        """Return whether a stage has more than one value per row or reads more than one."""
        return view.is_reduction or len(view.spatial) > self.group.shared_axes

    def leaves(self, v: RowSettings[IntArray]) -> Iterator[Leaf]:
        """Yield the leaves of the passes of each stage. If rows are software-pipelined, these are
        the fused passes."""
        found = (x.astype(np.int64) for x in map_unique(self.sizes, *sized_by(v)))
        s = RowSizes(*found)
        group, lanes, vectors, block = self.group, self.lanes, s.vectors, v.interleave_rows
        axes, along = frozenset(map(str, range(group.shared_axes))), str(group.shared_axes)
        sums = self.sums
        summed = {read.tensor for view in sums for read in view.reads}
        if self.can_divide:
            yield from self._parts(s)
        for is_staggered in (False, True):
            there = (v.software_pipelining > 0) == is_staggered
            if not there.any():
                continue
            shared = (v.parallel > 0) & (s.parts == 1)
            task = LeafLoop(axes, there * group.repeats / s.task, None, shared)
            row = blocks = LeafLoop(axes, s.task / block, task)
            walk = in_steps(row_length(self.steps), lanes, vectors) if is_staggered else None
            loops: list[LeafLoop] = []
            for view, also, step, is_joined in self.visits(is_staggered):
                walks = self.walks_along(view)
                if walks and not is_joined:
                    row = LeafLoop(axes, block, blocks)
                    loops = [LeafLoop(frozenset({along}), piece.trips, row) for piece in walk or ()]
                stage = RowStage(view, row, group.shared_axes, lanes, vectors, step)
                if not walks and is_staggered:
                    yield Leaf(LeafLoop(axes, block, blocks), stage.does)
                elif not walks:
                    yield Leaf(blocks, stage.does, {}, str(group.shared_axes - 1), block)
                elif view in sums:
                    whole = s.parts == 1 if view is group.stages[0] else 1
                    does = replace(stage, view=also).does if also else None
                    loops = loops or stage.sum_loops({})
                    yield from stage.sum_along(does, loops, times=whole)
                elif view.is_reduction:
                    yield from stage.along_columns(v.reduction_chunk, s.threads)
                elif walk:
                    yield from stage.walked(along, walk, loops)
                else:
                    yield from stage.elementwise(is_summed=view.name in summed)
            waited = min(self.waited, 1) if is_staggered else self.waited
            # A sum ends with a dependent shuffle and addition per halving of its lanes. These
            # chains overlap for the rows of a block.
            yield Leaf(blocks, Statement(), latency_chain=2 * ceil(log2(lanes)) * waited)

    @cached_property
    def sums(self) -> list[StageView]:
        """The reductions along contiguous data."""
        return [view for view in self.group.stages if contiguous_reduction(view)]

    @cached_property
    def waited(self) -> int:
        """Number of passes per row with sums that later passes wait for."""
        long = [view for view in self.group.nest_order if view.points > self.group.repeats]
        passes = [self.pass_of[view.name] for view in long]
        waits = (
            view in self.sums and any(one != own for one in passes[n:])
            for n, (view, own) in enumerate(zip(long, passes, strict=True))
        )
        return len({own for own, found in zip(passes, waits, strict=True) if found})

    def _parts(self, v: RowSizes[IntArray]) -> Iterator[Leaf]:
        """Yield the leaves of a reduction that is divided among threads, and of the sum of its
        parts."""
        view, repeats, parts = self.group.stages[0], self.group.repeats, v.parts
        rows = frozenset(map(str, range(len(view.spatial))))
        for n, loop in enumerate(view.reduce):
            fits = v.divided == n
            if not fits.any():
                continue
            task = LeafLoop(rows | {"parts"}, np.where(fits, repeats * parts, 0), None, True)
            stage = RowStage(view, task, len(view.spatial), self.lanes, v.vectors)
            yield from stage.sum_along(parts={loop.name: np.where(fits, v.part, loop.extent)})
        names = axis_names([loop.name for loop in (*view.spatial, *view.reduce)])
        around = LeafLoop(rows, repeats)
        inner = LeafLoop(frozenset({"parts"}), np.where(parts > 1, parts, 0), around)
        add = Operations(frozenset({"parts"}), 1, 1)
        made = AccessPattern(f"{view.name}.parts", (view.name, "parts"), {"parts": 1})
        yield Leaf(
            inner, Statement((add,), (made,), reduction_axes=frozenset({"parts"})), accumulators=1
        )
        yield Leaf(around, Statement(writes=own_place(view, names)), frequency=parts > 1)


def _row_elements(view: StageView) -> set[tuple[str, Index]]:
    """Return the elements along the row that a reduction reads, with numbers in place of the names
    of its loops."""
    loops = (*view.spatial, *view.reduce)
    numbers = {loop.name: var(f"#{n}") for n, loop in enumerate(loops)}
    along = (read for read in view.reads if any(read.uses(loop.name) for loop in view.reduce))
    return {(r.tensor, tuple(i.substitute(numbers) for i in r.index)) for r in along}


def _along_row(view: StageView) -> tuple[StageLoop, ...] | None:
    """Return the axes of a reduction that iterates over each row once, or None if `view` is another
    kind of stage."""
    axes = (*view.spatial, *view.reduce)
    short = any(axis.extent == 1 for axis in axes)
    return axes if contiguous_reduction(view) and len(view.reduce) == 1 and not short else None


class RowWriter:
    """Emits the loops of rows for one setting."""

    def __init__(self, writer: TraceWriter, rows: Rows, v: RowSettings[int]) -> None:
        self.w, self.rows, self.group = writer, rows, rows.group
        self.v, self.s = v, rows.sizes(*sized_by(v))
        self.steps = ReductionSteps(writer, rows.lanes, self.s.vectors)
        self.visits = rows.visits(v.software_pipelining > 0)
        self.walks: dict[str, list[str]] = {}

    def write(self) -> str:
        """Emit the loops. Return the loop that threads divide, or "" if they divide a reduction."""
        w, stages, steps = self.w, self.group.stages, self.steps
        for view in stages:
            w.do(*view.phase_steps)
        is_divided = self.s.parts > 1
        if is_divided:
            steps.divide(stages[0], self.s.divided, self.s.part)
        whole = stages[1:] if is_divided else stages
        along = {view.name: contiguous_reduction(view) for view in whole}
        partials = {name: steps.factor(name, loop) for name, loop in along.items() if loop}
        last = self.group.last
        if last.name not in partials:  # all spatial axes of a factored reduction are rows
            w.do(*last.axis_splits)
        order = [loop.name for loop in last.spatial]
        if not last.is_reduction and order != w.spatial_loops(last.name):
            w.reorder(*order)
        rows = w.spatial_loops(last.name)[: self.group.shared_axes]
        task, row = self._rows(w.fuse_all(rows))
        places: dict[str, str] = {}
        for view in reversed(stages):
            if view is not last:
                self._compute_in(view, row, is_split=view in whole and view.name not in partials)
            if view.name in partials:
                places[view.name] = steps.place(view.name, row)
                steps.keep_in_registers(partials[view.name], places[view.name])
        visits = sorted(self.visits, key=lambda visit: -visit.step)
        kept = ""
        for visit, after in zip_longest(visits, visits[1:]):
            name = visit.view.name
            if name not in partials:
                task = self._stage(visit, row) or task
                continue
            steps.combine(name, places[name], partials[name])
            chain = [loop.var for loop in w.update_of(f"{partials[name].wide}.acc")[1]]
            walk = chain[chain.index(row) + 1 :]
            if visit.also:  # split this stage like the reduction, then merge both
                also = self._walk(visit.also.name, row, partials[name].width)
                w.do(*(Merge(one, other) for one, other in zip(also, walk, strict=True)))
            self.walks[name] = walk
            if self.v.software_pipelining:
                continue
            kept = self._merge(kept, name) if visit.is_joined else name
            if after is None or not after.is_joined:
                steps.cut(partials[kept])
        if self.v.software_pipelining:
            self._stagger(row)
        return "" if is_divided else task

    def _merge(self, one: str, other: str) -> str:
        """Merge the loops of the passes of two stages. Return the stage whose loops are left, which
        is the later one in the nest."""
        order = [loop.var for loop in loops(self.w.nest.body)]
        first, second = sorted((one, other), key=lambda name: order.index(self.walks[name][0]))
        pairs = zip(self.walks[first], self.walks[second], strict=True)
        self.w.do(*(Merge(before, after) for before, after in pairs))
        return second

    def _compute_in(self, view: StageView, row: str, *, is_split: bool) -> None:
        """Compute an earlier stage inside loop `row`. If `is_split`, its remaining axes are split
        as in its view. Those of a factored or divided reduction already are."""
        found = self.w.remake(ComputeAt(view.name, row))
        names = {old: new for old, (new,) in found.items()}
        for step in view.axis_splits if is_split else ():
            outer, inner = self.w.split(names[step.loop], step.factor)
            names |= {f"{step.loop}o": outer, f"{step.loop}i": inner}

    def _rows(self, row: str) -> tuple[str, str]:
        """Return the loop that threads divide and the loop that contains the stages. Each task of
        software-pipelined rows is one contiguous range."""
        task, block, stagger = "", self.v.interleave_rows, self.v.software_pipelining
        if stagger and self.v.parallel:
            task, row = self.w.split(row, self.s.task)
        if block > 1:
            row, _ = self.w.split(row, block)
        return task if stagger else row, row

    def _stage(self, visit: Visit, row: str) -> str:
        """Vectorise a stage along an axis of its results. Return the loop that threads divide if
        `visit` is a single reduction with few rows, else ""."""
        w, steps, view = self.w, self.steps, visit.view
        if view.is_reduction:
            return steps.along_columns(view.name, row, self.v.reduction_chunk, self.s.threads)
        if not self.v.software_pipelining:
            w.vectorise_writer(view.name, steps.lanes, steps.vectors, inside=row, cut=True)
        elif self.rows.walks_along(view):
            self.walks[view.name] = self._walk(view.name, row, steps.width)
        return ""

    def _stagger(self, row: str) -> None:
        """Software-pipeline several rows: the passes of different steps are fused. Each pass is
        partitioned after its last full iteration, so that only the remainder is masked."""
        stagger_steps(self.w, row, self.rows.steps)
        kept: list[str] = []
        for visit in (visit for visit in self.visits if visit.view.name in self.walks):
            if visit.is_joined and kept:
                kept[-1] = self._merge(kept[-1], visit.view.name)
            else:
                kept.append(visit.view.name)
        length, width = row_length(self.rows.steps), self.steps.width
        for name in kept if length % width else ():
            self.w.do(Partition(self.walks[name][int(self.v.interleave_rows > 1)], length // width))

    def _walk(self, stage: str, row: str, width: int) -> list[str]:
        """Split the last loop of a stage in a row into steps of `width` elements and vectorise it.
        Return all its loops."""
        w, lanes = self.w, min(self.steps.lanes, width)
        *outer, along = [loop.var for loop in w.own_loops(stage, inside=row)]
        steps, *inner = w.split(along, width)
        if width > lanes:
            inner = list(w.split(inner[0], lanes))
            w.do(Unroll(inner[0]))
        w.do(Vectorize(inner[-1]))
        return [*outer, steps, *inner]
