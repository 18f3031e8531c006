"""Footprints of loop nests, and traffic across each cache boundary: for arrays of settings.

The model goes through the levels of a plan, outermost first. A level *fits* a cache if all the
bytes touched below it do; the outermost level that fits is where data is reused, and everything
outside of it brings the bytes in again, except loops just outside of it that the access does not
depend on. Source: the working-set argument of Wolf and Lam (PLDI 1991, doi:10.1145/113445.113449),
applied per cache level as in MOpt (ASPLOS 2021, doi:10.1145/3445814.3446759).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import BoolArray
from tilewright.schedules.hardware import LINES_TO_FOLLOW, USABLE_SHARE
from tilewright.schedules.plan import Access, Plan, reached
from tilewright.schedules.workload.tensors import Tensor

Float32Array = npt.NDArray[np.float32]
LINES_AT_ONCE = 2
"""Lines fetched together from beyond a core's second cache: a line and its neighbour. Published:
Intel, "Optimization Reference Manual" (the spatial prefetcher's pairs); AMD, "Software Optimization
Guide" (the up and down prefetcher of L2)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes for P settings, A accesses, C caches; all float32.

    `footprint` (P,): bytes touched, over all accesses, in the whole nest. `moved` (C, A, P): bytes
    that cross the boundary behind cache c for an access in one warm call, scattered ones weighted
    by their slowdown. Caches have a path for each direction, so write-backs overlap with fills;
    memory has one, and written bytes count twice there.
    """

    footprint: Float32Array
    moved: Float32Array


@dataclass(frozen=True, slots=True)
class _Loops:
    """The levels of a plan that have several iterations in some setting, and R = their number + 1.

    `axes` are those they walk; `trips` (R - 1, P) their iterations; `reach[a]` (R, P) how far the
    loops from each of them inward walk along axis a; `runs` (R, P) how often those outside run;
    `around` (R, P) the loop just outside of each that has several iterations there, 0 for none.
    """

    axes: tuple[int, ...]
    trips: Float32Array
    reach: tuple[Float32Array, ...]
    runs: Float32Array
    around: npt.NDArray[np.int64]


def _loops(plan: Plan) -> _Loops:
    """See `_Loops`. No loop reaches further than its axis goes, or the loop around it lets it."""
    trips = plan.trips.T
    kept = np.flatnonzero((trips > 1).any(axis=1)).tolist()
    left = [np.full(plan.num_settings, axis.extent, np.float32) for axis in plan.outline.axes]
    reach = np.empty((len(left), len(kept) + 1, plan.num_settings), np.float32)
    reach[:, 0] = left
    for n, number in enumerate(kept):
        level = plan.levels[number]
        reach[:, n + 1] = reach[:, n]
        reach[level.axis, n + 1] = np.minimum(reach[level.axis, n], plan.steps[number])
    running = trips[kept].astype(np.float32)
    runs = np.ones((len(kept) + 1, plan.num_settings), np.float32)
    np.cumprod(running, axis=0, out=runs[1:])
    axes = tuple(plan.levels[number].axis for number in kept)
    around = np.maximum(_last(running > 1) - 1, 0)
    return _Loops(axes, running, tuple(reach), runs, around)


@dataclass(frozen=True, slots=True)
class Touched:
    """Arrays like those of `reach`: `bytes` that an access touches, `row_bytes` of them contiguous,
    and the slowdown of `scattered` rows: a prefetcher has to find each of them."""

    bytes: Float32Array
    row_bytes: Float32Array
    scattered: Float32Array

    def in_pieces(self, piece_bytes: int) -> Float32Array:
        """How many times more that is in pieces of so many bytes, of which a shorter row takes
        one."""
        return np.asarray(np.maximum(np.float32(piece_bytes) / self.row_bytes, np.float32(1)))


def touched(
    access: Access,
    reach: Sequence[Float32Array],
    line_bytes: int,
    shape: Sequence[int] | None = None,
) -> Touched:
    """What `access` touches while each axis runs over its `reach`.

    `shape` is the tensor's, None if unknown: nothing outside of it is touched.
    """
    size = access.element_bytes
    one = np.ones_like(reach[0]) if len(reach) else np.ones(1, np.float32)
    total, row, scattered = one, one, one
    whole = np.full_like(one, shape is not None, np.bool_)
    inner_lines: Float32Array | None = None
    last = len(access.strides) - 1
    for dim in range(last, -1, -1):
        if not any(access.strides[dim]):
            whole = whole & (shape is None or shape[dim] == 1)
            continue
        extent = reached(access.strides[dim], reach, walked=dim != last)
        if shape is not None:
            extent = np.minimum(extent, np.float32(shape[dim]))
        # Whole rows follow one another without a gap.
        row = extent if dim == last else np.where(whole, row * extent, row)
        pitch = 1 if shape is None or dim == last else prod(shape[dim + 1 :]) * size
        if pitch % line_bytes == 0:
            lines = row * np.float32(size / line_bytes) if inner_lines is None else inner_lines
            # The lines that a prefetcher waits for come late, once a run.
            slower = 1 + np.float32(LINES_TO_FOLLOW - 1) / np.maximum(lines, np.float32(1))
            apart = (extent > 1) & ~whole
            scattered = np.where(apart, np.maximum(scattered, slower), scattered)
        whole = whole & (shape is None or extent >= shape[dim])
        total = total * extent
        inner_lines = total * np.float32(size / line_bytes)
    row_bytes = np.maximum(row * np.float32(size), np.float32(1))  # of nothing, too
    return Touched(total * np.float32(size), row_bytes, scattered)


def cache_traffic(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    cache_bytes: Sequence[float],
    *,
    line_bytes: int,
    all_cache_bytes: Sequence[float] | None = None,
    streamed_bytes: npt.NDArray[Any] | float = 0.0,
) -> Traffic:
    """Traffic of the accesses of `plan` at every cache, `tensors` being those of its workload,
    where `streamed_bytes`, (P,) or the same for all, are stored past the caches.

    Reads of a dense copy have no short rows. The first cache fetches single lines, those behind it
    `LINES_AT_ONCE`. `all_cache_bytes` are the sizes for the whole nest, `cache_bytes` those for one
    of several threads.
    """
    loops = _loops(plan)
    footprint = np.zeros_like(loops.runs)
    fetched = (line_bytes, line_bytes * LINES_AT_ONCE)
    every = np.arange(plan.num_settings)
    brought = np.empty((len(fetched), len(plan.accesses), *loops.runs.shape), np.float32)
    for number, access in enumerate(plan.accesses):
        tensor = tensors.get(access.buffer)
        known = tensor and len(tensor.shape) == len(access.strides)
        shape = tensor.shape if tensor and known else None
        # Loops that have it in the same place in each iteration, and what others reach.
        fixed = int((plan.trips[:, : access.private_levels] > 1).any(axis=0).sum())
        reach = [one[np.arange(len(one)).clip(fixed)] for one in loops.reach if fixed]
        found = touched(access, reach or loops.reach, line_bytes, shape)
        dense = np.asarray((plan.dense_mask >> number) & 1 == 1)
        footprint += found.bytes * np.where(dense, np.float32(1), found.in_pieces(line_bytes))
        came = _brought(loops, access, found.bytes, fixed)
        for n, piece_bytes in enumerate(fetched):
            cost = found.in_pieces(piece_bytes) * found.scattered
            # A line stays for the next turn of the loop just outside: its unused part costs only
            # what that loop does not use either.
            wasted = cost[loops.around, every]
            brought[n, number] = came * np.where(dense, np.float32(1), wasted)
    moved = np.empty((len(cache_bytes), len(plan.accesses), plan.num_settings), np.float32)
    for c, capacity in enumerate(cache_bytes):
        fits = footprint <= np.float32(capacity * USABLE_SHARE)
        if all_cache_bytes is not None:
            fits[0] = footprint[0] <= np.float32(all_cache_bytes[c] * USABLE_SHARE)
        fits[-1] = True
        fit = np.argmax(fits, axis=0)  # the outermost loop from which on all fits
        # What fits as a whole is still there from the call before: kernels are timed warm.
        at = brought[min(c, 1)][:, fit, every]
        moved[c] = np.where(fit == 0, np.float32(0), at)
    written = [access.is_output for access in plan.accesses]
    moved[-1, written] *= np.float32(2)  # fetched to be written over, and written back
    # What goes past the caches is not fetched; a last cache that would have held it gives it up.
    moved[:, written] *= np.asarray(streamed_bytes) == 0
    of_each = streamed_bytes / max(sum(written), 1)  # outputs are added up in the end
    moved[-1, written] += of_each * np.where(fit == 0, np.float32(2), np.float32(1))
    return Traffic(footprint[0], moved)


def _brought(
    loops: _Loops, access: Access, touched_bytes: Float32Array, fixed: int
) -> Float32Array:
    """(R, P) bytes that come into a cache which holds what the loops from each level inward touch;
    the access does not depend on the first `fixed` of them."""
    walked = [any(strides[axis] for strides in access.strides) for axis in loops.axes]
    moves = (loops.trips > 1) & np.asarray(walked, np.bool_)[:, None]
    moves[:fixed] = False
    # Loops just outside that do not move it find it in the cache again.
    last = _last(moves)
    every = np.arange(last.shape[1])
    again = loops.runs[last, every]
    # A window that slides brings what is new: all turns of the loop just outside together bring
    # what they touch together.
    union = (touched_bytes * loops.runs)[np.maximum(last - 1, 0), every]
    slid = np.where(last > 0, union, touched_bytes)
    return np.asarray(np.minimum(slid, touched_bytes * again))


def _last(holds: BoolArray) -> npt.NDArray[np.int64]:
    """(R, P) for each level, how many loops there are down to the last outside of it that
    `holds` (R - 1, P); 0 where there is none."""
    places = np.where(holds, np.arange(1, len(holds) + 1)[:, None], 0)
    found = np.zeros((len(holds) + 1, holds.shape[1]), np.int64)
    np.maximum.accumulate(places, axis=0, out=found[1:])
    return found
