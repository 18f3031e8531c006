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

from ..space import Access, BoolArray, FloatArray, IntArray, Knob
from ..target import Target
from ..trace import Trace
from ..workload import Workload
from .analysis import Loop, Read, StageView, math_calls
from .streams import stream_values
from .turn_trace import MOST_LANES, write_turn_trace
from .writer import TraceWriter

LINE_BYTES = 64

SHUFFLES_A_VECTOR = 4.0
"""Shuffles a vector costs in a block of 16 by 16; smaller ones cost less."""


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


def find_turn(view: StageView) -> Turn | None:
    """How `view` turns what it reads, if it does, and every such tensor is read once."""
    if view.is_reduction or view.presplit or len(view.spatial) < 2:
        return None
    moving = [loop for loop in view.spatial if loop.extent > 1]
    if len(moving) < 2:
        return None
    along = moving[-1]
    turned = [r for r in view.reads if r.own_dim(along.name) is not None and _pitch(r, along) > 1]
    for across in moving[:-1]:
        if turned and all(_is_turned(view, r, across, along) for r in turned):
            return Turn(across, along, tuple(turned))
    return None


def _pitch(read: Read, loop: Loop) -> int:
    return read.element_stride(loop.name) or 0


def _is_turned(view: StageView, read: Read, across: Loop, along: Loop) -> bool:
    alone = sum(1 for r in view.reads if r.tensor == read.tensor) == 1
    contiguous = read.element_stride(across.name) == 1 and read.own_dim(across.name) is not None
    return alone and contiguous and not read.padded and _pitch(read, along) >= across.extent


@dataclass(frozen=True)
class TurnSketch:
    """See the module. `rows` and `columns` are blocks walked together, in the axes of the result:
    how much of each line, page and cache set is used before it is left."""

    workload: Workload
    view: StageView
    turn: Turn
    target: Target

    @property
    def name(self) -> str:
        return "turn"

    @property
    def lanes(self) -> int:
        """Elements along each side of a block."""
        narrowest = max(self.target.lanes(r.dtype) for r in self.turn.turned)
        return min(narrowest, self.target.lanes(self.view.dtype), MOST_LANES)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        threads = self.target.threads
        return (
            Knob("rows", self._counts(self.turn.across)),
            Knob("columns", self._counts(self.turn.along)),
            Knob("collect", (0, 1) if self.turn.along.extent >= 2 * self.lanes else (0,)),
            Knob("parallel", (0, 1) if threads > 1 and self._blocks() > 1 else (0,)),
            Knob("stream", stream_values(self.workload, self.view.name, self.target)),
        )

    def _counts(self, loop: Loop) -> tuple[int, ...]:
        whole = loop.extent // self.lanes
        return tuple(n for n in (1, 2, 4, 8) if n <= max(whole, 1))

    def _blocks(self) -> int:
        others = prod(loop.extent for loop in self.view.spatial)
        others //= self.turn.across.extent * self.turn.along.extent
        each = [-(-loop.extent // self.lanes) for loop in (self.turn.across, self.turn.along)]
        return others * prod(each)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) every setting is legal; what is read along its axis in pieces of more than a line
        and written in pieces of more than a line needs room for both."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)

    @property
    def loop_axes(self) -> tuple[int, ...]:
        return tuple(range(len(self.view.spatial)))

    def extents(self, settings: IntArray) -> IntArray:
        """(P, L): the axes of the result."""
        row = [loop.extent for loop in self.view.spatial]
        return np.tile(np.array([row], np.int64), (len(np.atleast_2d(settings)), 1))

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        names = [loop.name for loop in self.view.spatial]
        found = {
            r.tensor: Access(
                r.tensor,
                r.dtype.bytes,
                tuple(tuple(i.coefficient(name) for name in names) for i in r.index),
            )
            for r in self.view.reads
        }
        identity = tuple(tuple(int(a == b) for b in names) for a in names)
        out = Access(self.view.name, self.view.dtype.bytes, identity, is_output=True)
        return (*found.values(), out)

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """See COLUMNS. Vectors that are turned cost shuffles; a pitch that maps lines to few sets
        costs misses, fewer the longer the pieces are."""
        settings = np.atleast_2d(settings)
        value = [np.asarray(k.values)[settings[:, n]] for n, k in enumerate(self.knobs)]
        rows, across, collect, parallel, stream = (v.astype(np.float64) for v in value)
        ones = np.ones(len(settings))
        vectors = self.view.points / self.lanes
        lines = self.view.points * self.view.dtype.bytes / 64
        crowded = sum(
            _pitch(r, self.turn.along) * r.dtype.bytes % 2048 == 0 for r in self.turn.turned
        )
        pitch = self.turn.along.extent * self.view.dtype.bytes
        misses = lines * (crowded / (rows + across) + (pitch % 2048 == 0) * (1 - 0.8 * stream))
        shuffles = SHUFFLES_A_VECTOR * len(self.turn.turned)
        tasks = np.where(parallel > 0, max(self._blocks() / self.lanes, self.target.threads), 1.0)
        return {
            "flops": ones * self.view.points * max(self.view.operations, 1),
            "vector_ops": ones * vectors * (shuffles + self.view.operations),
            "vector_loads": ones * vectors * len(self.view.reads),
            "vector_stores": ones * vectors,
            "scalar_accesses": ones * 0.0,
            "conflict_misses": misses,
            "math_calls": ones * vectors * math_calls(self.view.value),
            "accumulators": ones * 0.0,
            "live_registers": ones * (self.lanes + 2.0),
            "held_values": ones * 0.0,
            "inner_trips": across * rows,
            "inner_entries": self._blocks() / (across * rows),
            "code_ops": ones * self.lanes * (shuffles + 2.0),
            "packed_bytes": ones * 0.0,
            "strided_packed_bytes": ones * 0.0,
            "panel_bytes": ones * 0.0,
            "streamed_bytes": ones * 0.0,
            "packed_accesses": ones * 0.0,
            "masked_share": ones * 0.0,
            "tasks": tasks,
            "regions": parallel,
        }

    def default(self) -> tuple[int, ...]:
        """Two blocks of rows, every thread; streamed where a vector is a whole line."""
        last = [len(knob.values) - 1 for knob in self.knobs]
        whole = self.lanes * self.view.dtype.bytes >= LINE_BYTES
        return (min(1, last[0]), 0, 0, last[3], last[4] if whole else 0)

    def trace(self, setting: Sequence[int]) -> Trace:
        """The trace of one setting."""
        writer = TraceWriter(self.workload)
        self.write(writer, setting)
        return writer.trace

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        v = {k.name: int(k.values[i]) for k, i in zip(self.knobs, setting, strict=True)}
        turn = self.turn
        write_turn_trace(
            writer,
            self.view,
            (turn.across.name, turn.along.name),
            tuple(r.tensor for r in turn.turned),
            self.lanes,
            self.target.threads,
            v,
        )
