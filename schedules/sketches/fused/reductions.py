"""Emit a reduction within a row: along contiguous data, or across it.

Over contiguous data, each lane of a few vectors accumulates a partial result (RFactor), and the
partial results are combined at the end. Otherwise vectors are along the results, with several
accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...arrays import Number, Truth
from ...hardware import BUSY_CHAINS
from ...nest.loop_ir import Update
from ...primitives import CacheWrite, ComputeAt, Parallel, Partition, RFactor, Unroll, Vectorize
from ..analysis.reductions import contiguous_reduction, is_along_columns
from ..analysis.stages import StageView
from ..knobs import POWERS
from ..vectors import fitting, share_of
from ..writer import TraceWriter


def chunks_of(views: Sequence[StageView]) -> tuple[int, ...]:
    """Return the values of the knob `reduction_chunk`: the number of rows that a reduction along
    columns sums in one pass over the columns. 0 means all rows."""
    longest = max((v.reduce[-1].extent for v in views if is_along_columns(v)), default=0)
    chunks = (2 * n for n in POWERS)
    return (0, *(chunk for chunk in chunks if 2 * chunk <= longest))


def unrolls_steps(steps: Number) -> Truth:
    """Return whether steps of a reduction (a window or a chunk of rows) are unrolled. The limit is
    twice the number of chains that keep the pipes busy, so that half of the steps load while the
    others add."""
    return steps <= 2 * BUSY_CHAINS


def divided(view: StageView, parts: int, step: int) -> tuple[int, int, int]:
    """Return (number, length, parts): the number of the reduction loop that threads divide, the
    length of a part, and the number of parts. Return (-1, 0, 1) if no loop is long enough.

    The first loop that is long enough is divided. Parts of a contiguous loop are multiples of
    `step`.
    """
    along = contiguous_reduction(view)
    for n, loop in enumerate(view.reduce):
        unit = step if loop.name == along else 1
        if parts > 1 and loop.extent >= 2 * parts * unit:
            part = share_of(loop.extent, parts, unit)
            return n, part, -(-loop.extent // part)
    return -1, 0, 1


def columns_of(extent: int, lanes: int, vectors: int, threads: int) -> tuple[int, int]:
    """Return the number of columns per thread, and the number of vectors of sums that are
    accumulated concurrently."""
    piece = min(share_of(extent, threads, lanes * vectors), extent) if threads > 1 else extent
    return piece, fitting(vectors, piece // lanes)


@dataclass(frozen=True, slots=True)
class Partials:
    """The buffers and loops of a reduction over contiguous data that is factored into partial
    results."""

    wide: str
    """Buffer of a few vectors of partial results."""
    vector: str
    """Buffer of one vector of partial results. It equals `wide` if that has a single vector."""
    walk: str
    """Loop over the data, in steps of `width` elements."""
    extent: int
    width: int
    lanes: str
    """Loop of the final horizontal reduction."""
    combine: str
    """Loop that adds the vectors of `wide`, or "" if there is one vector."""


@dataclass(frozen=True, slots=True)
class ReductionSteps:
    """Emits the steps of reductions, with `vectors` vectors of `lanes` results."""

    w: TraceWriter
    lanes: int
    vectors: int

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    def divide(self, view: StageView, number: int, length: int) -> None:
        """Let threads divide loop `number` of a reduction over contiguous data into parts of
        `length`. The parts are added after the loop."""
        w, along, loop = self.w, contiguous_reduction(view), view.reduce[number].name
        assert along is not None
        part, rest = w.split(loop, length)
        buffer = f"{view.name}.parts"
        w.do(RFactor(part, buffer))
        partials = self.factor(buffer, rest if loop == along else along)
        task = w.fuse_all(w.spatial_loops(buffer))
        self.add_up(buffer, partials, task)
        w.do(Parallel(task))

    def factor(self, buffer: str, loop: str) -> Partials:
        """Factor the reduction into `buffer` along `loop`, so that each lane has a partial result.
        The data along `loop` must be contiguous."""
        w = self.w
        extent = w.loop(loop).extent
        lanes = fitting(self.lanes, extent)
        vectors = fitting(self.vectors, extent // lanes)
        width = lanes * vectors
        walk, within = w.split(loop, width)
        wide = f"{buffer}.wide"
        (last,) = w.remake(RFactor(within, wide))[within]
        if vectors == 1:
            return Partials(wide, wide, walk, extent, width, last, "")
        combine, lane_loop = w.split(last, lanes)
        vector = f"{buffer}.vector"
        (last,) = w.remake(RFactor(lane_loop, vector))[lane_loop]
        return Partials(wide, vector, walk, extent, width, last, combine)

    def add_up(self, buffer: str, partials: Partials, place: str) -> None:
        """Compute the partial results in loop `place`, and the final result from them."""
        self.keep_in_registers(partials, place)
        self.combine(buffer, place, partials)
        self.cut(partials)

    def keep_in_registers(self, partials: Partials, place: str) -> None:
        """Compute the partial results in registers inside loop `place`, where they are combined."""
        for buffer in dict.fromkeys((partials.vector, partials.wide)):
            self.w.do(ComputeAt(buffer, place, register=True))

    def place(self, buffer: str, row: str) -> str:
        """Return the loop in which partial results are combined: the innermost loop of the result
        in `row`."""
        own = self.w.own_loops(buffer, inside=row)
        return next((loop.var for loop in reversed(own) if not loop.reduce), row)

    def combine(self, buffer: str, place: str, p: Partials) -> None:
        """Vectorise the loop over the data, the sum of its vectors, and the horizontal
        reduction."""
        w = self.w
        if p.vector != p.wide:
            self.vectorise(p.vector, place)
            w.do(Unroll(p.combine))
        self.vectorise(p.wide, place)
        w.do(CacheWrite(p.wide, place, f"{p.wide}.acc"))
        w.do(CacheWrite(buffer, place, f"{buffer}.total"), Vectorize(p.lanes))

    def cut(self, p: Partials) -> None:
        """Partition the loop over the data, so that only the remainder is masked."""
        whole = p.extent // p.width
        if p.extent % p.width and whole:
            self.w.do(Partition(p.walk, whole))

    def vectorise(self, buffer: str, place: str) -> None:
        """Make the lanes of a partial result the innermost loop and vectorise it."""
        w = self.w
        own = w.own_loops(buffer, inside=place)
        *spatial, last = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        inner = w.split(last, self.lanes) if w.loop(last).extent > self.lanes else (last,)
        w.reorder(*spatial, *reduce, *inner)
        w.do(Vectorize(inner[-1]), *(Unroll(name) for name in inner[:-1]))

    def along_columns(self, name: str, row: str, chunk: int, threads: int = 1) -> str:
        """Vectorise the reduction into `name` along a spatial axis, with several accumulators.

        `chunk` rows are summed in one pass over the columns (0: all rows). Return the loop over the
        columns of a thread, or "" if `threads` do not divide the columns.
        """
        w, lanes = self.w, self.lanes
        leaf, _ = w.writer_of(name)
        own = w.own_loops(name, inside=row)
        spatial = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        best = w.best_vector_loop(leaf, spatial)
        if best is None:  # no axis is contiguous: one scalar accumulator
            place = spatial[-1] if spatial else row
            if place and isinstance(leaf, Update) and reduce:
                w.do(CacheWrite(name, place, f"{name}.acc"))
            return ""
        extent = w.loop(best).extent
        piece, vectors = columns_of(extent, lanes, self.vectors, threads)
        task, columns = w.split(best, piece) if piece < extent else ("", best)
        outer, rest = w.split(columns, vectors * lanes)
        middle, inner = w.split(rest, lanes)
        outside, within = self._chunked(reduce, chunk)
        w.reorder(*(x for x in spatial if x != best), *outside, outer, *within, middle, inner)
        if unrolls_steps(prod(w.loop(x).extent for x in within)):
            w.do(*(Unroll(x) for x in within))
        w.do(Vectorize(inner), Unroll(middle), CacheWrite(name, outer, f"{name}.acc"))
        if piece % (vectors * lanes) and piece // (vectors * lanes):
            w.do(Partition(outer, piece // (vectors * lanes)))
        return task

    def _chunked(self, reduce: list[str], chunk: int) -> tuple[list[str], list[str]]:
        """Return the reduction loops outside the columns and those inside them. With chunks, one
        pass over the columns sums a few rows. Both lists are empty if the reduction has no
        loops."""
        if not chunk or not reduce or self.w.loop(reduce[-1]).extent <= chunk:
            return [], reduce
        outer, inner = self.w.split(reduce[-1], chunk)
        return [*reduce[:-1], outer], [inner]
