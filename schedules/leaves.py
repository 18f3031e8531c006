"""Leaves of a loop nest: its statements, for P settings at once.

A *leaf* is a statement in a loop. Unrolled and vectorised loops are not loops here: they are copies
and lanes of a leaf. All numbers are arrays (P,), or scalars that hold for all settings. A loop of
one iteration is no loop, and a leaf that a setting lacks has zero executions. Leaves are listed in
program order; leaves in the same loop refer to the same `LeafLoop` object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

from .arrays import Number, Truth
from .dtypes import DType

MAX_LANE_STRIDE = 4
"""Largest stride of lanes that are still picked from whole vectors, and most lanes in a row that
take the same element; other lanes are gathered one by one."""


@dataclass(frozen=True, eq=False)
class LeafLoop:
    """A loop over `axes`, fused, with `trip_count` iterations on average.

    `is_parallel`: threads divide the iterations; `tasks` then counts a shorter last iteration as a
    fraction (default: `trip_count`). `num_versions` is the number of loops that peeling makes of
    this one, on average; a version of one iteration is no loop.
    """

    axes: frozenset[str]
    trip_count: Number
    parent: LeafLoop | None = None
    is_parallel: Truth = False
    tasks: Number | None = None
    num_versions: Number = 1

    @cached_property
    def executions(self) -> Number:
        """How often its body runs in one call."""
        return self.trip_count * (self.parent.executions if self.parent else 1)


@dataclass(frozen=True)
class Operations:
    """Operations of one evaluation that depend on `axes` only: `instructions` (without math
    functions), `flops` (arithmetic operations), and `math_calls` (exp, tanh and the like)."""

    axes: frozenset[str]
    instructions: Number
    flops: Number
    math_calls: Number = 0


class Dim(NamedTuple):
    """The index of one dimension: `offset` plus a stride along each axis, 0 where the index divides
    the axis."""

    terms: tuple[tuple[str, int], ...]
    offset: int


@dataclass(frozen=True)
class AccessPattern:
    """A read or write of `tensor`. `steps` are the strides in elements along each axis that it
    depends on; accesses of the same elements have equal `key`. `dims` are the indices by dimension,
    if known: they tell which unrolled copies overlap, as windows do."""

    tensor: str
    key: tuple[object, ...]
    steps: Mapping[str, int]
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class Statement:
    """One evaluation; `reduction_axes` are the axes that it reduces, and `is_guarded` says that it
    is under a condition."""

    operations: tuple[Operations, ...] = ()
    reads: tuple[AccessPattern, ...] = ()
    writes: AccessPattern | None = None
    reduction_axes: frozenset[str] = frozenset()
    is_guarded: bool = False
    dtype: DType | None = None
    """The type of the arithmetic, if known."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A statement in a loop, unrolled and vectorised. Fractions, 0..1, are relative to whole tiles
    and vectors."""

    loop: LeafLoop
    statement: Statement
    copies: Mapping[str, Number] = field(default_factory=dict)
    """Unrolled copies along each axis."""
    vector_axis: str = ""
    lanes: Number = 1
    """Lanes along `vector_axis`."""
    frequency: Number = 1
    """Executions per iteration of `loop`; 0 where a setting has no such leaf."""
    active_fraction: Number = 1
    """The fraction of the copies that exist."""
    guarded_fraction: Number = 0
    """The fraction of executions under a condition that is a branch, not a mask of lanes."""
    accumulators: Number = 0
    """Accumulator registers of the statement."""
    extra_registers: Number = 0
    """Registers beside accumulators and loaded values."""
    unrolls_reduction: Truth = False
    """Whether iterations of a reduction are among the copies."""
    is_remainder: bool = False
    """Whether the leaf is the remainder along `vector_axis` of the leaf before it."""
    pipeline_stage: int = 0
    """The software-pipelining stage it belongs to."""
    latency_chain: Number = 0
    """Length of the chain of dependent operations that later leaves wait for."""
    is_chained: bool = False
    """Whether each accumulator is one chain of dependent operations, and nothing else is computed.
    """
    lane_tests: Number = 0
    """Comparisons of lanes, for each vector that is loaded along `vector_axis`."""
    scalar_tests: Number = 0
    """Other comparisons for each such vector."""
    retested_rows: Number = 0
    """Copies whose conditions are tested again in every step of the reduction."""
    axis_fractions: Mapping[str, Number] = field(default_factory=dict)
    """The fraction of the copies along an axis that this leaf has on average: a peeled remainder
    tile has shorter code of its own."""
    spacing: Mapping[str, int] = field(default_factory=dict)
    """Elements between copies along an axis, 1 if not given."""

    def fraction_along(self, axes: Collection[str]) -> Number:
        """The product of `axis_fractions` along `axes`."""
        return prod((n for axis, n in self.axis_fractions.items() if axis in axes), start=1)

    def copies_along(self, axes: Collection[str]) -> Number:
        """Copies along `axes`."""
        return prod((n for axis, n in self.copies.items() if axis in axes), start=1)

    @cached_property
    def all_copies(self) -> Number:
        return prod(self.copies.values(), start=1)
