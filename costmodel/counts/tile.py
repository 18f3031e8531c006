"""What tiles of registers wait for, and what they copy, beside what their nests do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.hardware import BUSY_CHAINS, FEWEST_ROWS
from schedules.sketches.tile.leaves import TileNest
from schedules.sketches.tile.sketch import TileSketch
from schedules.sketches.writer import TILES

from .conflicts import conflict_misses
from .exposed import exposed_lines
from .nests import nest_counts
from .table import Counts
from .tile_copies import packed
from .tile_tests import chooses_sums
from .windows import read_by


def tile_counts(sketch: TileSketch, settings: IntArray) -> Counts:
    """See the module."""
    nest = sketch.nest(settings)
    plan, v, s = nest.plan, nest.v, nest.s
    f = {key: value.astype(np.float64) for key, value in {**v, **s}.items()}
    update, *others = nest.leaves()
    found = nest_counts((update, *others), plan.settings)
    tiles = nest.loops[TILES].runs / (v["split_k"] * s["k_count"])
    steps = np.asarray(update.loop.runs * update.times)
    points = steps * f["unroll"] * f["taps_inside"]
    exposed, prefetches = exposed_lines(sketch, v, s, tiles, steps)
    stalled, columns = _stalled_share(nest), (x for x in update.does.reads if nest.lane in x.steps)
    each = (read_by(replace(update, along=""), place) for place in columns)
    vectors = steps * update.share({nest.lane}) * sum(count for count, *_ in each)
    # Lanes that are apart are picked from whole vectors.
    picked = vectors * (sketch.lane_step > 1)
    # A guarded load compares for each condition, and joins or chooses by what it finds.
    guarded = (v["copy_rows"] == 0) & ~nest.leaves_out
    guarded &= any(read.padded for read in sketch.roles.column_reads)
    tests = guarded * 2.0 * len(sketch.padding) * vectors
    updates = points * update.sums * update.share(update.copies)
    tests = tests + updates * chooses_sums(sketch, v, s)
    computed = tiles * update.share(update.copies) * (1.0 + stalled)
    return found | {
        "lost_ops": picked + (found["vector_ops"] + picked) * stalled + (1.0 + stalled) * tests,
        "vector_loads": found["vector_loads"] + prefetches,
        "conflict_misses": conflict_misses(sketch, f, computed, points / tiles),
        "exposed_lines": exposed,
        **packed(sketch, plan, v, s),
        "streamed_bytes": f["stream"] * sketch.workload.tensors[sketch.output].bytes,
    }


def _stalled_share(nest: TileNest) -> FloatArray:
    """(P,) by how much longer tiles of few rows take than their instructions: those of a tail wait
    for the latency of their chains as long as enough of them would, and all of them for
    nonresident operands."""
    stage, v, s = nest.stage, nest.v, nest.s
    longer = np.ones(nest.plan.settings)
    for loop in stage.roles.rows[:1]:
        rows, size = nest.tails[loop.name].computed, s["mr"]
        enough = np.minimum(np.ceil(BUSY_CHAINS / v["vectors"] / s["mr2"]), size)
        short = np.where(rows % size > 0, np.maximum(enough - rows % size, 0.0), 0.0)
        longer = (rows + short) / rows
    if stage.nonresident:
        tile = s["mr"] * s["mr2"]
        again = (v["pack_columns"] == 0) & (s["row_tiles"] * s["row2_tiles"] > 1)
        longer = longer * np.where(again, np.maximum(tile, FEWEST_ROWS) / tile, 1.0)
    return longer - 1.0
