"""What small transforms wait for, beside what their nests do."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.sketches.fused.transform import OUTSIDE, TransformSketch

from .conflicts import lost_levels
from .plans import plan_counts
from .table import Counts


def transform_counts(sketch: TransformSketch, settings: IntArray) -> Counts:
    """Lines are lost of planes whose distance maps them to few sets, all caches."""
    last, planes = sketch.group.last, sketch.planes
    distance = prod(last.shape[planes[-1].dim + 1 :]) * last.dtype.bytes
    is_outside = sketch.values(settings)["compute_at"] == OUTSIDE
    at_once = sketch.written / np.where(is_outside, float(planes[0].extent), 1.0)
    lost = lost_levels(sketch.target, distance, np.ones_like(at_once), at_once)
    return plan_counts(sketch, settings) | {"conflict_misses": lost * last.points / sketch.lanes}
