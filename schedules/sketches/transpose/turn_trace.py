"""Writing down the trace of one setting of the turning sketch, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from ...primitives import (
    CacheWrite,
    Fuse,
    Parallel,
    Stream,
    TransformLayout,
    Unroll,
    Vectorize,
)
from ..analysis import StageView
from ..writer import TraceWriter

MOST_LANES = 16
"""Sides of a block of registers: one of 32 by 32 does not fit any register file."""


VECTORS_AT_ONCE = 8
"""Vectors of a collected row that are written in one iteration."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Loops over `a` and `b` in pieces of a fixed size: `outer`, `inner`, and `a`, `b` in one."""

    outer: str
    inner: str
    a: str
    b: str


def write_turn_trace(
    writer: TraceWriter,
    view: StageView,
    axes: tuple[str, str],
    turned: tuple[str, ...],
    lanes: int,
    threads: int,
    v: dict[str, int],
    joins: tuple[Fuse, ...] = (),
) -> None:
    """Add the steps that schedule `view` with knob values `v`: `axes` are the loops that are
    contiguous in the tensors `turned` and in the result, after `joins`."""
    _TurnTrace(writer, view, axes, turned, lanes, threads, v, joins).write()


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
        joins: tuple[Fuse, ...],
    ) -> None:
        self.w = writer
        self.name = view.name
        self.across, self.along = axes
        self.others = [loop.name for loop in view.spatial if loop.name not in axes]
        self.turned = turned
        self.joins = joins
        tensors = [read.tensor for read in view.reads]
        twice = {tensor for tensor in turned if tensors.count(tensor) > 1}
        self.without_box = set(turned) if joins else twice
        self.lanes = lanes
        self.threads = threads
        self.v = v
        self.collected = 0
        self.blocks = 0

    def write(self) -> None:
        """Pieces of several blocks. What is left at the ends of both axes are pieces and blocks
        of their own, so that nothing is tested in a whole one."""
        w = self.w
        w.do(*self.joins)
        others = [name for name in self.others if w.has(name)]
        w.reorder(*others, self.across, self.along)
        fused = ""
        for name in others:
            fused = w.fuse(fused, name) if fused else name
        by_others = fused != "" and w.loop(fused).extent >= 2 * self.threads
        sizes = {self.across: self.v["rows"], self.along: self.v["columns"]}
        pieces = {loop: w.loop(loop).extent // (n * self.lanes) for loop, n in sizes.items()}
        order = (self.across, self.along)
        if not by_others and pieces[self.across] < self.threads < pieces[self.along]:
            order = (self.along, self.across)
            w.reorder(*order)
        tasks: list[str] = []
        for part in self._divided(*order, *(sizes[loop] * self.lanes for loop in order)):
            across, along = (part.a, part.b) if order[0] == self.across else (part.b, part.a)
            self._piece(part, across, along)
            tasks.append(part.outer if w.loop(part.outer).extent > 1 else part.inner)
        if by_others:
            tasks = [fused]
        if self.v["parallel"]:
            shared = [name for name in dict.fromkeys(tasks) if w.loop(name).extent > 1]
            w.do(*(Parallel(name) for name in shared))
        if self.v["stream"]:
            w.do(Stream(self.name))

    def _divided(self, a: str, b: str, a_size: int, b_size: int) -> list[_Part]:
        """Loop `a` with only `b` inside, divided into `a_size` by `b_size` iterations, and what is
        left at the end of each axis into as many as there are: up to four parts."""
        w = self.w
        found: list[_Part] = []
        for first, within in self._cut(a, b, a_size):
            outer, rest = w.split(first, min(a_size, w.loop(first).extent))
            w.reorder(outer, within, rest)
            for second, inside in self._cut(within, rest, b_size):
                inner, last = w.split(second, min(b_size, w.loop(second).extent))
                w.reorder(inner, inside, last)
                found.append(_Part(outer, inner, inside, last))
        return found

    def _cut(self, loop: str, within: str, size: int) -> list[tuple[str, str]]:
        """`loop` cut where its last `size` whole iterations end; `within` in each part as well."""
        extent = self.w.loop(loop).extent
        whole = extent // size * size
        if whole in (0, extent):
            return [(loop, within)]
        names = self.w.partition(loop, whole)
        return [(loop, within), (names[loop], names[within])]

    def _piece(self, part: _Part, across: str, along: str) -> None:
        """One piece, in blocks of registers: those along the tensors' own axis one after another
        where rows are collected, or else those along the result's."""
        w = self.w
        collected = self.v["collect"] and w.loop(along).extent > self.lanes
        if (part.a, part.b) != (across, along):
            w.reorder(across, along)
        if collected:
            self._collect(part.inner, across, along)
            w.reorder(along, across)
        order = (along, across) if collected else (across, along)
        for block in self._divided(*order, self.lanes, self.lanes):
            row, column = (block.b, block.a) if collected else (block.a, block.b)
            w.reorder(row, column)
            for tensor in self.turned:
                self._read_block(tensor, block.inner, row)
            w.do(Unroll(row), Vectorize(column))

    def _collect(self, place: str, across: str, along: str) -> None:
        """Keep what a piece writes in a buffer of its own, a panel for each vector of a row, and
        write it row after row: whole stretches of lines, instead of one line of many rows."""
        w = self.w
        leaf, _ = w.writer_within(self.name, place)
        (dim,) = (d for d, index in enumerate(leaf.index) if along in index.vars())
        self.collected += 1
        name = f"{self.name}.piece{self.collected}"
        w.do(CacheWrite(self.name, place, name, register=False))
        others = tuple((d, 0) for d in range(len(leaf.index)) if d != dim)
        panels = ((dim, 1), *others, (dim, 2))
        w.do(TransformLayout(name, ((dim, self.lanes),), panels))
        w.vectorise_parts(f"{along}.out", self.lanes, VECTORS_AT_ONCE)

    def _read_block(self, tensor: str, place: str, row: str) -> None:
        """Read what a block needs of `tensor` into registers, along the tensor's own axis `row`;
        what else is read of it stays where it is."""
        w = self.w
        if tensor in self.without_box and w.loop(row).extent == 1:
            return  # a single element of each row: there is nothing to turn
        self.blocks += 1
        buffer = f"{self.name}.{tensor}.block{self.blocks}"
        w.read_block(tensor, place, buffer, row if tensor in self.without_box else "")
