"""Leaves of a loop nest: statements inside loops, for P settings together.

Unrolled and vectorised loops are represented as copies and lanes of a leaf, not as loops. All
numbers are arrays (P,), or scalars that hold for all settings. A loop of one iteration does not
count as a loop. A leaf that a setting does not have runs zero times. Leaves are listed in program
order; leaves in the same loop refer to the same `LeafLoop` object.
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
"""Largest stride in elements at which lanes are selected from whole vectors, and most adjacent
lanes that may read the same element. Otherwise, lanes are gathered one by one."""


@dataclass(frozen=True, eq=False)
class LeafLoop:
    """A loop over the fused `axes` with an average of `trip_count` iterations.

    `is_parallel`: threads divide the iterations. `tasks`: the trip count, with a shorter last
    iteration counted as a fraction (default: `trip_count`). `num_versions`: average number of loops
    that peeling generates, without those of one iteration."""

    axes: frozenset[str]
    trip_count: Number
    parent: LeafLoop | None = None
    is_parallel: Truth = False
    tasks: Number | None = None
    num_versions: Number = 1

    @cached_property
    def executions(self) -> Number:
        """Executions of the body per call."""
        return self.trip_count * (self.parent.executions if self.parent else 1)


@dataclass(frozen=True)
class Operations:
    """Operations of one evaluation that depend on `axes` only: `instructions` (without math
    functions), `flops` (arithmetic operations) and `math_calls` (calls of exp, tanh and similar
    functions)."""

    axes: frozenset[str]
    instructions: Number
    flops: Number
    math_calls: Number = 0


class Dim(NamedTuple):
    """The index of one dimension: `offset` plus a stride along each axis. The stride is 0 if the
    index divides the axis."""

    terms: tuple[tuple[str, int], ...]
    offset: int


@dataclass(frozen=True)
class AccessPattern:
    """A read or write of `tensor`. `steps`: distance in elements between neighbours along each axis
    that the access depends on. `key`: equal for accesses of the same elements. `dims`: index of
    each dimension, if known; they determine which unrolled copies overlap, for example in
    windows."""

    tensor: str
    key: tuple[object, ...]
    steps: Mapping[str, int]
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class Statement:
    """Operations and memory accesses of one evaluation. `reduction_axes`: the axes that it sums
    over. `is_guarded`: whether a condition encloses it."""

    operations: tuple[Operations, ...] = ()
    reads: tuple[AccessPattern, ...] = ()
    writes: AccessPattern | None = None
    reduction_axes: frozenset[str] = frozenset()
    is_guarded: bool = False
    dtype: DType | None = None
    """Type of the arithmetic, or None if unknown."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A statement inside a loop, unrolled and vectorised. Fractions are 0..1, relative to full
    tiles and full vectors."""

    loop: LeafLoop
    statement: Statement
    copies: Mapping[str, Number] = field(default_factory=dict)
    """Unrolled copies along each axis."""
    vector_axis: str = ""
    lanes: Number = 1
    """Lanes along `vector_axis`."""
    frequency: Number = 1
    """Executions per iteration of `loop`; 0 if a setting has no such leaf."""
    active_fraction: Number = 1
    """Share of the copies that compute an element."""
    guarded_fraction: Number = 0
    """Share of the executions under a condition that is not a lane mask."""
    accumulators: Number = 0
    """Registers that the statement accumulates in."""
    extra_registers: Number = 0
    """Registers in addition to accumulators and loaded values."""
    unrolls_reduction: Truth = False
    """Whether iterations of a reduction are among the copies."""
    is_remainder: bool = False
    """Whether the leaf computes the remainder of `vector_axis` after the leaf before it."""
    pipeline_stage: int = 0
    """Index of the software-pipelined row in flight that the leaf computes."""
    latency_chain: Number = 0
    """Length of the chain of dependent operations that later leaves wait for."""
    is_chained: bool = False
    """Whether each accumulator is one chain of dependent operations and the leaf has no other
    operations."""
    lane_tests: Number = 0
    """Lane comparisons per vector loaded along `vector_axis`."""
    scalar_tests: Number = 0
    """Other comparisons per vector loaded along `vector_axis`."""
    retested_rows: Number = 0
    """Copies whose conditions are tested again in every step of the reduction."""
    axis_fractions: Mapping[str, Number] = field(default_factory=dict)
    """Copies along each axis divided by the copies of a full tile, on average: the code of a peeled
    remainder tile has fewer copies."""
    spacing: Mapping[str, int] = field(default_factory=dict)
    """Distance in elements between copies along an axis; 1 if not given."""

    def fraction_along(self, axes: Collection[str]) -> Number:
        return prod((n for axis, n in self.axis_fractions.items() if axis in axes), start=1)

    def copies_along(self, axes: Collection[str]) -> Number:
        return prod((n for axis, n in self.copies.items() if axis in axes), start=1)

    @cached_property
    def all_copies(self) -> Number:
        return prod(self.copies.values(), start=1)
