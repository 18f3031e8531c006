"""Conflict misses: lines that are evicted because a stride maps them to few cache sets."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

import numpy as np

from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.memory_use import StridedRows
from tilewright.schedules.target import Target


def conflict_misses(strided: Iterable[StridedRows], target: Target, settings: int) -> FloatArray:
    """(P,) misses of lines that are evicted before rows at a stride are used again."""
    found = np.zeros(settings)
    for rows in strided:
        found += rows.lines * lost_levels(target, rows)
    return found


def lost_levels(target: Target, strided: StridedRows) -> FloatArray:
    """(P,) how many caches cannot keep the rows because of their stride: all sets together would
    hold them, the sets that the rows map to do not."""
    lost = np.zeros(np.broadcast(strided.rows, strided.row_lines).shape)
    for cache in target.caches[:2]:
        sets = max(cache.bytes // (cache.ways * cache.line_bytes), 1)
        # Rows at no multiple of a line begin at other places in theirs, and so reach all sets.
        period = sets * cache.line_bytes
        distance = max(gcd(strided.stride_bytes, period) // cache.line_bytes, 1)
        reached = np.minimum(sets, sets // distance * strided.row_lines)
        lines = strided.row_lines * strided.rows
        lost = lost + ((lines > reached * cache.ways) & (lines <= sets * cache.ways))
    return lost
