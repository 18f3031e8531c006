"""Exposed lines: cache lines that neither a hardware nor a software prefetch brings in time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.schedules.arrays import FloatArray, Number
from tilewright.schedules.hardware import LINES_TO_FOLLOW, PAGE_BYTES
from tilewright.schedules.memory_use import DistantRuns
from tilewright.schedules.plan import Plan
from tilewright.schedules.target import Target

COST_OF_AN_EXPOSED_LINE = 4.0
"""In lines from the level that holds all data, since several misses overlap. Source: measured,
`python -m benchmarks.prior constants`."""

COST_OF_A_CONTENDED_LINE = 25.0
"""In the same unit: when two threads write side by side, hardware prefetches for one take lines
away from the other. Source: measured; a dilated window of 50x54x24 on Zen 5, two filters a channel,
takes 15 us where threads divide rows and 60 where they divide columns, and pooling of 112x112x64 on
Zen 4 28 and 69."""


def exposed_lines(distant: Iterable[DistantRuns], line_bytes: int, settings: int) -> FloatArray:
    """(P,) the cost of exposed lines, in lines from the level that holds all data. The hardware
    follows a run from its third line on. Runs side by side that compete for cache sets lose
    prefetched lines."""
    found = np.zeros(settings)
    for runs in distant:
        lines, run = runs.bytes / line_bytes, runs.run_bytes / line_bytes
        kept = 1.0 - max(map(conflict_share, runs.strides), default=0.0)
        cost = _exposed(lines, run * np.where(runs.is_side_by_side, kept, 1.0))
        if runs.fits_near:
            cost = cost - _exposed(lines, run)
        found += runs.exposed_fraction * cost
    return found


def _exposed(lines: Number, lines_a_run: Number) -> Number:
    """A run that would be followed by another is exposed in part."""
    share = LINES_TO_FOLLOW / (LINES_TO_FOLLOW + lines_a_run)
    return COST_OF_AN_EXPOSED_LINE * share * lines


def conflict_share(stride_bytes: int) -> float:
    """How much rows at this stride compete: fully at a multiple of a page, half as much at a
    multiple of half a page."""
    whole, half = stride_bytes % PAGE_BYTES == 0, stride_bytes % (PAGE_BYTES // 2) == 0
    return 1.0 if whole else 0.5 if half else 0.0


def contended_lines(plan: Plan, target: Target) -> FloatArray:
    """(P,) the cost of lines at the ends of threads' runs, if threads divide rows of the output and
    the parallel loops around have fewer iterations than there are threads: some threads then store
    parts of the same rows, each with two ends."""
    outside, found = np.ones(plan.num_settings), np.zeros(plan.num_settings)
    for level, trips in zip(plan.levels, plan.trips.T, strict=True):
        if level.shared_rows:
            is_contended = level.is_parallel & (trips > 1) & (outside < target.threads)
            lines = 2.0 * COST_OF_A_CONTENDED_LINE * level.shared_rows
            found = np.maximum(found, lines * is_contended)
        outside = outside * np.where(level.is_parallel, trips, 1)
    return found
