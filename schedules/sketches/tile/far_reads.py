"""Operands of a tile whose lines the hardware does not foresee: what a prefetch would be for.

Prefetchers follow a run of lines once they have seen a few misses of it. An operand that comes from
behind a core's own caches in short or scattered runs makes every run begin with such misses.
"""

from __future__ import annotations

from math import prod

from ...target import Target
from ..analysis import Loop, Read, StageView, once
from ..hardware import PAGE_BYTES
from .operands import TileOperands
from .roles import TileRoles

MOST_USES = 256
"""An element that is used more often than this pays for a copy of it."""

SHORTEST_ROW_BYTES = 512
"""Rows of an operand that are shorter are one stream with their neighbours."""

FAR_ROW_BYTES = 2048
"""Rows of an operand that are nearer are soon followed by what prefetchers bring anyway."""

MOST_LINES = 2
"""Runs of more lines than this are long enough for prefetchers to follow."""


def read_bytes(read: Read) -> int:
    """Bytes of the whole tensor that is read."""
    return prod(read.shape) * read.dtype.bytes


def streamed_columns(roles: TileRoles, target: Target) -> tuple[Read, ...]:
    """Column operands that are read in place and pass by: all rows share them, which are few; they
    are larger than half of what a core has to itself, and their rows are long: short ones lie one
    behind the other, and what reads them has no need of a prefetch. A packed copy would be made for
    too few uses: 48x4096x1024 on Zen 5 takes 0.86 of the peak of a core in place, 0.60 packed."""
    rows = prod(loop.extent for loop in (*roles.rows, *roles.outer_rows))
    return tuple(
        read
        for read in once(roles.column_reads)
        if not roles.moves_with_rows(read)
        and 1 < rows <= MOST_USES
        and roles.columns.extent * read.dtype.bytes >= SHORTEST_ROW_BYTES
        and read.element_stride(roles.columns.name) == 1
        and read_bytes(read) > target.own_cache_bytes // 2
    )


def far_rows(roles: TileRoles, target: Target) -> tuple[Read, ...]:
    """Row operands whose next tile begins at other places: larger than half of what a core has to
    itself, contiguous along the reduction, which is one loop, in rows far apart."""
    if len(roles.rows) != 1 or roles.taps:
        return ()
    return tuple(
        read
        for read in once(roles.row_reads)
        if not read.padded
        and read.element_stride(roles.main.name) == 1
        and abs(read.element_stride(roles.rows[0].name) or 0) * read.dtype.bytes >= FAR_ROW_BYTES
        and read_bytes(read) > target.own_cache_bytes // 2
    )


def next_panels(roles: TileRoles, operands: TileOperands, target: Target) -> tuple[Read, ...]:
    """Column operands whose panels of the next batch come from elsewhere: each batch has its own
    part, contiguous along the reduction, and all parts are more than a core keeps."""
    own = target.own_cache_bytes
    batches = [loop for loop in roles.batch if loop.extent > 1]
    if not batches or roles.outer_rows:
        return ()
    return tuple(
        read
        for read in operands.packable
        if read not in operands.packed_ahead
        and not read.padded
        and all(read.uses(loop.name) for loop in batches)
        and read.element_stride(roles.main.name) == 1
        and roles.columns.extent * roles.main.extent * read.dtype.bytes <= own // 4
        and read_bytes(read) > own // 2
    )


def short_runs(view: StageView, roles: TileRoles, target: Target) -> tuple[Read, ...]:
    """Row operands larger than a core's own cache, of which the loops inside of batches walk short
    runs of the last dimension, with other batches' elements in between; two axes of rows."""
    line_bytes = target.caches[0].line_bytes
    if len(roles.rows) < 2:
        return ()
    return tuple(
        read
        for read in once(roles.row_reads)
        if all(read.uses(loop.name) for loop in roles.rows[:2])
        and read_bytes(read) > target.own_cache_bytes
        and _run(view, roles, read) * read.dtype.bytes <= MOST_LINES * line_bytes
        and (read.shape[-1] - _run(view, roles, read)) * read.dtype.bytes >= line_bytes
        and not any(read.index[-1].vars() & {loop.name} for loop in roles.rows)
    )


def _run(view: StageView, roles: TileRoles, read: Read) -> int:
    """Elements in a row that a batch reads of the last dimension."""
    batch = {loop.name for loop in (*roles.batch, *roles.outer_rows)}
    loops = {loop.name: loop.extent for loop in (*view.spatial, *view.reduce)}
    last, run = read.index[-1], 1
    for name in last.vars() - batch:
        run += abs(last.coefficient(name)) * (loops[name] - 1)
    return run


def is_followed(read: Read, main: Loop) -> bool:
    """Whether rows of an operand are so near that prefetchers follow from one to the next."""
    step = read.element_stride(main.name)
    return step is not None and abs(step) * read.dtype.bytes < PAGE_BYTES
