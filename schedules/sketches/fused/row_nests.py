"""The nests of rows: one row, or a block, after the other, or steps of several rows at once.

Leaves and steps of a trace are said side by side: what a setting means is decided here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

import numpy as np

from ...arrays import IntArray
from ...leaves import Leaf, Loop, Operations, Place, Statement
from ...primitives import ComputeAt, Merge, Partition, Unroll, Vectorize
from ..analysis import Loop as Axis
from ..analysis import StageView
from ..groups import TASKS_A_THREAD, FusionGroup, merged
from ..knobs import Values, each, each_of
from ..statements import axis_names, own_place
from ..vectors import fit, fitting
from ..writer import TraceWriter
from .reductions import Partials, ReductionSteps, contiguous_reduction, divided
from .staggered import (
    Steps,
    can_block,
    row_length,
    staggered_steps,
    write_staggered,
)
from .walks import Stage, in_steps


@dataclass(frozen=True)
class Rows:
    """What the nests of a group whose shared axes are the rows have in common."""

    group: FusionGroup
    lanes: int
    threads: int

    @cached_property
    def merged(self) -> dict[str, str]:
        """Sums, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, _along_row)

    @cached_property
    def steps(self) -> Steps:
        return staggered_steps(self.group, self.lanes)

    @property
    def are_few(self) -> bool:
        """Whether one stage has too few rows for the threads, which share its columns."""
        return not self.group.inside and self.group.repeats < self.threads

    @property
    def can_divide(self) -> bool:
        """Whether there are too few rows for the threads, which can share the one reduction: it is
        over contiguous data, and needs no other stage."""
        first, *others = self.group.stages
        fits = contiguous_reduction(first) and not any(view.is_reduction for view in others)
        return bool(fits) and self.group.repeats < self.threads

    @cached_property
    def walks(self) -> list[int]:
        """Elements that each stage walks along in a row."""
        return [view.points // max(self.group.repeats, 1) for view in self.group.stages]

    def rows_a_task(self, threads: int, block: int) -> int:
        """How many rows a task has when threads share staggered rows evenly: a multiple of `block`,
        and so many that all steps are run together half of the time; 0 where none divides well."""
        rows, least = self.group.repeats, 2 * len(self.steps) * block
        if block > 1 and not can_block(self.steps, self.group.shared):
            return 0
        for tasks in range(threads, 2 * TASKS_A_THREAD * threads + 1, threads):
            if rows % (tasks * block) == 0:
                return rows // tasks if rows // tasks >= least else 0
        return 0

    def leaves(self, v: Values) -> Iterator[Leaf]:
        """Row by row, or a block of rows at a time, each stage walks along them."""
        group, merge = self.group, self.merged
        stagger = v["stagger"] > 0
        if stagger.any():
            yield from self._staggered(v)
        number, part, parts = self._divided(v)
        axes, after = frozenset(map(str, range(group.shared))), ~stagger
        parallel = (v["parallel"] > 0) & (parts == 1)
        blocks = Loop(axes, after * group.repeats / v["block"], None, parallel)
        if self.can_divide:
            yield from self._parts(v, number, part, parts)
        stages = {
            x.name: Stage(x, Loop(axes, v["block"], blocks), group.shared, self.lanes, v["vectors"])
            for x in group.stages
        }
        threads = np.where(parallel & self.are_few, self.threads, 1)
        for n, view in enumerate(group.stages):
            stage = stages[view.name]
            if view.name in merge.values():
                continue
            if not view.is_reduction and len(view.spatial) == group.shared:
                axis = str(len(view.spatial) - 1)
                yield Leaf(blocks, stage.does, {}, axis, v["block"], after)
            elif not view.is_reduction:
                readers = (x for x in group.stages if contiguous_reduction(x))
                is_summed = any(r.tensor == view.name for x in readers for r in x.reads)
                yield from stage.elementwise(after, is_summed=is_summed)
            elif contiguous_reduction(view) is None:
                yield from stage.along_columns(v["chunk"], threads)
            else:
                other = stages[merge[view.name]].does if view.name in merge else None
                undivided = 1 if n else parts == 1
                yield from stage.sum_along(other, times=after * undivided)
        yield self._waits(blocks, self.waited)

    @cached_property
    def waited(self) -> int:
        """Sums of a row whose ends later walks wait for."""
        sums = [contiguous_reduction(view) is not None for view in self.group.stages]
        return sum(one and max(self.walks[n + 1 :], default=1) > 1 for n, one in enumerate(sums))

    def _waits(self, blocks: Loop, sums: int) -> Leaf:
        """So many sums wait for their ends, those of a block together. A sum ends in a shuffle and
        an addition for each halving of its lanes, all one after the other."""
        return Leaf(blocks, Statement(), waits=2 * ceil(log2(self.lanes)) * sums)

    def _divided(self, v: Values) -> tuple[IntArray, IntArray, IntArray]:
        """(P,) which loop of the first reduction threads divide, how much of it a part has, see
        `divided`, and how many parts there are."""
        first, none = self.group.stages[0], np.zeros_like(v["vectors"])
        if not self.can_divide:
            return none - 1, none, none + 1

        def found(parts: int, vectors: int) -> tuple[int, int, int]:
            number, part = divided(first, parts, self.lanes * vectors)
            return number, part, -(-first.reduce[number].extent // part) if part else 1

        number, part, parts = (
            x.astype(np.int64) for x in each_of(v, ("split_k", "vectors"), found)
        )
        return number, part, parts

    def _parts(
        self, v: Values, number: IntArray, part: IntArray, parts: IntArray
    ) -> Iterator[Leaf]:
        """Threads share a reduction, and what they find is added up."""
        view, repeats = self.group.stages[0], self.group.repeats
        rows = frozenset(map(str, range(len(view.spatial))))
        for n, loop in enumerate(view.reduce):
            fits = number == n
            if not fits.any():
                continue
            task = Loop(rows | {"parts"}, np.where(fits, repeats * parts, 0), None, True)
            stage = Stage(view, task, len(view.spatial), self.lanes, v["vectors"])
            yield from stage.sum_along(parts={loop.name: np.where(fits, part, loop.extent)})
        names = axis_names([loop.name for loop in (*view.spatial, *view.reduce)])
        around = Loop(rows, repeats)
        inner = Loop(frozenset({"parts"}), np.where(parts > 1, parts, 0), around)
        add = Operations(frozenset({"parts"}), 1, 1)
        made = Place(f"{view.name}.parts", (view.name, "parts"), {"parts": 1})
        yield Leaf(inner, Statement((add,), (made,), over=frozenset({"parts"})), sums=1)
        yield Leaf(around, Statement(writes=own_place(view, names)), times=parts > 1)

    def _staggered(self, v: Values) -> Iterator[Leaf]:
        """Steps of several rows in one walk: the last walk of each step and the first of the one
        before are one."""
        group, lanes, rows = self.group, self.lanes, self.group.repeats
        length, axes = row_length(self.steps), frozenset(map(str, range(group.shared)))
        stagger, shared = v["stagger"] > 0, v["parallel"] > 0
        (size,) = each(v["block"], lambda block: (self.rows_a_task(self.threads, block) or rows,))
        size = np.where(shared, size, rows)
        task = Loop(axes, rows / size, None, shared & stagger)
        blocks = Loop(axes, np.where(stagger, size / v["block"], 0), task)
        row = Loop(axes, v["block"], blocks)
        most = fit(v["vectors"], length // (2 * lanes))
        along, walk = str(group.shared), in_steps(length, lanes, most)
        loops: list[Loop] = []
        for number, step in enumerate(reversed(self.steps)):
            stages = {x.name: Stage(x, row, group.shared, lanes, most, number) for x in step}
            is_first = True
            for view in step:
                stage = stages[view.name]
                if not view.is_reduction and len(view.spatial) == group.shared:
                    yield Leaf(Loop(axes, v["block"], blocks), stage.does)
                    continue
                if view.name in self.merged.values():
                    continue
                if not loops or not is_first:
                    loops = [Loop(frozenset({along}), piece.trips, row) for piece in walk]
                is_first = False
                if view.is_reduction:
                    other = self.merged.get(view.name)
                    yield from stage.sum_along(stages[other].does if other else None, loops)
                else:
                    yield from stage.walked(along, walk, loops)
        yield self._waits(blocks, min(self.waited, 1))


def _along_row(view: StageView) -> tuple[Axis, ...] | None:
    """The axes of a reduction that walks along rows once, see `merged`."""
    axes = (*view.spatial, *view.reduce)
    short = any(axis.extent == 1 for axis in axes)
    return axes if contiguous_reduction(view) and len(view.reduce) == 1 and not short else None


class RowWriter:
    """Writes the loops of one setting: one row, or a block of rows, after the other; or steps of
    several rows as merged walks, whose last vectors alone are masked."""

    def __init__(self, writer: TraceWriter, rows: Rows, v: dict[str, int]) -> None:
        self.w, self.rows, self.group, self.v = writer, rows, rows.group, v
        vectors = v["vectors"]
        if v["stagger"]:  # every walk along a row takes two iterations or more
            vectors = fitting(vectors, row_length(rows.steps) // (2 * rows.lanes))
        self.steps = ReductionSteps(writer, rows.lanes, vectors)
        self.walks: dict[str, tuple[str, ...]] = {}

    def write(self) -> str:
        """Write them; the loop that threads share, "" if they share a reduction."""
        w, stages, steps = self.w, self.group.stages, self.steps
        for view in stages:
            w.do(*view.phase_steps)
        is_divided = self.v["split_k"] > 1 and steps.divide(stages[0], self.v["split_k"])
        whole = stages[1:] if is_divided else stages
        along = {view.name: contiguous_reduction(view) for view in whole}
        partials = {name: steps.factor(name, loop) for name, loop in along.items() if loop}
        for view in stages:  # where a reduction is factored, all spatial axes are rows
            if view.name not in partials:
                w.do(*view.axis_splits)
        rows = w.spatial_loops(self.group.last.name)[: self.group.shared]
        task, row = self._rows(w.fuse_all(rows))
        places: dict[str, str] = {}
        for view in reversed(stages):
            if view is not self.group.last:
                w.do(ComputeAt(view.name, row))
            if view.name in partials:
                places[view.name] = steps.place(view.name, row)
                steps.keep_in_registers(partials[view.name], places[view.name])
        for view in stages:
            if view.name in partials:
                steps.combine(view.name, places[view.name], partials[view.name])
                if view.name in self.rows.merged:
                    self._merge(self.rows.merged[view.name], partials[view.name], row)
                if self.v["stagger"]:
                    chain = [loop.var for loop in w.update_of(f"{partials[view.name].wide}.acc")[1]]
                    self.walks[view.name] = tuple(chain[chain.index(row) + 1 :])
                else:
                    steps.cut(partials[view.name])
            elif view.name not in self.rows.merged.values():
                task = self._stage(view, row) or task
        if self.v["stagger"]:
            self._stagger(row)
        return "" if is_divided else task

    def _rows(self, row: str) -> tuple[str, str]:
        """The loop that threads share, and the one in which stages are computed. Staggered rows are
        divided among the threads, for each of them to run one after the other."""
        task, block, stagger = "", self.v["block"], self.v["stagger"]
        if stagger and self.v["parallel"]:
            task, row = self.w.split(row, self.rows.rows_a_task(self.rows.threads, block))
        if block > 1:
            row, _ = self.w.split(row, block)
        return task if stagger else row, row

    def _stage(self, view: StageView, row: str) -> str:
        """A stage with vectors along an axis of its results; the loop in which threads share those
        of one reduction that has few, "" if there is none."""
        w, steps = self.w, self.steps
        if view.is_reduction:
            threads = self.rows.threads if self.v["parallel"] and self.rows.are_few else 1
            return steps.along_columns(view, row, self.v["chunk"], threads)
        if not self.v["stagger"]:
            w.vectorise_writer(view.name, steps.lanes, steps.vectors, inside=row, cut=True)
        elif len(view.spatial) > self.group.shared:
            *outer, along = [loop.var for loop in w.own_loops(view.name, inside=row)]
            self.walks[view.name] = (*outer, *self._in_steps(along, steps.width))
        return ""

    def _stagger(self, row: str) -> None:
        """Run the steps of several rows together, and cut their walk where whole vectors end."""
        write_staggered(self.w, row, self.rows.steps, self.walks)
        length, width = row_length(self.rows.steps), self.steps.width
        if length % width:
            walks = next(self.walks[v.name] for v in self.rows.steps[0] if v.name in self.walks)
            self.w.do(Partition(walks[int(self.v["block"] > 1)], length // width))

    def _merge(self, stage: str, p: Partials, row: str) -> None:
        """Compute the values of `stage` where they are added up: its loops in the form of those
        of the partial results, then one of each two."""
        w = self.w
        *outer, along = [loop.var for loop in w.own_loops(stage, inside=row)]
        chain = [loop.var for loop in w.update_of(f"{p.wide}.acc")[1]]
        walk = chain.index(p.walk)
        rows, vectors = chain[walk - len(outer) : walk], chain[walk + 1 :]
        loops = self._in_steps(along, p.width)
        pairs = zip([*outer, *loops], [*rows, p.walk, *vectors], strict=True)
        w.do(*(Merge(first, second) for first, second in pairs))

    def _in_steps(self, along: str, width: int) -> tuple[str, ...]:
        """Loop `along` in steps of `width`, of some vectors each."""
        w = self.w
        lanes = min(self.steps.lanes, width)
        steps, rest = w.split(along, width)
        inner = [rest]
        if width > lanes:
            inner = list(w.split(rest, lanes))
            w.do(Unroll(inner[0]))
        w.do(Vectorize(inner[-1]))
        return (steps, *inner)
