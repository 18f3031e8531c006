"""Division by a constant without a divide instruction, with almost correct rounding.

The reciprocal of the divisor b is a sum of two numbers, so the quotient is rounded only once:

    1 / b = high + low,    x / b = fma(x, high, x * low)

`high` is the rounded quotient of a number just below 1 and b; `low` is the rounded rest. Before the
last rounding, the relative error of the sum is below 2**-43 for f32 (2**-101 for f64). Therefore a
quotient that is a number of the type is exact, and other quotients are within 1/2 + 2**-18 units of
the last place (Brisebarre and Muller, "Correctly rounded multiplication by arbitrary precision
constants", IEEE Trans. Comput. 57 (2008), p. 165). The magnitude of `high` is below |1 / b|,
so that `low` has the same sign: infinity times either of them is the same infinity.

This costs one instruction more than multiplication by the rounded reciprocal. A divisor that is
known only at run time would also need a test or a scale, which costs 4 to 9 % of a softmax (Zen 4,
rows of 512 to 4096); such divisions use a rounded reciprocal, see `Scalars._reciprocal`.
"""

from __future__ import annotations

from fractions import Fraction
from math import frexp, isfinite

import numpy as np

from tilewright.schedules.dtypes import DType

_MODEST_EXPONENT = {DType.F32: 100, DType.F64: 900}
"""The binary exponents up to which both numbers of a divisor's reciprocal are normal."""


def reciprocal_of(value: float, dtype: DType) -> tuple[float, float] | None:
    """Return `(high, low)` of a constant of f32 or f64.

    Return None if an ordinary division is equivalent (a power of two) or necessary (near the ends
    of the type's range).
    """
    most = 2.0 ** _MODEST_EXPONENT[dtype]
    if not isfinite(value) or not 1 / most <= abs(value) <= most or abs(frexp(value)[0]) == 0.5:
        return None
    exact = 1 / Fraction(value)
    below_one = 1 - Fraction(2) ** (2 - dtype.binary.precision)
    high = _rounded(below_one * exact, dtype)
    return high, _rounded(exact - Fraction(high), dtype)


def _rounded(value: Fraction, dtype: DType) -> float:
    return float(np.float32(float(value))) if dtype is DType.F32 else float(value)
