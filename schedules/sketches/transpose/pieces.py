"""Pieces: the parts of a nest around register blocks. Each axis has full pieces and remainders.

Pieces are computed from the levels of a plan for P settings together. Leaves describe the
operations in them, and `BlockWriter` emits the loops of the pieces of one setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ...arrays import BoolArray, IntArray, Number, Truth
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ...plan import Level, Plan
from ...primitives import Parallel, Unroll, Vectorize
from ..analysis.stages import StageRead
from ..statements import axis_names, own_place, statement_of
from ..writer import BATCHES, TraceWriter
from .blocks import TransposedStage


@dataclass(frozen=True)
class BlockPiece:
    """A loop whose iterations are pieces."""

    loop: LeafLoop
    sides: Mapping[str, IntArray]
    """Number of elements of a piece along each axis, shape (P,)."""
    runs: Number
    """Total number of iterations."""
    alone: BoolArray
    """Whether no loop around this loop is along the same axes."""

    @property
    def side(self) -> int:
        """Elements of a piece along the loop's axis, for a single setting."""
        (axis,) = self.loop.axes
        return int(self.sides[axis].item())

    @property
    def length(self) -> int:
        """Elements that the loop covers along its axis, for a single setting."""
        return self.side * int(np.asarray(self.loop.trip_count).item())

    def divided(self, levels: Iterable[Level]) -> list[BlockPiece]:
        """Return the pieces into which loops of `levels` divide one iteration. The outermost level
        is first."""
        pieces = [self]
        for level in levels:
            pieces = [new for piece in pieces for new in piece.cut(level)]
        return pieces

    def cut(self, level: Level, *shorter: int) -> list[BlockPiece]:
        """Return the pieces of one level: full steps, then the `shorter` steps within the
        remainder, and then the rest. Pieces that no setting has are omitted.

        Threads divide the loop if the level is parallel and no loop around it is along the same
        axes.
        """
        axis, found = str(level.axis), list[BlockPiece]()
        left = self.sides[axis]
        for size in (np.where(level.present, level.step, left), *shorter, None):
            side = np.maximum(left, 1) if size is None else np.broadcast_to(size, left.shape)
            steps, left = left // side, left % side
            if np.any(runs := self.runs * steps):
                loop = LeafLoop(frozenset({axis}), steps, self.loop, level.is_parallel & self.alone)
                found.append(
                    BlockPiece(loop, {**self.sides, axis: side}, runs, self.alone & (steps <= 1))
                )
        return found


class BlockNest:
    """The nests of `plan`. Axes are named by their numbers. Blocks are loaded along the axis
    `across` and used along the axis `along`."""

    def __init__(self, sketch: TransposedStage[Any, Any], plan: Plan) -> None:
        self.sketch, self.plan = sketch, plan
        self.across, self.along = map(str, sketch.pair)

    def levels(self, role: str) -> list[Level]:
        """Return the levels with `role` that at least one setting has."""
        return [x for x in self.plan.levels if x.role == role and np.any(x.present)]

    @cached_property
    def whole(self) -> BlockPiece:
        """One iteration of the fused loop over the other axes of the result."""
        others = self.levels(BATCHES)
        every = np.ones(self.plan.num_settings, np.int64)
        sides = {str(n): every * axis.extent for n, axis in enumerate(self.plan.outline.axes)}
        shared = others[0].is_parallel if others else False
        axes = frozenset(str(level.axis) for level in others)
        steps = prod(int(sides.pop(axis)[0]) for axis in axes)
        return BlockPiece(LeafLoop(axes, steps, None, shared), sides, float(steps), every > 0)

    @cached_property
    def _names(self) -> dict[str, str]:
        return axis_names([axis.name for axis in self.plan.outline.axes])

    @cached_property
    def own(self) -> AccessPattern:
        return own_place(self.sketch.view, self._names)

    def is_block(self, read: StageRead, high: IntArray) -> Truth:
        """Return whether `read` is transposed in blocks of height `high`. A block with one row that
        is not loaded as a box of its tensor is read in place instead."""
        return (high > 1) | (read.tensor not in self.sketch.without_box)

    def block(self, piece: BlockPiece, wide: IntArray, copies: Number = 1) -> Iterator[Leaf]:
        """Yield the leaves of `copies` blocks side by side along the result. They have the height
        of `piece` and the width `wide`.

        Vectors are loaded along `across` and used along `along`. A block of n rows is transposed in
        log2(n) steps, each of which shuffles all vectors.
        """
        loop, high, does = piece.loop, piece.sides[self.across], self._does
        across, along = self.across, self.along
        straight = []
        sides = np.minimum(high, wide)
        move = Operations(frozenset({across, along}), 1, 0)
        for place, read in zip(does.reads, self.sketch.view.reads, strict=True):
            if read not in self.sketch.transposed.reads:
                straight.append(place)
                continue
            is_block = self.is_block(read, high)
            part = replace(place, key=(*place.key, loop))  # pieces are disjoint
            yield Leaf(loop, Statement(reads=(part,)), {along: wide * copies}, across, high,
                       is_block, extra_registers=wide)  # fmt: skip
            steps = np.where(is_block & (sides > 1), np.ceil(np.log2(np.maximum(sides, 2))), 0)
            yield Leaf(loop, Statement((move,)), {across: high, along: copies}, along, wide, steps,
                       extra_registers=wide)  # fmt: skip
            yield Leaf(loop, Statement(reads=(part,)), {across: high, along: copies}, along, wide,
                       ~is_block)  # fmt: skip
        adds_up = bool(does.reduction_axes)
        yield Leaf(loop, replace(does, reads=tuple(straight)), {across: high, along: copies}, along,
                   wide, accumulators=copies * adds_up, extra_registers=wide,
                   unrolls_reduction=adds_up)  # fmt: skip

    @cached_property
    def _does(self) -> Statement:
        return statement_of(self.sketch.view, self._names)


@dataclass(frozen=True, slots=True)
class PieceLoops:
    """The names of the loops of a piece."""

    piece: BlockPiece
    loops: Mapping[str, str]
    """The loop along each axis of the piece, outermost first."""
    place: str = ""
    """The loop whose iterations are the pieces."""


class BlockWriter:
    """Emits the steps of `nest` piece by piece. The nest must have a single setting."""

    def __init__(self, writer: TraceWriter, nest: BlockNest) -> None:
        self.w, self.nest, self.sketch = writer, nest, nest.sketch
        self.name, self.lanes = nest.sketch.view.name, nest.sketch.lanes
        self.across, self.along = (nest.sketch.loops[n].name for n in nest.sketch.pair)
        self.made, self.shared = 0, list[str]()

    def fuse_outside(self, *inside: str) -> str:
        """Fuse the result's other axes into one loop outside `inside`, and return it."""
        loops = (self.sketch.loops[n].name for n in self.sketch.others)
        names = [name for name in loops if self.w.has(name)]
        self.w.reorder(*names, *inside)
        fused = self.w.fuse_all(names)
        self._note(self.nest.whole, fused)
        return fused

    def _note(self, piece: BlockPiece, made: str) -> None:
        """Record the loop created for a piece if threads divide it."""
        if np.all(piece.loop.is_parallel) and np.all(np.greater(piece.loop.trip_count, 1)):
            self.shared.append(made)

    def share(self) -> None:
        """Make the recorded loops parallel."""
        self.w.do(*map(Parallel, self.shared))

    def cut(
        self, loops: Sequence[str], pieces: Sequence[BlockPiece]
    ) -> list[tuple[list[str], BlockPiece]]:
        """Partition the first of `loops`, which encloses the others, into parts for `pieces`, so
        that full pieces need no guards. Return the loop names in each part."""
        names, found = list(loops), [(list(loops), pieces[0])]
        for before, piece in pairwise(pieces):
            rest = self.w.partition(names[0], before.length)
            names = [rest[name] for name in names]
            found.append((names, piece))
        return found

    def split(self, loop: str, piece: BlockPiece) -> tuple[str, str]:
        """Return the loop over the iterations of a piece and the loop within one iteration."""
        outer, within = self.w.split(loop, piece.side)
        self._note(piece, outer)
        return outer, within

    def divided(self, part: PieceLoops, levels: Sequence[Level]) -> list[PieceLoops]:
        """Split the loops of `part` by `levels`, outermost first. Return the loops of the resulting
        pieces."""
        if not levels:
            return [part]
        level, *inner = levels
        axis = str(level.axis)
        others = [name for name in part.loops if name != axis]
        if list(part.loops) != [axis, *others]:
            self.w.reorder(part.loops[axis], *(part.loops[name] for name in others))
        loops = [part.loops[name] for name in (axis, *others)]
        found: list[PieceLoops] = []
        for (walked, *rest), piece in self.cut(loops, part.piece.cut(level)):
            outer, within = self.split(walked, piece)
            self.w.reorder(outer, *rest, within)
            inside = dict(zip(others, rest, strict=True)) | {axis: within}
            found += self.divided(PieceLoops(piece, inside, outer), inner)
        return found

    def transpose(self, piece: BlockPiece, place: str, rows: Sequence[str], lanes: str) -> None:
        """Load the transposed reads in loop `place` as blocks, and use them in vectors.

        Vectors are loaded along the last of the inner loops `rows`, and used along the loop
        `lanes`. Other reads of the tensors remain in place.
        """
        self.w.reorder(*rows, lanes)
        high = piece.sides[self.nest.across]
        for read in self.sketch.transposed.reads:
            if np.all(self.nest.is_block(read, high)):
                self.made += 1
                buffer = f"{self.name}.{read.tensor}.block{self.made}"
                is_box = read.tensor not in self.sketch.without_box
                self.w.read_block(read.tensor, place, buffer, "" if is_box else rows[-1])
        self.w.do(*map(Unroll, rows), Vectorize(lanes))
