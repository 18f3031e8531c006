"""The table of scalar functions, with one row per function.

A row has a function's semantics, range, error propagation, exact points and accuracy guarantees.
The front ends, the reference, the range and error analyses, the checks, the cost model and the
tests read this table. Only the generated code of a function is elsewhere:
`tuner/codegen/mathlib.py`. `docs/adding.md` describes how to add a function.

Rows take the module `numpy` as an argument, so that queries that only need names do not import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Numpy: TypeAlias = Any
"""The module `numpy`. It is typed `Any`, because its stubs do not state that exp(x) has the type of
x."""
Ends: TypeAlias = tuple[float, float]

SATURATED = 32.0
"""If |x| >= SATURATED, erf and tanh are 1 or -1 in float64 and in kernels. If such an x gives a
sigmoid of 1 in float64, it is also 1 in kernels. erf(6), tanh(20) and sigmoid(37) round to 1."""
VANISHED = -760.0
"""For arguments <= VANISHED, the exponential is zero in every type. In f64, it underflows below
-745.2."""
POLYNOMIAL_SLOTS = 6
"""Number of multiply-adds in the shortest f32 polynomials of exp, tanh, erf and similar
functions."""


class FloatType(Protocol):
    """Tests of numbers of the float type in which a function is computed, for
    `ScalarFunction.exact`."""

    def is_power(self, values: Array) -> Array:
        """Return a mask of the powers of two that are normal numbers of the type and have normal
        reciprocals."""

    def has_square(self, values: Array) -> Array:
        """Return a mask of the numbers whose square is exact in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """A function y = f(x)."""

    summary: str
    values: Callable[[Numpy, Array], Array]
    """Function of (np, x) that returns f(x) for an array or a scalar, in the type of x."""
    image: Callable[[float, float], Ends]
    """Function of (low, high) that returns the least and the greatest value of f between these
    arguments, restricted to f's domain."""
    defined: Callable[[float, float], bool] = lambda low, high: True
    """Function of (low, high) that returns whether f is finite for all arguments between them."""
    change: Callable[[Numpy, Array, Array, Array], Array | None] | None = None
    """Function of (np, x, y, e) that returns an upper bound of the change of y if x changes by up
    to `e`. If the field or its result is None, f is monotone, and the caller evaluates f at x - e
    and x + e."""
    exact: Callable[[Numpy, Array, Array, FloatType], Array] | None = None
    """Function of (np, x, y, type) that returns a mask of the float64 values y that every kernel
    returns exactly (`docs/math.md`)."""
    stated_ulps: tuple[float, float]
    """The guaranteed errors of kernels in f32 and f64, in units of the last place of the exact
    result."""
    allowed_ulps: float = 4.0
    """The error that the error bound assumes for every type, in the same unit."""
    special: tuple[tuple[float, float], ...] = ()
    """Pairs (x, f(x)) at zeros, at infinities and outside the domain. Every f returns NaN for
    NaN."""
    hard: tuple[float, ...] = ()
    """Arguments at which kernels are least accurate."""
    sweep: Ends = (-21.0, 21.0)
    """The range of arguments that tests sample densely."""
    keeps_zero_sign: bool = False
    may_leave_range: bool = False
    """Whether the function overflows or underflows for finite arguments of modest size."""
    on_integers: bool = False
    rounds_to_integer: bool = False
    """Whether f(x) is an integer next to x, and x itself if x is an integer. Such an f jumps, so
    its argument must be exact to a rounding, and its result has no error of its own."""
    slots: int = 0
    """The least number of multiply-add operations per lane."""
    calls: int = 0
    """The time of f divided by the time of a polynomial such as exp, or 0 if f takes one or two
    instructions."""
    numpy: str | None = None
    """The name of NumPy's ufunc for f, or None."""


class UnaryOp(StrEnum):
    """Unary operations. The value of a member is its name in every front end."""

    NEG = "neg"
    ABS = "abs"
    EXP = "exp"
    LOG = "log"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    TANH = "tanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    ROUND = "round"
    SIN = "sin"
    COS = "cos"
    EXPM1 = "expm1"
    LOG1P = "log1p"

    @property
    def function(self) -> ScalarFunction:
        return _FUNCTIONS[self]


def rising(function: Callable[[float], float]) -> Callable[[float, float], Ends]:
    """Return the field `image` of a non-decreasing function."""
    return lambda low, high: (function(low), function(high))


def falling(function: Callable[[float], float]) -> Callable[[float, float], Ends]:
    """Return the field `image` of a non-increasing function."""
    return lambda low, high: (function(high), function(low))


def by_slope(
    slope: Callable[[Numpy, Array], Array],
) -> Callable[[Numpy, Array, Array, Array], Array | None]:
    """Return the field `change` of a function. `slope(m)` is an upper bound of the function's slope
    at arguments of magnitude >= m, and decreases with m."""

    def change(np: Numpy, x: Array, y: Array, error: Array) -> Array | None:
        if not np.isfinite(error.max(initial=0.0)):
            return None
        nearest = np.maximum(np.abs(x) - error, 0.0)
        found: Array = np.asarray(slope(np, nearest) * error)
        return found

    return change


def _exp_change(np: Numpy, x: Array, y: Array, error: Array) -> Array | None:
    """Return the bound y * (e + e**2), because exp(e) - 1 <= e + e**2 for e up to 1. Return None if
    an error exceeds 1."""
    if not error.max(initial=0.0) <= 1:
        return None
    found: Array = np.asarray(y * (error * (error + 1)))
    return found


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _expm1(x: float) -> float:
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf


def _abs_image(low: float, high: float) -> Ends:
    ends = sorted((abs(low), abs(high)))
    return (0.0 if low <= 0 <= high else ends[0]), ends[1]


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


def _whole(function: Callable[[float], int]) -> Callable[[float, float], Ends]:
    """Return the field `image` of a function that rounds to an integer, from Python's function."""
    return rising(lambda x: float(function(x)) if math.isfinite(x) else x)


def _erf(np: Numpy, x: Array) -> Array:
    # NumPy has no erf; the C library's erf takes about 50 ns per element.
    flat = map(math.erf, np.asarray(x, np.float64).ravel().tolist())
    found: Array = np.fromiter(flat, np.float64, np.size(x)).reshape(np.shape(x))
    return found


def _sigmoid(np: Numpy, x: Array) -> Array:
    # The argument of exp is never positive: no overflow, and full relative accuracy for both signs.
    small = np.exp(-np.abs(x))
    found: Array = np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small))
    return found


_INF, _NAN = math.inf, math.nan
_FUNCTIONS: dict[UnaryOp, ScalarFunction] = {
    UnaryOp.NEG: ScalarFunction(
        summary="`-x`",
        values=lambda np, x: np.negative(x),
        image=falling(lambda x: -x),
        stated_ulps=(0.0, 0.0),
        allowed_ulps=0.0,
        keeps_zero_sign=True,
        on_integers=True,
        numpy="negative",
    ),
    UnaryOp.ABS: ScalarFunction(
        summary="The magnitude of `x`.",
        values=lambda np, x: np.abs(x),
        image=_abs_image,
        stated_ulps=(0.0, 0.0),
        allowed_ulps=0.0,
        keeps_zero_sign=True,
        on_integers=True,
        numpy="abs",
    ),
    UnaryOp.EXP: ScalarFunction(
        summary="e to the power of `x`.",
        values=lambda np, x: np.exp(x),
        image=rising(_exp),
        change=_exp_change,
        exact=lambda np, x, y, _: (x == 0) | (x <= VANISHED),
        stated_ulps=(1.1, 1.1),
        special=(
            (-_INF, 0.0), (_INF, _INF), (0.0, 1.0), (-0.0, 1.0), (1e4, _INF), (-1e4, 0.0),
        ),
        sweep=(-750.0, 712.0),
        may_leave_range=True,
        slots=POLYNOMIAL_SLOTS,
        calls=1,
        numpy="exp",
    ),
    UnaryOp.LOG: ScalarFunction(
        summary="The natural logarithm of `x`.",
        values=lambda np, x: np.log(x),
        image=rising(lambda x: math.log(x) if x > 0 else -_INF),
        defined=lambda low, high: low > 0,
        exact=lambda np, x, y, _: x == 1,
        stated_ulps=(1.0, 1.0),
        special=(
            (0.0, -_INF), (-0.0, -_INF), (-1.0, _NAN), (-_INF, _NAN), (_INF, _INF), (1.0, 0.0),
        ),
        slots=POLYNOMIAL_SLOTS,
        calls=1,
        numpy="log",
    ),
    UnaryOp.SQRT: ScalarFunction(
        summary="The square root of `x`.",
        values=lambda np, x: np.sqrt(x),
        image=rising(lambda x: math.sqrt(max(x, 0.0))),
        defined=lambda low, high: low >= 0,
        exact=lambda np, x, y, type: type.has_square(y) & (y * y == x),
        stated_ulps=(0.5, 0.5),
        allowed_ulps=1.0,
        special=((0.0, 0.0), (-0.0, -0.0), (_INF, _INF), (-1.0, _NAN), (4.0, 2.0)),
        keeps_zero_sign=True,
        slots=1,
        numpy="sqrt",
    ),
    UnaryOp.RSQRT: ScalarFunction(
        summary="`1 / sqrt(x)`.",
        values=lambda np, x: 1.0 / np.sqrt(x),
        image=falling(lambda x: 1.0 / math.sqrt(x) if x > 0 else _INF),
        defined=lambda low, high: low > 0,
        exact=lambda np, x, y, type: type.is_power(y) & (y * y * x == 1),  # x is a power of four
        stated_ulps=(1.5, 1.5),
        special=((0.0, _INF), (-0.0, -_INF), (_INF, 0.0), (-1.0, _NAN), (4.0, 0.5)),
        slots=1,
    ),
    UnaryOp.TANH: ScalarFunction(
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
    UnaryOp.ERF: ScalarFunction(
        summary="The error function of `x`.",
        values=_erf,
        image=rising(math.erf),
        # The greatest slope of erf is 2 / sqrt(pi) = 1.12838.
        change=by_slope(lambda np, x: 1.1284 * np.exp(-x * x)),
        exact=lambda np, x, y, _: (x == 0) | ((np.abs(y) == 1) & (np.abs(x) >= SATURATED)),
        stated_ulps=(1.5, 1.5),
        special=((0.0, 0.0), (-0.0, -0.0), (_INF, 1.0), (-_INF, -1.0), (1e30, 1.0)),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=1,
    ),
    UnaryOp.SIGMOID: ScalarFunction(
        summary="`1 / (1 + exp(-x))`.",
        values=_sigmoid,
        image=rising(lambda x: 0.5 * (1.0 + math.tanh(0.5 * x))),
        change=by_slope(lambda np, x: np.minimum(0.25, np.exp(-x))),
        exact=lambda np, x, y, _: (
            (x == 0) | (x <= VANISHED) | ((y == 1) & (x >= SATURATED))
        ),
        stated_ulps=(2.0, 2.0),
        special=(
            (0.0, 0.5), (-0.0, 0.5), (_INF, 1.0), (-_INF, 0.0), (1e4, 1.0), (-1e4, 0.0),
        ),
        sweep=(-750.0, 45.0),
        slots=POLYNOMIAL_SLOTS,
        calls=1,
    ),
    UnaryOp.FLOOR: ScalarFunction(
        summary="The greatest whole number not above `x`, still a float.",
        values=lambda np, x: np.floor(x),
        image=_whole(math.floor),
        stated_ulps=(0.0, 0.0),
        allowed_ulps=0.0,
        special=(
            (0.0, 0.0), (-0.0, -0.0), (-0.5, -1.0), (2.5, 2.0), (_INF, _INF), (-_INF, -_INF),
        ),
        keeps_zero_sign=True,
        rounds_to_integer=True,
        numpy="floor",
    ),
    UnaryOp.CEIL: ScalarFunction(
        summary="The least whole number not below `x`, still a float.",
        values=lambda np, x: np.ceil(x),
        image=_whole(math.ceil),
        stated_ulps=(0.0, 0.0),
        allowed_ulps=0.0,
        special=(
            (0.0, 0.0), (-0.0, -0.0), (-0.5, -0.0), (2.5, 3.0), (_INF, _INF), (-_INF, -_INF),
        ),
        keeps_zero_sign=True,
        rounds_to_integer=True,
        numpy="ceil",
    ),
    UnaryOp.TRUNC: ScalarFunction(
        summary="The whole number next to `x` towards zero, still a float.",
        values=lambda np, x: np.trunc(x),
        image=_whole(math.trunc),
        stated_ulps=(0.0, 0.0),
        allowed_ulps=0.0,
        special=(
            (0.0, 0.0), (-0.0, -0.0), (-0.5, -0.0), (2.5, 2.0), (-2.5, -2.0),
            (_INF, _INF), (-_INF, -_INF),
        ),
        keeps_zero_sign=True,
        rounds_to_integer=True,
        numpy="trunc",
    ),
    UnaryOp.ROUND: ScalarFunction(
        summary="The whole number nearest to `x`, the even one of two, still a float.",
        values=lambda np, x: np.rint(x),
        image=_whole(round),
        stated_ulps=(0.0, 0.0),
        allowed_ulps=0.0,
        special=(
            (0.0, 0.0), (-0.0, -0.0), (0.5, 0.0), (-0.5, -0.0), (1.5, 2.0), (2.5, 2.0),
            (-2.5, -2.0), (_INF, _INF), (-_INF, -_INF),
        ),
        keeps_zero_sign=True,
        rounds_to_integer=True,
        numpy="rint",
    ),
    UnaryOp.SIN: ScalarFunction(
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
    UnaryOp.COS: ScalarFunction(
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
    UnaryOp.EXPM1: ScalarFunction(
        summary="`exp(x) - 1`, accurate also for small `x`.",
        values=lambda np, x: np.expm1(x),
        image=rising(_expm1),
        exact=lambda np, x, y, _: (x == 0) | ((y == -1) & (x <= -SATURATED)),
        stated_ulps=(2.0, 2.5),
        special=(
            (-_INF, -1.0), (_INF, _INF), (0.0, 0.0), (-0.0, -0.0), (1e4, _INF), (-1e4, -1.0),
            (1e-30, 1e-30),
        ),
        sweep=(-45.0, 712.0),
        keeps_zero_sign=True,
        may_leave_range=True,
        slots=POLYNOMIAL_SLOTS,
        calls=1,
        numpy="expm1",
    ),
    UnaryOp.LOG1P: ScalarFunction(
        summary="`log(1 + x)`, accurate also for small `x`.",
        values=lambda np, x: np.log1p(x),
        image=rising(lambda x: math.log1p(x) if x > -1 else -_INF),
        defined=lambda low, high: low > -1,
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(1.0, 1.0),
        special=(
            (0.0, 0.0), (-0.0, -0.0), (-1.0, -_INF), (-2.0, _NAN), (-_INF, _NAN), (_INF, _INF),
            (1e-30, 1e-30),
        ),
        sweep=(-1.0, 3.0),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=1,
        numpy="log1p",
    ),
}  # fmt: skip

NAMED = {op.value: op for op in UnaryOp if op is not UnaryOp.NEG}
"""The functions that front ends call by name; negation is written `-x`."""
