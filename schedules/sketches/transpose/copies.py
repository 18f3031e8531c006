"""The transpose sketch: an elementwise stage that reads a tensor along one axis and writes another.

Blocks of registers are read with vectors along the axis that is contiguous in the tensor,
transposed, and written with vectors along the axis that is contiguous in the result: a
transposition, any permutation that moves the last axis, or an expression that has such reads among
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...arrays import IntArray
from ...plan import Level, Plan
from ...primitives import CacheWrite, Fuse, Parallel, Stream, TransformLayout, Unroll, Vectorize
from ...space import Knob
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Loop, StageView
from ..hardware import LINE_BYTES
from ..knobs import Knobbed
from ..streams import stream_values, streams_pay
from ..writer import TraceWriter
from .blocks import (
    BlockWriter,
    TransposedStage,
    Transposition,
    can_be_transposed,
    crowding,
    pitch,
    read_twice,
)
from .joined import joined

SHORTEST_SIDE = 8
"""Shorter axes may do as well element by element."""

VECTORS_AT_ONCE = 8
"""Vectors of a collected row that are written in one iteration."""


def find_transposition(view: StageView) -> Transposition | None:
    """How `view` transposes what it reads, if it does, and no tensor is transposed twice."""
    if view.is_reduction or view.presplit or len(view.spatial) < 2:
        return None
    moving = [loop for loop in view.spatial if loop.extent > 1]
    if len(moving) < 2:
        return None
    along = moving[-1]
    reads = [r for r in view.reads if r.own_dim(along.name) is not None and pitch(r, along) > 1]
    for across in moving[:-1]:
        if reads and all(can_be_transposed(view, r, across, along) for r in reads):
            return Transposition(across, along, tuple(reads))
    return None


def transpose_sketch(workload: Workload, view: StageView, target: Target) -> TransposeSketch | None:
    """The sketch of a stage that transposes what it reads, along axes that are one where they can
    be."""
    one = joined(view)
    found = find_transposition(one.view)
    if found is not None and {found.across.name, found.along.name} - {x.name for x in view.spatial}:
        return TransposeSketch(workload, one.view, found, target, one.steps)
    found = find_transposition(view)
    return None if found is None else TransposeSketch(workload, view, found, target)


@dataclass(frozen=True)
class TransposeSketch(TransposedStage, Knobbed):
    """See the module. `rows` and `columns` are blocks walked together, in the axes of the result:
    how much of each line, page and cache set is used before it is left; `collect` gathers such a
    piece in a buffer and writes its rows one after another."""

    joins: tuple[Fuse, ...] = ()
    """Loops of the stage that are one in `view`."""

    @property
    def name(self) -> str:
        return "turn"

    @property
    def is_narrow(self) -> bool:
        """Whether an axis is so short that element by element may do as well."""
        return min(self.blocks.across.extent, self.blocks.along.extent) < SHORTEST_SIDE

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        threads = self.target.threads
        return (
            Knob("rows", self._counts(self.blocks.across)),
            Knob("columns", self._counts(self.blocks.along)),
            Knob("collect", (0, 1) if self._can_collect() else (0,)),
            Knob("parallel", (0, 1) if threads > 1 and self.count() > 1 else (0,)),
            Knob("stream", stream_values(self.workload, self.view.name, self.target)),
        )

    def _can_collect(self) -> bool:
        """Whether a piece of a row is several vectors, and a box in the result."""
        return self.blocks.along.extent >= 2 * self.lanes and not self.joins

    def _counts(self, loop: Loop) -> tuple[int, ...]:
        whole = loop.extent // self.lanes
        return tuple(n for n in (1, 2, 4, 8) if n <= max(whole, 1))

    def count(self) -> int:
        """How many blocks there are."""
        others = prod(loop.extent for loop in self.view.spatial)
        others //= self.blocks.across.extent * self.blocks.along.extent
        each = [-(-loop.extent // self.lanes) for loop in (self.blocks.across, self.blocks.along)]
        return others * prod(each)

    def plan(self, settings: IntArray) -> Plan:
        """Axes that are walked as they are, then pieces along both, then elements of a piece."""
        v = self.values(settings)
        across, along = self.pair
        levels = (
            *(Level(n, 1) for n in self.outside),
            Level(across, v["rows"] * self.lanes),
            Level(along, v["columns"] * self.lanes),
            Level(across, 1),
            Level(along, 1),
        )
        return Plan(self.outline, levels, len(v["rows"]))

    @property
    def crowded_rows(self) -> float:
        return crowding(self.blocks.along.extent * self.view.dtype.bytes)

    def _far_rows_crowd(self) -> bool:
        """Whether rows of a block are written a multiple of a page apart."""
        names = [loop.name for loop in self.view.spatial]
        inside = self.view.spatial[names.index(self.blocks.across.name) + 1 :]
        return crowding(prod(loop.extent for loop in inside) * self.view.dtype.bytes) == 1

    def default(self) -> tuple[int, ...]:
        """Pieces of two by two blocks, or of four by eight collected where rows would crowd; every
        thread; streamed where a vector is a whole line, nothing is collected and the last cache
        does not hold everything, or its sets do not."""
        whole = self.lanes * self.view.dtype.bytes >= LINE_BYTES
        whole &= streams_pay(self.workload, self.target) or self._far_rows_crowd()
        collect = int(self.crowded_rows == 1 and self.blocks.along.extent >= 8 * self.lanes)
        wanted = {"rows": 4, "columns": 8} if collect else {"rows": 2, "columns": 2}
        wanted |= {"collect": collect, "parallel": 1, "stream": int(whole and not collect)}
        return tuple(
            max(n for n, value in enumerate(k.values) if value <= wanted[k.name])
            for k in self.knobs
        )

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        _Copy(writer, self, self.chosen(setting)).write()


@dataclass(frozen=True, slots=True)
class _Part:
    """Loops over `a` and `b` in pieces of a fixed size: `outer`, `inner`, and `a`, `b` in one."""

    outer: str
    inner: str
    a: str
    b: str


class _Copy(BlockWriter):
    """Writes the steps for knob values `v`."""

    def __init__(self, writer: TraceWriter, sketch: TransposeSketch, v: dict[str, int]) -> None:
        view, blocks = sketch.view, sketch.blocks
        tensors = {read.tensor for read in blocks.reads}
        super().__init__(writer, view, tensors if sketch.joins else read_twice(view, blocks))
        self.name = view.name
        self.across, self.along = blocks.across.name, blocks.along.name
        self.others = [view.spatial[n].name for n in sketch.outside]
        self.transposed = tuple(read.tensor for read in blocks.reads)
        self.joins = sketch.joins
        self.lanes = sketch.lanes
        self.threads = sketch.target.threads
        self.v = v
        self.collected = 0

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
        rest = self.whole_part(loop, size)
        return [(loop, within)] + ([(rest[loop], rest[within])] if rest else [])

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
            for tensor in self.transposed:
                self.read_block(tensor, block.inner, row)
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
