"""The sketch of reductions of tuples.

Lanes are along the output axis that is contiguous in most accesses, in blocks of vectors: the
reduction axes are traversed in order once for each block. The components of narrow blocks stay in
registers. Wide blocks read long runs of memory, and their components stay in the first cache.

    other axes | blocks (parallel) | reduction axes | vectors of a block | unrolled vectors | lanes

If no output axis is contiguous, as in reductions along rows, lanes are along an axis of rows, and
blocks of what is read are transposed in registers:

    other axes | lanes of rows (parallel) | blocks of the reduction axis | its steps (unrolled)

`SplitTuples` gives a reduction of few rows an output axis of partial results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, prod
from typing import Generic

import numpy as np

from ..algebra.affine import Interval
from ..algebra.comparisons import prove
from ..algebra.scalar import conditional_loads
from ..algebra.tuples import chain_length
from ..arrays import IntArray
from ..errors import ScheduleError
from ..leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ..lowering.tuples import TupleGroup
from ..plan import Access, Level, LoopAxis, Outline, Plan
from ..primitives import KeepElements, Parallel, Unroll, Vectorize
from ..target import Target
from ..workload.workload import Workload
from .analysis.stages import SHORT_AXIS, StageLoop, StageRead, StageView, once
from .knobs import Knobbed, N, knob, parallel_knob, settings
from .vectors import vector_axis
from .writer import TraceWriter

UNROLLED = 8
"""Most vectors per iteration. The components of wider blocks are not in registers."""

BLOCK_VECTORS = tuple(2**n for n in range(12))
"""Values of the knob `block_vectors`, as far as they are useful."""

WIDE_ROW_BYTES = 4096
"""Distance of consecutive rows from which narrow blocks are slow: each row is in another page."""


@settings
class TuplesSettings(Generic[N]):
    """Knobs of a reduction of tuples."""

    block_vectors: N = knob(lambda sketch: sketch.widths, usual=lambda sketch: sketch.usual_width)
    """Vectors of a block, or 0 without lanes."""
    parallel: N = parallel_knob(lambda sketch: sketch.view.outputs > 1)


@dataclass(frozen=True)
class TuplesSketch(Knobbed[TuplesSettings[IntArray], TuplesSettings[int]]):
    """The sketch of the stages that compute components of one reduction of tuples."""

    workload: Workload
    view: StageView
    group: TupleGroup
    target: Target

    name = "tuples"
    SETTINGS = TuplesSettings

    @cached_property
    def lanes(self) -> int:
        """The number of lanes of the widest component."""
        return min(self.target.lanes(identity.dtype) for identity in self.group.kind.identities)

    @cached_property
    def along(self) -> StageLoop | None:
        """The axis of the lanes, or None if no axis is suitable."""
        found = vector_axis(self.view, self.view.spatial)
        if found is None or not _has_lanes(self.view, found):
            long = (loop for loop in reversed(self.view.spatial) if loop.extent >= self.lanes)
            found = next((loop for loop in long if self._blocks(loop)), found)
        return found if found is not None and found.extent >= self.lanes > 1 else None

    @cached_property
    def blocks(self) -> tuple[StageRead, ...]:
        """The reads that are transposed in registers."""
        return self._blocks(self.along) if self.along else ()

    def _blocks(self, along: StageLoop) -> tuple[StageRead, ...]:
        """Return the reads that are transposed if lanes are along the axis `along`: all that are
        not contiguous along it, if they are contiguous along the reduction, else none."""
        if len(self.view.reduce) != 1 or self.lanes > self.target.most_transposed:
            return ()
        (over,) = self.view.reduce
        far = [read for read in self.view.reads if read.element_stride(along.name) not in (0, 1)]
        tensors = {read.tensor for read in far}
        fits = (
            over.extent >= SHORT_AXIS
            and all(read.element_stride(along.name) and _is_row(read, over.name) for read in far)
            and all(_is_box([r for r in far if r.tensor == x], along, over) for x in tensors)
        )
        return tuple(far) if fits else ()

    @property
    def widths(self) -> tuple[int, ...]:
        """The values of the knob `block_vectors`."""
        if self.along is None:
            return (0,)
        if self.blocks:  # they fill the registers
            return (0, 1)
        most = self.along.extent // self.lanes
        fitting = max(self.target.caches[0].bytes // (2 * self._vector_bytes), UNROLLED)
        return (0, *(n for n in BLOCK_VECTORS if n <= min(most, fitting)))

    @property
    def _vector_bytes(self) -> int:
        """The bytes of the components of one vector."""
        return self.lanes * sum(identity.dtype.bytes for identity in self.group.kind.identities)

    @property
    def usual_width(self) -> int:
        """Index of the default of `block_vectors`: the whole axis if it fits registers or if rows
        are far apart, else a few vectors."""
        is_far = any(
            (read.element_stride(loop.name) or 0) * read.dtype.bytes >= WIDE_ROW_BYTES
            for read in self.view.reads
            for loop in self.view.reduce
        )
        widest = self.widths[-1]
        usual = widest if is_far or widest <= UNROLLED else UNROLLED // 2
        return self.widths.index(usual)

    @cached_property
    def _outline(self) -> Outline:
        reads = (
            Access(read.tensor, read.dtype.bytes, ((1,),), False) for read in once(self.view.reads)
        )
        tensors = (self.workload.tensors[name] for name in self.group.tensors.values())
        written = (Access(t.name, t.dtype.bytes, ((1,),), is_output=True) for t in tensors)
        return Outline((LoopAxis("points", self.view.points),), (*reads, *written))

    def plan(self, settings: IntArray) -> Plan:
        """Return a plan with a single loop over all evaluations."""
        shared = self.values(settings).parallel > 0
        return Plan(self._outline, (Level(0, 1, shared),), len(shared))

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaf of the settings with lanes, which computes one vector per iteration, and
        of those without. The vectors of a block wait for their components of the iteration
        before."""
        vectors, shared = self.values(settings).block_vectors, self.values(settings).parallel > 0
        axes, count = frozenset({"points"}), self.view.operations
        chain = max(map(chain_length, self.group.kind.combine))
        for lanes in dict.fromkeys((1, self.lanes)):
            loop = LeafLoop(axes, self.view.points / lanes, None, shared)
            turned = len(self.blocks) * ceil(log2(lanes))  # shuffles of a transposed vector
            does = Statement(
                (Operations(axes, count + turned, count),),
                tuple(map(self._pattern, self.view.reads)),
            )
            used, waits = (vectors > 0) == (lanes > 1), chain / np.maximum(vectors, 1)
            yield Leaf(loop, does, {}, "points", lanes, frequency=used, latency_chain=waits)

    def _pattern(self, read: StageRead) -> AccessPattern:
        """Return how lanes read: adjacent elements, one element, or each from another line."""
        if self.along is None or read in self.blocks:
            step: int | None = 1
        else:
            step = read.element_stride(self.along.name)
        steps = {"points": step if step in (0, 1) else self.target.line_bytes}
        return AccessPattern(read.tensor, (read.tensor, read.index), steps)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit the loops of a setting."""
        v, along = self.chosen(setting), self.along
        reduced = [loop.name for loop in self.view.reduce]
        others = [loop.name for loop in self.view.spatial if loop is not along]
        if along is None or not v.block_vectors:
            inner = [along.name] if along else []
            self._parallelise(writer, [*others, *inner], v.parallel > 0)
            return
        step = v.block_vectors * self.lanes
        whole = along.extent // step * step
        rest = ""
        if whole and whole < along.extent:
            rest = writer.partition(along.name, whole)[along.name]
        axes = self.view.spatial
        within = [loop.name for loop in axes[axes.index(along) + 1 :]]
        task = self._block(writer, along.name, within, reduced, v.block_vectors)
        if rest:
            chain = writer.writer_of(self.group.first, rest)[1]
            around = {loop.var for loop in chain}
            within, reduced = (
                [loop for loop in self._copies(writer, loops) if loop in around]
                for loops in (within, reduced)
            )
            self._block(writer, rest, within, reduced, 1)
        if v.parallel:
            self._parallelise(writer, [*others, task], True)

    def _copies(self, writer: TraceWriter, loops: Sequence[str]) -> list[str]:
        return [copy for loop in loops for copy in writer.copies(loop)]

    def _block(
        self,
        writer: TraceWriter,
        along: str,
        within: Sequence[str],
        reduced: Sequence[str],
        vectors: int,
    ) -> str:
        """Emit the loops of blocks of `vectors` vectors along a loop, inside the loops `within`
        that it contains. Return the loop of blocks."""
        unrolled = min(vectors, UNROLLED)
        outer, inner = writer.split(along, vectors * self.lanes)
        steps = list[str]()
        if unrolled < vectors:
            step, inner = writer.split(inner, unrolled * self.lanes)
            steps.append(step)
        block, lanes = writer.split(inner, self.lanes)
        writer.reorder(*within, outer, *reduced, *steps, block, lanes)
        if self.blocks:
            (walk,) = reduced
            self._transpose(writer, walk, block, lanes)
        else:
            writer.do(Vectorize(lanes), Unroll(block))
        if writer.loop(reduced[0]).extent > 1:
            rest = writer.partition(reduced[0], 1)[reduced[0]]  # later ones need no identity
            length = writer.loop(rest).extent
            if length > 1 and any(read.conditional for read in self.view.reads):
                writer.partition(rest, length - 1)  # conditions often fail at the end only
        if not steps:
            for name in self._kept():
                with suppress(ScheduleError):
                    writer.do(KeepElements(name, outer, f"{name}.{outer}"))
        return outer

    def _transpose(self, writer: TraceWriter, walk: str, block: str, lanes: str) -> None:
        """Divide the reduction loop `walk` around `block` and `lanes` into pieces, and load the
        transposed reads in blocks."""
        names = {name: name for name in (walk, block, lanes)}
        for steps, side in self._pieces(writer.loop(walk).extent):
            now = names
            if steps < writer.loop(now[walk]).extent:
                rest = writer.partition(now[walk], steps)
                names = {name: rest[copy] for name, copy in now.items()}
            vector, lane = now[block], now[lanes]
            if side > 1:
                outer, step = writer.split(now[walk], side)
                writer.reorder(outer, vector, step, lane)
                tensors = [read.tensor for read in self.blocks]
                for name in dict.fromkeys(tensors):
                    along = step if tensors.count(name) == 1 else ""
                    writer.read_block(name, vector, f"{name}.{step}", along)
                writer.do(Unroll(step))
            writer.do(Vectorize(lane), Unroll(vector))

    def _pieces(self, extent: int) -> list[tuple[int, int]]:
        """Return (steps, side) of the pieces of the reduction: the number of steps, and the length
        of the blocks that are transposed, or 1 if elements are loaded one by one.

        The first step is a piece because later ones need no identity. If rows are whole lines, the
        next piece ends at the end of a line, so that later blocks read each line once. At the end,
        conditions may fail.
        """
        sure, side = self._sure_steps(extent), self.lanes
        head = min(sure, side) - 1 if self._has_whole_lines or sure < side else 0
        whole = (sure - 1 - head) // side * side
        rest = sure - 1 - head - whole
        pieces = ((1, 1), (head, head), (whole, side), (rest, rest), (extent - sure, 1))
        return [piece for piece in pieces if piece[0] > 0]

    @property
    def _has_whole_lines(self) -> bool:
        """Whether all rows of the transposed reads are at distances of whole lines."""
        strides = (
            (read.element_stride(loop.name) or 0) * read.dtype.bytes
            for read in self.blocks
            for loop in self.view.spatial
        )
        return all(stride % self.target.line_bytes == 0 for stride in strides)

    def _sure_steps(self, extent: int) -> int:
        """Return the number of first steps of the reduction in which no condition keeps from
        reading."""
        (over,), ranges = self.view.reduce, dict[str, Interval]()
        for loop in self.view.spatial:
            ranges[loop.name] = Interval(0, loop.extent - 1)
        conds = [cond for _, around in conditional_loads(self.view.value) for cond in around]
        for steps in range(extent, max(extent - 2 * self.lanes, 0), -1):
            ranges[over.name] = Interval(0, steps - 1)
            if all(prove(cond, ranges) for cond in conds):
                return steps
        return 1

    def _kept(self) -> tuple[str, ...]:
        """Return the buffers of the components."""
        hidden = (buffer.name for buffer in self.group.private_buffers)
        return (*hidden, *self.group.tensors.values())

    def _parallelise(self, writer: TraceWriter, loops: Sequence[str], parallel: bool) -> None:
        """Let threads divide the outermost loop with several iterations."""
        long = [loop for loop in loops if writer.has(loop) and writer.loop(loop).extent > 1]
        for loop in long if parallel else ():
            try:
                writer.do(Parallel(loop))
            except ScheduleError:
                continue
            return


def _has_lanes(view: StageView, along: StageLoop) -> bool:
    """Return whether all reads are contiguous or constant along an axis."""
    return all(read.element_stride(along.name) in (0, 1) for read in view.reads)


def _is_row(read: StageRead, loop: str) -> bool:
    """Return whether `read` is contiguous along `loop`, and only its last long index depends on
    it."""
    long = [i for i, extent in zip(read.index, read.shape, strict=True) if extent > 1]
    using = [n for n, i in enumerate(long) if loop in i.vars()]
    return using == [len(long) - 1] and read.element_stride(loop) == 1


def _is_box(reads: Sequence[StageRead], along: StageLoop, over: StageLoop) -> bool:
    """Return whether the elements that `reads`, of one tensor, need for a block of both axes can be
    loaded: there is a single read, or each has its own part of a box."""
    first = reads[0]
    if len(reads) == 1:
        return True
    own = first.own_dim(along.name), first.own_dim(over.name)
    apart = [[i - j for i, j in zip(read.index, first.index, strict=True)] for read in reads]
    if None in own or own[0] == own[1] or not all(i.is_const for index in apart for i in index):
        return False
    dims = [[i.const for i in dim] for dim in zip(*apart, strict=True)]
    sizes = [max(dim) - min(dim) + 1 for dim in dims]
    return prod(sizes) == len(reads) and all(sizes[dim] == 1 for dim in own if dim is not None)
