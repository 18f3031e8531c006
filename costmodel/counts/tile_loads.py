"""What one step of a register tile loads, and what of it is kept for later steps."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.sketches.analysis import Read, offsets, once
from schedules.sketches.tile.sketch import TileSketch

HELD_SHARE = 0.5
"""Vectors shared between taps that stay in registers until then. Depthwise windows with a stride of
two on 32 registers, 70 waiting: 65 moves to the stack beside 128 multiply-adds; 42: none."""

Extents = dict[str, int]
"""How far loops run, by name: those of the tile, or those of the steps written out."""


class Reach(NamedTuple):
    """How many places an index of a read takes while the loops of a tile run, and with those of the
    steps written out as well; `again` where steps meet places of others."""

    of_tile: int
    in_all: int
    again: bool


def step_loads(
    sketch: TileSketch, v: dict[str, IntArray]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(P,) broadcasts, and vector loads, in one step of the innermost loop: elements that several
    outputs or taps of the unrolled body share are loaded once, and then held in registers: all
    broadcasts, and half of the vectors (others are read from memory again as part of a
    multiply-add). The last ones are vectors made of lanes that are apart."""
    consecutive = v["unroll"] if sketch.apart == 1 else np.ones_like(v["unroll"])
    shape = np.stack([v["rows"], v["rows2"], consecutive, v["tap_unroll"]], axis=1)
    settings, place = np.unique(shape, axis=0, return_inverse=True)
    known = sketch.loads_by_shape
    for setting in map(tuple, settings.tolist()):
        if setting not in known:
            known[setting] = _one_shape(sketch, *setting)
    counts = np.asarray([known[setting] for setting in map(tuple, settings.tolist())])
    broadcast, loaded, held, spread, waiting = counts.reshape(-1, 5)[place.reshape(-1)].T
    apart = v["unroll"] // consecutive
    vectors = v["vectors"] + apart - 1
    held_values = held + HELD_SHARE * waiting * v["vectors"]
    return broadcast * apart, loaded * vectors, held_values, spread * vectors


def _one_shape(
    sketch: TileSketch, rows: int, rows2: int, unroll: int, taps: int
) -> tuple[float, float, float, float, float]:
    """For one vector of columns: broadcasts, loads, broadcasts held, vectors made of lanes that are
    apart, and vectors that wait for a later tap."""
    roles = sketch.roles
    tile = dict(zip((x.name for x in roles.rows[:2]), (rows, rows2), strict=False))
    steps = {roles.main.name: unroll}
    steps |= {loop.name: loop.extent for loop in sketch.short_taps()[:taps]}
    broadcast = held = loaded = spread = waiting = 0
    for read in once(roles.row_reads):
        reaches = _reaches(read, tile, steps)
        broadcast += prod(reach.in_all for reach in reaches)
        held += _held(reaches)
    for read in once(roles.column_reads):
        reaches = _reaches(read, tile, steps)
        distinct = prod(reach.in_all for reach in reaches)
        if sketch.lane_step > 1:
            spread += distinct
            distinct = _windows(read, roles.columns.name, tile, steps)
        loaded += distinct
        waiting += _waiting(read, reaches, roles.main.name, tile)
    return float(broadcast), float(loaded), float(held), float(spread), float(waiting)


def _reaches(read: Read, tile: Extents, steps: Extents) -> list[Reach]:
    found = []
    for index in read.index:
        of_tile, of_steps = offsets(index, tile), offsets(index, steps)
        in_all = len({a + b for a in of_tile for b in of_steps})
        again = len(of_steps) > 1 and in_all < len(of_tile) * len(of_steps)
        found.append(Reach(len(of_tile), in_all, again))
    return found


def _held(reaches: list[Reach]) -> int:
    """How many different elements wait for a later step that needs them again."""
    if not any(reach.again for reach in reaches):
        return 0
    return prod(reach.in_all if reach.again else reach.of_tile for reach in reaches)


def _waiting(read: Read, reaches: list[Reach], main: str, tile: Extents) -> int:
    """How many different elements of `read` wait at a time for a later tap that needs them again;
    `main` is the innermost of the loops written out."""
    if not any(reach.again for reach in reaches):
        return 0
    indices = list(zip(read.index, reaches, strict=True))
    # What an outer tap needs again waits for a whole round of the innermost one.
    outer = any(reach.again and main not in index.vars() for index, reach in indices)
    waiting = 1
    for index, reach in indices:
        if outer and main in index.vars():
            waiting *= reach.in_all
        elif reach.again:
            taps_between = max((abs(index.coefficient(name)) for name in tile), default=0)
            waiting *= min(reach.in_all, reach.of_tile * max(taps_between, 1))
        else:
            waiting *= reach.of_tile
    return waiting


def _windows(read: Read, columns: str, tile: Extents, steps: Extents) -> int:
    """How many whole vectors are loaded for one vector of `columns` that are a few elements apart:
    taps share those in which they are different phases."""
    total = 1
    for index in read.index:
        both = {a + b for a in offsets(index, tile) for b in offsets(index, steps)}
        step = index.coefficient(columns)
        if step > 1:
            total *= step * len({(n + index.const) // step for n in both})
        else:
            total *= len(both)
    return total
