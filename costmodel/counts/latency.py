"""Exposed lines: cache lines that neither a hardware prefetch nor a software prefetch loads in
time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.schedules.arrays import FloatArray, Number
from tilewright.schedules.hardware import LINES_TO_FOLLOW, PAGE_BYTES
from tilewright.schedules.memory_use import DistantRuns
from tilewright.schedules.plan import Plan
from tilewright.schedules.target import Target

from ..machine import COST_OF_AN_EXPOSED_LINE

COST_OF_A_CONTENDED_LINE = 25.0
"""Cost of a line near data that another thread writes, in line transfers from the level that holds
all data. Hardware prefetches of one thread take lines away from the other.

Source: measured. A dilated window of 50x54x24 on Zen 5, with two filters per channel, takes 15 us
if threads divide rows, and 60 us if they divide columns. Pooling of 112x112x64 on Zen 4 takes 28
and 69 us.
"""


def exposed_lines(distant: Iterable[DistantRuns], line_bytes: int, settings: int) -> FloatArray:
    """Return the cost of exposed lines, shape (P,), in line transfers from the level that holds all
    data.

    The hardware prefetcher follows a run of contiguous lines after `LINES_TO_FOLLOW` lines.
    Adjacent runs that compete for cache sets lose prefetched lines. Stores of such runs evict each
    other's lines, so prefetches do not help them. Source: measured, products of 64 and 128 planes
    on a Zen 3 that store one line per plane and tile take 1.25 to 1.5 times as long as with whole
    rows if planes are a multiple of the page apart, and otherwise 1.05 to 1.15 times.
    """
    found = np.zeros(settings)
    for runs in distant:
        lines, run = runs.bytes / line_bytes, runs.run_bytes / line_bytes
        kept = 1.0 - max(map(conflict_share, runs.strides), default=0.0)
        cost = _exposed(lines, run * np.where(runs.is_side_by_side, kept, 1.0))
        if runs.fits_near:
            cost = cost - _exposed(lines, run)
        crowded = conflict_share(runs.pitch_bytes) if runs.pitch_bytes else 0.0
        found += np.maximum(runs.exposed_fraction, crowded) * cost
    return found


def _exposed(lines: Number, lines_per_run: Number) -> Number:
    """Return the cost of `lines` in runs of `lines_per_run` contiguous lines. Prefetching continues
    into the next run, so only a part of each run is exposed."""
    share = LINES_TO_FOLLOW / (LINES_TO_FOLLOW + lines_per_run)
    return COST_OF_AN_EXPOSED_LINE * share * lines


def conflict_share(stride_bytes: int) -> float:
    """Return how strongly rows at this stride compete for cache sets, 0 to 1.

    It is 1 for a multiple of the page size, 0.5 for other multiples of half the page size,
    otherwise 0.
    """
    whole, half = stride_bytes % PAGE_BYTES == 0, stride_bytes % (PAGE_BYTES // 2) == 0
    return 1.0 if whole else 0.5 if half else 0.0


def contended_lines(plan: Plan, target: Target) -> FloatArray:
    """Return the cost of contended lines at the ends of the threads' contiguous stores, shape (P,).

    They occur if threads divide rows of the output, and the parallel loops outside have fewer
    iterations than there are threads. Several threads then store parts of the same rows, and each
    part has two ends.
    """
    outside, found = np.ones(plan.num_settings), np.zeros(plan.num_settings)
    for level, trips in zip(plan.levels, plan.trips.T, strict=True):
        if level.shared_rows:
            is_contended = level.is_parallel & (trips > 1) & (outside < target.threads)
            lines = 2.0 * COST_OF_A_CONTENDED_LINE * level.shared_rows
            found = np.maximum(found, lines * is_contended)
        outside = outside * np.where(level.is_parallel, trips, 1)
    return found
