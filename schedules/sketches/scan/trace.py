"""The traces of the scan sketch, from the levels of its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...plan import LoopLevel
from ...primitives import (
    CacheWrite,
    CarryScan,
    Parallel,
    ReverseComputeAt,
    RFactor,
    ScanBlocks,
    Vectorize,
)
from ..fused.reductions import ReductionSteps
from ..vectors import fitting, share_of
from ..writer import BLOCKS, STEPS, TraceWriter, called

TURNS, SHARES = "parts of the scan in turn", "parts of the scan"
"""Roles of the loops that divide the axis of a scan."""

TOTAL_VECTORS = 4
"""Vectors of partial results of a sum over a part of a row. They hide the latency of additions."""


@dataclass(frozen=True, slots=True)
class ScanTrace:
    """Emits the steps of one scan."""

    w: TraceWriter
    name: str
    along: str
    """The loop of the scan."""
    lanes: int
    is_contiguous: bool
    """Whether lanes are along the scan."""
    is_kept: bool
    """Whether the last elements are kept in a small buffer."""
    in_registers: bool
    """Whether this buffer is in registers."""

    @property
    def unit(self) -> int:
        """Positions along the scan that one step computes."""
        return self.lanes if self.is_contiguous else 1

    def write(self, levels: Sequence[LoopLevel], reader: str, parallel: bool) -> None:
        """Emit the loops `levels`. The elementwise stage `reader` is computed in them, if it is
        given. If `parallel`, threads divide other axes."""
        if reader:
            self.w.do(ReverseComputeAt(reader, self.name))
        if any(level.role == SHARES for level in levels):
            self._divided(levels)
            return
        whole, rest = divmod(self.w.loop(self.along).extent, self.unit)
        task = self._rows(levels, whole if rest else 0)
        if parallel and task:
            self.w.do(Parallel(task))

    def _rows(self, levels: Sequence[LoopLevel], whole: int = 0) -> str:
        """Emit the loops of all or a part of each scan, and return the loop over other axes. Only
        the step after the first `whole` ones is masked."""
        w = self.w
        made = w.arrange(levels)
        task = w.fuse_all(called(made, BLOCKS))
        steps, *_ = called(made, STEPS)
        if self.is_kept:
            buffer = f"{self.name}.kept"
            w.do(CarryScan(self.name, steps, buffer, self.unit, self.in_registers))
        if whole:
            w.partition(steps, whole)
        return task

    def _divided(self, levels: Sequence[LoopLevel]) -> None:
        """Let threads divide the axis of the scan. Positions after the last whole step follow at
        the end. If elements are kept in registers, they are masked instead, because they would need
        an element that is not stored."""
        w, extent = self.w, self.w.loop(self.along).extent
        others = [loop for loop in w.spatial_loops(self.name) if loop != self.along]
        w.reorder(self.along, *others)
        rest = 0 if self.is_kept else extent % self.unit
        if rest:
            cut = w.partition(self.along, extent - rest)
            w.reorder(*(cut[loop] for loop in (*others, self.along)))
            w.do(Vectorize(cut[self.along]))
        outer, inner = list[str](), self.along
        for level in levels:
            if level.role in (TURNS, SHARES):
                part, inner = w.split(inner, level.step)
                outer.append(part)
        w.reorder(*outer, *others, inner)
        share, totals = outer[-1], f"{self.name}.totals"
        made = w.remake(ScanBlocks(share, totals, f"{self.name}.carries"))
        self._sum(totals, made[share][0], made[inner][0], outer[:-1])
        own = (level for level in levels if level.role not in (TURNS, SHARES))
        self._rows([x._replace(loop=inner) if x.loop == self.along else x for x in own])
        w.do(Parallel(share))

    def _sum(self, totals: str, share: str, along: str, turns: Sequence[str]) -> None:
        """Emit the loops of the sums over parts of scans, inside the loops `turns`. The last part
        needs no sum, so that there is one part less than threads; parts are therefore divided
        further if lanes are along them."""
        w, steps = self.w, ReductionSteps(self.w, self.lanes, TOTAL_VECTORS)
        if not self.is_contiguous:
            steps.along_columns(totals, share, 0)
            if w.loop(share).extent > 1:
                w.do(Parallel(share))
            return
        threads = w.loop(share).extent + 1
        length = share_of(w.loop(along).extent, threads, steps.width)
        piece, rest = w.split(along, length)
        w.do(RFactor(piece, f"{totals}.pieces"))
        _, within = w.split(rest, fitting(steps.width, length))
        wide = f"{totals}.wide"
        w.do(RFactor(within, wide))
        *own, _ = (x for x in w.spatial_loops(wide) if x not in turns)
        task = w.fuse_all(own)
        steps.vectorise(wide, task)
        w.do(CacheWrite(wide, task, f"{wide}.acc"), Parallel(task))
