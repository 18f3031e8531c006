"""Reductions with several results: parts for threads, and lanes that are added up at the end."""

from __future__ import annotations

from dataclasses import dataclass

from ...primitives import ComputeAt, RFactor, Unroll, Vectorize
from ..analysis import StageView
from ..writer import TraceWriter


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
class Factoring:
    """Writes steps that factor reductions, into `vectors` of `lanes` results and `parts` for the
    threads."""

    w: TraceWriter
    lanes: int
    vectors: int
    parts: int

    def divide(self, view: StageView, along: str | None) -> tuple[str, str | None] | None:
        """A buffer of results of parts of the reduction, and what is left of the loop `along`;
        None where no loop is long enough."""
        if not view.is_reduction:
            return None
        w, step = self.w, self.lanes * self.vectors
        long = [
            r for r in view.reduce if r.extent >= 2 * self.parts * (step if r.name == along else 1)
        ]
        if not long:
            return None
        loop = long[0]
        factor = -(-loop.extent // self.parts)
        if loop.name == along:
            factor = -(-factor // step) * step
        part, rest = w.split(loop.name, factor)
        buffer = f"{view.name}.parts"
        w.do(RFactor(part, buffer))
        return buffer, rest if loop.name == along else along

    def factor(self, buffer: str, loop: str | None) -> Partials | None:
        """RFactor the reduction into `buffer` over contiguous data along `loop`."""
        if loop is None:
            return None
        w = self.w
        extent, lanes = w.loop(loop).extent, self.lanes
        while lanes > extent:
            lanes //= 2
        if lanes < 2:
            return None
        vectors = self.vectors
        while vectors > 1 and vectors * lanes > extent:
            vectors //= 2
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

    def vectorise(self, buffer: str, place: str) -> None:
        """Put the lanes of a partial result innermost, as vectors."""
        w = self.w
        own = w.own_loops(buffer, inside=place)
        spatial = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        last = spatial[-1]
        if w.loop(last).extent <= self.lanes:
            w.reorder(*spatial[:-1], *reduce, last)
            w.do(Vectorize(last))
            return
        outer, inner = w.split(last, self.lanes)
        w.reorder(*spatial[:-1], *reduce, outer, inner)
        w.do(Vectorize(inner), Unroll(outer))
