"""Writing down the trace of several stages row by row, or with steps of several rows at once."""

from __future__ import annotations

from math import prod

from ...nest.finding import reads_of
from ...nest.loop_ir import LoopKind
from ...primitives import ComputeAt, Merge, Partition, Prefetch, Unroll, Vectorize
from ..analysis import StageView
from ..groups import FusionGroup, merged
from ..writer import TraceWriter
from .reduction_steps import Partials, ReductionSteps
from .staggered import ROWS_A_STEP, row_length, rows_a_task, staggered_steps, write_staggered
from .walks import contiguous_reduction, row_walk


class RowAfterRow:
    """Writes the loops of one setting: one row, or a block of rows, after the other."""

    def __init__(
        self,
        writer: TraceWriter,
        group: FusionGroup,
        lanes: int,
        threads: int,
        v: dict[str, int],
    ) -> None:
        self.w, self.group, self.lanes, self.threads, self.v = writer, group, lanes, threads, v
        self.vectors = v["vectors"]
        self.merged = merged(group, row_walk) if v["merge"] else {}

    def write(self) -> str:
        """Write them; the loop that threads share, "" if they share a reduction."""
        w, stages = self.w, self.group.stages
        for view in stages:
            w.do(*view.presolve)
        steps = ReductionSteps(w, self.lanes, self.vectors)
        divided = self.v["parts"] > 1 and steps.divide(stages[0], self.v["parts"])
        partials: dict[str, Partials] = {}
        for view in stages[1:] if divided else stages:
            found = steps.factor(view.name, contiguous_reduction(view))
            if found is not None:
                partials[view.name] = found
        for view in stages:  # where a reduction is factored, all spatial axes are rows
            if view.name not in partials:
                w.do(*view.presplit)
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
                if view.name in self.merged:
                    self._merge(self.merged[view.name], partials[view.name], row)
                self._factored(view, row, partials[view.name], steps)
            elif view.name not in self.merged.values():
                self._stage(view, row, steps)
        self._finish(row)
        return "" if divided else task

    def _rows(self, row: str) -> tuple[str, str]:
        """The loop that threads share, and the one in which stages are computed."""
        row = self._blocks(row)
        return row, row

    def _blocks(self, row: str) -> str:
        """The loop over blocks of rows."""
        return self.w.split(row, self.v["block"])[0] if self.v["block"] > 1 else row

    def _factored(self, view: StageView, row: str, p: Partials, steps: ReductionSteps) -> None:
        """What a reduction over contiguous data needs once it is placed."""
        steps.cut(p)

    def _stage(self, view: StageView, row: str, steps: ReductionSteps) -> None:
        """A stage with vectors along an axis of its results."""
        if view.is_reduction:
            steps.along_columns(view, row, self.v["chunk"])
        else:
            self.w.vectorise_writer(view.name, self.lanes, self.vectors, inside=row, cut=True)

    def _finish(self, row: str) -> None:
        """What is left to do once all stages are placed."""

    def fetch_ahead(self, tensor: str) -> None:
        """Prefetch the rows that come next, in the last stage that reads the tensor: a line for
        each vector, as far ahead as the rows that are computed together are long."""
        w = self.w
        view = [v for v in self.group.stages if any(r.tensor == tensor for r in v.reads)][-1]
        if view.is_reduction or not view.spatial:
            return
        leaf, chain = w.writer_of(view.name)
        lanes = [loop for loop in chain if loop.kind is LoopKind.VECTORIZED]
        if not lanes or not w.reads_along(leaf, lanes[0].var) or chain[-1] is not lanes[0]:
            return
        around = chain[-2] if len(chain) > 1 else None
        if around is None or around.kind is LoopKind.PARALLEL:
            return
        row = prod(loop.extent for loop in view.spatial[self.group.shared :])
        distance = max(self.v["block"] * row // lanes[0].extent, 1)
        w.do(Prefetch(tensor, around.var, distance))

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
        lanes = min(self.lanes, width)
        steps, rest = w.split(along, width)
        inner = [rest]
        if width > lanes:
            inner = list(w.split(rest, lanes))
            w.do(Unroll(inner[0]))
        w.do(Vectorize(inner[-1]))
        return (steps, *inner)


class StaggeredRows(RowAfterRow):
    """Writes the steps of several rows as merged walks, whose last vectors alone are masked."""

    def __init__(
        self,
        writer: TraceWriter,
        group: FusionGroup,
        lanes: int,
        threads: int,
        v: dict[str, int],
    ) -> None:
        super().__init__(writer, group, lanes, threads, v)
        self.steps = staggered_steps(group, lanes)
        self.length = row_length(self.steps)
        self.walks: dict[str, tuple[str, ...]] = {}
        while self.vectors > 1 and 2 * self.vectors * lanes > self.length:
            self.vectors //= 2  # every walk along a row takes two iterations or more

    def _rows(self, row: str) -> tuple[str, str]:
        """Rows divided among the threads, for each of them to run one after the other."""
        task = ""
        if self.v["parallel"]:
            rows, least = self.w.loop(row).extent, ROWS_A_STEP * len(self.steps)
            piece = rows_a_task(rows, self.threads, least, self.v["block"])
            task, row = self.w.split(row, piece)
        return task, self._blocks(row)

    def _factored(self, view: StageView, row: str, p: Partials, steps: ReductionSteps) -> None:
        chain = [loop.var for loop in self.w.update_of(f"{p.wide}.acc")[1]]
        self.walks[view.name] = tuple(chain[chain.index(row) + 1 :])

    def _stage(self, view: StageView, row: str, steps: ReductionSteps) -> None:
        if len(view.spatial) > self.group.shared:
            *outer, along = [loop.var for loop in self.w.own_loops(view.name, inside=row)]
            walk = self._in_steps(along, self.lanes * self.vectors)
            self.walks[view.name] = (*outer, *walk)

    def _finish(self, row: str) -> None:
        write_staggered(self.w, row, self.steps, self.walks)
        step = self.vectors * self.lanes
        if self.length % step:
            walk = self._shared_walk()[int(self.v["block"] > 1)]
            self.w.do(Partition(walk, self.length // step))

    def fetch_ahead(self, tensor: str) -> None:
        """Prefetch the rows after those that the first step is at work on, in the walk that all
        steps share."""
        loop = self._shared_walk()[-2]
        if reads_of(self.w.loop(loop).body, tensor):
            self.w.do(Prefetch(tensor, loop, 2 * self.v["block"] * self.length // self.lanes))

    def _shared_walk(self) -> tuple[str, ...]:
        """The loops that walk along the rows at work, outermost first."""
        return next(self.walks[v.name] for v in self.steps[0] if v.name in self.walks)
