"""The transpose sketch: an elementwise stage that reads a tensor along one axis and writes along
another.

Register blocks are loaded with vectors along the contiguous axis of the tensor, transposed, and
stored with vectors along the contiguous axis of the result. The stage may be a transposition, any
permutation that moves the last axis, or an expression that contains such reads. If the last axis is
divided, as where planes are interleaved (a pixel shuffle), its parts are axes. Neighbouring axes
that are adjacent in every tensor are fused, for example rows and columns of an image if channels
move. One long axis fills vectors that short axes do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Generic

import numpy as np

from ...algebra.affine import Affine, var
from ...arrays import BoolArray, IntArray, map_unique
from ...leaves import AccessPattern, Leaf, LeafLoop, Statement
from ...memory_use import DistantRuns, MemoryUse, PrivateCopy
from ...nest.loop_ir import LoopKind
from ...plan import Level, Plan
from ...primitives import CacheWrite, Fuse, Stream, TransformLayout
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import SHORT_AXIS, StageLoop, StageRead, StageView, with_reads
from ..knobs import (
    POWERS,
    N,
    knob,
    nontemporal_knob,
    nontemporal_values,
    parallel_knob,
    settings,
    stores_whole_lines,
    switch,
)
from ..vectors import row_pieces
from ..writer import BATCHES, BLOCKS, BODY, TILES, TraceWriter
from .blocks import TransposedStage, Transposition, can_be_transposed, pitch
from .pieces import BlockNest, BlockPiece, BlockWriter, PieceLoops


def find_transposition(view: StageView) -> Transposition | None:
    """Return the transposition of `view`. Return None if its strided reads have no common axis
    along which blocks can be loaded."""
    if view.is_reduction or view.phase_steps or len(view.spatial) < 2:
        return None
    moving = [loop for loop in view.spatial if loop.extent > 1]
    if len(moving) < 2:
        return None
    along = moving[-1]
    reads = [
        r
        for r in view.reads
        if pitch(r, along) > 1 and (view.axis_splits or r.own_dim(along.name) is not None)
    ]
    for across in moving[:-1]:
        if reads and all(can_be_transposed(view, r, across, along) for r in reads):
            return Transposition(across, along, tuple(reads))
    return None


def with_fused_axes(view: StageView) -> tuple[StageView, tuple[Fuse, ...]]:
    """Fuse all neighbouring axes of `view` for which it is possible. Return the new view and the
    steps that fuse them. Axes that are used in a condition or as a value are not fused."""
    steps: list[Fuse] = []
    if view.is_reduction or view.axis_splits or view.guards or not view.reads_only:
        return view, ()
    for n in reversed(range(len(view.spatial) - 1)):
        outer, inner = view.spatial[n : n + 2]
        both = outer.extent > 1 and inner.extent > 1
        if both and all(_goes_on(read, outer, inner) for read in view.reads):
            steps.append(Fuse(outer.name, inner.name))
            fused = replace(outer, name=f"{outer.name}f", extent=outer.extent * inner.extent)
            spatial = (*view.spatial[:n], fused, *view.spatial[n + 2 :])
            reads = tuple(_with_fused(read, outer, fused) for read in view.reads)
            view = with_reads(view, spatial, reads)
    return view, tuple(steps)


def _goes_on(read: StageRead, outer: StageLoop, inner: StageLoop) -> bool:
    """Return whether one loop can replace `outer` and `inner` in `read`. This is so if `read` uses
    neither."""
    if not read.uses(outer.name) and not read.uses(inner.name):
        return True
    at = _dim(read, outer)
    if at is None or at + 1 >= len(read.index) or read.conditional:
        return False
    alone = sum(inner.name in i.vars() for i in read.index) == 1
    return alone and _dim(read, inner) == at + 1 and read.shape[at + 1] == inner.extent


def _dim(read: StageRead, loop: StageLoop) -> int | None:
    at = read.own_dim(loop.name)
    return at if at is not None and read.index[at] == var(loop.name) else None


def _with_fused(read: StageRead, outer: StageLoop, fused: StageLoop) -> StageRead:
    """Return `read` with the dimensions of `outer` and of the fused inner axis merged."""
    at = _dim(read, outer)
    if at is None:
        return read
    index: tuple[Affine, ...] = (*read.index[:at], var(fused.name), *read.index[at + 2 :])
    extent = read.shape[at] * read.shape[at + 1]
    return replace(read, index=index, shape=(*read.shape[:at], extent, *read.shape[at + 2 :]))


def transpose_sketch(workload: Workload, view: StageView, target: Target) -> TransposeSketch | None:
    """Return the sketch of a stage that transposes an operand, or None if it transposes none. Axes
    are fused only if a side of the blocks is then along a fused axis."""
    for one, steps in (with_fused_axes(view), (view, ())):
        found = find_transposition(one)
        apart = {loop.name for loop in view.spatial}
        if found and (not steps or not {found.across.name, found.along.name} <= apart):
            return TransposeSketch(workload, one, found, target, steps)
    return None


@settings
class TransposeSettings(Generic[N]):
    """Knobs of transpositions. A piece is the part of the result that one iteration of the tile
    loops computes."""

    tile_rows: N = knob(lambda sketch: sketch.block_counts(sketch.transposed.across), usual=1)
    """Number of register blocks in a piece along `across`. Together with `tile_columns`, it
    determines how much of each line, page and cache set is used before it is evicted."""
    tile_columns: N = knob(lambda sketch: sketch.block_counts(sketch.transposed.along), usual=1)
    """Number of register blocks in a piece along `along`."""
    buffer_output: N = knob(lambda sketch: switch(sketch.can_buffer))
    """Whether a piece is collected in a buffer and then written row by row."""
    parallel: N = parallel_knob(lambda sketch: sketch.blocks > 1)
    nontemporal_stores: N = nontemporal_knob(
        lambda sketch: nontemporal_values(sketch.workload, sketch.view.name, sketch.target)
    )


@dataclass(frozen=True)
class TransposeSketch(TransposedStage[TransposeSettings[IntArray], TransposeSettings[int]]):
    """The sketch of an elementwise stage that reads a tensor along one axis and writes along
    another."""

    name = "transpose"
    SETTINGS = TransposeSettings

    fused: tuple[Fuse, ...] = ()
    """Loops of the stage that are fused in `view`."""

    @property
    def without_box(self) -> set[str]:
        """Tensors of which blocks are loaded for a read, not as a box. If loops are fused or split,
        these are all transposed tensors, because the tensors have other axes."""
        found = {read.tensor for read in self.transposed.reads}
        return found if self.fused or self.view.axis_splits else super().without_box

    @property
    def is_narrow(self) -> bool:
        """Whether an axis is so short that copying element by element may be equally fast."""
        return min(self.transposed.across.extent, self.transposed.along.extent) < SHORT_AXIS

    @property
    def can_buffer(self) -> bool:
        """Whether a row of a piece can have several vectors, and the piece is a box of the
        result."""
        split = self.fused or self.view.axis_splits
        return self.transposed.along.extent >= 2 * self.lanes and not split

    def block_counts(self, loop: StageLoop) -> tuple[int, ...]:
        whole = loop.extent // self.lanes
        return tuple(n for n in POWERS if n <= max(whole, 1))

    @property
    def blocks(self) -> int:
        pair = (self.transposed.across, self.transposed.along)
        return self.repeats * prod(-(-loop.extent // self.lanes) for loop in pair)

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether non-temporal stores fill whole lines, shape (P,)."""
        v = self.values(np.atleast_2d(settings))
        block = self.lanes * self.view.dtype.bytes
        row = np.where(v.buffer_output > 0, v.tile_columns, 1) * block
        return stores_whole_lines(v.nontemporal_stores, row, self.target.line_bytes)

    def plan(self, settings: IntArray) -> Plan:
        """Return a plan of the other axes, pieces along both axes, blocks, and elements of a block.

        Pieces along `along` are outside if pieces along `across` are too few for the threads. If
        rows are collected, the innermost loop over blocks is along `across`, otherwise along
        `along`.
        """
        v = self.values(settings)
        across, along = self.pair
        high, wide = v.tile_rows * self.lanes, v.tile_columns * self.lanes
        share, many = v.parallel > 0, self.has_many_others
        rows, columns = self.loops[across].extent // high, self.loops[along].extent // wide
        threads = self.target.threads
        columns_outside = (rows < threads) & (threads < columns) & (not many)
        collected = v.buffer_output > 0
        levels = (
            *(Level(n, 1, share & many, BATCHES) for n in self.others),
            Level(along, wide, share & (not many), TILES, present=columns_outside),
            Level(across, high, share & (not many), TILES),
            Level(along, wide, share & (not many), TILES, present=~columns_outside),
            Level(along, self.lanes, role=BLOCKS, present=collected),
            Level(across, self.lanes, role=BLOCKS),
            Level(along, self.lanes, role=BLOCKS, present=~collected),
            Level(across, 1, role=BODY, kind=LoopKind.UNROLLED),
            Level(along, 1, role=BODY, kind=LoopKind.VECTORIZED),
        )
        return Plan(self.outline, levels, len(share), nontemporal=v.nontemporal_stores > 0)

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """Return the leaves of the blocks. For a collected piece, the leaves that write its rows
        follow."""
        return self.leaves_of(BlockNest(self, self.plan(settings)), settings)

    def leaves_of(self, nest: BlockNest, settings: IntArray) -> list[Leaf]:
        """Return the leaves of `nest`, the nests of `settings`."""
        found: list[Leaf] = []
        for piece, collected in self.pieces(nest, settings):
            for block in piece.divided(nest.levels(BLOCKS)):
                found += nest.block(block, block.sides[nest.along])
            found += _rows(nest, piece, collected)
        return found

    def memory(self, settings: IntArray) -> MemoryUse:
        """Return the memory use: the buffers of collected pieces, and the runs in which the
        operands and the result are accessed.

        A run ends at the end of a piece. Non-temporal stores of the result do not count. In a
        buffer, only a single last column is gathered. The blocks are stored to the buffer instead
        of the result, so the copy does not read its operand again.
        """
        v, nest = self.values(settings), BlockNest(self, self.plan(settings))
        size, along, copies = self.view.dtype.bytes, self.transposed.along, list[PrivateCopy]()
        for piece, collected in self.pieces(nest, settings):
            wide, column = piece.sides[nest.along], collected * piece.sides[nest.across] * size
            single, vectors = wide % self.lanes == 1, -(-wide // self.lanes)
            copies.append(
                PrivateCopy(
                    wide * column,
                    piece.runs,
                    single * column,
                    vectors * self.lanes * column,
                    collects=True,
                )
            )
        every, block = float(self.view.points * size), self.lanes * size
        near = 2 * every <= self.target.own_cache_bytes
        pitches = (pitch(read, along) * read.dtype.bytes for read in self.transposed.reads)
        streamed = v.nontemporal_stores > 0
        distant = (
            DistantRuns(every, v.tile_rows * block, strides=tuple(pitches), fits_near=near),
            DistantRuns(
                every,
                v.tile_columns * block,
                np.where(streamed, 0.0, 1.0),
                strides=(along.extent * size,),
                is_side_by_side=(v.buffer_output == 0) | (v.tile_columns == 1),
                fits_near=near,
            ),
        )
        return MemoryUse(tuple(copies), distant)

    def pieces(self, nest: BlockNest, settings: IntArray) -> Iterator[tuple[BlockPiece, BoolArray]]:
        """Yield the pieces of the nests of `settings`, and whether each piece is collected, shape
        (P,). A piece with one vector per row is not collected."""
        collects = self.values(settings).buffer_output > 0
        for piece in nest.whole.divided(nest.levels(TILES)):
            yield piece, collects & (piece.sides[nest.along] > self.lanes)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit all pieces, after the steps that split and fuse loops."""
        writer.do(*self.view.axis_splits, *self.fused)
        copy = BlockCopy.of(self, writer, setting)
        copy.write_pieces()
        copy.finish()


def _rows(nest: BlockNest, piece: BlockPiece, collected: BoolArray) -> Iterator[Leaf]:
    """Yield the leaves that write the rows of a collected piece."""
    if not collected.any():
        return
    across, along, lanes = nest.across, nest.along, nest.sketch.lanes
    collected_row = AccessPattern("piece", ("piece",), {across: lanes, along: 1})
    does = Statement(reads=(collected_row,), writes=nest.own)
    rows = LeafLoop(frozenset({across}), piece.sides[across] * collected, piece.loop)
    numbers = map_unique(lambda width: row_pieces(width, lanes, max(POWERS)), piece.sides[along])
    for n, (trips, copies, width, _) in enumerate((numbers[:4], numbers[4:])):
        walk = LeafLoop(frozenset({along}), trips, rows)
        yield Leaf(walk, does, {along: copies}, along, width, is_remainder=n > 0)


class BlockCopy(BlockWriter):
    """Emits pieces of several blocks, including the remainders at the ends of both axes."""

    def __init__(self, writer: TraceWriter, nest: BlockNest, pieces: Sequence[BoolArray]) -> None:
        """Fuse the loops around all pieces. `pieces` states whether each piece is collected."""
        super().__init__(writer, nest)
        self.collected, self.pieces = 0, [bool(found.all()) for found in pieces]
        self.around = self.fuse_outside(self.across, self.along)

    @classmethod
    def of(cls, sketch: TransposeSketch, writer: TraceWriter, setting: Sequence[int]) -> BlockCopy:
        one = np.asarray([setting])
        nest = BlockNest(sketch, sketch.plan(one))
        return cls(writer, nest, [found for _, found in sketch.pieces(nest, one)])

    def write_pieces(self) -> None:
        """Emit all pieces. No loop is parallel yet."""
        nest = self.nest
        whole = PieceLoops(nest.whole, {nest.across: self.across, nest.along: self.along})
        parts = self.divided(whole, nest.levels(TILES))
        for part, is_collected in zip(parts, self.pieces, strict=True):
            self._piece(part, is_collected)

    def finish(self) -> None:
        """Mark parallel loops and non-temporal stores."""
        self.share()
        if np.all(self.nest.plan.nontemporal):
            self.w.do(Stream(self.name))

    def _piece(self, part: PieceLoops, is_collected: bool) -> None:
        """Emit one piece in register blocks. If rows are collected, the inner loop over blocks is
        along the contiguous axis of the operands, otherwise along that of the result."""
        w, nest, blocks = self.w, self.nest, self.nest.levels(BLOCKS)
        across, along = part.loops[nest.across], part.loops[nest.along]
        if is_collected:
            if list(part.loops) != [nest.across, nest.along]:
                w.reorder(across, along)
            part = replace(part, loops={nest.across: across, nest.along: along})
            self._collect(part.place, across, along)
        else:
            blocks = sorted(blocks, key=lambda level: str(level.axis) == nest.along)
        for block in self.divided(part, blocks):
            row, column = block.loops[nest.across], block.loops[nest.along]
            self.transpose(block.piece, block.place, (row,), column)

    def _collect(self, place: str, across: str, along: str) -> None:
        """Store the results of a piece in a private buffer, one panel per vector of a row. Then
        write the piece row by row, so that more than a cache line is written per row."""
        w = self.w
        leaf, _ = w.writer_of(self.name, place)
        (dim,) = (d for d, index in enumerate(leaf.index) if along in index.vars())
        self.collected += 1
        name = f"{self.name}.piece{self.collected}"
        (out,) = w.remake(CacheWrite(self.name, place, name, register=False))[along]
        others = tuple((d, 0) for d in range(len(leaf.index)) if d != dim)
        panels = ((dim, 1), *others, (dim, 2))
        w.do(TransformLayout(name, ((dim, self.lanes),), panels))
        w.vectorise_loop(out, self.lanes, max(POWERS), cut=True)
