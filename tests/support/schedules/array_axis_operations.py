"""Random operations along one axis of an array of numbers, each with the same operation in NumPy.

An operation takes the array, its value in NumPy and the axis, counted from 0. It returns both
results, or None if it does not suit the array.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tilewright as tw

Array = npt.NDArray[Any]
Both = tuple[Any, Array]
"""An array and its value in NumPy."""

_DIVISORS = (2.0, 0.5, 3.0, 7.3, 1.515625, 1.7, 11.0)
"""Divisors, by most of which quotients are rounded."""


def running_extreme(rng: random.Random, ours: Any, theirs: Array, axis: int) -> Both | None:
    scan, extreme = rng.choice(((tw.cummax, np.maximum), (tw.cummin, np.minimum)))
    reverse, exclusive = rng.random() < 0.4, rng.random() < 0.3
    turned = np.flip(theirs, axis) if reverse else theirs
    found = extreme.accumulate(turned, axis)
    found = np.flip(found, axis) if reverse else found
    ours = scan(ours, axis, reverse=reverse, exclusive=exclusive)
    if not exclusive:
        return ours, found
    if found.shape[axis] == 1:
        return None
    # Without the first result, the identity, which further sums cannot represent.
    rest = slice(None, -1) if reverse else slice(1, None)
    others = slice(1, None) if reverse else slice(None, -1)
    return ours[_at(axis, rest)], found[_at(axis, others)]


def extreme_with_position(rng: random.Random, ours: Any, theirs: Array, axis: int) -> Both:
    """The position of an extreme by a reduction of pairs, or the element of another array there."""
    greatest, last = rng.random() < 0.5, rng.random() < 0.4
    extent = theirs.shape[axis]
    numbers = np.arange(extent, dtype=np.int32)
    k = _numbers_along(rng, ours, axis, extent)

    def better(a: Any, b: Any) -> Any:
        first, second = (b, a) if greatest else (a, b)
        wins = first[0] >= second[0] if last else first[0] > second[0]
        extreme = tw.maximum if greatest else tw.minimum
        return extreme(a[0], b[0]), tw.select(wins, b[1], a[1])

    if theirs.dtype.kind == "f" and rng.random() < 0.5:
        by, divisor = _divisor(rng, ours, theirs, axis)
        ours, theirs = ours / by, theirs / divisor
    worst = -(2**31) if greatest else 2**31 - 1
    identity = (float("-inf" if greatest else "inf") if theirs.dtype.kind == "f" else worst, 0)
    at = tw.reduce_tuple((ours, k), identity, better, axis=axis)[1]
    turned = np.flip(theirs, axis) if last else theirs
    found = (np.argmax if greatest else np.argmin)(turned, axis)
    position = np.asarray(numbers[::-1][found] if last else found, np.int32)
    if rng.random() < 0.5 or theirs.dtype.kind == "f":
        return at, position  # rounded elements are no operands of exact operations
    kept = at[_at(axis, None)]  # a new dimension
    return (
        tw.take_along_axis(ours, kept, axis),
        np.take_along_axis(theirs, np.expand_dims(position, axis), axis),
    )


def ordered_tuples(rng: random.Random, ours: Any, theirs: Array, axis: int) -> Both:
    """The least running sum and the whole sum, whose combination is not commutative."""

    def joined(a: Any, b: Any) -> Any:
        return tw.minimum(a[0], a[1] + b[0]), a[1] + b[1]

    component = rng.randrange(2)
    found = tw.reduce_tuple((tw.minimum(ours, 0), ours), (0, 0), joined, axis=axis)[component]
    sums = np.cumsum(theirs, axis, dtype=theirs.dtype)
    if component:
        return found, np.asarray(sums.take(-1, axis))
    return found, np.asarray(np.minimum(sums.min(axis), 0), theirs.dtype)


def position_of_quotient(rng: random.Random, ours: Any, theirs: Array, axis: int) -> Both | None:
    """The position of the extreme of quotients, many of which are equal: of the elements or of an
    increasing function of them."""
    if theirs.dtype.kind != "f":
        return None
    name = rng.choice(("argmax", "argmin"))
    by, divisor = _divisor(rng, ours, theirs, axis)
    if rng.random() < 0.5:  # rounded in another way than in NumPy, but equal where elements are
        found = getattr(np, name)(np.clip(theirs, -8, 8), axis=axis)
        ours = tw.exp(tw.minimum(tw.maximum(ours, -8.0), 8.0))
    else:
        found = getattr(np, name)(theirs / divisor, axis=axis)
    return getattr(ours / by, name)(axis), np.asarray(found, np.int32)


def _divisor(rng: random.Random, ours: Any, theirs: Array, axis: int) -> tuple[Any, Any]:
    """Return a number that divides most numbers with a rounding: a constant, or one that is
    computed for each row along `axis` or for all of them."""
    number = rng.choice(_DIVISORS)
    if rng.random() < 0.25:
        return number, np.float32(number)
    over = rng.choice((axis, None, None))
    by = tw.abs(ours).max(over, keepdims=True) + number
    return by, np.abs(theirs).max(over, keepdims=True) + np.float32(number)


def wide_pad(rng: random.Random, ours: Any, theirs: Array, axis: int) -> Both:
    """More elements than the array has, of its own elements."""
    mode: Any = rng.choice(("edge", "reflect"))
    most = 2 * theirs.shape[axis] + 1
    widths = [(0, 0)] * theirs.ndim
    widths[axis] = (rng.randint(0, most), rng.randint(0, most))
    return tw.pad(ours, widths, mode), np.pad(theirs, widths, mode)


def interpolated(rng: random.Random, ours: Any, theirs: Array, axis: int) -> Both:
    """The nearest elements at any scale, or linear interpolation at one whose shares are exact."""
    old = theirs.shape[axis]
    if theirs.dtype.kind == "f" and old & (old - 1) == 0 and rng.random() < 0.5:
        new = old * rng.choice((2, 4))
        centre = (np.arange(new) + 0.5) * (old / new) - 0.5
        low = np.clip(np.floor(centre), 0, old - 1).astype(int)
        share = np.clip(centre, 0, old - 1) - low
        shape = [1] * theirs.ndim
        shape[axis] = new
        first, second = (theirs.take(np.minimum(low + n, old - 1), axis) for n in (0, 1))
        found = first + share.reshape(shape) * (second - first)
        # The shares are multiples of 1/8.
        return tw.resize(ours, new, axis, mode="linear") * 8.0, (found * 8).astype(theirs.dtype)
    new = rng.randint(1, 2 * old + 3)
    return tw.resize(ours, new, axis), theirs.take(np.arange(new) * old // new, axis)


def dilated_windows(rng: random.Random, ours: Any, theirs: Array, axis: int) -> Both | None:
    """Running sums, extremes or positions in windows with gaps."""
    size, gap, step = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 3)
    span = gap * (size - 1) + 1
    if span > theirs.shape[axis] or theirs.ndim > 6:
        return None
    views = np.lib.stride_tricks.sliding_window_view(theirs, span, axis)
    views = views[_at(axis, slice(None, None, step))][..., ::gap]
    taps = tw.windows(ours, size, axis, stride=step, dilation=gap)
    match rng.randrange(4):
        case 0:
            return taps.cumsum(-1), np.cumsum(views, -1, dtype=theirs.dtype)
        case 1:
            return taps.argmin(-1), np.asarray(views.argmin(-1), np.int32)
        case 2:
            return tw.cummax(taps, axis), np.maximum.accumulate(views, axis)
        case _:
            return taps.min(-1), views.min(-1)


def _at(axis: int, key: slice | None) -> tuple[slice | None, ...]:
    return (*(slice(None),) * axis, key)


def _numbers_along(rng: random.Random, x: Any, axis: int, extent: int) -> Any:
    """Return the numbers of the positions of `x` along `axis`, as an array that broadcasts to
    it."""
    name = f"at{rng.getrandbits(40)}"
    numbers = tw.compute(name, (extent,), lambda k: tw.cast(k, "i32"))
    return numbers[(slice(None), *(None,) * (x.ndim - 1 - axis))]


AXIS_OPERATIONS: tuple[Callable[[random.Random, Any, Array, int], Both | None], ...] = (
    running_extreme,
    extreme_with_position,
    ordered_tuples,
    position_of_quotient,
    wide_pad,
    interpolated,
    dilated_windows,
)

QUOTIENTS = (position_of_quotient, extreme_with_position)
