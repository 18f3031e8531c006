"""The sketch of several stages that share their leading axes, the rows: a row at a time.

    rows (parallel) | block of rows | stages, each: a walk along the row, in vectors

Each stage is kept in a private buffer the size of a row: a softmax is one loop over rows with four
short loops in it. Within a row, an elementwise stage is vectorised along the axis that is
contiguous, a reduction as `reduction_steps.py` says. Where `staggered.py` finds steps that can
overlap, several rows are at work at once, each at another step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ...arrays import BoolArray, IntArray
from ...nest.finding import reads_of
from ...nest.loop_ir import LoopKind
from ...primitives import (
    ComputeAt,
    Merge,
    Parallel,
    Partition,
    Prefetch,
    Stream,
    Unroll,
    Vectorize,
)
from ...space import Knob
from ..analysis import StageView
from ..groups import FusionGroup, Stages, grown, leading_axes, merged
from ..tile.roles import is_product
from ..writer import TraceWriter, fitting
from .reduction_steps import Partials, ReductionSteps
from .row_part import VECTORS, RowPart, own_rows
from .staggered import (
    ROWS_A_STEP,
    Steps,
    can_block,
    row_length,
    rows_a_task,
    staggered_steps,
    write_staggered,
)
from .walks import chunks_of, contiguous_reduction, row_walk


def row_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Stage `view` with the earlier ones that can be computed in its rows, None if there are none;
    products are not, which have more to gain from tiles."""
    if view.presplit:
        return None

    def common(other: StageView, reader: StageView) -> int:
        apart = bool(other.presplit) or is_product(other)
        return -1 if apart else leading_axes(other.name, reader)

    most = FusionGroup(view, (), own_rows(view) or len(view.spatial))
    found = grown(stages, most, common, least=1)
    return found if found.inside else None


@dataclass(frozen=True)
class RowSketch(RowPart):
    """See the module. One knob setting schedules every stage of the group alike."""

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return (
            VECTORS,
            self.parallel_knob(),
            self.parts_knob(),
            Knob("block", self.blocks),
            Knob("chunk", chunks_of(self.group.stages)),
            Knob("prefetch", (0, 1) if self.fetched else (0,)),
            Knob("merge", (0, 1) if self.merged else (0,)),
            Knob("stagger", (0, 1) if self.can_stagger else (0,)),
            Knob("stream", self.stream_choices),
        )

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Rows whose stages are computed together: one row's sums are waited for meanwhile. They
        are neighbours along the last of several axes."""
        along = self.group.last.spatial[self.group.shared - 1].extent
        return tuple(n for n in (1, 2, 4) if along % n == 0)

    @cached_property
    def fetched(self) -> tuple[str, ...]:
        """Inputs whose rows several stages read and no core's own caches hold."""
        tensors = [r.tensor for view in self.group.stages for r in view.reads]
        shared = [t for t in self.workload.inputs if tensors.count(t.name) > 1]
        large = [t for t in shared if t.bytes > self.target.own_cache_bytes]
        return tuple(t.name for t in large if len(t.shape) > self.group.shared)

    @cached_property
    def merged(self) -> dict[str, str]:
        """Sums, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, row_walk)

    @cached_property
    def steps(self) -> Steps:
        return staggered_steps(self.group, self.lanes)

    @cached_property
    def can_stagger(self) -> bool:
        """Whether steps of several rows can be run together, rows shared out evenly."""
        return len(self.steps) > 1 and self._has_tasks(1)

    def _has_tasks(self, block: int) -> bool:
        """Whether staggered blocks of rows can be shared out evenly, for one thread and for all."""
        if block > 1 and not can_block(self.steps):
            return False
        rows, least = self.group.repeats, ROWS_A_STEP * len(self.steps)
        return all(rows_a_task(rows, n, least, block) > 0 for n in (1, self.target.threads))

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether a setting is worth a try; every one is legal. Staggered rows are computed in
        merged walks, as many of them at once as can be shared out."""
        v = self.values(settings)
        fits = np.isin(v["block"], [block for block in self.blocks if self._has_tasks(block)])
        is_merged = v["merge"] == int(bool(self.merged))
        ok: BoolArray = (v["stagger"] == 0) | (is_merged & fits)
        return ok & self.divides_for_threads(v)

    def uncrowded_rows(self) -> int:
        """How many rows, as read, kept and written, fill a third of the first cache."""
        walks = self.walks()
        kept = len(self.steps) + 1 if self.steps else sum(1 for walk in walks if walk > 1)
        row = kept * max(walks) * self.group.last.dtype.bytes
        cache = min((cache.bytes for cache in self.target.caches), default=0)
        return cache // (3 * max(row, 1))

    def default(self) -> tuple[int, ...]:
        """Four vectors at once, every thread; a few rows at once where they are in the caches,
        staggered where they can be."""
        if self.can_stagger:
            room = self.uncrowded_rows()
            fits = (n for n, b in enumerate(self.blocks) if b <= room and self._has_tasks(b))
            block = max(fits, default=0)
        else:
            block = 0 if self.fetched else 2
        ahead = int(not self.can_stagger or self.streams_pay_here)
        places = {"vectors": 2, "parallel": 1, "split_k": 1, "block": block, "chunk": 3}
        places |= {
            "prefetch": ahead,
            "merge": 1,
            "stagger": 1,
            "stream": int(self.streams_pay_here),
        }
        return self.clipped(places)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v = self.chosen(setting)
        kind = StaggeredRows if v["stagger"] else RowAfterRow
        trace = kind(writer, self, v)
        task = trace.write()
        if v["parallel"] and task:
            writer.do(Parallel(task))
        for tensor in self.fetched if v["prefetch"] else ():
            trace.fetch_ahead(tensor)
        if v["stream"]:
            writer.do(Stream(self.group.last.name))


class RowAfterRow:
    """Writes the loops of one setting: one row, or a block of rows, after the other."""

    def __init__(self, writer: TraceWriter, sketch: RowSketch, v: dict[str, int]) -> None:
        self.w, self.sketch, self.group, self.v = writer, sketch, sketch.group, v
        self.lanes, self.vectors = sketch.lanes, v["vectors"]
        self.merged = sketch.merged if v["merge"] else {}

    def write(self) -> str:
        """Write them; the loop that threads share, "" if they share a reduction."""
        w, stages = self.w, self.group.stages
        steps = ReductionSteps(w, self.lanes, self.vectors)
        for view in stages:
            w.do(*view.presolve)
        divided = self.v["split_k"] > 1 and steps.divide(stages[0], self.v["split_k"])
        partials = self._partials(steps, stages[1:] if divided else stages)
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

    def _partials(self, steps: ReductionSteps, stages: Sequence[StageView]) -> dict[str, Partials]:
        """The reductions over contiguous data, factored."""
        found = {v.name: steps.factor(v.name, contiguous_reduction(v)) for v in stages}
        return {name: partials for name, partials in found.items() if partials is not None}

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

    def __init__(self, writer: TraceWriter, sketch: RowSketch, v: dict[str, int]) -> None:
        super().__init__(writer, sketch, v)
        self.length = row_length(sketch.steps)
        # Every walk along a row takes two iterations or more.
        self.vectors = fitting(self.vectors, self.length // (2 * self.lanes))
        self.walks: dict[str, tuple[str, ...]] = {}

    def _rows(self, row: str) -> tuple[str, str]:
        """Rows divided among the threads, for each of them to run one after the other."""
        task = ""
        if self.v["parallel"]:
            rows, least = self.w.loop(row).extent, ROWS_A_STEP * len(self.sketch.steps)
            piece = rows_a_task(rows, self.sketch.target.threads, least, self.v["block"])
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
        write_staggered(self.w, row, self.sketch.steps, self.walks)
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
        return next(self.walks[v.name] for v in self.sketch.steps[0] if v.name in self.walks)
