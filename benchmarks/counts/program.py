"""A lowered nest as the recounter looks at it: its leaves with their loops, buffers and copies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from tilewright.schedules.algebra.affine import Affine, affine, recombine
from tilewright.schedules.nest.loop_ir import (
    Buffer,
    BufferScope,
    Nest,
    PrefetchHint,
    Stmt,
    Update,
    buffers_allocated,
)
from tilewright.schedules.nest.prepacking import split_prepack

from .copies import Copies, find_copies
from .instances import Placed, count, placed


@dataclass(frozen=True, eq=False)
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
            if not isinstance(place.leaf, PrefetchHint) and not self.copies.fills(place)
        )

    @cached_property
    def bodies(self) -> tuple[tuple[Placed, ...], ...]:
        """Leaves of `computing` that run in a row: those with the same innermost running loop."""
        found: dict[int, list[Placed]] = {}
        for place in self.computing:
            inner = id(place.running[-1]) if place.running else 0
            found.setdefault(inner, []).append(place)
        return tuple(tuple(body) for body in found.values())

    def in_memory(self, name: str) -> bool:
        return self.buffers[name].scope is not BufferScope.REGISTER

    def offset(self, name: str, index: tuple[Affine, ...]) -> Affine:
        """The number of an element in its buffer."""
        total, size = affine(0), 1
        for i, extent in zip(reversed(index), reversed(self.buffers[name].shape), strict=True):
            total, size = total + i * size, size * extent
        return recombine(total)


def program(
    nest: Nest, stages: Collection[str], statements: tuple[Stmt, ...] | None = None
) -> Program:
    """What a call does of `nest`, or of `statements` of it."""
    body = split_prepack(nest).rest if statements is None else statements
    return Program(nest, frozenset(stages), body)


def instructions(place: Placed) -> int:
    """How often the leaf runs: once for all lanes."""
    return count(place.loops, place.conds, place.steps)


def elements(place: Placed) -> int:
    """How often the leaf runs, each lane for itself."""
    return count(place.loops, place.conds, [loop.var for loop in place.loops])


def is_horizontal(place: Placed) -> bool:
    """Whether lanes, of which there are several, are combined into one element."""
    leaf, lanes = place.leaf, place.lanes
    if not isinstance(leaf, Update) or lanes is None or lanes.extent == 1:
        return False
    return all(lanes.var not in index.vars() for index in leaf.index)
