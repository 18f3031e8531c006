"""What inner products wait for, and what they copy, beside what their nests do."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.sketches.hardware import PAGE_BYTES
from tilewright.schedules.sketches.inner_product.sketch import InnerProductSketch

from .exposed import exposed_misses
from .nests import nest_counts
from .table import Counts


def inner_product_counts(sketch: InnerProductSketch, settings: IntArray) -> Counts:
    """See the module."""
    v, roles = sketch.values(settings), sketch.roles
    update, *others = sketch.leaves(settings)
    found, fetch = nest_counts((update, *others), len(v["tile_rows"])), v["prefetch"]
    line_bytes = sketch.target.line_bytes
    lines = roles.large.bytes / line_bytes if sketch.is_far else 0.0
    none = np.zeros(len(fetch))
    transposed = [none + read.bytes for read in roles.transposed]
    packed = [v["pack_rows"] * read.bytes for read in sketch.shared]
    return found | {
        "chained_ops": np.asarray(update.loop.executions, np.float64),
        "prefetches": update.loop.executions * v["tile_columns"] * fetch,
        "exposed_lines": exposed_misses(lines, PAGE_BYTES / line_bytes) * (fetch == 0),
        "packed_bytes": np.sum([none, *transposed, *packed], axis=0),
        "strided_packed_bytes": np.sum([none, *transposed], axis=0),
        "panel_bytes": np.max([none, *transposed, *packed], axis=0),
    }
