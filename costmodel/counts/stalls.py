"""Stalls of register tiles. Either there are too few dependence chains to fill the pipelines, or
the loop has tests in addition to its arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.schedules.arrays import FloatArray, Number
from tilewright.schedules.hardware import FMA_LATENCY
from tilewright.schedules.leaves import MAX_LANE_STRIDE, Leaf
from tilewright.schedules.memory_use import DistantRuns
from tilewright.schedules.plan import Plan
from tilewright.schedules.target import Target

from ..machine import machine_for
from .table import Counts
from .windows import read_by

MOST_TESTS_MOVED = 3
"""The largest number of rows with tests that cost nothing. The tests are invariant in the innermost
loop, and LLVM versions the loop by them.

Source: measured on a Zen 5. For capsules, 8 rows of which 2 are at the edges, or 3 in each of
several tiles, make no difference. For a dilated window, 6 rows take 1,270 us, and columns in their
place 715 us.
"""


def stall_counts(
    plan: Plan,
    leaves: Iterable[Leaf],
    distant: Sequence[DistantRuns],
    target: Target,
    vector_ops: FloatArray,
) -> tuple[Counts, FloatArray]:
    """Return the stall counts of chained leaves, and the relative excess of their time, shape (P,).

    The excess is relative to the time of their instructions. If there are no chained leaves, the
    counts are empty and the excess is 0.
    """
    longer = np.zeros(plan.num_settings)
    chained, picked, choices, tests = np.zeros((4, plan.num_settings))
    each = [leaf for leaf in leaves if leaf.is_chained]
    for leaf in each:
        longer = np.maximum(longer, _longer(plan, leaf, distant, target) - 1.0)
        steps = leaf.loop.executions * leaf.frequency
        points = steps * leaf.copies_along(leaf.statement.reduction_axes)
        full = leaf.fraction_along(leaf.copies)
        vectors = steps * _column_vectors(leaf)
        chained += points * full
        picked += vectors * _picks_lanes(leaf)
        # LLVM replaces tests in each step by selects between the sums before and after the step.
        retests = leaf.retested_rows > MOST_TESTS_MOVED
        # A test per lane is a comparison and a mask operation. A test that is equal for all lanes
        # is a branch.
        choices += 2.0 * leaf.lane_tests * vectors + points * leaf.accumulators * full * retests
        tests += leaf.scalar_tests * vectors
    if not each:
        return {}, longer
    return {
        "lost_ops": picked + (vector_ops + picked) * longer + (1.0 + longer) * choices,
        "chained_ops": (1.0 + longer) * chained,
        "test_ops": tests,
    }, longer


def _column_vectors(leaf: Leaf) -> Number:
    """Return the number of vectors along the vector axis that one execution of the leaf reads,
    shape (P,)."""
    reads = (place for place in leaf.statement.reads if leaf.vector_axis in place.steps)
    each = (read_by(replace(leaf, vector_axis=""), place)[0] for place in reads)
    return sum(each) * leaf.fraction_along({leaf.vector_axis})


def _picks_lanes(leaf: Leaf) -> bool:
    """Return whether strided lanes are selected from whole vectors."""
    steps = (place.steps.get(leaf.vector_axis, 0) for place in leaf.statement.reads)
    return any(1 < step <= MAX_LANE_STRIDE for step in steps)


def _longer(plan: Plan, leaf: Leaf, distant: Sequence[DistantRuns], target: Target) -> FloatArray:
    """Return the time of a leaf relative to the time of its instructions, shape (P,).

    A remainder tile of few rows takes as long as a tile with enough chains to cover the FMA
    latency. Tiles of few rows also wait for operands that they read again in place.
    """
    dtype, longer = leaf.statement.dtype, np.ones(plan.num_settings)
    rows = [x for x in leaf.copies if x not in (leaf.vector_axis, *leaf.statement.reduction_axes)]
    extents = {axis.name: axis.extent for axis in plan.outline.axes}
    assert dtype is not None
    machine = machine_for(target, dtype)
    if rows and leaf.axis_fractions:
        axis, size = rows[-1], np.asarray(leaf.copies[rows[-1]])
        whole = -(-extents[axis] // size) * size
        computed = np.rint(leaf.axis_fractions[axis] * whole)
        # the number of pipes is probed, so it may not be an integer
        chains = round(machine.fma_pipes * FMA_LATENCY)
        enough = np.minimum(np.ceil(chains / (leaf.accumulators / size)), size)
        left = computed % size
        short = np.where(left > 0, np.maximum(enough - left, 0.0), 0.0)
        longer = (computed + short) / computed
    for runs in distant:
        if np.any(runs.is_reread):
            # The number of rows whose arithmetic takes as long as loading their vector of columns
            # from another page.
            lines = machine.vector_bytes / machine.line_bytes
            fewest = machine.fma_pipes * lines * machine.reread_cycles
            tile = leaf.accumulators / leaf.copies[leaf.vector_axis]
            return longer * np.where(runs.is_reread, np.maximum(tile, fewest) / tile, 1.0)
    return longer
