"""What a nest is: statements in loops, said for P settings at once.

A *loop* runs; what is unrolled or in lanes is no loop but copies of a *leaf*, a statement in a
loop. All numbers are for P settings at once, (P,) or one for all: a loop of one iteration is none,
and what settings lack runs zero times. Leaves stand in the order of the program, and have loops
around them in common by naming the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

Number: TypeAlias = npt.NDArray[Any] | float
Truth: TypeAlias = npt.NDArray[Any] | bool
"""Of P settings, (P,), or the same for all."""


@dataclass(frozen=True, eq=False)
class LeafLoop:
    """Walks `axes`, all as one, in `trip_count`. `is_parallel` says that threads divide the iterations
    among them; a last one that is shorter counts as the part it is in `tasks`, if they are given.
    Where it is cut, it is in several `num_versions`: each is a loop, or none, of its own.
    """

    axes: frozenset[str]
    trip_count: Number
    parent: LeafLoop | None = None
    is_parallel: Truth = False
    tasks: Number | None = None
    num_versions: Number = 1

    @cached_property
    def executions(self) -> Number:
        """How often its body runs in a call."""
        return self.trip_count * (self.parent.executions if self.parent else 1)


@dataclass(frozen=True)
class Operations:
    """Of one evaluation, for each setting of `axes`: instructions but math functions, arithmetic
    operations, and evaluations of math functions."""

    axes: frozenset[str]
    instructions: Number
    flops: Number
    math_calls: Number = 0


class Dim(NamedTuple):
    """An index into one dimension: how far each axis moves it, from `offset` on; 0 where it is
    divided."""

    terms: tuple[tuple[str, int], ...]
    offset: int


@dataclass(frozen=True)
class AccessPattern:
    """Where something is read or written: `steps` are elements between neighbours along the axes
    that move it, and `key` is the same for the same elements. `dims` say it by dimension, if that
    is known: copies may meet in one, as windows do."""

    tensor: str
    key: tuple[object, ...]
    steps: Mapping[str, int]
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class Statement:
    """What one evaluation does; `reduction_axes` are the axes that it adds up along."""

    operations: tuple[Operations, ...] = ()
    reads: tuple[AccessPattern, ...] = ()
    writes: AccessPattern | None = None
    reduction_axes: frozenset[str] = frozenset()
    is_guarded: bool = False


@dataclass(frozen=True, eq=False)
class Leaf:
    """A statement in a loop: so many `copies` along axes, and `lanes` along one. It runs `frequency` an
    iteration; the share `active_fraction` of the copies has an element, and of those along an axis the share
    that `axis_fractions` says: others have code of their own, which is shorter. Copies along an axis are
    `spacing` apart. `accumulators` are the registers that it adds to, `extra_registers` others that it needs
    beside what it loads; the share `guarded_fraction` of it stands under a condition that is no mask of
    lanes; `unrolls_reduction` says that steps of a reduction are among the copies. `piece` is which part
    of an axis it is for, and of which of the rows at work. What follows waits for so many
    operations of it that are done one after the other (`latency_chain`)."""

    loop: LeafLoop
    statement: Statement
    copies: Mapping[str, Number] = field(default_factory=dict)
    vector_axis: str = ""
    lanes: Number = 1
    frequency: Number = 1
    active_fraction: Number = 1
    guarded_fraction: Number = 0
    accumulators: Number = 0
    extra_registers: Number = 0
    unrolls_reduction: Truth = False
    piece: tuple[int, int] = (0, 0)
    latency_chain: Number = 0
    axis_fractions: Mapping[str, Number] = field(default_factory=dict)
    spacing: Mapping[str, int] = field(default_factory=dict)

    def fraction_along(self, axes: Collection[str]) -> Number:
        """How much there is of the copies along `axes`."""
        return prod((n for axis, n in self.axis_fractions.items() if axis in axes), start=1)

    def copies_along(self, axes: Collection[str]) -> Number:
        """Copies that differ where `axes` do."""
        return prod((n for axis, n in self.copies.items() if axis in axes), start=1)

    @cached_property
    def all_copies(self) -> Number:
        return prod(self.copies.values(), start=1)
