"""Writing down the trace of one setting of the turning sketch, step by step."""

from __future__ import annotations

from ..primitives import CacheRead, Parallel, Partition, Stream, Unroll, Vectorize
from .analysis import StageView
from .writer import TraceWriter

MOST_LANES = 16
"""Sides of a block of registers: one of 32 by 32 does not fit any register file."""


def write_turn_trace(
    writer: TraceWriter,
    view: StageView,
    axes: tuple[str, str],
    turned: tuple[str, ...],
    lanes: int,
    threads: int,
    v: dict[str, int],
) -> None:
    """Add the steps that schedule `view` with knob values `v`: `axes` are the loops that are
    contiguous in the tensors `turned` and in the result."""
    _TurnTrace(writer, view, axes, turned, lanes, threads, v).write()


class _TurnTrace:
    def __init__(
        self,
        writer: TraceWriter,
        view: StageView,
        axes: tuple[str, str],
        turned: tuple[str, ...],
        lanes: int,
        threads: int,
        v: dict[str, int],
    ) -> None:
        self.w = writer
        self.name = view.name
        self.across, self.along = axes
        self.others = [loop.name for loop in view.spatial if loop.name not in axes]
        self.turned = turned
        self.lanes = lanes
        self.threads = threads
        self.v = v

    def write(self) -> None:
        """Blocks in pieces of several. Whole blocks and what is left at the ends of both axes are
        parts of their own, so that nothing is tested in a whole block."""
        w = self.w
        others = [name for name in self.others if w.has(name)]
        w.reorder(*others, self.across, self.along)
        fused = ""
        for name in others:
            fused = w.fuse(fused, name) if fused else name
        by_others = fused != "" and w.loop(fused).extent >= 2 * self.threads
        extents = {loop: w.loop(loop).extent for loop in (self.across, self.along)}
        rows, row = w.split(self.across, min(self.lanes, extents[self.across]))
        columns, column = w.split(self.along, min(self.lanes, extents[self.along]))
        ends = {
            rows: extents[self.across] // self.lanes,
            columns: extents[self.along] // self.lanes,
        }
        down, below = self._divided(rows, self.v["rows"], ends)
        right, beside = self._divided(columns, self.v["columns"], ends)
        outer = [down, right]
        if not by_others and w.loop(down).extent < self.threads < w.loop(right).extent:
            outer.reverse()
        w.reorder(*outer, *below, *beside, row, column)
        place = (*outer, *below, *beside)[-1]
        for tensor in self.turned:
            self._read_block(tensor, place)
        w.do(Unroll(row), Vectorize(column))
        for loop in reversed(outer):
            if 0 < ends[loop] < w.loop(loop).extent:
                w.do(Partition(loop, ends[loop]))
        if self.v["parallel"]:
            w.do(Parallel(fused if by_others else outer[0]))
        if self.v["stream"]:
            w.do(Stream(self.name))

    def _divided(self, loop: str, count: int, ends: dict[str, int]) -> tuple[str, list[str]]:
        """The loop over pieces of `count` blocks, and the loop within one; `ends` says after how
        many iterations whole blocks end."""
        if count == 1 or self.w.loop(loop).extent <= count or ends[loop] % count:
            return loop, []
        outer, inner = self.w.split(loop, count)
        ends[outer] = ends[loop] // count
        return outer, [inner]

    def _read_block(self, tensor: str, place: str) -> None:
        """Read what a block needs of `tensor` into registers, along the tensor's own axis."""
        w = self.w
        buffer = f"{self.name}.{tensor}.block"
        w.do(CacheRead(tensor, place, buffer, register=True))
        leaf, _ = w.writer_of(buffer)
        for loop in w.own_loops(buffer):
            w.do(Vectorize(loop.var) if w.reads_along(leaf, loop.var) else Unroll(loop.var))
