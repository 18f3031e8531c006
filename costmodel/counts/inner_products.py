"""Counts of inner products whose lanes lie along the reduction."""

from __future__ import annotations

import numpy as np

from schedules.arrays import IntArray
from schedules.sketches.hardware import PAGE_BYTES
from schedules.sketches.inner_product.sketch import InnerProductSketch
from schedules.sketches.knobs import as_floats
from schedules.sketches.tile.operands import read_bytes
from schedules.sketches.writer import BATCHES, BLOCKS, DEPTH, STEPS, TILES

from .exposed import exposed_misses
from .plans import innermost, runs, shared
from .table import Counts, with_zeros
from .vectors import ops_of_a_lane_sum


def inner_product_counts(sketch: InnerProductSketch, settings: IntArray) -> Counts:
    """See the module."""
    plan, v, roles = sketch.plan(settings), as_floats(sketch.values(settings)), sketch.roles
    rows, columns, fetch = v["rows"], v["columns"], v["prefetch"]
    steps, blocks = runs(plan, BATCHES, BLOCKS, TILES, STEPS), runs(plan, DEPTH)
    chains, outputs = rows * columns, float(sketch.view.outputs)
    ops = max(sketch.view.operations - 1, 1)
    line_bytes = sketch.target.caches[0].line_bytes
    lines = read_bytes(roles.large) / line_bytes if sketch.is_far else 0.0
    # A step is one line, which tiles of rows do not share out: each prefetches it.
    again = lines * fetch * (roles.few.extent / rows - 1.0)
    work = steps * chains * ops
    transposed = [np.full_like(rows, read_bytes(read)) for read in roles.transposed]
    packed = [v["pack"] * read_bytes(read) for read in sketch.shared]
    spilled = outputs * np.where(blocks > 1, blocks, 0.0)
    of_a_sum = ops_of_a_lane_sum(sketch.lanes)  # every other one moves lanes
    found: Counts = {
        "flops": (2.0 * work + outputs * of_a_sum / 2.0) * sketch.lanes,
        "vector_ops": work + outputs * of_a_sum,
        "chained_ops": steps,
        "vector_loads": steps * (rows * roles.period + columns) + spilled,
        "prefetches": steps * columns * fetch,
        "vector_stores": outputs + spilled,
        "exposed_lines": exposed_misses(lines, PAGE_BYTES / line_bytes) * (fetch == 0) + again,
        "accumulators": chains,
        "live_registers": chains + np.minimum(rows * roles.period, columns) + 1.0,
        **innermost(plan),
        "code_ops": chains * ops + rows + columns,
        "packed_bytes": np.sum([0.0 * rows, *transposed, *packed], axis=0),
        "strided_packed_bytes": np.sum([0.0 * rows, *transposed], axis=0),
        "panel_bytes": np.max([0.0 * rows, *transposed, *packed], axis=0),
        **shared(plan),
    }
    return with_zeros(found)
