"""The turning sketch: an elementwise stage that reads a tensor along one axis and writes another.

Blocks of registers are read with vectors along the axis that is contiguous in the tensor, turned,
and written with vectors along the axis that is contiguous in the result: a transposition, any
permutation that moves the last axis, or an expression that has such reads among others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ...algebra.affine import Affine, affine
from ...arrays import BoolArray, IntArray
from ...dtypes import DType
from ...plan import Access, Level, Outline, Plan, access_of, axes_of
from ...primitives import Fuse
from ...space import Knob
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Loop, Read, StageView
from ..hardware import LINE_BYTES, PAGE_BYTES
from ..knobs import Knobbed
from ..streams import stream_values, streams_pay
from ..writer import TraceWriter
from .joined import joined
from .turn_trace import MOST_LANES, write_turn_trace


@dataclass(frozen=True, slots=True)
class Turn:
    """What is turned: `across` is contiguous in the reads `turned`, `along` in the result."""

    across: Loop
    along: Loop
    turned: tuple[Read, ...]

    @property
    def narrow(self) -> bool:
        """Whether an axis is so short that element by element may do as well."""
        return min(self.across.extent, self.along.extent) < 8

    def lanes(self, target: Target, result: DType) -> int:
        """Elements along each side of a block, of which the result's dtype is `result`."""
        narrowest = max(target.lanes(read.dtype) for read in self.turned)
        return min(narrowest, target.lanes(result), MOST_LANES)


def find_turn(view: StageView) -> Turn | None:
    """How `view` turns what it reads, if it does, and no tensor is turned twice."""
    if view.is_reduction or view.presplit or len(view.spatial) < 2:
        return None
    moving = [loop for loop in view.spatial if loop.extent > 1]
    if len(moving) < 2:
        return None
    along = moving[-1]
    turned = [r for r in view.reads if r.own_dim(along.name) is not None and pitch(r, along) > 1]
    for across in moving[:-1]:
        if turned and all(can_be_turned(view, r, across, along) for r in turned):
            return Turn(across, along, tuple(turned))
    return None


def turn_sketch(workload: Workload, view: StageView, target: Target) -> TurnSketch | None:
    """The sketch of a stage that turns what it reads, along axes that are one where they can be."""
    one = joined(view)
    turn = find_turn(one.view)
    if turn is not None and {turn.across.name, turn.along.name} - {x.name for x in view.spatial}:
        return TurnSketch(workload, one.view, turn, target, one.steps)
    turn = find_turn(view)
    return None if turn is None else TurnSketch(workload, view, turn, target)


def pitch(read: Read, loop: Loop) -> int:
    return read.element_stride(loop.name) or 0


def crowding(pitch_bytes: int) -> float:
    """How much rows this far apart compete: fully a multiple of a page apart, half as much a
    multiple of half a page."""
    whole, half = pitch_bytes % PAGE_BYTES == 0, pitch_bytes % (PAGE_BYTES // 2) == 0
    return 1.0 if whole else 0.5 if half else 0.0


def _last_index(read: Read) -> Affine:
    """The index of the last dimension of more than one element."""
    moving = [i for i, extent in zip(read.index, read.shape, strict=True) if extent > 1]
    return moving[-1] if moving else affine(0)


def can_be_turned(view: StageView, read: Read, across: Loop, along: Loop) -> bool:
    """Whether a block of `read` can be turned, and no other read of the tensor is one with it."""
    same = [r for r in view.reads if r.tensor == read.tensor]
    alone = sum(across.name in _last_index(r).vars() for r in same) == 1
    contiguous = read.element_stride(across.name) == 1 and read.own_dim(across.name) is not None
    return alone and contiguous and not read.conditional and pitch(read, along) >= across.extent


@dataclass(frozen=True)
class TurnSketch(Knobbed):
    """See the module. `rows` and `columns` are blocks walked together, in the axes of the result:
    how much of each line, page and cache set is used before it is left; `collect` gathers such a
    piece in a buffer and writes its rows one after another."""

    workload: Workload
    view: StageView
    turn: Turn
    target: Target
    joins: tuple[Fuse, ...] = ()
    """Loops of the stage that are one in `view`."""

    @property
    def name(self) -> str:
        return "turn"

    @property
    def lanes(self) -> int:
        """Elements along each side of a block."""
        return self.turn.lanes(self.target, self.view.dtype)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        threads = self.target.threads
        return (
            Knob("rows", self._counts(self.turn.across)),
            Knob("columns", self._counts(self.turn.along)),
            Knob("collect", (0, 1) if self._can_collect() else (0,)),
            Knob("parallel", (0, 1) if threads > 1 and self.blocks() > 1 else (0,)),
            Knob("stream", stream_values(self.workload, self.view.name, self.target)),
        )

    def _can_collect(self) -> bool:
        """Whether a piece of a row is several vectors, and a box in the result."""
        return self.turn.along.extent >= 2 * self.lanes and not self.joins

    def _counts(self, loop: Loop) -> tuple[int, ...]:
        whole = loop.extent // self.lanes
        return tuple(n for n in (1, 2, 4, 8) if n <= max(whole, 1))

    def blocks(self) -> int:
        others = prod(loop.extent for loop in self.view.spatial)
        others //= self.turn.across.extent * self.turn.along.extent
        each = [-(-loop.extent // self.lanes) for loop in (self.turn.across, self.turn.along)]
        return others * prod(each)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) every setting is legal."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)

    @property
    def outside(self) -> list[int]:
        """Axes of the result that are neither turned nor turned to."""
        turned = {self.turn.across.name, self.turn.along.name}
        return [n for n, loop in enumerate(self.view.spatial) if loop.name not in turned]

    @cached_property
    def _outline(self) -> Outline:
        names = [loop.name for loop in self.view.spatial]
        found = [access_of(r.tensor, r.dtype.bytes, r.index, names) for r in self.view.reads]
        identity = tuple(tuple(int(a == b) for b in names) for a in names)
        out = Access(self.view.name, self.view.dtype.bytes, identity, is_output=True)
        axes = axes_of((loop.name, loop.extent) for loop in self.view.spatial)
        return Outline(axes, (*found, out))

    def plan(self, settings: IntArray) -> Plan:
        """Axes that are walked as they are, then pieces along both, then elements of a piece."""
        v = self.values(settings)
        names = [loop.name for loop in self.view.spatial]
        across, along = (names.index(x.name) for x in (self.turn.across, self.turn.along))
        levels = (
            *(Level(n, 1) for n in self.outside),
            Level(across, v["rows"] * self.lanes),
            Level(along, v["columns"] * self.lanes),
            Level(across, 1),
            Level(along, 1),
        )
        return Plan(self._outline, levels, len(v["rows"]))

    @property
    def crowded_rows(self) -> float:
        return crowding(self.turn.along.extent * self.view.dtype.bytes)

    def _far_rows_crowd(self) -> bool:
        """Whether rows of a block are written a multiple of a page apart."""
        names = [loop.name for loop in self.view.spatial]
        inside = self.view.spatial[names.index(self.turn.across.name) + 1 :]
        return crowding(prod(loop.extent for loop in inside) * self.view.dtype.bytes) == 1

    def default(self) -> tuple[int, ...]:
        """Pieces of two by two blocks, or of four by eight collected where rows would crowd; every
        thread; streamed where a vector is a whole line, nothing is collected and the last cache
        does not hold everything, or its sets do not."""
        whole = self.lanes * self.view.dtype.bytes >= LINE_BYTES
        whole &= streams_pay(self.workload, self.target) or self._far_rows_crowd()
        collect = int(self.crowded_rows == 1 and self.turn.along.extent >= 8 * self.lanes)
        wanted = {"rows": 4, "columns": 8} if collect else {"rows": 2, "columns": 2}
        wanted |= {"collect": collect, "parallel": 1, "stream": int(whole and not collect)}
        return tuple(
            max(n for n, value in enumerate(k.values) if value <= wanted[k.name])
            for k in self.knobs
        )

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        turn = self.turn
        write_turn_trace(
            writer,
            self.view,
            (turn.across.name, turn.along.name),
            tuple(r.tensor for r in turn.turned),
            self.lanes,
            self.target.threads,
            self.chosen(setting),
            self.joins,
        )
