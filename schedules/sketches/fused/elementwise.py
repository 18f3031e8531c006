"""The sketch of one elementwise stage: dense walks over everything, or row by row.

    rows (parallel) | a row, in vectors, a few at once

Where all tensors are walked in the same order, rows may be one long walk in pieces for the threads;
short rows are joined with the next ones, and rows that are too few for the threads are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from ...primitives import Parallel, Stream, Vectorize
from ...space import Knob
from ..analysis import StageView
from ..streams import stream_values
from ..writer import TraceWriter
from .group_sketch import TASKS_A_THREAD
from .row_part import VECTORS, RowPart

LONG_ROW = 8
"""Vectors in a row from which on joining it with the next one gains nothing."""

MOST_IN_A_PIECE = 16384
"""Elements of a piece of one dense walk: small enough for threads to even out."""


def spread_tasks(rows: int, threads: int) -> int:
    """Tasks that rows are divided into: as many as they are, if that will do."""
    return rows * -(-TASKS_A_THREAD * threads // rows) if rows < 2 * threads else rows


@dataclass(frozen=True)
class ElementwiseSketch(RowPart):
    """See the module. Knob `fuse_all` says that all rows are one walk."""

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return (
            VECTORS,
            self.parallel_knob(),
            Knob("fuse_all", (0, 1) if self.is_dense else (0,)),
            Knob("stream", self.stream_choices),
        )

    @cached_property
    def is_dense(self) -> bool:
        """Whether the stage walks all its tensors in the same dense order."""
        last = self.group.last
        if len(last.spatial) < 2 or last.presplit:
            return False
        identity = tuple(loop.name for loop in last.spatial)
        return all(
            tuple(map(str, r.index)) == identity and r.shape == last.shape and not r.conditional
            for r in last.reads
        )

    @cached_property
    def stream_choices(self) -> tuple[int, ...]:
        return stream_values(self.workload, self.group.last.name, self.target, flat=self.is_dense)

    def default(self) -> tuple[int, ...]:
        """Four vectors at once, every thread."""
        stream = int(self.streams_pay_here)
        return self.clipped({"vectors": 2, "parallel": 1, "fuse_all": 1, "stream": stream})

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v, view = self.chosen(setting), self.group.last
        writer.do(*view.presolve, *view.presplit)
        walk = _Walk(writer, view, self.lanes, v["vectors"], self.target.threads)
        task = walk.flat(bool(v["parallel"])) if v["fuse_all"] else walk.by_rows(v["parallel"] > 0)
        if v["parallel"] and task:
            writer.do(Parallel(task))
        if v["stream"]:
            writer.do(Stream(view.name))


@dataclass(frozen=True, slots=True)
class _Walk:
    """Writes the loops of the stage; gives the one that threads share, "" if there is none."""

    w: TraceWriter
    view: StageView
    lanes: int
    vectors: int
    threads: int

    def flat(self, is_parallel: bool) -> str:
        """One dense walk over everything, in pieces of a few thousand elements for the threads."""
        w, step = self.w, self.lanes * self.vectors
        walk, outer = w.fuse_all(w.spatial_loops(self.view.name)), ""
        extent = w.loop(walk).extent
        if is_parallel and extent >= 4 * step:
            piece = min(-(-extent // 8), MOST_IN_A_PIECE) // step * step
            outer, walk = w.split(walk, max(piece, step))
        w.vectorise_loop(walk, self.lanes, self.vectors)
        return outer

    def by_rows(self, is_parallel: bool) -> str:
        """Row by row, with vectors along the axis that suits most accesses."""
        w, name = self.w, self.view.name
        *outer, last = self._joined(w.spatial_loops(name))
        row = w.fuse_all(outer)
        if is_parallel:
            row = self._spread(row, last)
        own = [loop.var for loop in w.own_loops(name, inside=row)] if row else []
        leaf, _ = w.writer_of(name)
        if len(own) == 1 and w.best_vector_loop(leaf, own) and w.reads_along(leaf, row):
            return self._in_blocks(row, own[0])
        w.vectorise_writer(name, self.lanes, self.vectors, inside=row, cut=True)
        return row

    def _joined(self, loops: list[str]) -> list[str]:
        """The loops, the last few of them as one where that walks along all tensors: a short axis
        fills no vectors."""
        w = self.w
        *outer, last = loops
        while self.view.reads_only and len(outer) > 1:
            is_long = w.loop(last).extent >= LONG_ROW * self.lanes
            if is_long or not self._is_one_walk(outer[-1], last):
                break
            last = w.fuse(outer.pop(), last)
        return [*outer, last]

    def _is_one_walk(self, outer: str, inner: str) -> bool:
        """Whether every access goes on along `outer` where it ends along `inner`."""
        leaf, _ = self.w.writer_of(self.view.name)
        extent = self.w.loop(inner).extent
        for tensor, index in self.w.accesses(leaf):
            far, near = (self.w.step_of(tensor, index, loop) for loop in (outer, inner))
            if far is None or near is None or far != near * extent:
                return False
        return True

    def _spread(self, row: str, along: str) -> str:
        """Where rows are too few for the threads, pieces of them are tasks as well."""
        w, step = self.w, self.lanes * self.vectors
        rows = w.loop(row).extent if row else 1
        pieces = spread_tasks(rows, self.threads) // rows
        extent = w.loop(along).extent
        piece = ceil(ceil(extent / pieces) / step) * step
        if pieces == 1 or piece >= extent:
            return row
        outer, _ = w.split(along, piece)
        return w.fuse(row, outer) if row else outer

    def _in_blocks(self, row: str, along: str) -> str:
        """Blocks of a cache line of rows by a vector of columns, where a read is contiguous along
        the rows: a line is read while it is hot."""
        w = self.w
        block, inner_row = w.split(row, max(self.vectors * 4, 1))
        outer, inner = w.split(along, self.lanes)
        w.reorder(block, outer, inner_row, inner)
        w.do(Vectorize(inner))
        return block
