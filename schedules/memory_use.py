"""What nests do to memory beside the loads and stores of their leaves, for P settings at once.

Private copies of operands, reads from behind the caches of one core, and rows that compete for the
sets of a cache. All numbers are arrays (P,), or scalars that hold for all settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arrays import Number, Truth


@dataclass(frozen=True, eq=False)
class PrivateCopy:
    """A private copy of part of an operand, made `times` in a call."""

    bytes: Number
    """Bytes written by one copy."""
    times: Number = 1
    gathered_bytes: Number = 0
    """Of `bytes`, those copied element by element."""
    buffer_bytes: Number | None = None
    """Bytes of the buffer, if it is larger than what is written."""
    is_transposed: bool = False
    """Whether blocks of registers are transposed on the way."""
    is_fused: Truth = False
    """Whether the first tile copies while it computes."""


@dataclass(frozen=True, eq=False)
class DistantRuns:
    """Accesses to an operand that a core's own caches do not hold, in runs of consecutive bytes."""

    bytes: Number
    """Bytes in a call."""
    run_bytes: Number
    exposed_fraction: Number = 1
    """Of the lines, those that no software prefetch covers."""
    prefetches: Number = 0
    """Lines prefetched by software in a call."""
    strides: tuple[int, ...] = ()
    """Bytes between runs that are walked side by side, of each tensor."""
    is_side_by_side: Truth = True
    """Whether runs `strides` apart are walked side by side."""
    fits_near: bool = False
    """Whether the operand fits a core's own caches after all: only conflicts cost then."""
    is_reread: Truth = False
    """Whether later tiles read the same lines in place."""


@dataclass(frozen=True, eq=False)
class StridedRows:
    """Rows at one distance that are used again: a large power of two maps them to few cache
    sets."""

    stride_bytes: int
    row_lines: Number
    """Cache lines of a row."""
    rows: Number
    lines: Number
    """Cache lines used in a call that a conflict would evict before they are used again."""


@dataclass(frozen=True, eq=False)
class MemoryUse:
    """All of it for the nests of a part."""

    copies: tuple[PrivateCopy, ...] = ()
    distant: tuple[DistantRuns, ...] = ()
    strided: tuple[StridedRows, ...] = ()
