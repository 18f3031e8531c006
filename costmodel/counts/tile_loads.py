"""What one step of a register tile loads, and what of it is kept for later steps."""

from __future__ import annotations

from math import prod

import numpy as np

from schedules.algebra.affine import Affine
from schedules.arrays import FloatArray, IntArray, distinct_rows
from schedules.sketches.analysis import Read, offsets, once
from schedules.sketches.tile.sketch import TileSketch

KEPT_SHARE = 0.5
"""Of the vectors that taps share: they stay in registers until then, others are read again as part
of a multiply-add. Source: measured, `python -m benchmarks.prior constants`; all of them instead:
pooling of 112 by 112 on two threads is proposed 0.78 as fast; none: DEP_3 0.36."""

Extents = dict[str, int]
"""How far loops run, by name: those of the tile, or those of the steps written out."""


def step_loads(
    sketch: TileSketch, v: dict[str, IntArray]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(P,) broadcasts, and vector loads, in one step of the innermost loop: elements that several
    outputs or taps of the unrolled body share are loaded once, and then kept in registers: all
    broadcasts, and vectors. The last ones are vectors made of strided lanes."""
    consecutive = v["unroll"] if sketch.step_distance == 1 else np.ones_like(v["unroll"])
    shape = np.stack([v["rows"], v["rows2"], consecutive, v["tap_unroll"]], axis=1)
    settings, places = distinct_rows(shape)
    known = sketch.loads_by_shape
    for setting in map(tuple, settings.tolist()):
        if setting not in known:
            known[setting] = _one_shape(sketch, *setting)
    counts = np.asarray([known[setting] for setting in map(tuple, settings.tolist())])
    broadcast, loaded, kept, spread, kept_for_taps = counts[places].T
    several = v["unroll"] // consecutive
    vectors = v["vectors"] + several - 1
    kept_values = kept + KEPT_SHARE * kept_for_taps * v["vectors"]
    return broadcast * several, loaded * vectors, kept_values, spread * vectors


def _one_shape(
    sketch: TileSketch, rows: int, rows2: int, unroll: int, taps: int
) -> tuple[float, ...]:
    """For one vector of columns: broadcasts, loads, broadcasts kept, vectors made of lanes that are
    strided, and vectors kept for a later tap."""
    roles = sketch.roles
    tile = dict(zip((x.name for x in roles.rows[:2]), (rows, rows2), strict=False))
    steps = {roles.main.name: unroll}
    steps |= {loop.name: loop.extent for loop in sketch.short_taps()[:taps]}
    broadcast = kept = loaded = spread = kept_for_taps = 0
    for read in once(roles.row_reads):
        broadcast += prod(len(offsets(index, tile | steps)) for index in read.index)
        kept += _kept(read, tile, steps)
    for read in once(roles.column_reads):
        distinct = prod(len(offsets(index, tile | steps)) for index in read.index)
        if sketch.lane_step > 1:
            spread += distinct
            distinct = prod(_windows(i, roles.columns.name, tile | steps) for i in read.index)
        loaded += distinct
        kept_for_taps += _kept(read, tile, steps, roles.main.name)
    return tuple(map(float, (broadcast, loaded, kept, spread, kept_for_taps)))


def _kept(read: Read, tile: Extents, steps: Extents, main: str = "") -> int:
    """How many different elements are kept for a later step that needs them again, all of them at a
    time, or for the next step of `main`, the innermost of the loops written out."""
    sizes = [[len(offsets(i, x)) for x in (tile | steps, tile, steps)] for i in read.index]
    again = [of_steps > 1 and a < of_tile * of_steps for a, of_tile, of_steps in sizes]
    moved = [not main or main in index.vars() for index in read.index]
    if not any(again):
        return 0
    # What an outer tap needs again is kept for a whole round of the innermost one.
    outer = any(one and not moves for one, moves in zip(again, moved, strict=True))
    kept_for_taps = 1
    for index, (in_all, of_tile, _), one, moves in zip(
        read.index, sizes, again, moved, strict=True
    ):
        several = max((abs(index.coefficient(name)) for name in tile), default=0)
        if main and one and not (outer and moves):
            kept_for_taps *= min(in_all, of_tile * max(several, 1))
        else:
            kept_for_taps *= in_all if one or (outer and moves) else of_tile
    return kept_for_taps


def _windows(index: Affine, columns: str, extents: Extents) -> int:
    """Along one dimension, how many whole vectors are loaded for one vector of `columns` that are a
    few elements several: taps share those in which they are different phases."""
    step, found = index.coefficient(columns), offsets(index, extents)
    return step * len({(n + index.const) // step for n in found}) if step > 1 else len(found)
