"""The table of scalar functions, with one row per function.

The front ends, the reference, the range and error analyses, the checks, the cost model and the
tests read this table. Only the generated code of a function is elsewhere:
`tuner/codegen/mathlib.py`. `scalar_function.py` describes the fields of a row, and
`docs/adding.md` how to add a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

from .scalar_function import (
    POLYNOMIAL_SLOTS,
    SATURATED,
    VANISHED,
    Array,
    Ends,
    Numpy,
    ScalarFunction,
    by_slope,
    falling,
    rising,
)
from .trigonometry import TRIGONOMETRIC


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
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    EXP2 = "exp2"
    LOG2 = "log2"
    LOG10 = "log10"
    CBRT = "cbrt"
    SOFTPLUS = "softplus"
    SIGN = "sign"

    @property
    def function(self) -> ScalarFunction:
        return _FUNCTIONS[self]


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


def _exp2(x: float) -> float:
    try:
        return float(2.0**x)
    except OverflowError:
        return math.inf


def _abs_image(low: float, high: float) -> Ends:
    ends = sorted((abs(low), abs(high)))
    return (0.0 if low <= 0 <= high else ends[0]), ends[1]


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
_NO_POWER = -1100.0
"""2 to the power of a number up to this one is 0 in every type."""
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
    UnaryOp.EXP2: ScalarFunction(
        summary="2 to the power of `x`.",
        values=lambda np, x: np.exp2(x),
        image=rising(_exp2),
        exact=lambda np, x, y, type: (
            (x <= _NO_POWER) | ((x == np.rint(x)) & type.is_power(y))
        ),
        stated_ulps=(1.5, 1.5),
        special=(
            (-_INF, 0.0), (_INF, _INF), (0.0, 1.0), (-0.0, 1.0), (1e4, _INF), (-1e4, 0.0),
            (3.0, 8.0),
        ),
        sweep=(-1080.0, 1030.0),
        may_leave_range=True,
        slots=POLYNOMIAL_SLOTS,
        calls=1,
        numpy="exp2",
    ),
    UnaryOp.LOG2: ScalarFunction(
        summary="The logarithm of `x` to the base 2.",
        values=lambda np, x: np.log2(x),
        image=rising(lambda x: math.log2(x) if x > 0 else -_INF),
        defined=lambda low, high: low > 0,
        exact=lambda np, x, y, type: type.is_power(x),
        stated_ulps=(2.0, 2.5),
        special=(
            (0.0, -_INF), (-0.0, -_INF), (-1.0, _NAN), (-_INF, _NAN), (_INF, _INF), (1.0, 0.0),
            (8.0, 3.0),
        ),
        slots=POLYNOMIAL_SLOTS,
        calls=2,
        numpy="log2",
    ),
    UnaryOp.LOG10: ScalarFunction(
        summary="The logarithm of `x` to the base 10.",
        values=lambda np, x: np.log10(x),
        image=rising(lambda x: math.log10(x) if x > 0 else -_INF),
        defined=lambda low, high: low > 0,
        exact=lambda np, x, y, _: x == 1,
        stated_ulps=(2.0, 3.0),
        special=(
            (0.0, -_INF), (-0.0, -_INF), (-1.0, _NAN), (-_INF, _NAN), (_INF, _INF), (1.0, 0.0),
        ),
        slots=POLYNOMIAL_SLOTS,
        calls=2,
        numpy="log10",
    ),
    UnaryOp.CBRT: ScalarFunction(
        summary="The cube root of `x`.",
        values=lambda np, x: np.cbrt(x),
        image=rising(math.cbrt),
        exact=lambda np, x, y, _: x == 0,
        stated_ulps=(1.0, 1.0),
        special=((0.0, 0.0), (-0.0, -0.0), (_INF, _INF), (-_INF, -_INF), (27.0, 3.0)),
        keeps_zero_sign=True,
        slots=POLYNOMIAL_SLOTS,
        calls=3,
        numpy="cbrt",
    ),
    UnaryOp.SOFTPLUS: ScalarFunction(
        summary="`log(1 + exp(x))`, accurate and finite for every `x`.",
        values=lambda np, x: np.logaddexp(0.0, x),
        image=rising(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
        exact=lambda np, x, y, _: (x <= VANISHED) | (x >= -VANISHED),
        stated_ulps=(2.5, 2.5),
        special=((-_INF, 0.0), (_INF, _INF), (1e4, 1e4), (-1e4, 0.0)),
        sweep=(-750.0, 45.0),
        slots=2 * POLYNOMIAL_SLOTS,
        calls=2,
    ),
    UnaryOp.SIGN: ScalarFunction(
        summary="1, -1 or 0 as `x` is above, below or equal to 0.",
        values=lambda np, x: np.sign(x),
        image=rising(lambda x: float(x > 0) - float(x < 0)),
        exact=lambda np, x, y, _: np.isfinite(y),
        stated_ulps=(0.0, 0.0),
        allowed_ulps=0.0,
        special=(
            (0.0, 0.0), (-0.0, 0.0), (_INF, 1.0), (-_INF, -1.0), (1e-40, 1.0), (-1e-40, -1.0),
        ),
        numpy="sign",
    ),
    **{UnaryOp(name): row for name, row in TRIGONOMETRIC.items()},
}  # fmt: skip

NAMED = {op.value: op for op in UnaryOp if op is not UnaryOp.NEG}
"""The functions that front ends call by name; negation is written `-x`."""
