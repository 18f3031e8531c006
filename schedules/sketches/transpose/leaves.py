"""Leaves of blocks transposed in registers: levels of a plan divided for P settings at once, as
`BlockWriter` divides loops for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...arrays import BoolArray, IntArray
from ...leaves import Leaf, Loop, Number, Operations, Statement
from ...plan import Level, Plan
from ..statements import axis_names, own_place, statement_of
from ..writer import BATCHES
from .blocks import ROLES, TransposedStage


@dataclass(frozen=True)
class Piece:
    """The elements along each axis that an iteration of a loop has, (P,) each. The loop runs `runs`
    times in all; it is `alone` where no loop around it goes along the same axes."""

    loop: Loop
    sides: Mapping[str, IntArray]
    runs: Number
    alone: BoolArray

    def divided(self, levels: Iterable[Level]) -> list[Piece]:
        """What loops of `levels`, outermost first, make of it."""
        pieces = [self]
        for level in levels:
            pieces = [new for piece in pieces for new in piece._cut(level)]
        return pieces

    def _cut(self, level: Level) -> Iterator[Piece]:
        """Whole steps of a level, and one with what is left. Threads share those that no loop
        around them lets them share."""
        axis = str(level.axis)
        size = np.where(level.is_there, level.step, self.sides[axis])
        whole, left = np.divmod(self.sides[axis], size)
        for steps, side in ((whole, size), ((left > 0).astype(np.int64), np.maximum(left, 1))):
            if np.any(runs := self.runs * steps):
                loop = Loop(frozenset({axis}), steps, self.loop, level.is_shared & self.alone)
                yield Piece(loop, {**self.sides, axis: side}, runs, self.alone & (steps <= 1))


class BlockNest:
    """The nests of `plan`, whose axes are called by their numbers: `down` is contiguous in the
    tensors, `right` in what is computed."""

    def __init__(self, sketch: TransposedStage, plan: Plan) -> None:
        self.sketch, self.plan = sketch, plan
        self.levels = {role: [x for x in plan.levels if x.role == role] for role in ROLES}
        names = axis_names([axis.name for axis in plan.outline.axes])
        self.down, self.right = (names[loop] for loop in sketch.names)
        self.does = statement_of(sketch.view, names)
        self.own = own_place(sketch.view, names)

    def whole(self) -> Piece:
        """One of the places along the other axes of the result, which are one loop."""
        others = self.levels[BATCHES]
        every = np.ones(self.plan.settings, np.int64)
        sides = {str(n): every * axis.extent for n, axis in enumerate(self.plan.outline.axes)}
        shared = others[0].is_shared if others else False
        axes = frozenset(str(level.axis) for level in others)
        steps = prod(int(sides.pop(axis)[0]) for axis in axes)
        return Piece(Loop(axes, steps, None, shared), sides, float(steps), every > 0)

    def block(self, piece: Piece, wide: IntArray, copies: Number = 1) -> Iterator[Leaf]:
        """Blocks as high as a piece and `wide`, `copies` of them along the result: vectors are read
        along the tensors' own axis, and used along the other one, which takes steps that each move
        lanes of all. Of a block of one element each way nothing is moved; some tensors are then
        read as they are."""
        loop, high, does = piece.loop, piece.sides[self.down], self.does
        down, right = self.down, self.right
        straight = []
        sides = np.minimum(high, wide)
        move = Operations(frozenset({down, right}), 1, 0)
        for place, read in zip(does.reads, self.sketch.view.reads, strict=True):
            if read not in self.sketch.blocks.reads:
                straight.append(place)
                continue
            is_block = (high > 1) | (read.tensor not in self.sketch.without_box)
            yield Leaf(loop, Statement(reads=(place,)), {right: wide * copies}, down, high,
                       is_block, registers=wide - 1)  # fmt: skip
            steps = np.where(is_block & (sides > 1), np.ceil(np.log2(np.maximum(sides, 2))), 0)
            yield Leaf(loop, Statement((move,)), {down: high, right: copies}, right, wide, steps,
                       registers=wide)  # fmt: skip
            yield Leaf(loop, Statement(reads=(place,)), {down: high, right: copies}, right, wide,
                       ~is_block)  # fmt: skip
        summed = copies if does.over else 0
        yield Leaf(loop, replace(does, reads=tuple(straight)), {down: high, right: copies}, right,
                   wide, sums=summed, registers=wide, is_unrolled=bool(does.over))  # fmt: skip
