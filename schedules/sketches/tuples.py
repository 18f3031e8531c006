"""The sketch of reductions of tuples.

Lanes are along the output axis that is contiguous in most accesses, in blocks of vectors: the
reduction axes are traversed in order once for each block. The components of narrow blocks stay in
registers. Wide blocks read long runs of memory, and their components stay in the first cache.

    other axes | blocks (parallel) | reduction axes | vectors of a block | unrolled vectors | lanes

If no output axis is contiguous, as in reductions along rows, there are no lanes. `SplitTuples`
gives such a reduction an output axis of partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Generic

import numpy as np

from ..arrays import IntArray
from ..errors import ScheduleError
from ..leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ..lowering.tuples import TupleGroup
from ..plan import Access, Level, LoopAxis, Outline, Plan
from ..primitives import KeepElements, Parallel, Unroll, Vectorize
from ..target import Target
from ..workload.workload import Workload
from .analysis.stages import StageLoop, StageView, once
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
        return found if found is not None and found.extent >= self.lanes > 1 else None

    @property
    def widths(self) -> tuple[int, ...]:
        """The values of the knob `block_vectors`."""
        if self.along is None:
            return (0,)
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

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """Return one leaf that computes one vector per iteration. A block of few vectors waits for
        the components of the iteration before."""
        v, axes = self.values(settings), frozenset({"points"})
        count = self.view.operations
        pattern = AccessPattern("", ("",), {"points": 1})
        does = Statement((Operations(axes, count, count),), (pattern,))
        lanes = np.where(v.block_vectors > 0, self.lanes, 1)
        loop = LeafLoop(axes, self.view.points / lanes, None, v.parallel > 0)
        return [Leaf(loop, does, vector_axis="points", lanes=lanes)]

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
        task = self._block(writer, along.name, others, reduced, v.block_vectors)
        if rest:
            chain = writer.writer_of(self.group.first, rest)[1]
            around = {loop.var for loop in chain}
            inside = [loop for loop in self._copies(writer, reduced) if loop in around]
            self._block(writer, rest, [], inside, 1)
        if v.parallel:
            self._parallelise(writer, [*others, task], True)

    def _copies(self, writer: TraceWriter, loops: Sequence[str]) -> list[str]:
        return [copy for loop in loops for copy in writer.copies(loop)]

    def _block(
        self,
        writer: TraceWriter,
        along: str,
        others: Sequence[str],
        reduced: Sequence[str],
        vectors: int,
    ) -> str:
        """Emit the loops of blocks of `vectors` vectors along a loop. Return the loop of blocks."""
        unrolled = min(vectors, UNROLLED)
        outer, inner = writer.split(along, vectors * self.lanes)
        steps = list[str]()
        if unrolled < vectors:
            step, inner = writer.split(inner, unrolled * self.lanes)
            steps.append(step)
        block, lanes = writer.split(inner, self.lanes)
        writer.reorder(outer, *reduced, *steps, block, lanes)
        writer.do(Vectorize(lanes), Unroll(block))
        if writer.loop(reduced[0]).extent > 1:
            rest = writer.partition(reduced[0], 1)[reduced[0]]  # later ones need no identity
            length = writer.loop(rest).extent
            if length > 1 and any(read.conditional for read in self.view.reads):
                writer.partition(rest, length - 1)  # conditions often fail at the end only
            for name in () if steps else self._kept():
                with suppress(ScheduleError):
                    writer.do(KeepElements(name, outer, f"{name}.{outer}"))
        return outer

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
