"""The inverses of the trigonometric functions, as LLVM text. All are angles of points (x, y).

The angle of a point with x, y >= 0 is that of the smaller coordinate over the larger one, t <= 1.
If t > tan(pi/8), the quotient (t - 1) / (t + 1) gives the angle from the diagonal instead. So one
division and a short polynomial serve all directions.
"""

from __future__ import annotations

import math

from .math_body import Body, round_to

_EIGHTH = math.sqrt(2) - 1
"""tan(pi/8)"""
_PI_REST = 1.2246467991473532e-16
"""pi less its f64 value."""


def atan(b: Body, x: str) -> str:
    one = b.const(1.0)
    return b.copysign(_first_quadrant(b, b.intrinsic("fabs", x), one), x)


def asin(b: Body, x: str) -> str:
    """Write the angle of (sqrt(1 - x^2), x). It is NaN beyond 1."""
    size, one = b.intrinsic("fabs", x), b.const(1.0)
    product = b.mul(b.sub(one, size), b.add(one, size))
    return b.copysign(_first_quadrant(b, size, b.intrinsic("sqrt", product)), x)


def acos(b: Body, x: str) -> str:
    """Write twice the angle of (sqrt(1 + x), sqrt(1 - x)), which is accurate near 1, too."""
    one = b.const(1.0)
    y, z = b.intrinsic("sqrt", b.sub(one, x)), b.intrinsic("sqrt", b.add(one, x))
    half = _first_quadrant(b, y, z)
    return b.add(half, half)


def atan2(b: Body, y: str, x: str) -> str:
    """Write the angle of (x, y) from -pi to pi, by the signs of zeros too, as in IEEE 754."""
    one, infinity = b.const(1.0), b.const(math.inf)
    size_x, size_y = b.intrinsic("fabs", x), b.intrinsic("fabs", y)
    is_steep = b.compare("ogt", size_y, size_x)
    low, high = b.select(is_steep, size_x, size_y), b.select(is_steep, size_y, size_x)
    # A quarter of both has the same quotient and a finite sum.
    is_huge = b.compare("ogt", high, b.const(2.0 ** (b.fmt.bias - 1)))
    shrink = b.select(is_huge, b.const(0.25), one)
    low, high = b.mul(low, shrink), b.mul(high, shrink)
    # Two infinities are in the ratio 1. Others are infinitely longer: low becomes 0, or stays NaN.
    is_infinite = b.compare("oeq", high, infinity)
    both = b.compare("oeq", low, infinity)
    beside = b.select(both, one, b.mul(low, b.const(0.0)))
    low = b.select(is_infinite, beside, low)
    is_origin = b.compare("oeq", high, b.const(0.0))
    high = b.select(is_infinite, one, b.select(is_origin, one, high))
    is_left = b.compare("olt", b.copysign(one, x), b.const(0.0))
    return b.copysign(_angle(b, low, high, is_steep, is_left), y)


def _first_quadrant(b: Body, y: str, x: str) -> str:
    """Return the angle of a point with x, y >= 0, of which one is not 0 and one is finite."""
    is_steep = b.compare("ogt", y, x)
    low, high = b.select(is_steep, x, y), b.select(is_steep, y, x)
    return _angle(b, low, high, is_steep, None)


def _angle(b: Body, low: str, high: str, is_steep: str, is_left: str | None) -> str:
    """Return the angle of (`high`, `low`), 0 <= low <= high, measured from the y axis if `is_steep`
    and from the negative x axis if `is_left`. The multiple of pi/4 has two parts."""
    is_diagonal = b.compare("ogt", low, b.mul(high, b.const(round_to(b.fmt, _EIGHTH))))
    top = b.select(is_diagonal, b.sub(low, high), low)
    t = b.div(top, b.select(is_diagonal, b.add(low, high), high))
    z = b.mul(t, t)
    r = b.muladd(b.mul(t, z), b.polynomial(b.fmt.atan, z), t)
    turned = _negated_if(b, is_steep, r)
    parts = []
    for part in (0, 1):
        eighth, quarter = (b.const(_pi_part(b, n, part)) for n in (1, 2))
        start = b.select(is_diagonal, eighth, b.select(is_steep, quarter, b.const(0.0)))
        if is_left is not None:
            other = b.select(
                is_diagonal, b.const(_pi_part(b, 3, part)),
                b.select(is_steep, quarter, b.const(_pi_part(b, 4, part))),
            )  # fmt: skip
            start = b.select(is_left, other, start)
        parts.append(start)
    if is_left is not None:
        turned = _negated_if(b, is_left, turned)
    return b.add(parts[0], b.add(turned, parts[1]))


def _pi_part(b: Body, quarters: int, part: int) -> float:
    """Return `quarters` pi / 4 rounded (`part` 0), or the error of the rounding (1)."""
    exact = quarters * math.pi / 4  # without a rounding in f64
    high = round_to(b.fmt, exact)
    if part == 0:
        return high
    return round_to(b.fmt, exact - high) if b.fmt.bits == 32 else quarters * _PI_REST / 4


def _negated_if(b: Body, condition: str, x: str) -> str:
    negative = b.from_bits(b.int_op("xor", b.to_bits(x), b.int_const(1 << (b.fmt.bits - 1))))
    return b.select(condition, negative, x)
