"""The rows of the trigonometric and hyperbolic functions and of their inverses."""

from __future__ import annotations

import math
from collections.abc import Callable

from .scalar_function import (
    POLYNOMIAL_SLOTS,
    SATURATED,
    Array,
    Ends,
    Numpy,
    ScalarFunction,
    by_slope,
    falling,
    rising,
)

_INF, _NAN = math.inf, math.nan


def _wave_image(wave: Callable[[float], float], maximum: float) -> Callable[[float, float], Ends]:
    """Return the field `image` of sin or cos, which has a maximum at `maximum`. An end is 1 or -1
    if a maximum or minimum may be in the interval."""
    return lambda low, high: _ends_of_wave(wave, maximum, low, high)


def _ends_of_wave(wave: Callable[[float], float], maximum: float, low: float, high: float) -> Ends:
    if not (max(abs(low), abs(high)) <= 2.0**20 and high - low < math.tau):
        return -1.0, 1.0

    def is_passed(at: float) -> bool:
        """Return whether `at` plus a multiple of the period is in the interval, with a tolerance
        for rounding."""
        last = math.floor((high - at) / math.tau + 1e-9)
        return last >= (low - at) / math.tau - 1e-9

    ends = sorted((wave(low), wave(high)))
    peak, trough = is_passed(maximum), is_passed(maximum - math.pi)
    return (-1.0 if trough else ends[0]), (1.0 if peak else ends[1])


def _wave_change(np: Numpy, x: Array, y: Array, error: Array) -> Array:
    """Return the smaller of the error and 2, because the slopes of sin and cos are at most 1 and
    their range is -1..1."""
    found: Array = np.where(np.isfinite(error), np.minimum(error, 2.0), error)
    return found


_MOST_TANGENT = 2.0**62
"""Beyond the tangents of all f64 numbers."""


def _passes_pole(low: float, high: float) -> bool:
    """Return whether tan may have a pole in the interval."""
    if not max(abs(low), abs(high)) <= 2.0**20:
        return True
    margin = 1e-9
    return math.floor(low / math.pi + 0.5 - margin) != math.floor(high / math.pi + 0.5 + margin)


def _tan_image(low: float, high: float) -> Ends:
    if _passes_pole(low, high):
        return -_MOST_TANGENT, _MOST_TANGENT
    return math.tan(low), math.tan(high)


def _tan_change(np: Numpy, x: Array, y: Array, error: Array) -> Array:
    """Return the change to the ends of the interval if it has no pole, else infinity."""
    low, high = x - error, x + error
    margin = 1e-9
    first = np.floor(low / np.pi + 0.5 - margin)
    apart = np.floor(high / np.pi + 0.5 + margin) != first
    change = np.maximum(np.abs(np.tan(high) - y), np.abs(np.tan(low) - y))
    found: Array = np.where(error > 0, np.where(apart | ~(error < 1), np.inf, change), 0.0)
    return found


def _cosh(x: float) -> float:
    try:
        return math.cosh(x)
    except OverflowError:
        return math.inf


def _sinh(x: float) -> float:
    try:
        return math.sinh(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def _cosh_image(low: float, high: float) -> Ends:
    ends = sorted((_cosh(low), _cosh(high)))
    return (1.0 if low <= 0 <= high else ends[0]), ends[1]


def _cosh_change(np: Numpy, x: Array, y: Array, error: Array) -> Array:
    size = np.abs(x)
    above, below = np.cosh(size + error), np.cosh(np.maximum(size - error, 0.0))
    found: Array = np.where(error > 0, np.maximum(above - y, y - below), 0.0)
    return found


def _within(low: float, high: float, limit: float) -> bool:
    return -limit <= low and high <= limit


def _clipped(function: Callable[[float], float], low: float, high: float) -> Callable[..., float]:
    """Return `function` of its argument limited to the domain `low`..`high`."""
    return lambda x: function(min(max(x, low), high))


TRIGONOMETRIC: dict[str, ScalarFunction] = {
    "sin": ScalarFunction(
        summary="The sine of `x`, in radians.",
        values=lambda np, x: np.sin(x),
        image=_wave_image(math.sin, math.pi / 2),
        defined=lambda low, high: math.isfinite(low) and math.isfinite(high),
        change=_wave_change,
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(0.6, 3.0),
        special=((0.0, 0.0), (-0.0, -0.0), (_INF, _NAN), (-_INF, _NAN), (1e-30, 1e-30)),
        hard=(  # the f32 and f64 numbers nearest to multiples of pi, and large arguments
            math.pi, 505.7964172363281, 43998769152.0, 1.5458357838905804e29,
            91.106186954104, 28922353.34055676, 1.0638745296653083e256, 7.848587429145764e298,
            1e22, 2.0**20, 2.0**127, 2.0**1023,
        ),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=3,
        numpy="sin",
    ),
    "cos": ScalarFunction(
        summary="The cosine of `x`, in radians.",
        values=lambda np, x: np.cos(x),
        image=_wave_image(math.cos, 0.0),
        defined=lambda low, high: math.isfinite(low) and math.isfinite(high),
        change=_wave_change,
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(0.6, 3.5),
        special=((0.0, 1.0), (-0.0, 1.0), (_INF, _NAN), (-_INF, _NAN), (1e-30, 1.0)),
        hard=(  # the f32 and f64 numbers nearest to odd multiples of pi/2, and large arguments
            math.pi / 2, 252.89820861816406, 21999384576.0, 7.729178919452902e28,
            45.553093477052, 14461176.67027838, 5.319372648326541e255, 3.924293714572882e298,
            1e22, 2.0**20, 2.0**127, 2.0**1023,
        ),
        slots=POLYNOMIAL_SLOTS,
        calls=3,
        numpy="cos",
    ),
    "tan": ScalarFunction(
        summary="The tangent of `x`, in radians.",
        values=lambda np, x: np.tan(x),
        image=_tan_image,
        defined=lambda low, high: math.isfinite(low) and math.isfinite(high),
        change=_tan_change,
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(0.6, 7.0),
        allowed_ulps=8.0,
        special=((0.0, 0.0), (-0.0, -0.0), (_INF, _NAN), (-_INF, _NAN), (1e-30, 1e-30)),
        hard=(  # near multiples of pi and of pi/2, and large arguments
            math.pi, 505.7964172363281, 43998769152.0, 91.106186954104, 28922353.34055676,
            math.pi / 2, 252.89820861816406, 21999384576.0, 45.553093477052, 14461176.67027838,
            1e22, 2.0**20, 2.0**127, 2.0**1023,
        ),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=6,
        numpy="tan",
    ),
    "asin": ScalarFunction(
        summary="The inverse sine of `x`, from -pi/2 to pi/2.",
        values=lambda np, x: np.arcsin(x),
        image=rising(_clipped(math.asin, -1.0, 1.0)),
        defined=lambda low, high: _within(low, high, 1.0),
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(3.0, 3.0),
        special=((0.0, 0.0), (-0.0, -0.0), (_INF, _NAN), (-1.5, _NAN), (1e-30, 1e-30)),
        hard=(1.0, 0.5, 0.7071067811865476, 0.38268343236508984, 0.9238795325112867),
        sweep=(-1.0, 1.0),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=2,
        numpy="arcsin",
    ),
    "acos": ScalarFunction(
        summary="The inverse cosine of `x`, from 0 to pi.",
        values=lambda np, x: np.arccos(x),
        image=falling(_clipped(math.acos, -1.0, 1.0)),
        defined=lambda low, high: _within(low, high, 1.0),
        exact=lambda np, x, y, _: x == 1,
        stated_ulps=(3.0, 3.0),
        special=((1.0, 0.0), (_INF, _NAN), (-_INF, _NAN), (1.5, _NAN), (-1.5, _NAN)),
        hard=(1.0, 0.5, 0.7071067811865476, 0.38268343236508984, 0.9238795325112867),
        sweep=(-1.0, 1.0),
        slots=POLYNOMIAL_SLOTS,
        calls=2,
        numpy="arccos",
    ),
    "atan": ScalarFunction(
        summary="The inverse tangent of `x`, from -pi/2 to pi/2.",
        values=lambda np, x: np.arctan(x),
        image=rising(math.atan),
        change=by_slope(lambda np, x: 1.0 / (1.0 + x * x)),
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(2.5, 2.5),
        special=((0.0, 0.0), (-0.0, -0.0), (1e-30, 1e-30)),
        hard=(1.0, 0.41421356237309503, 2.414213562373095),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=2,
        numpy="arctan",
    ),
    "sinh": ScalarFunction(
        summary="The hyperbolic sine of `x`.",
        values=lambda np, x: np.sinh(x),
        image=rising(_sinh),
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(2.5, 3.0),
        special=(
            (0.0, 0.0), (-0.0, -0.0), (_INF, _INF), (-_INF, -_INF), (1e4, _INF), (1e-30, 1e-30),
        ),
        hard=(89.4159, 88.72, 710.475, 709.78),
        sweep=(-711.0, 711.0),
        keeps_zero_sign=True,
        may_leave_range=True,
        slots=POLYNOMIAL_SLOTS,
        calls=2,
        numpy="sinh",
    ),
    "cosh": ScalarFunction(
        summary="The hyperbolic cosine of `x`.",
        values=lambda np, x: np.cosh(x),
        image=_cosh_image,
        change=_cosh_change,
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(2.0, 2.0),
        special=((0.0, 1.0), (-0.0, 1.0), (_INF, _INF), (-_INF, _INF), (1e4, _INF), (1e-30, 1.0)),
        hard=(89.4159, 88.72, 710.475, 709.78),
        sweep=(-711.0, 711.0),
        may_leave_range=True,
        slots=POLYNOMIAL_SLOTS,
        calls=2,
        numpy="cosh",
    ),
    "tanh": ScalarFunction(
        summary="The hyperbolic tangent of `x`.",
        values=lambda np, x: np.tanh(x),
        image=rising(math.tanh),
        change=by_slope(lambda np, x: np.minimum(1.0, 4.0 * np.exp(-2.0 * x))),
        exact=lambda np, x, y, _: (x == 0) | ((np.abs(y) == 1) & (np.abs(x) >= SATURATED)),
        stated_ulps=(2.0, 3.0),
        special=((0.0, 0.0), (-0.0, -0.0), (_INF, 1.0), (-_INF, -1.0), (1e-30, 1e-30)),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=1,
        numpy="tanh",
    ),
    "asinh": ScalarFunction(
        summary="The inverse hyperbolic sine of `x`.",
        values=lambda np, x: np.arcsinh(x),
        image=rising(math.asinh),
        change=by_slope(lambda np, x: 1.0 / np.sqrt(1.0 + x * x)),
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(2.0, 2.0),
        special=(
            (0.0, 0.0), (-0.0, -0.0), (_INF, _INF), (-_INF, -_INF), (1e-30, 1e-30),
        ),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=4,
        numpy="arcsinh",
    ),
    "acosh": ScalarFunction(
        summary="The inverse hyperbolic cosine of `x`, at least 0.",
        values=lambda np, x: np.arccosh(x),
        image=rising(_clipped(math.acosh, 1.0, math.inf)),
        defined=lambda low, high: low >= 1,
        exact=lambda np, x, y, _: x == 1,
        stated_ulps=(2.0, 2.5),
        special=((1.0, 0.0), (0.5, _NAN), (-2.0, _NAN), (_INF, _INF), (-_INF, _NAN)),
        sweep=(1.0, 21.0),
        slots=POLYNOMIAL_SLOTS,
        calls=4,
        numpy="arccosh",
    ),
    "atanh": ScalarFunction(
        summary="The inverse hyperbolic tangent of `x`.",
        values=lambda np, x: np.arctanh(x),
        image=rising(lambda x: math.atanh(x) if abs(x) < 1 else math.copysign(math.inf, x)),
        defined=lambda low, high: low > -1 and high < 1,
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(2.5, 2.5),
        special=(
            (0.0, 0.0), (-0.0, -0.0), (1.0, _INF), (-1.0, -_INF), (1.5, _NAN), (_INF, _NAN),
            (1e-30, 1e-30),
        ),
        sweep=(-1.0, 1.0),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=3,
        numpy="arctanh",
    ),
}  # fmt: skip
