"""Leaves of a loop nest: statements inside loops, for P settings together.

Unrolled and vectorised loops are represented as copies and lanes of a leaf, not as loops. All
numbers are arrays (P,), or scalars that hold for all settings. A loop of one iteration does not
count as a loop. If a setting does not have a leaf, the leaf runs zero times. Leaves are listed in
program order. Leaves in the same loop refer to the same `LeafLoop` object.
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
"""Largest stride in elements at which lanes are selected from whole vectors. It is also the most
adjacent lanes that may read the same element. Beyond it, lanes are gathered one by one."""


@dataclass(frozen=True, eq=False)
class LeafLoop:
    """A loop over the fused `axes`."""

    axes: frozenset[str]
    trip_count: Number
    """Average number of iterations."""
    parent: LeafLoop | None = None
    is_parallel: Truth = False
    """Whether threads divide the iterations."""
    tasks: Number | None = None
    """The number of iterations if a shorter last one counts as a fraction; `trip_count` if None."""
    num_versions: Number = 1
    """Average number of loops that peeling generates, without loops of one iteration."""

    @cached_property
    def executions(self) -> Number:
        """Number of executions of the body per call."""
        return self.trip_count * (self.parent.executions if self.parent else 1)


@dataclass(frozen=True)
class Operations:
    """The operations of one evaluation of a statement that depend on `axes` only."""

    axes: frozenset[str]
    instructions: Number
    """Number of instructions, without math functions."""
    flops: Number
    """Number of arithmetic operations."""
    math_calls: Number = 0
    """Number of calls of exp, tanh and similar functions."""


class Dim(NamedTuple):
    """The index of one dimension: `offset` plus a stride along each axis. The stride is 0 if the
    index divides the axis."""

    terms: tuple[tuple[str, int], ...]
    offset: int


@dataclass(frozen=True)
class AccessPattern:
    """A read or write of `tensor`."""

    tensor: str
    key: tuple[object, ...]
    """Equal for all accesses of the same elements."""
    steps: Mapping[str, int]
    """Distance in elements between neighbours along each axis on which the index depends."""
    dims: tuple[Dim, ...] = ()
    """Index of each dimension, or () if unknown. It determines which unrolled copies overlap, for
    example in windows."""


@dataclass(frozen=True)
class Statement:
    """Operations and memory accesses of one evaluation."""

    operations: tuple[Operations, ...] = ()
    reads: tuple[AccessPattern, ...] = ()
    writes: AccessPattern | None = None
    reduction_axes: frozenset[str] = frozenset()
    """The axes over which the statement sums."""
    is_guarded: bool = False
    """Whether a condition encloses the statement."""
    dtype: DType | None = None
    """Type of the arithmetic, or None if unknown."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A statement inside a loop, unrolled and vectorised. Fractions are between 0 and 1, relative
    to full tiles and full vectors."""

    loop: LeafLoop
    statement: Statement
    copies: Mapping[str, Number] = field(default_factory=dict)
    """Number of unrolled copies along each axis."""
    vector_axis: str = ""
    lanes: Number = 1
    """Number of lanes along `vector_axis`."""
    frequency: Number = 1
    """Number of executions per iteration of `loop`; 0 if a setting has no such leaf."""
    active_fraction: Number = 1
    """Fraction of the copies that compute an element."""
    guarded_fraction: Number = 0
    """Fraction of the executions that are under a condition other than a lane mask."""
    accumulators: Number = 0
    """Number of registers in which the statement accumulates."""
    extra_registers: Number = 0
    """Number of registers in addition to accumulators and loaded values."""
    unrolls_reduction: Truth = False
    """Whether iterations of a reduction are among the copies."""
    is_remainder: bool = False
    """Whether the leaf computes the remainder of `vector_axis` after the full vectors of the
    preceding leaf."""
    pipeline_stage: int = 0
    """Index of the row that the leaf computes, among the rows that software pipelining overlaps."""
    latency_chain: Number = 0
    """Number of dependent operations for which later statements wait, of all copies."""
    is_chained: bool = False
    """Whether each accumulator is one chain of dependent operations, and the leaf has no other
    operations."""
    lane_tests: Number = 0
    """Number of comparisons with a result per lane, per vector loaded along `vector_axis`."""
    scalar_tests: Number = 0
    """Number of comparisons with one result for all lanes, per vector loaded along
    `vector_axis`."""
    retested_rows: Number = 0
    """Number of copies whose conditions are tested again in every step of the reduction."""
    axis_fractions: Mapping[str, Number] = field(default_factory=dict)
    """Average number of copies along each axis, divided by the copies of a full tile. It is below 1
    if a remainder tile has separate code."""
    spacing: Mapping[str, int] = field(default_factory=dict)
    """Distance in elements between copies along an axis; 1 if not given."""

    def fraction_along(self, axes: Collection[str]) -> Number:
        return prod((n for axis, n in self.axis_fractions.items() if axis in axes), start=1)

    def copies_along(self, axes: Collection[str]) -> Number:
        return prod((n for axis, n in self.copies.items() if axis in axes), start=1)

    @cached_property
    def all_copies(self) -> Number:
        return prod(self.copies.values(), start=1)
