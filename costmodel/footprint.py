"""Bytes that a loop nest touches and bytes that cross each cache boundary, for arrays of settings.

The model iterates over the levels of a plan from the outermost to the innermost. A level *fits* a
cache if the cache can hold all bytes touched within one iteration of the loops outside that level.
Data is reused within the outermost level that fits. Every iteration of a loop outside it loads the
bytes again, except that loops directly outside it that do not move an access reuse the bytes of
that access. Source: the working-set argument of Wolf and Lam (PLDI 1991,
doi:10.1145/113445.113449), applied per cache level as in MOpt (ASPLOS 2021,
doi:10.1145/3445814.3446759).
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
from tilewright.schedules.plan import Access, Plan
from tilewright.schedules.workload.tensors import Tensor

Float32Array = npt.NDArray[np.float32]
LINES_AT_ONCE = 2
"""Lines that are fetched together from behind a core's second cache: a line and its neighbour.
Published: Intel, "Optimization Reference Manual" (the spatial prefetcher's pairs); AMD, "Software
Optimization Guide" (the up and down prefetcher of L2)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes touched and moved for P settings, A accesses and C caches; all arrays are float32.

    `footprint` (P,): bytes touched by the whole nest, summed over all accesses.

    `moved` (C, A, P): bytes of an access that cross the boundary behind cache c in one call of a
    kernel that is called repeatedly. Bytes of scattered rows are multiplied by their slowdown.
    Caches transfer reads and writes concurrently, so a written byte counts once; memory does not,
    so a written byte counts twice there.
    """

    footprint: Float32Array
    moved: Float32Array


@dataclass(frozen=True, slots=True)
class _Loops:
    """The R - 1 levels of a plan that have several iterations in at least one setting. Row 0 of an
    array with R rows describes the whole nest, row r + 1 the part inside level r.

    `axes`: the axis of each level. `trips` (R - 1, P): trip counts. `reach[a]` (R, P): elements of
    axis a covered by that part of the nest. `runs` (R, P): executions of that part per call.
    `around` (R, P): row of the body of the innermost loop outside it with several iterations in the
    setting, minus one; 0 if there is no such loop.
    """

    axes: tuple[int, ...]
    trips: Float32Array
    reach: tuple[Float32Array, ...]
    runs: Float32Array
    around: npt.NDArray[np.int64]


def _loops(plan: Plan) -> _Loops:
    """Return the `_Loops` of a plan. The reach of a loop is clamped to the extent of its axis and
    to the reach of the loop around it."""
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
    """Bytes that an access touches, as arrays of the shape of `reach`. `bytes`: all bytes.
    `row_bytes`: bytes of one contiguous row. `scattered`: slowdown factor because the hardware
    prefetcher has to detect each separate row anew. `straddled_bytes`: what a row may occupy of a
    line before or after itself, because rows start anywhere in a line; 0 if they start at lines."""

    bytes: Float32Array
    row_bytes: Float32Array
    scattered: Float32Array
    straddled_bytes: Float32Array

    def in_pieces(self, piece_bytes: int) -> Float32Array:
        """Return the overfetch factor if every row is fetched in units of `piece_bytes`: a shorter
        row costs one unit."""
        return pieces(self.row_bytes, self.straddled_bytes, np.float32(piece_bytes))


def pieces(
    row_bytes: Float32Array, straddled: Float32Array, piece_bytes: Float32Array | np.float32
) -> Float32Array:
    """Return the bytes of the pieces of `piece_bytes` that a row of `row_bytes` touches on average,
    relative to the row. `straddled` is `Touched.straddled_bytes`."""
    whole = np.maximum(piece_bytes / row_bytes, np.float32(1))
    anywhere = 1 + np.minimum(straddled, piece_bytes) / row_bytes
    return np.asarray(np.maximum(whole, anywhere))


def touched(
    access: Access,
    reach: Sequence[Float32Array],
    line_bytes: int,
    shape: Sequence[int] | None = None,
) -> Touched:
    """Return the bytes that `access` touches while each axis covers its `reach`.

    `shape` is the shape of the tensor, or None if it is unknown. With a shape, extents are clamped
    to it.
    """
    size = access.element_bytes
    one = np.ones_like(reach[0]) if len(reach) else np.ones(1, np.float32)
    total, row, scattered = one, one, one
    whole = np.full_like(one, shape is not None, np.bool_)
    inner_lines: Float32Array | None = None
    straddled = np.zeros_like(one)
    last = len(access.strides) - 1
    for dim in range(last, -1, -1):
        if not any(access.strides[dim]):
            whole = whole & (shape is None or shape[dim] == 1)
            continue
        extent = access.reached(dim, reach, walked=dim != last)
        if shape is not None:
            extent = np.minimum(extent, np.float32(shape[dim]))
        # Rows that cover their whole dimension are contiguous with each other.
        row = extent if dim == last else np.where(whole, row * extent, row)
        first = np.float32(line_bytes - size)
        pitch = 1 if shape is None or dim == last else prod(shape[dim + 1 :]) * size
        if pitch % line_bytes == 0:
            lines = row * np.float32(size / line_bytes) if inner_lines is None else inner_lines
            # The first lines of a row arrive late because the prefetcher has not detected the row
            # yet.
            slower = 1 + np.float32(LINES_TO_FOLLOW - 1) / np.maximum(lines, np.float32(1))
            apart = (extent > 1) & ~whole
            scattered = np.where(apart, np.maximum(scattered, slower), scattered)
        elif dim != last and shape is not None:
            straddled = np.where((extent > 1) & ~whole, first, straddled)
        whole = whole & (shape is None or extent >= shape[dim])
        total = total * extent
        inner_lines = total * np.float32(size / line_bytes)
    row_bytes = np.maximum(row * np.float32(size), np.float32(1))  # also if nothing is read
    return Touched(total * np.float32(size), row_bytes, scattered, straddled)


def cache_traffic(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    cache_bytes: Sequence[float],
    *,
    line_bytes: int,
    all_cache_bytes: Sequence[float] | None = None,
    streamed_bytes: npt.NDArray[Any] | float = 0.0,
    threads: int = 1,
) -> Traffic:
    """Return footprint and traffic of the accesses of `plan` at every cache. `tensors` are the
    tensors of the plan's workload. `streamed_bytes`, (P,) or a scalar, are written with
    non-temporal stores.

    Operands read through a dense copy have no overfetch. The first cache fetches single lines, the
    caches behind it `LINES_AT_ONCE` lines. If `cache_bytes` are the sizes available to one of
    several `threads`, `all_cache_bytes` are the sizes available to the whole nest; they differ for
    shared caches.
    """
    loops = _loops(plan)
    footprint, own = np.zeros_like(loops.runs), np.zeros_like(loops.runs[0])
    accesses = []
    for number, access in enumerate(plan.accesses):
        tensor = tensors.get(access.buffer)
        known = tensor and len(tensor.shape) == len(access.strides)
        shape = tensor.shape if tensor and known else None
        # Loops over private storage do not move the access: the reach starts inside them.
        fixed = int((plan.trips[:, : access.private_levels] > 1).any(axis=0).sum())
        reach = [one[np.arange(len(one)).clip(fixed)] for one in loops.reach if fixed]
        found = touched(access, reach or loops.reach, line_bytes, shape)
        dense = np.asarray((plan.dense_mask >> number) & 1 == 1)
        filled = found.bytes * np.where(dense, np.float32(1), found.in_pieces(line_bytes))
        footprint += filled
        own += filled[0] / np.where(_is_divided(plan, access), np.float32(threads), np.float32(1))
        accesses.append((access, found, dense, fixed))
    fit = _outermost_fitting(footprint, cache_bytes)
    # Kernels are timed warm: a footprint that fits as a whole is still cached from the previous
    # call. A private cache holds only what its thread touches.
    lost = np.empty(fit.shape, np.float32)
    for c, capacity in enumerate(cache_bytes):
        whole = capacity if all_cache_bytes is None else all_cache_bytes[c]
        warm = own if whole == capacity else footprint[0]
        # A private cache loses gradually what does not fit. Data that is traversed in turn evicts
        # itself from the last cache as soon as it exceeds it.
        is_last = c == len(cache_bytes) - 1
        width = np.float32(1 / USABLE_SHARE - 1 if is_last else 1)
        lost[c] = np.clip((warm / np.float32(whole * USABLE_SHARE) - 1) / width, 0, 1)
    every = np.arange(plan.num_settings)
    around = loops.around[fit, every]
    fetched = np.full((len(cache_bytes), 1), line_bytes * LINES_AT_ONCE, np.float32)
    fetched[0] = line_bytes
    moved = np.empty((len(cache_bytes), len(plan.accesses), plan.num_settings), np.float32)
    for number, (access, found, dense, fixed) in enumerate(accesses):
        came = _brought(loops, access, found.bytes, fixed, fit)
        # A line stays in the cache for the next iteration of the loop directly outside, so only the
        # bytes that this loop does not use either are overfetch.
        rows = found.row_bytes[around, every], found.straddled_bytes[around, every]
        wasted = pieces(*rows, fetched) * found.scattered[around, every]
        moved[:, number] = came * np.where(dense, np.float32(1), wasted) * lost
    written = [access.is_output for access in plan.accesses]
    moved[-1, written] *= np.float32(2)  # write allocation and write-back
    # Non-temporal stores do not fetch their lines. A last cache that would have held the output
    # does not hold it then, so its bytes count twice.
    moved[:, written] *= np.asarray(streamed_bytes) == 0
    is_kept = (lost[-1] == 0) | (fit[-1] == 0)
    of_each = streamed_bytes / max(sum(written), 1)  # all outputs are summed later
    moved[-1, written] += of_each * np.where(is_kept, np.float32(2), np.float32(1))
    return Traffic(footprint[0], moved)


def _outermost_fitting(
    footprint: Float32Array, cache_bytes: Sequence[float]
) -> npt.NDArray[np.int64]:
    """Return the outermost row of `footprint` (R, P) inside the whole nest, row 0, that each cache
    can hold, or the last row, shape (C, P)."""
    fit = np.empty((len(cache_bytes), footprint.shape[1]), np.int64)
    for c, capacity in enumerate(cache_bytes):
        fits = footprint <= np.float32(capacity * USABLE_SHARE)
        fits[0], fits[-1] = False, True
        fit[c] = np.argmax(fits, axis=0)
    return fit


def _brought(
    loops: _Loops,
    access: Access,
    touched_bytes: Float32Array,
    fixed: int,
    rows: npt.NDArray[np.int64],
) -> Float32Array:
    """Return the bytes loaded into a cache that holds the data touched inside the level of each of
    `rows` (C, P), shape (C, P). The first `fixed` loops do not move the access."""
    walked = [any(strides[axis] for strides in access.strides) for axis in loops.axes]
    moves = (loops.trips > 1) & np.asarray(walked, np.bool_)[:, None]
    moves[:fixed] = False
    every = np.arange(rows.shape[1])
    # Loops directly outside that do not move the access reuse the cached bytes.
    last = _last(moves)[rows, every]
    inside = touched_bytes[rows, every]
    again = loops.runs[last, every]
    # A sliding window loads only new elements: all iterations of the loop directly outside together
    # load the union of their elements.
    outer = np.maximum(last - 1, 0)
    union = touched_bytes[outer, every] * loops.runs[outer, every]
    slid = np.where(last > 0, union, inside)
    return np.asarray(np.minimum(slid, inside * again))


def _is_divided(plan: Plan, access: Access) -> BoolArray:
    """Return whether threads divide the bytes of an access, shape (P,)."""
    found = np.zeros(plan.num_settings, np.bool_)
    for level, trips in zip(plan.levels, plan.trips.T, strict=True):
        if any(strides[level.axis] for strides in access.strides):
            found |= np.asarray(level.is_parallel) & (trips > 1)
    return found


def _last(holds: BoolArray) -> npt.NDArray[np.int64]:
    """Return, for each row and setting, the one-based number of the innermost level outside it for
    which `holds` (R - 1, P) is true, or 0 if there is none. Shape (R, P)."""
    places = np.where(holds, np.arange(1, len(holds) + 1)[:, None], 0)
    found = np.zeros((len(holds) + 1, holds.shape[1]), np.int64)
    np.maximum.accumulate(places, axis=0, out=found[1:])
    return found
