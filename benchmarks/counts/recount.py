"""Counts of a lowered nest, found by walking through it: what `schedules.space.COLUMNS` promises.

Written from the meaning of a nest alone: nothing here asks a sketch. All counts are over one call
and all threads; what is packed ahead of calls is not done in one. In detail, where COLUMNS leaves a
choice:

- An *instruction* is one leaf for one setting of all loops but the lanes; it counts once if any
  lane is active. A leaf that is in no vectorised loop is an instruction as well.
- `vector_stores`: instructions that write memory, except into packed copies (see `copies.py`).
  Values between stages and sums that wait are in memory; registers are not.
- `tasks`: all work of the parallel loop that does most of it over the work of its longest
  iteration: a shorter one counts as the part it is. 1 where nothing is parallel.
- `regions`: how often parallel loops are entered.
- `packed_bytes`: bytes of elements written to private copies, zeros around them among them.
- `panel_bytes`: bytes of the largest private copy, as it is allocated.
- `streamed_bytes`: bytes of elements stored past the caches. A sum that is read again is not, nor
  is a vector that may lie across two lines: each copy of a leaf must write whole vectors at
  multiples of their size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np

from schedules.algebra.affine import Affine, Var, affine
from schedules.algebra.scalar import Binary, Unary, walk
from schedules.nest.ahead import split_ahead
from schedules.nest.loop_ir import (
    Buffer,
    For,
    LoopKind,
    Nest,
    Prefetch,
    Scope,
    Stmt,
    Store,
    Update,
    buffers_allocated,
    loops,
)

from .copies import Copies, find_copies
from .instances import IntArray, Placed, count, count_by, iterations, placed


@dataclass(frozen=True)
class Program:
    """A nest, or those of its statements that are one part of it; `stages` are the names of the
    computation's own tensors."""

    nest: Nest
    stages: frozenset[str]
    statements: tuple[Stmt, ...]

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        allocated = buffers_allocated(self.nest.body)
        return {b.name: b for b in (*self.nest.argument_buffers, *allocated)}

    @cached_property
    def leaves(self) -> tuple[Placed, ...]:
        return tuple(placed(self.statements))

    @cached_property
    def copies(self) -> Copies:
        return find_copies(self.leaves, self.buffers, self.stages)

    @cached_property
    def computing(self) -> tuple[Placed, ...]:
        """Leaves that compute or move results: no hints, and nothing that fills packed copies."""
        return tuple(
            place
            for place in self.leaves
            if not isinstance(place.leaf, Prefetch) and not self.copies.fills(place)
        )

    def in_memory(self, name: str) -> bool:
        return self.buffers[name].scope is not Scope.REGISTER

    def offset(self, name: str, index: tuple[Affine, ...]) -> Affine:
        """The number of an element in its buffer."""
        total, size = affine(0), 1
        for i, extent in zip(reversed(index), reversed(self.buffers[name].shape), strict=True):
            total, size = total + i * size, size * extent
        return total


def program(
    nest: Nest, stages: Collection[str], statements: tuple[Stmt, ...] | None = None
) -> Program:
    """What a call does of `nest`, or of `statements` of it."""
    body = split_ahead(nest).rest if statements is None else statements
    return Program(nest, frozenset(stages), body)


def recount(found: Program) -> dict[str, float]:
    """The counts by their names in COLUMNS; those that are not in it cannot be recounted."""
    tasks, regions = _shared(found)
    sizes = [found.buffers[name].bytes for name in found.copies.buffers]
    return {
        "vector_stores": float(sum(_instructions(p) for p in found.computing if _writes(found, p))),
        "tasks": tasks,
        "regions": regions,
        "packed_bytes": float(
            sum(_bytes(found, p) for p in found.leaves if p.leaf.buffer in found.copies.buffers)
        ),
        "panel_bytes": float(max(sizes, default=0)),
        "streamed_bytes": float(
            sum(_bytes(found, p) for p in found.computing if _is_streamed(found, p))
        ),
    }


def _instructions(place: Placed) -> int:
    return count(place.loops, place.conds, place.steps)


def _elements(place: Placed) -> int:
    return count(place.loops, place.conds, [loop.var for loop in place.loops])


def _bytes(found: Program, place: Placed) -> int:
    if isinstance(place.leaf, Prefetch):
        return 0
    return _elements(place) * found.buffers[place.leaf.buffer].dtype.bytes


def _writes(found: Program, place: Placed) -> bool:
    return found.in_memory(place.leaf.buffer)


def _is_streamed(found: Program, place: Placed) -> bool:
    """Whether the leaf stores whole vectors past the caches, at multiples of their size."""
    leaf, lanes = place.leaf, place.lanes
    if leaf.buffer not in found.nest.streamed or not isinstance(leaf, Store) or lanes is None:
        return False
    rest = found.offset(leaf.buffer, leaf.index) - Affine(((Var(lanes.var), 1),), 0)
    return gcd(rest.const, *(factor for _, factor in rest.terms)) % lanes.extent == 0


def _shared(found: Program) -> tuple[float, float]:
    """`tasks` and `regions`."""
    best, tasks, regions = -1.0, 1.0, 0
    for loop in loops(found.statements):
        if loop.kind is not LoopKind.PARALLEL:
            continue
        inside = [place for place in found.computing if place.within(loop)]
        around = next(place.loops for place in found.leaves if place.within(loop))
        outside = around[: [each is loop for each in around].index(True)]
        regions += iterations(outside)
        each = _work_by(found, inside, loop)
        if each.sum() > best and each.max() > 0:
            best, tasks = float(each.sum()), float(each.sum() / each.max())
    return tasks, float(regions)


def _work_by(found: Program, inside: Sequence[Placed], loop: For) -> IntArray:
    """(extent,) instructions of each iteration of a parallel loop: those that compute, or where
    nothing is computed, those that write memory."""
    weights = [_operations(place) for place in inside]
    if not any(weights):
        weights = [int(_writes(found, place)) for place in inside]
    total = np.zeros(loop.extent, np.int64)
    for place, weight in zip(inside, weights, strict=True):
        if weight:
            total += weight * count_by(place.loops, place.conds, place.steps, loop.var)
    return total


def _operations(place: Placed) -> int:
    leaf = place.leaf
    if isinstance(leaf, Prefetch):
        return 0
    nodes = {node for node in walk(leaf.value) if isinstance(node, Binary | Unary)}
    return len(nodes) + isinstance(leaf, Update)
