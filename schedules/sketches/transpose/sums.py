"""The transposed-sum sketch: a reduction that reads one tensor along its loop and another across
it, for example the trace of a matrix product.

Vectors are along the axis that is contiguous in the reads that are not transposed. Blocks of the
other tensors are loaded along the reduction, transposed in registers and added vector by vector. If
the result has no such axis, a reduction axis is vectorised, and its partial sums are added at the
end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, log2
from typing import Generic

import numpy as np

from ...arrays import IntArray
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ...nest.loop_ir import LoopKind
from ...plan import Level, Plan
from ...primitives import CacheWrite, RFactor, Unroll, Vectorize
from ..analysis.stages import SHORT_AXIS, StageLoop, StageRead, StageView
from ..fused.reductions import ReductionSteps
from ..knobs import POWERS, N, knob, parallel_knob, settings
from ..writer import BATCHES, BLOCKS, BODY, STEPS, TILES, TraceWriter
from .blocks import TransposedStage, Transposition, can_be_transposed, pitch
from .pieces import BlockNest, BlockPiece, BlockWriter


def find_transposed_sum(view: StageView) -> Transposition | None:
    """Return the transposition of the reduction `view`. Return None if the reduction does not read
    operands both along and across its loop. The sum is over `across`."""
    if not view.is_reduction or view.axis_splits or view.phase_steps or view.guards:
        return None
    last = view.spatial[-1:] if view.spatial and view.spatial[-1].extent > 1 else ()
    pairs = product((*last, *reversed(view.reduce)), view.reduce)
    found = (_transposition(view, across, along) for along, across in pairs)
    return next((one for one in found if one), None)


def _transposition(view: StageView, across: StageLoop, along: StageLoop) -> Transposition | None:
    if across is along or min(across.extent, along.extent) < SHORT_AXIS:
        return None
    transposed: list[StageRead] = []
    straight = 0
    for read in view.reads:
        step = read.element_stride(along.name)
        if step is None or read.conditional:
            return None
        if step > 1 and can_be_transposed(view, read, across, along):
            transposed.append(read)
        elif step not in (0, 1):
            return None
        straight += step == 1 and pitch(read, across) > 1
    return Transposition(across, along, tuple(transposed)) if transposed and straight else None


@settings
class TransposedSumSettings(Generic[N]):
    """Knobs of transposed sums."""

    tile_columns: N = knob(lambda sketch: [n for n in POWERS[:3] if n <= sketch.vectors], usual=1)
    """Number of vectors along the vectorised axis that are accumulated concurrently."""
    parallel: N = parallel_knob(lambda sketch: sketch.repeats * sketch.vectors > 1)


@dataclass(frozen=True)
class TransposedSumSketch(
    TransposedStage[TransposedSumSettings[IntArray], TransposedSumSettings[int]]
):
    """The sketch of a reduction that reads one tensor along its loop and another across it."""

    name = "transposed_sum"
    SETTINGS = TransposedSumSettings

    @property
    def vectors(self) -> int:
        """Number of whole vectors along the vectorised axis; 1 if the axis is shorter than a
        vector."""
        return max(self.transposed.along.extent // self.lanes, 1)

    def plan(self, settings: IntArray) -> Plan:
        """Return a plan of the other axes, pieces of `tile_columns` vectors, and the reduction of
        each piece."""
        v, many = self.values(settings), self.has_many_others
        share, (across, along) = v.parallel > 0, self.pair
        others = (n for n in range(len(self.view.spatial), len(self.loops)) if n not in self.pair)
        levels = (
            *(Level(n, 1, share & many, BATCHES) for n in self.others),
            Level(along, v.tile_columns * self.lanes, share & (not many), TILES),
            *(Level(n, 1, role=STEPS) for n in others),
            Level(across, self.lanes, role=BLOCKS),
            Level(along, self.lanes, role=BODY, kind=LoopKind.UNROLLED),
            Level(across, 1, role=BODY, kind=LoopKind.UNROLLED),
            Level(along, 1, role=BODY, kind=LoopKind.VECTORIZED),
        )
        return Plan(self.outline, levels, len(share))

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """Return the leaves.

        The sums are computed in pieces: first of `tile_columns` vectors, then of one vector, then
        the remainder. Each piece loops over the whole reduction, one block at a time. If the
        vectorised axis is a reduction axis, a horizontal sum follows.
        """
        nest, sums_lanes = BlockNest(self, self.plan(settings)), self.transposed.along.reduce
        along, found = nest.along, list[Leaf]()
        sums = AccessPattern("sums", ("sums",), {along: 1}) if sums_lanes else nest.own
        for piece, blocks in self.pieces(nest):
            side = np.minimum(piece.sides[along], self.lanes)
            copies = piece.sides[along] // side
            for block in blocks:
                found += nest.block(block, side, copies)
            found.append(Leaf(piece.loop, Statement(writes=sums), {along: copies}, along, side))
        if sums_lanes:
            found += self._added_up(along, nest.whole.loop, sums)
            found.append(Leaf(nest.whole.loop, Statement(writes=nest.own)))
        return found

    def pieces(self, nest: BlockNest) -> Iterator[tuple[BlockPiece, list[BlockPiece]]]:
        """Yield the pieces, each with the blocks of the reduction over which it loops."""
        (level,) = nest.levels(TILES)
        for piece in nest.whole.cut(level, self.lanes):
            yield piece, piece.divided([*nest.levels(STEPS), *nest.levels(BLOCKS)])

    def _added_up(self, along: str, loop: LeafLoop, sums: AccessPattern) -> Iterator[Leaf]:
        """Yield the leaves of the horizontal sum of each result."""
        width, halves = (self.lanes, ceil(log2(self.lanes))) if self._adds_vectors else (1, 0)
        over = frozenset({along})
        walk = LeafLoop(over, -(-self.transposed.along.extent // width), loop)
        add = Operations(over, 1, 1)
        yield Leaf(
            walk, Statement((add,), (sums,), reduction_axes=over), {}, along, width, accumulators=1
        )
        end = Operations(frozenset({"lanes"}), 2 * halves, halves)
        yield Leaf(loop, Statement((end,)), {}, "lanes", width)

    @property
    def _adds_vectors(self) -> bool:
        """Whether there are several results, and each horizontal sum adds several vectors."""
        several = any(x.extent > 1 for x in self.view.spatial)
        return several and self.transposed.along.extent >= 2 * self.lanes

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit all pieces. If the vectorised axis is a reduction axis, its sums are stored in a
        tensor."""
        name, along, buffer = self.view.name, self.transposed.along, self.view.name
        if along.reduce:
            buffer = f"{name}.sums"
            (last,) = writer.remake(RFactor(along.name, buffer))[along.name]
            if self._adds_vectors:
                steps = ReductionSteps(writer, self.lanes, 1)
                steps.add_up(name, steps.factor(name, last), steps.place(name, ""))
        nest = BlockNest(self, self.plan(np.asarray([setting])))
        _Sum(writer, nest).write(buffer, list(self.pieces(nest)))


class _Sum(BlockWriter):
    """Emits pieces, each accumulated in registers over the whole reduction."""

    def write(self, buffer: str, pieces: Sequence[tuple[BlockPiece, Sequence[BlockPiece]]]) -> None:
        """Emit the pieces with their blocks of the reduction, with the sums in `buffer`."""
        steps = (self.sketch.loops[level.axis].name for level in self.nest.levels(STEPS))
        self.fuse_outside(self.along, *filter(self.w.has, steps), self.across)
        parts = self.cut([self.along], [piece for piece, _ in pieces])
        for ((along,), piece), (_, blocks) in zip(parts, pieces, strict=True):
            self._piece(buffer, along, piece, blocks)
        self.share()

    def _piece(
        self, buffer: str, along: str, piece: BlockPiece, blocks: Sequence[BlockPiece]
    ) -> None:
        """Emit one piece: each block is loaded, transposed and added."""
        w = self.w
        place, inner = self.split(along, piece)
        middle, lane = w.split(inner, min(self.lanes, piece.side))
        _, chain = w.writer_of(buffer, place)
        *outside, across = (x.var for x in chain if x.reduce)
        w.reorder(*outside, across, middle, lane)
        self.made += 1
        ends = w.remake(CacheWrite(buffer, place, f"{self.name}.acc{self.made}"))
        for vector, lanes in zip(ends[middle], ends[lane], strict=True):
            w.do(Unroll(vector), Vectorize(lanes))
        for (walk, vector, lanes), block in self.cut([across, middle, lane], blocks):
            _, step = self.split(walk, block)
            self.transpose(block, vector, (vector, step), lanes)
