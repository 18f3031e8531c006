"""Writing down the trace of one setting of the sketch of turned sums, step by step."""

from __future__ import annotations

from ...primitives import (
    CacheWrite,
    ComputeAt,
    Parallel,
    Partition,
    RFactor,
    Unroll,
    Vectorize,
)
from ..analysis import StageView
from ..writer import TraceWriter
from .turn import Turn


def write_turned_sum_trace(
    writer: TraceWriter, view: StageView, turn: Turn, lanes: int, threads: int, v: dict[str, int]
) -> None:
    """Add the steps that schedule the reduction `view` with knob values `v`."""
    _TurnedSumTrace(writer, view, turn, lanes, threads, v).write()


class _TurnedSumTrace:
    def __init__(
        self,
        writer: TraceWriter,
        view: StageView,
        turn: Turn,
        lanes: int,
        threads: int,
        v: dict[str, int],
    ) -> None:
        self.w = writer
        self.view = view
        self.along, self.across = turn.along.name, turn.across.name
        self.sums_lanes = turn.along.reduce
        self.turned = [read.tensor for read in turn.turned]
        self.lanes = lanes
        self.threads = threads
        self.v = v
        tensors = [read.tensor for read in view.reads]
        self.read_twice = {tensor for tensor in self.turned if tensors.count(tensor) > 1}
        self.buffer = view.name
        self.made = 0

    def write(self) -> None:
        """Pieces of a few vectors of sums, each kept in registers over the whole reduction."""
        w = self.w
        if self.sums_lanes:
            self.buffer = f"{self.view.name}.sums"
            w.do(RFactor(self.along, self.buffer))
            self._add_up(f"{self.along}.rf")
        others = [x.name for x in self.view.spatial if x.name != self.along and w.has(x.name)]
        reduce = [x.name for x in self.view.reduce if x.name not in (self.along, self.across)]
        w.reorder(*others, self.along, *filter(w.has, reduce), self.across)
        fused = ""
        for name in others:
            fused = w.fuse(fused, name) if fused else name
        by_others = fused != "" and w.loop(fused).extent >= 2 * self.threads
        tasks = [self._piece(loop, size) for loop, size in self._pieces()]
        if self.v["parallel"]:
            shared = [fused] if by_others else [x for x in tasks if w.loop(x).extent > 1]
            w.do(*(Parallel(name) for name in shared))

    def _add_up(self, along: str) -> None:
        """Add up the sums of each result, in vectors where there are several."""
        w, name = self.w, self.view.name
        extent = w.loop(along).extent
        if extent < 2 * self.lanes or not any(x.extent > 1 for x in self.view.spatial):
            return
        walk, within = w.split(along, self.lanes)
        wide = f"{name}.lanes"
        w.do(RFactor(within, wide))
        place = [x.var for x in w.writer_of(name)[1] if not x.reduce][-1]
        w.do(ComputeAt(wide, place, register=True))
        (vector,) = [x.var for x in w.own_loops(wide, inside=place) if not x.reduce]
        w.reorder(walk, vector)
        w.do(Vectorize(vector), CacheWrite(wide, place, f"{wide}.acc"))
        w.do(CacheWrite(name, place, f"{name}.total"), Vectorize(f"{within}.rf"))
        if extent % self.lanes:
            w.do(Partition(walk, extent // self.lanes))

    def _pieces(self) -> list[tuple[str, int]]:
        """Loop `along` in parts, each a multiple of a size: pieces, vectors, and a last one."""
        w = self.w
        found: list[tuple[str, int]] = []
        rest = self.along
        for size in dict.fromkeys((self.v["columns"] * self.lanes, self.lanes)):
            extent = w.loop(rest).extent
            whole = extent // size * size
            if whole == extent:
                return [*found, (rest, size)]
            if whole:
                after = w.partition(rest, whole)[rest]
                found.append((rest, size))
                rest = after
        return [*found, (rest, w.loop(rest).extent)]

    def _piece(self, along: str, size: int) -> str:
        """One part of the lanes' loop, whose pieces are `size` long; the loop over those."""
        w = self.w
        place, inner = w.split(along, size)
        middle, lane = w.split(inner, min(self.lanes, size))
        _, chain = w.writer_within(self.buffer, place)
        loops = [x.var for x in chain if x.reduce]
        *outside, across = loops
        w.reorder(*outside, across, middle, lane)
        self.made += 1
        w.do(CacheWrite(self.buffer, place, f"{self.view.name}.acc{self.made}"))
        for end in ("init", "out"):
            w.do(Unroll(f"{middle}.{end}"), Vectorize(f"{lane}.{end}"))
        extent = w.loop(across).extent
        whole = extent // self.lanes * self.lanes
        parts = [(across, middle, lane)]
        if whole not in (0, extent):
            names = w.partition(across, whole)
            parts.append((names[across], names[middle], names[lane]))
        for part in parts:
            self._block(*part)
        return place

    def _block(self, across: str, middle: str, lane: str) -> None:
        """Blocks of a part of the reduction: each is read, turned and added up."""
        w = self.w
        _, step = w.split(across, min(self.lanes, w.loop(across).extent))
        w.reorder(middle, step, lane)
        for tensor in self.turned:
            self._read_block(tensor, middle, step)
        w.do(Unroll(middle), Unroll(step), Vectorize(lane))

    def _read_block(self, tensor: str, place: str, along: str) -> None:
        """Read what a block needs of `tensor` into registers, along the tensor's own axis."""
        w = self.w
        if tensor in self.read_twice and w.loop(along).extent == 1:
            return  # a single element of each row: there is nothing to turn
        self.made += 1
        buffer = f"{self.view.name}.{tensor}.block{self.made}"
        w.read_block(tensor, place, buffer, along if tensor in self.read_twice else "")
