"""The table of functions of two floats, with one row per function; see `functions.py`.

Their generated code is in `tuner/codegen/mathlib.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .scalar_function import POLYNOMIAL_SLOTS, Array, Ends, Numpy


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryFunction:
    """A function z = f(x, y) of floats."""

    summary: str
    values: Callable[[Numpy, Array, Array], Array]
    """Function of (np, x, y) that returns f(x, y) for arrays or scalars, in their type."""
    image: Callable[[Ends, Ends], Ends]
    """Function of the ranges of x and y that returns the least and the greatest value of f."""
    defined: Callable[[Ends, Ends], bool]
    """Function of the ranges of x and y that returns whether f is finite there, except where it
    overflows."""
    change: Callable[[Numpy, Array, Array, Array, Array, Array], Array]
    """Function of (np, x, y, z, ex, ey) that returns an upper bound of the change of z if x and y
    change by up to `ex` and `ey`, 0 where both are 0."""
    reads_zero_sign: Callable[[Numpy, Array, Array], Array]
    """Function of (np, x, y) that returns a mask of the values that depend on the sign of a
    zero."""
    stated_ulps: tuple[float, float]
    """The guaranteed errors of kernels in f32 and f64, in units of the last place of the exact
    result."""
    allowed_ulps: float = 4.0
    """The error that the error bound assumes for every type, in the same unit."""
    special: tuple[tuple[float, float, float], ...]
    """Triples (x, y, f(x, y)) at zeros, at infinities and outside the domain."""
    slots: int
    """The least number of multiply-add operations per lane."""
    calls: int
    """The time of f divided by the time of a polynomial such as exp."""
    numpy: str
    """The name of NumPy's ufunc for f."""


def _power(x: float, y: float) -> float:
    """Return IEEE 754's pow of floats."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x == 0 and y < 0:
            return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
        return math.nan


def _is_whole(ends: Ends) -> bool:
    return ends[0] == ends[1] and math.isfinite(ends[0]) and float(ends[0]).is_integer()


def _power_image(x: Ends, y: Ends) -> Ends:
    if x[0] < 0 and not _is_whole(y):
        return -math.inf, math.inf
    corners = [_power(a, b) for a in x for b in y]
    if any(math.isnan(c) for c in corners):
        return -math.inf, math.inf
    if x[0] <= 0 <= x[1] and y[1] > 0:
        corners.append(0.0)
    if x[0] <= 0 <= x[1] and y[0] < 0:
        return -math.inf, math.inf
    if x[0] <= 1 <= x[1] or y[0] <= 0 <= y[1]:
        corners.append(1.0)
    return min(corners), max(corners)


def _power_defined(x: Ends, y: Ends) -> bool:
    if x[0] <= 0 <= x[1] and y[0] < 0:
        return False
    return x[0] >= 0 or _is_whole(y)


def _power_change(np: Numpy, x: Array, y: Array, z: Array, ex: Array, ey: Array) -> Array:
    """Return the change to the corners of the intervals of x and y: for positive x, f is monotone
    in each of them. So it is for a negative x and an integer y that is exact."""
    low, high = x - ex, x + ex
    corners = [np.power(a, b) for a in (low, high) for b in (y - ey, y + ey)]
    found = np.zeros(np.broadcast(x, y).shape)
    for corner in corners:
        found = np.maximum(found, np.where(corner == z, 0.0, np.abs(corner - z)))
    whole = (ey == 0) & (y == np.rint(y)) & (high < 0)
    known = (low > 0) | whole | ((ex == 0) & (ey == 0))
    changed: Array = np.where(known, found, np.inf)
    return changed


def _is_odd(np: Numpy, y: Array) -> Array:
    found: Array = np.abs(np.fmod(y, 2.0)) == 1
    return found


def _angle_image(y: Ends, x: Ends) -> Ends:
    if x[0] <= 0 and y[0] <= 0 <= y[1]:
        return -math.pi, math.pi
    corners = [math.atan2(b, a) for b in y for a in x]
    if x[0] <= 0 <= x[1]:
        corners += [math.atan2(b, 0.0) for b in y]
    if y[0] <= 0 <= y[1]:
        corners.append(0.0)
    return min(corners), max(corners)


def _angle_change(np: Numpy, y: Array, x: Array, z: Array, ey: Array, ex: Array) -> Array:
    """Return the angle under which the error is seen from the origin, at most pi / 2 times their
    ratio; 2 pi where the origin or the negative x axis may be passed."""
    moved, away = np.hypot(ex, ey), np.hypot(x, y)
    passes = (x <= ex) & (np.abs(y) <= ey) | ~(moved < away)
    angle = np.pi / 2 * moved / np.where(away > 0, away, 1.0)
    changed: Array = np.where((ex == 0) & (ey == 0), 0.0, np.where(passes, 2 * np.pi, angle))
    return changed


_INF, _NAN, _PI = math.inf, math.nan, math.pi
BINARY_FUNCTIONS: dict[str, BinaryFunction] = {
    "pow": BinaryFunction(
        summary="`x` to the power of `y`, with the special values of IEEE 754.",
        values=lambda np, x, y: np.power(x, y),
        image=_power_image,
        defined=_power_defined,
        change=_power_change,
        reads_zero_sign=lambda np, x, y: (x == 0) & (y < 0) & _is_odd(np, y),
        stated_ulps=(0.6, 2.0),
        special=(
            (_NAN, 0.0, 1.0), (0.0, 0.0, 1.0), (_INF, -0.0, 1.0), (1.0, _NAN, 1.0),
            (1.0, _INF, 1.0), (-1.0, _INF, 1.0), (-1.0, -_INF, 1.0), (_NAN, 2.0, _NAN),
            (2.0, _NAN, _NAN), (-1.0, _NAN, _NAN), (-2.0, 0.5, _NAN), (-1e-30, -1.5, _NAN),
            (0.0, 0.5, 0.0), (-0.0, 0.5, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0),
            (0.0, -0.5, _INF), (-0.0, -3.0, -_INF), (-0.0, -2.0, _INF), (0.0, _INF, 0.0),
            (0.0, -_INF, _INF), (_INF, 0.5, _INF), (_INF, -0.5, 0.0), (-_INF, 3.0, -_INF),
            (-_INF, 2.0, _INF), (-_INF, 0.5, _INF), (-_INF, -3.0, -0.0), (-_INF, -2.0, 0.0),
            (-_INF, -0.5, 0.0), (2.0, _INF, _INF), (2.0, -_INF, 0.0), (0.5, _INF, 0.0),
            (0.5, -_INF, _INF), (-2.0, _INF, _INF), (-0.5, _INF, 0.0), (-2.0, 3.0, -8.0),
            (-2.0, 2.0, 4.0), (2.0, 10.0, 1024.0), (10.0, 400.0, _INF), (10.0, -400.0, 0.0),
            (-10.0, 401.0, -_INF), (-10.0, -401.0, -0.0), (_INF, _INF, _INF), (_INF, -_INF, 0.0),
        ),
        slots=2 * POLYNOMIAL_SLOTS,
        calls=6,
        numpy="power",
    ),
    "atan2": BinaryFunction(
        summary="The angle of the point (`y`, `x`) to the x axis, from -pi to pi: `y` comes first.",
        values=lambda np, y, x: np.arctan2(y, x),
        image=_angle_image,
        defined=lambda y, x: True,
        change=_angle_change,
        reads_zero_sign=lambda np, y, x: (y == 0) & (x <= 0),
        stated_ulps=(2.5, 2.5),
        special=(
            (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (0.0, -0.0, _PI), (-0.0, -0.0, -_PI),
            (0.0, 2.0, 0.0), (-0.0, 2.0, -0.0), (0.0, -2.0, _PI), (-0.0, -2.0, -_PI),
            (2.0, 0.0, _PI / 2), (-2.0, -0.0, -_PI / 2), (_INF, _INF, _PI / 4),
            (-_INF, _INF, -_PI / 4), (_INF, -_INF, 3 * _PI / 4), (-_INF, -_INF, -3 * _PI / 4),
            (1.0, _INF, 0.0), (-1.0, _INF, -0.0), (1.0, -_INF, _PI), (_INF, 1.0, _PI / 2),
            (-_INF, -1e30, -_PI / 2), (_NAN, 1.0, _NAN), (1.0, _NAN, _NAN), (_NAN, _INF, _NAN),
            (_INF, _NAN, _NAN), (_NAN, 0.0, _NAN), (0.0, _NAN, _NAN),
        ),
        slots=POLYNOMIAL_SLOTS,
        calls=3,
        numpy="arctan2",
    ),
}  # fmt: skip
