"""Counts of plain loops."""

from __future__ import annotations

import numpy as np

from schedules.arrays import IntArray
from schedules.sketches.plain import PlainSketch

from .table import COUNTS, Counts


def plain_counts(sketch: PlainSketch, settings: IntArray) -> Counts:
    """Everything is scalar."""
    parallel = sketch.values(settings)["parallel"]
    found = {name: np.zeros(len(parallel)) for name in COUNTS}
    for name in ("flops", "vector_ops", "vector_loads", "scalar_accesses", "inner_trips"):
        found[name] += float(sketch.points)
    outer = [s.axes[0].extent if s.axes else 1 for s in sketch.workload.stages]
    found["tasks"] += np.where(parallel > 0, float(max(outer)), 1.0)
    found["regions"] += parallel * float(len(outer))
    for name in ("inner_entries", "code_ops", "live_registers", "accumulators"):
        found[name] += 1.0
    return found
