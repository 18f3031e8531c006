"""Cache conflicts. Lines are evicted because rows at a regular stride map to few cache sets."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

import numpy as np

from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.memory_use import StridedRows
from tilewright.schedules.target import Target


def conflict_misses(strided: Iterable[StridedRows], target: Target, settings: int) -> FloatArray:
    """Return the number of misses on lines of strided rows that are evicted before they are used
    again, shape (P,)."""
    found = np.zeros(settings)
    for rows in strided:
        found += rows.lines * lost_levels(target, rows)
    return found


def lost_levels(target: Target, strided: StridedRows) -> FloatArray:
    """Return the number of caches in which the rows do not fit because of their stride, shape (P,).

    The cache has space for all rows, but the sets that the stride maps them to have not.
    """
    lost = np.zeros(np.broadcast(strided.rows, strided.row_lines).shape)
    for cache in target.caches[:2]:
        sets = max(cache.bytes // (cache.ways * cache.line_bytes), 1)
        # If the stride is not a multiple of the line, rows start at different offsets within a
        # line. So they reach all sets.
        period = sets * cache.line_bytes
        distance = max(gcd(strided.stride_bytes, period) // cache.line_bytes, 1)
        reached = np.minimum(sets, sets // distance * strided.row_lines)
        lines = strided.row_lines * strided.rows
        lost = lost + ((lines > reached * cache.ways) & (lines <= sets * cache.ways))
    return lost
