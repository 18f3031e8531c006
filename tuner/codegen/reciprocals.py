"""Division by a constant without a divide instruction, with almost correct rounding.

The reciprocal of the divisor b is represented by a sum of two numbers, so the quotient is rounded
only once:

    1 / b = high + low,    x / b = fma(x, high, x * low)

`high` is a number just below 1, divided by b and rounded. `low` is 1 / b - high, rounded. Before
the last rounding, the relative error of the sum is below 2**-43 for f32 (2**-101 for f64).
Therefore a quotient that is a number of the type is exact, and other quotients are within 1/2 +
2**-18 units in the last place (Brisebarre and Muller, "Correctly rounded multiplication by
arbitrary precision constants", IEEE Trans. Comput. 57 (2008), p. 165). The magnitude of `high` is
below |1 / b|, so `low` has the same sign. Products of infinity with both have the same sign too.

This costs one instruction more than multiplication by the rounded reciprocal. If the divisor is
known only at run time, a test or a scale would be needed as well, which costs 4 to 9 % of a softmax
(Zen 4, rows of 512 to 4096). Such divisions use a rounded reciprocal, see `Scalars._reciprocal`.
"""

from __future__ import annotations

from fractions import Fraction
from math import frexp, isfinite

import numpy as np

from tilewright.schedules.dtypes import DType

_MODEST_EXPONENT = {DType.F32: 100, DType.F64: 900}
"""The greatest magnitude of a divisor's binary exponent for which `high` and `low` are normal
numbers."""


def reciprocal_of(value: float, dtype: DType) -> tuple[float, float] | None:
    """Return `(high, low)` for division by `value`, an f32 or f64. Return None if a division is as
    fast (`value` is a power of two) or necessary (`value` is near an end of the type's range)."""
    most = 2.0 ** _MODEST_EXPONENT[dtype]
    if not isfinite(value) or not 1 / most <= abs(value) <= most or abs(frexp(value)[0]) == 0.5:
        return None
    exact = 1 / Fraction(value)
    below_one = 1 - Fraction(2) ** (2 - dtype.binary.precision)
    high = _rounded(below_one * exact, dtype)
    return high, _rounded(exact - Fraction(high), dtype)


def _rounded(value: Fraction, dtype: DType) -> float:
    return float(np.float32(float(value))) if dtype is DType.F32 else float(value)
