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
from functools import reduce
from math import gcd

import numpy as np
import numpy.typing as npt

from schedules.arrays import IntArray
from schedules.plan import Access

Float32Array = npt.NDArray[np.float32]


PAGE_BYTES = 4096
FAR_BYTES = 1024
SHORT_ROW_LINES = 2
"""Rows of fewer lines than this, at least FAR_BYTES apart, come slower in proportion: the hardware
prefetcher cannot follow them (unpacked 512 x 512 matrix products on Zen 3)."""

NEW_PAGE_LINES = np.float32(4)
"""Lines that could have been read while a prefetcher finds its feet in a new page (column sums of
1024 x 4096 on Zen 3: 264 us in rows of 6 lines, 157 us in rows of 128)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes for P settings, A accesses, C caches, L loops; all float32.

    `footprint` (L + 1, P): bytes touched, over all accesses, in one run of the loops from l inward.
    `moved` (C, A, P): bytes an access brings into cache c in one call of many, written bytes
    counted twice and scattered ones as often as they are slower.
    `fit_level` (C, P): the outermost loop level whose footprint fits cache c.
    """

    footprint: Float32Array
    moved: Float32Array
    fit_level: npt.NDArray[np.int64]

    def at(self, places: npt.NDArray[np.int64]) -> Traffic:
        """That of the settings at `places` (Q,), in this order."""
        return Traffic(
            self.footprint[:, places], self.moved[:, :, places], self.fit_level[:, places]
        )


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


@dataclass(frozen=True, slots=True)
class Touched:
    """Arrays (P,): `bytes` an access touches, how many times more that is `in_lines` (rows shorter
    than a cache line take one), how many times more cache it needs because its rows fall in the
    same sets (`conflict`), and how many times slower its lines come because its rows are too
    `scattered` for a prefetcher to follow."""

    bytes: Float32Array
    in_lines: Float32Array
    conflict: Float32Array
    scattered: Float32Array


def touched(
    access: Access,
    tile: Sequence[Float32Array],
    line_bytes: int,
    pitches: Sequence[int] | None = None,
) -> Touched:
    """What `access` touches while each axis runs over `tile`.

    `pitches[d]` is the distance in bytes of two neighbours in dimension d, None where nobody knows.
    Rows at a distance with a large power of two reach only some of the sets of a cache. Counted
    within a page: above it, where a line goes is the operating system's choice.
    """
    points = tile[0].shape[0] if tile else 1
    ones = np.ones(points, np.float32)
    total, row, conflict, scattered = ones, ones, ones, ones
    inner_lines: Float32Array | None = None
    in_page = PAGE_BYTES // line_bytes
    for dim in range(len(access.strides) - 1, -1, -1):
        extent = _extent(access.strides[dim], tile)
        if extent is None:
            continue
        if dim == len(access.strides) - 1:
            row = extent
        else:  # rows that a stride leaves out are not touched
            extent = np.minimum(extent, _places(access.strides[dim], tile))
        if dim < len(access.strides) - 1 and pitches is not None and pitches[dim] % line_bytes == 0:
            apart = gcd(pitches[dim] // line_bytes, in_page)
            lines = row * np.float32(access.element_bytes / line_bytes)
            lines = np.maximum(lines if inner_lines is None else inner_lines, np.float32(1))
            crowded = np.float32(apart) / lines
            conflict = np.where(extent > 1, np.maximum(conflict, crowded), conflict)
            if pitches[dim] >= FAR_BYTES:
                slower = np.float32(SHORT_ROW_LINES) / lines
                if pitches[dim] >= PAGE_BYTES:
                    slower = 1 + NEW_PAGE_LINES / lines
                slower = np.minimum(np.maximum(slower, np.float32(1)), np.float32(SHORT_ROW_LINES))
                scattered = np.where(extent > 1, np.maximum(scattered, slower), scattered)
        total = total * extent
        inner_lines = total * np.float32(access.element_bytes / line_bytes)
    in_lines = np.maximum(np.float32(line_bytes / access.element_bytes) / row, np.float32(1))
    return Touched(total * np.float32(access.element_bytes), in_lines, conflict, scattered)


def _extent(strides: Sequence[int], tile: Sequence[Float32Array]) -> Float32Array | None:
    """(P,) how far one dimension reaches; None where nothing moves it."""
    reach: Float32Array | None = None
    for axis, stride in enumerate(strides):
        if stride:
            part = tile[axis] - np.float32(1)
            if abs(stride) != 1:
                part = part * np.float32(abs(stride))
            reach = part if reach is None else reach + part
    return None if reach is None else reach + np.float32(1)


def _places(strides: Sequence[int], tile: Sequence[Float32Array]) -> Float32Array:
    """(P,) how many places one dimension may be at: settings of the axes that move it."""
    moving = [tile[axis] for axis, stride in enumerate(strides) if stride]
    return reduce(np.multiply, moving)


def cache_traffic(
    extents: IntArray,
    loop_axes: Sequence[int],
    accesses: Sequence[Access],
    cache_bytes: Sequence[float],
    *,
    line_bytes: int = 64,
    usable: float = 0.8,
    pitches: Sequence[Sequence[int] | None] | None = None,
    packed: IntArray | None = None,
    all_cache_bytes: Sequence[float] | None = None,
) -> Traffic:
    """What `accesses` cost at every cache, for trip counts `extents` (P, L), outer to inner.

    Only the share `usable` of a cache is counted on: the rest goes to other data. `pitches` are the
    row distances of each access, see `touched`; bit a of `packed` (P,) says that access a is read
    through a dense copy, which has neither short rows nor rows in the same sets. `all_cache_bytes`
    are the sizes for the whole nest, where `cache_bytes` are those for one thread of several.
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
        dense = None if packed is None else (packed >> a) & 1 == 1
        known = pitches[a] if pitches else None
        found = _at_levels(access, walked, loop_axes, tiles, trivial, line_bytes, known)
        slid = np.full(points, np.inf, np.float32)
        for level, at in enumerate(found):
            in_lines, conflict, cost = at.in_lines, at.conflict, at.in_lines * at.scattered
            if dense is not None:
                in_lines, conflict, cost = (
                    np.where(dense, np.float32(1), x) for x in (in_lines, conflict, cost)
                )
            footprint[level] += at.bytes * np.maximum(in_lines, conflict)
            # A line stays for the next turn of the loop just outside: its unused part costs only
            # what that loop does not use either.
            wasted = cost if level == 0 else outside
            outside = cost
            if level > 0 and loop_axes[level - 1] in walked:
                # A window that slides brings what is new: all turns of the loop just outside
                # together bring what they touch together.
                union = found[level - 1].bytes * runs[level - 1]
                slid = np.where(trivial[level - 1], slid, union)
            again = runs[level] / _reused(level, walked, loop_axes, loop_major, trivial)
            brought[a, level] = np.minimum(slid, at.bytes * again) * wasted * times
    fit_level = np.full((len(cache_bytes), points), loops, np.int64)
    moved = np.empty((len(cache_bytes), len(accesses), points), np.float32)
    every = np.arange(points)
    for c, capacity in enumerate(cache_bytes):
        fits = footprint <= np.float32(capacity * usable)
        if all_cache_bytes is not None:
            fits[0] = footprint[0] <= np.float32(all_cache_bytes[c] * usable)
        fits[loops] = True
        fit_level[c] = np.argmax(fits, axis=0)
        # What fits as a whole is still there from the call before: kernels are timed warm.
        moved[c] = np.where(fit_level[c] == 0, np.float32(0), brought[:, fit_level[c], every])
    return Traffic(footprint, moved, fit_level)


def past_caches(
    traffic: Traffic, accesses: Sequence[Access], streamed_bytes: npt.NDArray[np.float64]
) -> Traffic:
    """`traffic` where the output is written past the caches: `streamed_bytes` (P,), 0 where it is
    not. Nothing is fetched to be written over, and memory takes every byte once, also one that the
    last cache would have held."""
    streams = streamed_bytes > 0
    if not streams.any():
        return traffic
    moved = traffic.moved.copy()
    for a, access in enumerate(accesses):
        if access.is_output:
            moved[:, a] = np.where(streams, np.float32(0), moved[:, a])
            moved[-1, a] += streamed_bytes.astype(np.float32)
    return Traffic(traffic.footprint, moved, traffic.fit_level)


def _at_levels(  # one call, all of it needed
    access: Access,
    walked: set[int],
    loop_axes: Sequence[int],
    tiles: Sequence[Sequence[Float32Array]],
    trivial: Sequence[npt.NDArray[np.bool_]],
    line_bytes: int,
    pitches: Sequence[int] | None,
) -> list[Touched]:
    """What `access` touches at each level, outermost first; a loop that does not move it, or has
    one trip everywhere, changes nothing and is not computed."""
    found = [touched(access, tiles[-1], line_bytes, pitches)]
    for level in range(len(loop_axes) - 1, -1, -1):
        same = loop_axes[level] not in walked or bool(trivial[level].all())
        found.append(found[-1] if same else touched(access, tiles[level], line_bytes, pitches))
    return found[::-1]


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
