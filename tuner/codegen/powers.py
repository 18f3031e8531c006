"""x to the power y and the cube root, as LLVM text.

pow is 2**(y log2 |x|) with the sign and the special values of IEEE 754. The logarithm has more
digits than the type, because y multiplies its error: for f32 it is computed in f64, for f64 in two
numbers whose sum has about 65 bits. Products are exact by splitting factors in halves, with or
without a fused multiply-add.
"""

from __future__ import annotations

import math

from . import math_polynomials as fitted
from .exponentials import scaled
from .logarithms import log_parts
from .math_body import Body, bits_of
from .sine import converted, two_sum, widened, without_low_half

_Double = tuple[str, str]
"""A number as the sum of two floats, of which the second is below the last place of the first."""


def power(b: Body, x: str, y: str) -> str:
    """Write x**y: 1 if y is 0 or x is 1, and NaN for a negative finite x and a finite y that is no
    integer. The sign of x counts if y is an odd integer."""
    size = b.intrinsic("fabs", x)
    found = _of_f32(b, size, y) if b.fmt.bits == 32 else _of_f64(b, size, y)
    zero, one, infinity = b.const(0.0), b.const(1.0), b.const(math.inf)
    # Zeros and infinities have no logarithm: their power is 0, or infinite for the other sign of y.
    is_falling = b.compare("olt", y, zero)
    of_zero = b.select(is_falling, infinity, zero)
    of_infinity = b.select(is_falling, zero, infinity)
    found = b.select(b.compare("oeq", x, zero), of_zero, found)
    found = b.select(b.compare("oeq", size, infinity), of_infinity, found)
    found = b.select(b.compare("uno", x, y), b.add(x, y), found)
    is_odd, is_whole = _parity(b, y)
    found = b.select(is_odd, b.copysign(found, x), found)
    is_negative = b.select(b.compare("olt", x, zero), one, zero)
    is_finite = b.select(b.compare("oeq", size, infinity), zero, is_negative)
    lacks_value = b.select(is_whole, zero, is_finite)
    found = b.select(b.compare("oeq", lacks_value, one), b.const(math.nan), found)
    is_one = b.compare("oeq", x, one)
    return b.select(b.compare("oeq", y, zero), one, b.select(is_one, one, found))


def _parity(b: Body, y: str) -> tuple[str, str]:
    """Return whether `y` is an odd integer, and whether it is an integer or infinite. Adding and
    subtracting 2**mantissa rounds to an integer. All numbers beyond are integers."""
    large = b.const(2.0**b.fmt.mantissa)

    def fraction(value: str) -> str:
        """Return `value` less the integer nearest to it, or 0 if it is large."""
        rounded = b.sub(b.add(value, large), large)
        is_large = b.compare("oge", value, large)
        return b.select(is_large, b.const(0.0), b.sub(value, rounded))

    size = b.intrinsic("fabs", y)
    rest, half_rest = fraction(size), fraction(b.mul(size, b.const(0.5)))
    odd_rest = b.intrinsic("fabs", half_rest)
    return (
        b.compare("oeq", odd_rest, b.const(0.5)),
        b.compare("oeq", rest, b.const(0.0)),
    )


def _of_f32(b: Body, x: str, y: str) -> str:
    """Return x**y of f32 numbers, x > 0 and finite. The exponent of the result is limited in f64,
    and the conversion to f32 overflows and underflows with a single rounding."""
    w = widened(b)
    k, f = log_parts(w, converted(b, "fpext", x, w))
    s = w.div(f, w.add(f, w.const(2.0)))
    z = w.mul(s, s)
    s = w.mul(s, w.const(1 / math.log(2)))
    log = w.muladd(w.mul(s, z), w.polynomial(fitted.LOG_SHORT, z), w.muladd(s, w.const(2.0), k))
    exponent = w.mul(_limited(w, converted(b, "fpext", y, w), 2.0**40), log)
    exponent = _limited(w, exponent, 1000.0)
    magic = w.const(w.fmt.magic + w.fmt.bias)
    n = w.add(exponent, magic)
    r = w.mul(w.sub(exponent, w.sub(n, magic)), w.const(math.log(2)))
    p = w.muladd(w.mul(r, r), w.polynomial(fitted.EXP_F32, r), r)
    scale = w.from_bits(w.int_op("shl", w.to_bits(n), w.int_const(w.fmt.mantissa)))
    return converted(w, "fptrunc", w.muladd(p, scale, scale), b)


def _of_f64(b: Body, x: str, y: str) -> str:
    """Return x**y of f64 numbers, x > 0 and finite."""
    log = _log2(b, x)
    y = _limited(b, y, 2.0**64)
    product, error = _product(b, y, log[0])
    error = b.muladd(y, log[1], error)
    most = b.const(1100.0)
    is_inside = b.compare("olt", b.intrinsic("fabs", product), most)
    error = b.select(is_inside, error, b.const(0.0))
    exponent = _limited(b, product, 1100.0)
    magic = b.const(b.fmt.magic + 2 * b.fmt.bias)
    n = b.add(exponent, magic)
    fraction = b.add(b.sub(exponent, b.sub(n, magic)), error)
    r = b.mul(fraction, b.const(math.log(2)))
    p = b.muladd(b.mul(r, r), b.polynomial(b.fmt.exp, r), r)
    return scaled(b, p, b.to_bits(n))


def _log2(b: Body, x: str) -> _Double:
    """Return log2(x) for x > 0 with a relative error of about 2**-65.

    log2(1+f) = s (c0 + c1 z + z^2 p(z)) with s = f / (2 + f) and z = s^2. Of p, f64 has enough
    digits. The other operations are done with two numbers each.
    """
    k, f = log_parts(b, x)
    two = b.const(2.0)
    divisor = b.add(f, two)
    divisor_rest = b.sub(f, b.sub(divisor, two))
    s = b.div(f, divisor)
    high, low = _product(b, s, divisor)
    rest = b.sub(b.sub(f, high), low)
    s_rest = b.div(b.sub(rest, b.mul(s, divisor_rest)), divisor)
    z, z_rest = _product(b, s, s)
    z_rest = b.muladd(b.add(s, s), s_rest, z_rest)
    first, second, others = _series()
    beyond = b.mul(z, b.polynomial(others, z))
    q = b.add(b.const(second[0]), beyond)
    q_rest = b.add(b.sub(beyond, b.sub(q, b.const(second[0]))), b.const(second[1]))
    w, w_rest = _product(b, z, q)
    w_rest = b.add(w_rest, b.muladd(z, q_rest, b.mul(z_rest, q)))
    factor = b.add(b.const(first[0]), w)
    factor_rest = b.sub(w, b.sub(factor, b.const(first[0])))
    factor_rest = b.add(factor_rest, b.add(w_rest, b.const(first[1])))
    log, log_rest = _product(b, s, factor)
    log_rest = b.add(log_rest, b.muladd(s, factor_rest, b.mul(s_rest, factor)))
    total, error = two_sum(b, k, log)
    return two_sum(b, total, b.add(error, log_rest))


def _series() -> tuple[tuple[float, float], tuple[float, float], tuple[float, ...]]:
    """Return the coefficients 2 / (ln 2 (2i + 1)) for i = 0 and 1 in two parts, and for i from 2
    on."""
    inverse = _INVERSE_LN_2
    first = (2 * inverse[0], 2 * inverse[1])
    third = 2 * inverse[0] / 3
    # The error of the quotient, from its exact product with 3.
    exact_error = _exact_rest(2 * inverse[0], third, 3)
    second = (third, (exact_error + 2 * inverse[1]) / 3)
    return first, second, tuple(2 * inverse[0] / (2 * i + 1) for i in range(2, 13))


def _exact_rest(total: float, part: float, count: int) -> float:
    """Return `total` - `part` * `count`, exactly rounded."""
    (a, b), (c, d) = total.as_integer_ratio(), part.as_integer_ratio()
    return (a * d - c * count * b) / (b * d)


_INVERSE_LN_2 = (1.4426950408889634, 2.0355273740931033e-17)


def _product(b: Body, x: str, y: str) -> _Double:
    """Return x * y and the error of its rounding (T. J. Dekker, Numer. Math. 18, 1971)."""
    total = b.mul(x, y)
    x_high, y_high = without_low_half(b, x), without_low_half(b, y)
    x_low, y_low = b.sub(x, x_high), b.sub(y, y_high)
    error = b.sub(b.mul(x_high, y_high), total)
    error = b.add(b.add(error, b.mul(x_high, y_low)), b.mul(x_low, y_high))
    return total, b.add(error, b.mul(x_low, y_low))


def _limited(b: Body, x: str, limit: float) -> str:
    return b.at_most(b.at_least(x, b.const(-limit)), b.const(limit))


def cube_root(b: Body, x: str) -> str:
    """Write the cube root: a third of the exponent, two steps of Halley's method, and one of
    Newton's from a number whose square is exact (FreeBSD's `cbrt`, B. D. Evans 2006).

    Denormal numbers are multiplied by a power of eight first, and huge ones divided.
    """
    f = b.fmt
    size = b.intrinsic("fabs", x)
    is_small = b.compare("olt", size, b.const(2.0 ** (1 - f.bias)))
    shift = 3 * (f.mantissa // 3 + 2)
    is_huge = b.compare("ogt", size, b.const(2.0 ** (f.bias - 4)))
    one = b.const(1.0)
    factor = b.select(is_huge, b.const(2.0**-6), b.select(is_small, b.const(2.0**shift), one))
    back = b.select(is_huge, b.const(4.0), b.select(is_small, b.const(2.0 ** -(shift // 3)), one))
    moderate = b.mul(size, factor)
    # A third of the bits is a third of the exponent, and nearly that of the mantissa.
    third = b.int_op("udiv", b.to_bits(moderate), b.int_const(3))
    offset = bits_of(f, 1.0) - bits_of(f, 1.0) // 3 - round(0.0331 * 2**f.mantissa)
    t = b.from_bits(b.int_op("add", third, b.int_const(offset)))
    for _ in range(2 if f.bits == 64 else 1):
        cube = b.mul(b.mul(t, t), t)
        twice = b.add(moderate, moderate)
        t = b.mul(t, b.div(b.add(cube, twice), b.add(b.add(cube, cube), moderate)))
    kept = f.mantissa // 2
    rounding = b.int_const(1 << (f.mantissa - kept - 1))
    mask = b.int_const(~((1 << (f.mantissa - kept)) - 1))
    t = b.from_bits(b.int_op("and", b.int_op("add", b.to_bits(t), rounding), mask))
    quotient = b.div(moderate, b.mul(t, t))
    correction = b.div(b.sub(quotient, t), b.add(b.add(t, t), quotient))
    root = b.mul(b.muladd(t, correction, t), back)
    is_regular = b.compare("one", b.mul(size, b.const(0.0)), size)  # neither 0, infinite nor NaN
    return b.copysign(b.select(is_regular, root, size), x)
