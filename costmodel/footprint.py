"""Which bytes a loop nest touches, and how many cross each cache boundary: for arrays of settings.

The model walks a static list of loops, outer to inner. A loop level *fits* a cache when all the
bytes touched below it do; the outermost level that fits is where data is reused, and everything
outside it brings the bytes in again, except loops just outside it that a buffer does not depend on.
Source: the working-set argument of Wolf and Lam (PLDI 1991, doi:10.1145/113445.113449), applied
per cache level as in MOpt (ASPLOS 2021, doi:10.1145/3445814.3446759).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedules.space import Access, IntArray

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes for P settings, A accesses, C caches, L loops; all float32.

    `footprint` (L + 1, P): bytes touched, over all accesses, in one run of the loops from l inward.
    `moved` (C, A, P): bytes an access brings into cache c in one call, written bytes counted twice.
    `fit_level` (C, P): the outermost loop level whose footprint fits cache c.
    """

    footprint: Float32Array
    moved: Float32Array
    fit_level: npt.NDArray[np.int64]


def tile_extents(extents: Float32Array, loop_axes: Sequence[int]) -> list[list[Float32Array]]:
    """For each level 0..L and each axis, (P,): how far the loops from that level inward reach."""
    loops, points = extents.shape
    axes = max(loop_axes, default=-1) + 1
    ones = np.ones(points, np.float32)
    tiles = [[ones] * axes for _ in range(loops + 1)]
    for level in range(loops - 1, -1, -1):
        tiles[level] = list(tiles[level + 1])
        axis = loop_axes[level]
        tiles[level][axis] = tiles[level + 1][axis] * extents[level]
    return tiles


def touched_bytes(
    access: Access, tile: Sequence[Float32Array], line_bytes: int
) -> tuple[Float32Array, Float32Array]:
    """(P,) bytes `access` touches while each axis runs over `tile`, and (P,) >= 1 how many times
    more that is in whole cache lines: rows shorter than a line take one."""
    points = tile[0].shape[0] if tile else 1
    total = np.full(points, np.float32(access.element_bytes))
    row = np.ones(points, np.float32)
    for strides in access.strides:
        reach: Float32Array | None = None
        for axis, stride in enumerate(strides):
            if stride:
                part = (tile[axis] - np.float32(1)) * np.float32(abs(stride))
                reach = part if reach is None else reach + part
        row = np.ones(points, np.float32) if reach is None else reach + np.float32(1)
        total = total * row
    return total, np.maximum(np.float32(line_bytes / access.element_bytes) / row, np.float32(1))


def cache_traffic(
    extents: IntArray,
    loop_axes: Sequence[int],
    accesses: Sequence[Access],
    cache_bytes: Sequence[float],
    *,
    line_bytes: int = 64,
    usable: float = 0.8,
) -> Traffic:
    """What `accesses` cost at every cache, for trip counts `extents` (P, L), outer to inner.

    Only the share `usable` of a cache is counted on: the rest goes to other data and conflicts.
    """
    loop_major = np.ascontiguousarray(extents.T, np.float32)
    loops, points = loop_major.shape
    tiles = tile_extents(loop_major, loop_axes)
    runs = [np.ones(points, np.float32)]
    for level in range(loops):
        runs.append(runs[-1] * loop_major[level])
    trivial = [loop_major[level] == 1 for level in range(loops)]
    footprint = np.zeros((loops + 1, points), np.float32)
    brought = np.empty((len(accesses), loops + 1, points), np.float32)
    for a, access in enumerate(accesses):
        walked = {axis for strides in access.strides for axis, s in enumerate(strides) if s}
        times = np.float32(2 if access.is_output else 1)
        outside = runs[0]
        for level in range(loops + 1):
            below, in_lines = touched_bytes(access, tiles[level], line_bytes)
            footprint[level] += below * in_lines
            # A line stays for the next turn of the loop just outside: its unused part costs only
            # what that loop does not use either.
            wasted = in_lines if level == 0 else outside
            outside = in_lines
            again = runs[level] / _reused(level, walked, loop_axes, loop_major, trivial)
            brought[a, level] = below * wasted * again * times
    fit_level = np.full((len(cache_bytes), points), loops, np.int64)
    moved = np.empty((len(cache_bytes), len(accesses), points), np.float32)
    every = np.arange(points)
    for c, capacity in enumerate(cache_bytes):
        fits = footprint <= np.float32(capacity * usable)
        fits[loops] = True
        fit_level[c] = np.argmax(fits, axis=0)
        moved[c] = brought[:, fit_level[c], every]
    return Traffic(footprint, moved, fit_level)


def _reused(
    level: int,
    walked: set[int],
    loop_axes: Sequence[int],
    extents: Float32Array,
    trivial: Sequence[npt.NDArray[np.bool_]],
) -> Float32Array | np.float32:
    """How often a buffer is found in cache again: the trips of the loops just outside `level`
    that do not move it. Loops of one trip in between do not count as moving it."""
    again: Float32Array | np.float32 = np.float32(1)
    alive: npt.NDArray[np.bool_] | None = None
    for outer in range(level - 1, -1, -1):
        if loop_axes[outer] in walked:
            alive = trivial[outer] if alive is None else alive & trivial[outer]
            if not alive.any():
                break
        elif alive is None:
            again = again * extents[outer]
        else:
            again = np.where(alive, again * extents[outer], again)
    return again
