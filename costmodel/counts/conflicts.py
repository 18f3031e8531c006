"""Cache conflicts. Lines are evicted because rows at a regular stride map to few cache sets."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

import numpy as np

from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.memory_use import StridedRows
from tilewright.schedules.target import Cache, Target


def conflict_misses(
    strided: Iterable[StridedRows], target: Target, settings: int, cache: int
) -> FloatArray:
    """Return the number of misses on lines of strided rows that cache number `cache` evicts before
    they are used again, shape (P,). It is 0 if the target has no such cache."""
    found = np.zeros(settings)
    for level in target.caches[cache : cache + 1]:
        for rows in strided:
            found += rows.lines * lost_fraction(level, rows)
    return found


def lost_fraction(cache: Cache, strided: StridedRows) -> FloatArray:
    """Return the fraction of the rows' lines that a cache loses because of their stride, shape
    (P,).

    The cache has space for all rows, but the sets that the stride maps them to have not. Other data
    needs a part of these sets too, and physical addresses distribute pages at random, so lines are
    lost from half of the sets' capacity on, and all lines at one and a half times the capacity.
    Source: measured, rows of one to four lines at strides of 1 to 12 KiB in a second cache of 2 MiB
    (a third is lost at the capacity, nothing at half of it, nearly all at twice the size).
    """
    sets = max(cache.bytes // (cache.ways * cache.line_bytes), 1)
    # If the stride is not a multiple of the line, rows start at different offsets within a line. So
    # they reach all sets.
    period = sets * cache.line_bytes
    distance = max(gcd(strided.stride_bytes, period) // cache.line_bytes, 1)
    reached = np.minimum(sets, sets // distance * strided.row_lines)
    lines = np.asarray(strided.row_lines * strided.rows)
    load = lines / (reached * cache.ways)
    fits = lines <= sets * cache.ways
    return np.asarray(np.where(fits & (reached < sets), np.clip(load - 0.5, 0.0, 1.0), 0.0))
