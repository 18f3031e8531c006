"""Reciprocals of constants as two numbers, for divisions that are rounded once without dividing.

    1 / b = high + low,    x / b = fma(x, high, x * low)

`high` is the rounded quotient of a number just below 1 and b, `low` the rounded rest. The sum
before the last rounding has a relative error below 2**-43 for f32 (2**-101 for f64): a quotient
that is a number of the type is exact, others are within 1/2 + 2**-18 units of the last place
(Brisebarre and Muller, "Correctly rounded multiplication by arbitrary precision constants", IEEE
Trans. Comput. 57 (2008), p. 165). `high` is below 1 / b, so that `low` has its sign: infinity times
either is the same infinity.

This costs one instruction more than the rounded reciprocal. Divisors known at run time only would
also need a test or a scale, 4 to 9 % of a softmax (Zen 4, rows of 512 to 4096), so these use a
rounded reciprocal, see `Scalars._reciprocal`.
"""

from __future__ import annotations

from fractions import Fraction
from math import frexp, isfinite

import numpy as np

from tilewright.schedules.dtypes import DType

_MODEST_EXPONENT = {DType.F32: 100, DType.F64: 900}
"""Divisors for which both numbers of the reciprocal are normal."""


def reciprocal_of(value: float, dtype: DType) -> tuple[float, float] | None:
    """`(high, low)` of a constant of f32 or f64; None if dividing is as good (a power of two) or
    necessary (near the ends of the type)."""
    most = 2.0 ** _MODEST_EXPONENT[dtype]
    if not isfinite(value) or not 1 / most <= abs(value) <= most or abs(frexp(value)[0]) == 0.5:
        return None
    exact = 1 / Fraction(value)
    below_one = 1 - Fraction(2) ** (2 - dtype.binary.precision)
    high = _rounded(below_one * exact, dtype)
    return high, _rounded(exact - Fraction(high), dtype)


def _rounded(value: Fraction, dtype: DType) -> float:
    return float(np.float32(float(value))) if dtype is DType.F32 else float(value)
