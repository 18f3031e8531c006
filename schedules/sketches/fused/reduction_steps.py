"""The steps of one reduction in a row: lanes along it, or along the axis of its results.

Over contiguous data, each lane of a few vectors keeps a partial result (RFactor), and these are
combined at the end. Else vectors lie along the results, a few accumulators at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from ...nest.loop_ir import Update
from ...primitives import CacheWrite, ComputeAt, Parallel, Partition, RFactor, Unroll, Vectorize
from ..analysis import StageView
from ..writer import TraceWriter, fitting
from .walks import contiguous_reduction

MOST_UNROLLED_STEPS = 16
"""Steps of a reduction that are written out: a window, or a chunk of rows."""


def column_piece(columns: int, threads: int, step: int) -> int:
    """Columns that a thread reduces, in whole steps of its vectors."""
    return ceil(ceil(columns / threads) / step) * step


@dataclass(frozen=True, slots=True)
class Partials:
    """A reduction over contiguous data, factored: `wide` holds a few vectors of partial results,
    `vector` one (the same buffer if one vector is all there is); `walk` is the long loop over
    data in steps of `width`, `lanes` the loop that is left for the last, horizontal step."""

    wide: str
    vector: str
    walk: str
    extent: int
    width: int
    lanes: str
    combine: str


@dataclass(frozen=True, slots=True)
class ReductionSteps:
    """Writes them, for `vectors` of `lanes` results at once."""

    w: TraceWriter
    lanes: int
    vectors: int

    def divide(self, view: StageView, parts: int) -> bool:
        """Let threads share a reduction, each some of its `parts`, which are added up behind them;
        False where no loop of it is long enough."""
        along = contiguous_reduction(view)
        w, step = self.w, self.lanes * self.vectors
        least = {r.name: 2 * parts * (step if r.name == along else 1) for r in view.reduce}
        loop = next((r for r in view.reduce if r.extent >= least[r.name]), None)
        if loop is None:
            return False
        factor = -(-loop.extent // parts)
        if loop.name == along:
            factor = -(-factor // step) * step
        part, rest = w.split(loop.name, factor)
        buffer = f"{view.name}.parts"
        w.do(RFactor(part, buffer))
        partials = self.factor(buffer, rest if loop.name == along else along)
        task = w.fuse_all(w.spatial_loops(buffer))
        if partials is not None:
            self.keep_in_registers(partials, task)
            self.combine(buffer, task, partials)
            self.cut(partials)
        w.do(Parallel(task))
        return True

    def factor(self, buffer: str, loop: str | None) -> Partials | None:
        """RFactor the reduction into `buffer` over contiguous data along `loop`."""
        if loop is None:
            return None
        w = self.w
        extent = w.loop(loop).extent
        lanes = fitting(self.lanes, extent)
        if lanes < 2:
            return None
        vectors = fitting(self.vectors, extent // lanes)
        width = lanes * vectors
        walk, within = w.split(loop, width)
        wide = f"{buffer}.wide"
        w.do(RFactor(within, wide))
        if vectors == 1:
            return Partials(wide, wide, walk, extent, width, f"{within}.rf", "")
        combine, lane_loop = w.split(f"{within}.rf", lanes)
        vector = f"{buffer}.vector"
        w.do(RFactor(lane_loop, vector))
        return Partials(wide, vector, walk, extent, width, f"{lane_loop}.rf", combine)

    def keep_in_registers(self, partials: Partials, place: str) -> None:
        """Compute partial results inside of loop `place`, where they are combined."""
        for buffer in dict.fromkeys((partials.vector, partials.wide)):
            self.w.do(ComputeAt(buffer, place, register=True))

    def place(self, buffer: str, row: str) -> str:
        """The loop in which partial results are combined: the result's innermost one in `row`."""
        own = self.w.own_loops(buffer, inside=row)
        return next((loop.var for loop in reversed(own) if not loop.reduce), row)

    def combine(self, buffer: str, place: str, p: Partials) -> None:
        """Walk over the data with vectors, combine them into one, and that into the result."""
        w = self.w
        if p.vector != p.wide:
            self._vectorise(p.vector, place)
            w.do(Unroll(p.combine))
        self._vectorise(p.wide, place)
        w.do(CacheWrite(p.wide, place, f"{p.wide}.acc"))
        w.do(CacheWrite(buffer, place, f"{buffer}.total"), Vectorize(p.lanes))

    def cut(self, p: Partials) -> None:
        """Cut the walk where its last whole vectors end: only what is left has a mask."""
        whole = p.extent // p.width
        if p.extent % p.width and whole:
            self.w.do(Partition(p.walk, whole))

    def _vectorise(self, buffer: str, place: str) -> None:
        """Put the lanes of a partial result innermost, as vectors."""
        w = self.w
        own = w.own_loops(buffer, inside=place)
        *spatial, last = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        inner = w.split(last, self.lanes) if w.loop(last).extent > self.lanes else (last,)
        w.reorder(*spatial, *reduce, *inner)
        w.do(Vectorize(inner[-1]), *(Unroll(name) for name in inner[:-1]))

    def along_columns(self, view: StageView, row: str, chunk: int, threads: int = 1) -> str:
        """Vectors along a spatial axis, a few accumulators at a time; `chunk` rows are added up at
        a time, 0 for all. Columns are divided among so many threads: in the loop that is
        returned, "" if there is none."""
        w, lanes = self.w, self.lanes
        leaf, _ = w.writer_of(view.name)
        own = w.own_loops(view.name, inside=row)
        spatial = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        best = w.best_vector_loop(leaf, spatial)
        if best is None:  # no axis is contiguous: one accumulator, element by element
            place = spatial[-1] if spatial else row
            if place and isinstance(leaf, Update) and reduce:
                w.do(CacheWrite(view.name, place, f"{view.name}.acc"))
            return ""
        task, columns = "", best
        piece = column_piece(w.loop(best).extent, threads, lanes * self.vectors)
        if threads > 1 and piece < w.loop(best).extent:
            task, columns = w.split(best, piece)
        extent = w.loop(columns).extent
        vectors = fitting(self.vectors, extent // lanes)
        outer, rest = w.split(columns, vectors * lanes)
        middle, inner = w.split(rest, lanes)
        outside, within = self._chunked(reduce, chunk)
        w.reorder(*(x for x in spatial if x != best), *outside, outer, *within, middle, inner)
        if prod(w.loop(name).extent for name in within) <= MOST_UNROLLED_STEPS:
            w.do(*(Unroll(name) for name in within))
        w.do(Vectorize(inner), Unroll(middle), CacheWrite(view.name, outer, f"{view.name}.acc"))
        if extent % (vectors * lanes) and extent // (vectors * lanes):
            w.do(Partition(outer, extent // (vectors * lanes)))
        return task

    def _chunked(self, reduce: list[str], chunk: int) -> tuple[list[str], list[str]]:
        """The reduction loops that run outside the columns and those within: a few rows at a time
        are added up, so that every row is walked along."""
        if not chunk or self.w.loop(reduce[-1]).extent <= chunk:
            return [], reduce
        outer, inner = self.w.split(reduce[-1], chunk)
        return [*reduce[:-1], outer], [inner]
