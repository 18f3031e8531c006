"""The transposed-sum sketch: a reduction that reads one tensor along its loop and
another across it, as the diagonal of a product or a trace does.

Lanes lie along the axis that is contiguous in the straight reads; blocks of the other tensors are
read along the reduction, transposed in registers and added up vector by vector. Where the result
has no such axis the reduction keeps one partial result for each of its places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...arrays import IntArray
from ...plan import Level, Plan
from ...primitives import CacheWrite, ComputeAt, Parallel, Partition, RFactor, Unroll, Vectorize
from ...space import Knob
from ..analysis import Loop, Read, StageView
from ..knobs import Knobbed
from ..writer import TraceWriter
from .blocks import (
    BlockWriter,
    TransposedStage,
    Transposition,
    can_be_transposed,
    read_twice,
)

LEAST_EXTENT = 8
"""Shorter axes fill no block that is worth transposing."""


def find_transposed_sum(view: StageView) -> Transposition | None:
    """How the reduction `view` reads both ways, if it does: the sum is over `across`."""
    if not view.is_reduction or view.presplit or view.presolve or view.guards:
        return None
    last = view.spatial[-1:] if view.spatial and view.spatial[-1].extent > 1 else ()
    for along in (*last, *reversed(view.reduce)):
        for across in view.reduce:
            found = _blocks(view, across, along)
            if found is not None:
                return found
    return None


def _blocks(view: StageView, across: Loop, along: Loop) -> Transposition | None:
    if across is along or min(across.extent, along.extent) < LEAST_EXTENT:
        return None
    transposed: list[Read] = []
    straight = 0
    for read in view.reads:
        step = read.element_stride(along.name)
        if step is None or read.conditional:
            return None
        if step > 1 and can_be_transposed(view, read, across, along):
            transposed.append(read)
        elif step not in (0, 1):
            return None
        straight += step == 1 and (read.element_stride(across.name) or 0) > 1
    return Transposition(across, along, tuple(transposed)) if transposed and straight else None


@dataclass(frozen=True)
class TransposedSumSketch(TransposedStage, Knobbed):
    """See the module. `columns` is the vectors of sums that are kept at once."""

    @property
    def name(self) -> str:
        return "turned_sum"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        whole = max(self.blocks.along.extent // self.lanes, 1)
        tasks = self.others() * whole
        return (
            Knob("columns", tuple(n for n in (1, 2, 4) if n <= whole)),
            Knob("parallel", (0, 1) if self.target.threads > 1 and tasks > 1 else (0,)),
        )

    def others(self) -> int:
        """Results that have sums of their own, but for those in the lanes."""
        return prod(loop.extent for loop in self.view.spatial if loop is not self.blocks.along)

    def plan(self, settings: IntArray) -> Plan:
        """Axes that are walked as they are, pieces of lanes, the reduction, and a block of both."""
        wide = self.values(settings)["columns"] * self.lanes
        across, along = self.pair
        levels = (
            *(Level(n, 1) for n in self.outside),
            Level(along, wide),
            Level(across, self.lanes),
            Level(along, 1),
            Level(across, 1),
        )
        return Plan(self.outline, levels, len(wide))

    def default(self) -> tuple[int, ...]:
        """Two vectors of sums, every thread."""
        return tuple(min(1, len(knob.values) - 1) for knob in self.knobs)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        _Sum(writer, self, self.chosen(setting)).write()


class _Sum(BlockWriter):
    """Writes the steps for knob values `v`."""

    def __init__(self, writer: TraceWriter, sketch: TransposedSumSketch, v: dict[str, int]) -> None:
        super().__init__(writer, sketch.view, read_twice(sketch.view, sketch.blocks))
        along = sketch.blocks.along
        self.along, self.across = along.name, sketch.blocks.across.name
        self.sums_lanes = along.reduce
        self.transposed = [read.tensor for read in sketch.blocks.reads]
        self.lanes = sketch.lanes
        self.threads = sketch.target.threads
        self.v = v
        self.buffer = sketch.view.name

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
        for tensor in self.transposed:
            self.read_block(tensor, middle, step)
        w.do(Unroll(middle), Unroll(step), Vectorize(lane))
