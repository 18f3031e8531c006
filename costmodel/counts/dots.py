"""Counts of inner products whose lanes lie along the reduction."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.analysis import Read
from schedules.sketches.inner_product.sketch import InnerProductSketch
from schedules.sketches.knobs import as_floats

from .exposed import COST_OF_A_LATE_LINE
from .table import Counts, with_zeros
from .vectors import ops_of_a_lane_sum

LATE_SHARE = 0.15
"""Share of the lines of an operand from behind the core's own caches that are late without hints.
4x4096 by 1024x4096 on Zen 5, two threads: 441 us, 211 with hints."""

COST_OF_A_HINT_AGAIN = 0.4
"""In misses of a cache near by, of a hint that another tile of rows has given: a step is one line,
which is not shared out. 16x2048 by 2048x2048, tiles of 4 by 4, two threads: 700 us, 510 without."""

OPS_A_SINGLE_STORE = 2.0
"""A result that is stored by itself, and not with others in a vector, takes a cycle."""


def dot_counts(sketch: InnerProductSketch, settings: IntArray) -> Counts:
    """See the module."""
    values = sketch.values(settings)
    v, block = as_floats(values), sketch.tiles_in_block(values).astype(np.float64)
    rows, columns, parallel, fetch = (v[n] for n in ("rows", "columns", "parallel", "prefetch"))
    blocks, pack = v["blocks"], v["pack"]
    roles, zeros = sketch.roles, np.zeros(len(rows))
    batch = prod(loop.extent for loop in roles.batch)
    taps = float(prod(loop.extent for loop in roles.taps))
    trips = float(-(-roles.along.extent // sketch.lanes))
    many = batch * roles.many.extent / columns
    tiles = many * roles.few.extent / rows
    chains, outputs = rows * columns, float(sketch.view.outputs)
    ops = max(sketch.view.operations - 1, 1)
    size = prod(roles.passing.shape) * roles.passing.dtype.bytes
    lines = size / sketch.target.caches[0].line_bytes if sketch.is_far else 0.0
    hints = columns * fetch
    again = lines * fetch * (roles.few.extent / rows - 1.0)
    work = tiles * taps * trips * chains * ops
    turned = sum(prod(read.shape) * read.dtype.bytes for read in roles.turned)
    packed = pack * sum(prod(read.shape) * read.dtype.bytes for read in sketch.shared)
    waiting = np.where(blocks > 1, tiles * chains * blocks, 0.0)
    found: Counts = {
        "flops": 2.0 * work * sketch.lanes,
        "vector_ops": work + outputs * ops_of_a_lane_sum(sketch.lanes),
        "vector_loads": tiles * taps * trips * (rows * roles.period + columns + hints) + waiting,
        "vector_stores": outputs + waiting,
        "lost_ops": zeros + outputs * OPS_A_SINGLE_STORE,
        "exposed_lines": LATE_SHARE * COST_OF_A_LATE_LINE * lines * (fetch == 0)
        + COST_OF_A_HINT_AGAIN * again,
        "accumulators": chains,
        "live_registers": chains + np.minimum(rows * roles.period, columns) + 1.0,
        "inner_trips": trips / blocks,
        "inner_entries": tiles * taps * blocks,
        "code_ops": chains * ops + rows + columns,
        "packed_bytes": turned + packed,
        "strided_packed_bytes": zeros + turned,
        "panel_bytes": _largest(roles.turned, sketch.shared, pack),
        "tasks": np.where(parallel > 0, many / block, 1.0),
        "regions": parallel * (many > block),
    }
    return with_zeros(found)


def _largest(turned: Sequence[Read], shared: Sequence[Read], pack: FloatArray) -> FloatArray:
    """(P,) bytes of the largest copy."""
    sizes = [[prod(read.shape) * read.dtype.bytes for read in reads] for reads in (turned, shared)]
    always, packed = (float(max(each, default=0)) for each in sizes)
    return np.maximum(always, pack * packed)
