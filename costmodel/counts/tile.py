"""What tiles of registers wait for, and what they copy, beside what their nests do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.sketches.hardware import FMA_LATENCY, USABLE_SHARE
from tilewright.schedules.sketches.tile.leaves import TileNest
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.sketches.tile.stage import TileStage
from tilewright.schedules.sketches.writer import TILES

from ..machine import machine_for
from .conflicts import conflict_misses
from .exposed import contended_misses, exposed_lines
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
    found = nest_counts((update, *others), plan.num_settings)
    tiles = nest.loops[TILES].executions / (v["split_reduction"] * s["k_count"])
    steps = np.asarray(update.loop.executions * update.frequency)
    points = steps * f["unroll_reduction"] * f["taps_inside"]
    exposed, prefetches = exposed_lines(sketch, v, s, tiles, steps)
    stalled, columns = (
        _stalled_share(nest),
        (x for x in update.statement.reads if nest.lane in x.steps),
    )
    each = (read_by(replace(update, vector_axis=""), place) for place in columns)
    vectors = steps * update.fraction_along({nest.lane}) * sum(count for count, *_ in each)
    # Lanes that are apart are picked from whole vectors.
    picked = vectors * (sketch.lane_step > 1)
    guarded = (v["copy_rows"] == 0) & ~nest.leaves_out
    guarded &= any(read.padded for read in sketch.roles.column_reads)
    of_lanes = [sketch.roles.columns.name in cond.index.vars() for cond in sketch.padding]
    updates = points * update.accumulators * update.fraction_along(update.copies)
    # Lanes compare and join masks; what is the same for all of them is a branch.
    choices = guarded * 2.0 * sum(of_lanes) * vectors + updates * chooses_sums(sketch, v, s)
    full = update.fraction_along(update.copies)
    return found | {
        "lost_ops": picked + (found["vector_ops"] + picked) * stalled + (1.0 + stalled) * choices,
        "chained_ops": (1.0 + stalled) * points * full,
        "test_ops": guarded * vectors * float(len(of_lanes) - sum(of_lanes)),
        "prefetches": prefetches,
        "conflict_misses": conflict_misses(
            sketch, f, tiles * full * (1.0 + stalled), points / tiles
        ),
        "exposed_lines": exposed + contended_misses(sketch, plan),
        **packed(sketch, plan, v, s),
        "streamed_bytes": f["nontemporal_stores"] * sketch.workload.tensors[sketch.output].bytes,
    }


def _stalled_share(nest: TileNest) -> FloatArray:
    """(P,) by how much longer tiles of few rows take than their instructions: those of a tail wait
    for the latency of their chains as long as enough of them would, and all of them for
    nonresident operands."""
    stage, v, s = nest.stage, nest.v, nest.s
    longer = np.ones(nest.plan.num_settings)
    for loop in stage.roles.rows[:1]:
        rows, size = nest.tails[loop.name].computed_extent, s["mr"]
        pipes = machine_for(stage.target, stage.view.dtype).fma_pipes
        chains = round(pipes * FMA_LATENCY)  # pipes are probed
        enough = np.minimum(np.ceil(chains / v["tile_vectors"] / s["mr2"]), size)
        short = np.where(rows % size > 0, np.maximum(enough - rows % size, 0.0), 0.0)
        longer = (rows + short) / rows
    if stage.nonresident:
        tile = s["mr"] * s["mr2"]
        again = (v["pack_columns"] == 0) & (s["row_tiles"] * s["row2_tiles"] > 1)
        longer = longer * np.where(again, np.maximum(tile, _fewest_rows(stage)) / tile, 1.0)
    return longer - 1.0


def _fewest_rows(stage: TileStage) -> float:
    """Rows that take as long as their vector of columns takes to come from the last cache."""
    machine = machine_for(stage.target, stage.view.dtype)
    *_, last_cache, _ = machine.bytes_per_cycle
    return machine.fma_pipes * machine.vector_bytes / (USABLE_SHARE * last_cache)
