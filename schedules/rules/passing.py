"""Operands that pass by: too large for a core's own caches, and used for a few rows only.

Reading such an operand takes about as long as computing with it, and a packed copy of it is made
for too few uses. It is read in place instead, a few hundred rows deep, while hints ask for the
next tile: 48x4096x1024 on Zen 5 takes 0.86 of the peak of a core so, 0.60 with packed panels.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ..space import FloatArray
from ..target import Target
from .analysis import Loop, Read
from .streams import own_cache_bytes

if TYPE_CHECKING:
    from .tile import TileSketch

MOST_USES = 256
"""An element that is used more often than this pays for a copy of it."""

PASSING_DEPTHS = (32, 64, 128, 256, 512)
"""How deep blocks of the reduction are tried: rows of an operand that is read in place."""


def passing_reads(
    reads: tuple[Read, ...], columns: Loop, rows: int, target: Target
) -> tuple[Read, ...]:
    """Those of `reads`, column operands all `rows` share, that pass by: contiguous along columns,
    larger than what the cores have to themselves."""
    return tuple(
        read
        for read in reads
        if rows <= MOST_USES
        and read.element_stride(columns.name) == 1
        and _bytes(read) > own_cache_bytes(target) // 2
    )


def _bytes(read: Read) -> int:
    return prod(read.shape) * read.dtype.bytes


def hints_a_step(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) hints in one step of the innermost loop: shared out over the tiles of rows."""
    lines = np.zeros_like(f["nr"])
    for read in sketch.passing:
        lines = lines + np.ceil(f["nr"] * read.dtype.bytes / sketch.target.caches[0].line_bytes)
    shared = np.maximum(f["row_per"], f["row2_per"])
    return np.asarray(np.where(f["fetch"] > 0, np.ceil(lines / shared) * f["unroll"], 0.0))


COST_OF_A_LATE_LINE = 4.0
"""In misses of a cache near by: several are under way at a time."""

ALWAYS_LATE, CROWDED_OUT = 0.02, 0.3
"""Shares of the lines that are late although asked for: some always are, and more where tiles that
wait take more than a quarter of the cache they wait in."""


def late_lines(sketch: TileSketch, f: dict[str, FloatArray], batch: float) -> FloatArray:
    """(P,) waits for lines of operands that pass by, where hints ask for them: the first tile of
    each run of tiles is nobody's next one."""
    roles, total = sketch.roles, np.zeros_like(f["nr"])
    if not sketch.passing:
        return total
    taps = float(prod(loop.extent for loop in roles.taps))
    many = f["col_per"] > 1
    first = np.where(many, 1.0 / f["col_per"], np.where(f["k_count"] > 1, 1.0 / f["k_count"], 0.0))
    for read in sketch.passing:
        waiting = f["kc"] * taps * f["nr"] * read.dtype.bytes * (1.0 + f["fetch"])
        crowded = np.clip(4.0 * waiting / own_cache_bytes(sketch.target) - 1.0, 0.0, 1.0)
        share = np.minimum(ALWAYS_LATE + first + CROWDED_OUT * crowded, 1.0)
        blocks = f["row_blocks"] * f["row2_blocks"] * batch
        elements = float(roles.main.extent) * taps * roles.columns.extent * blocks
        lines = elements * read.dtype.bytes / sketch.target.caches[0].line_bytes
        total = total + np.where(f["fetch"] > 0, share * lines * COST_OF_A_LATE_LINE, 0.0)
    return total
