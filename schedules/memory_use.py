"""Memory use of nests, in addition to the loads and stores of their leaves, for P settings.

It consists of private copies of operands, reads of data outside a core's private caches, and rows
that compete for cache sets. Numbers are arrays (P,), or scalars that hold for all settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arrays import Number, Truth


@dataclass(frozen=True, eq=False)
class PrivateCopy:
    """A private copy of part of an operand. It is created `times` times per call."""

    bytes: Number
    """Number of bytes that one copy writes."""
    times: Number = 1
    gathered_bytes: Number = 0
    """Number of the `bytes` that are copied element by element."""
    buffer_bytes: Number | None = None
    """Size of the buffer in bytes if it is larger than the copied data."""
    is_transposed: Truth = False
    """Whether register blocks are transposed while they are copied."""
    is_fused: Truth = False
    """Whether the first tile writes the copy while it computes."""
    collects: bool = False
    """Whether the copy consists of results, which are copied to the output afterwards."""


@dataclass(frozen=True, eq=False)
class DistantRuns:
    """Accesses to an operand outside a core's private caches, in runs of `run_bytes` consecutive
    bytes."""

    bytes: Number
    """Number of bytes per call."""
    run_bytes: Number
    exposed_fraction: Number = 1
    """Fraction of the lines that no software prefetch covers."""
    prefetches: Number = 0
    """Number of lines prefetched by software per call."""
    are_near: bool = False
    """Whether consecutive prefetches continue in the same pages, or are of lines to be stored. They
    are then as fast as a stream."""
    strides: tuple[int, ...] = ()
    """Distance in bytes between the starts of adjacent runs, for each tensor."""
    is_side_by_side: Truth = True
    """Whether adjacent runs (at a distance of `strides`) are traversed concurrently."""
    fits_near: bool = False
    """Whether the operand fits the core's private caches, so that only set conflicts cost time."""
    is_reread: Truth = False
    """Whether later tiles read the same lines in place."""
    pitch_bytes: int = 0
    """Distance in bytes between the runs of a tile, if runs that compete for cache sets are exposed
    even with prefetches; otherwise 0."""


@dataclass(frozen=True, eq=False)
class StridedRows:
    """Rows at a regular stride that are reused. A stride that is a large power of two maps them to
    few cache sets."""

    stride_bytes: int
    row_lines: Number
    """Number of cache lines per row."""
    rows: Number
    lines: Number
    """Number of cache lines per call that a conflict would evict before they are reused."""


@dataclass(frozen=True, eq=False)
class MemoryUse:
    """The complete memory use of the nests of one `SpacePart`."""

    copies: tuple[PrivateCopy, ...] = ()
    distant: tuple[DistantRuns, ...] = ()
    strided: tuple[StridedRows, ...] = ()
    stored: tuple[DistantRuns, ...] = ()
    """Stores to a tensor outside a core's private caches. The lines are loaded first."""
