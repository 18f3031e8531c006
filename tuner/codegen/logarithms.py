"""log and the functions made of it, as LLVM text: to other bases, of 1 + x, and the inverse
hyperbolic functions."""

from __future__ import annotations

import math

from . import math_polynomials as fitted
from .exponentials import or_itself
from .math_body import Body, bits_of, round_to
from .sine import two_sum


def log_parts(b: Body, x: str) -> tuple[str, str]:
    """Return `(k, f)` with x = 2**k * (1+f) and sqrt(1/2) <= 1+f < sqrt(2), for every x > 0.

    The exponent is converted to a float by writing it into the mantissa of 2**mantissa: conversions
    and arithmetic shifts of 64-bit integers are slow or missing before AVX-512.
    """
    f = b.fmt
    smallest = b.const(2.0 ** (1 - f.bias))
    denormal = b.compare("olt", x, smallest)
    scaled = b.select(denormal, b.mul(x, b.const(2.0**f.mantissa)), x)
    base = 2.0**f.mantissa
    offset = b.select(denormal, b.const(base + f.bias + f.mantissa), b.const(base + f.bias))
    low = bits_of(f, math.sqrt(0.5))
    moved = b.int_op("add", b.to_bits(scaled), b.int_const(f.ones - low))
    exponent = b.int_op("lshr", moved, b.int_const(f.mantissa))
    in_mantissa = b.int_op("or", exponent, b.int_const((f.bias + f.mantissa) << f.mantissa))
    k = b.sub(b.from_bits(in_mantissa), offset)
    mantissa = b.int_op("and", moved, b.int_const((1 << f.mantissa) - 1))
    m = b.from_bits(b.int_op("add", mantissa, b.int_const(low)))
    return k, b.sub(m, b.const(1.0))


def log(b: Body, x: str) -> str:
    """Write k ln 2 + log(1+f), then select the results of zero, negative, infinite and NaN
    arguments."""
    k, f = log_parts(b, x)
    finite = _log_of_parts_f32(b, k, f) if b.fmt.bits == 32 else _log_of_parts_f64(b, k, f)
    return _outside_positive(b, x, finite)


def _outside_positive(b: Body, x: str, finite: str) -> str:
    """Return `finite`, or the logarithm of an `x` that is zero, negative, infinite or NaN."""
    zero, infinity = b.const(0.0), b.const(math.inf)
    # infinity and NaN are returned unchanged
    kept = b.select(b.compare("olt", x, infinity), finite, x)
    outside = b.select(b.compare("oeq", x, zero), b.const(-math.inf), b.const(math.nan))
    return b.select(b.compare("ole", x, zero), outside, kept)


def log_by_table(b: Body, x: str) -> str:
    """Write log of f32 with the instructions that split x into 2**k m, and a table of 16 entries.

    log(x) = k ln 2 + log[j] + log(1 + r), r = (m - center[j]) * inverse[j]. The sum of the upper
    part of k ln 2 and log[j] is exact, and so is m - center[j]. The instructions give the results
    of zero, negative, infinite and NaN arguments.
    """
    return _log_by_table(b, x)


def log1p_by_table(b: Body, x: str) -> str:
    """Write log(u) + (1 + x - u) / u of f32 by the table of `log_by_table`, where u is 1 + x
    rounded."""
    u, rest = two_sum(b, b.const(1.0), x)
    # two_sum gives NaN for infinity
    kept = b.select(b.compare("olt", x, b.const(math.inf)), _log_by_table(b, u, rest), x)
    return or_itself(b, x, kept)


def _log_by_table(b: Body, x: str, rest: str = "") -> str:
    """Write log of `x` + `rest`, a number below the last place of `x`."""
    m = b.mantissa(x)
    k = b.sub(b.exponent(x), b.exponent(m))
    leading = b.fmt.mantissa - 4
    j = b.int_op("lshr", b.to_bits(m), b.int_const(leading))
    high = b.muladd(k, b.const(b.fmt.ln2_high), b.lookup(fitted.LOG_16_F32_LOGS, j))
    difference = b.sub(m, b.lookup(fitted.LOG_16_F32_CENTERS, j))
    inverse = b.lookup(fitted.LOG_16_F32_INVERSES, j)
    r = b.mul(difference, inverse)
    low = b.mul(k, b.const(b.fmt.ln2_low))
    low = b.muladd(b.mul(r, r), b.polynomial(fitted.LOG_16_F32, r), low)
    if rest:
        finite = b.at_most(b.sub(b.const(0.0), k), b.const(2.0**b.fmt.bias))  # even for x = 0
        # 1 / m = inverse / (1 + r)
        share = b.mul(inverse, b.sub(b.const(1.0), r))
        low = b.muladd(b.scalef(rest, finite), share, low)
    return b.add(high, b.muladd(difference, inverse, low))


def _log_of_parts_f32(b: Body, k: str, f: str, rest: str = "") -> str:
    """Write k ln 2 + log(1+f) + `rest`, a number below the last place of 1+f."""
    square = b.mul(f, f)
    q = b.polynomial(b.fmt.log, f)
    y = b.muladd(b.mul(q, f), square, _low_part(b, k, rest))
    y = b.muladd(square, b.const(-0.5), y)
    return b.muladd(k, b.const(b.fmt.ln2_high), b.add(y, f))


def _low_part(b: Body, k: str, rest: str) -> str:
    low = b.const(b.fmt.ln2_low)
    return b.muladd(k, low, rest) if rest else b.mul(k, low)


def _log_of_parts_f64(b: Body, k: str, f: str, rest: str = "") -> str:
    """Write log by s = f / (2+f), as 2 atanh(s) = log(1+f): one division saves ten multiply-adds.
    `rest` is added, a number below the last place of 1+f.

    Source for the order of the sum: K. C. Ng, `e_log.c` of FDLIBM (Sun Microsystems, 1993).
    """
    s = b.div(f, b.add(f, b.const(2.0)))
    z = b.mul(s, s)
    r = b.mul(z, b.polynomial(b.fmt.log, z))
    half_square = b.mul(b.mul(f, f), b.const(0.5))
    low = b.muladd(s, b.add(half_square, r), _low_part(b, k, rest))
    return b.muladd(k, b.const(b.fmt.ln2_high), b.add(b.sub(low, half_square), f))


def log1p(b: Body, x: str) -> str:
    """Write log(u) + (1 + x - u) / u, where u is 1 + x rounded, then select the results of -1,
    smaller, infinite and NaN arguments."""
    u, rest = two_sum(b, b.const(1.0), x)
    k, f = log_parts(b, u)
    rest = b.div(rest, u)
    of_parts = _log_of_parts_f32 if b.fmt.bits == 32 else _log_of_parts_f64
    pole = b.const(-1.0)
    kept = b.select(b.compare("olt", x, b.const(math.inf)), of_parts(b, k, f, rest), x)
    outside = b.select(b.compare("oeq", x, pole), b.const(-math.inf), b.const(math.nan))
    return or_itself(b, x, b.select(b.compare("ole", x, pole), outside, kept))


def log2(b: Body, x: str) -> str:
    """Write k + log(1+f) / ln 2."""
    return _of_base(b, x, 2.0)


def log10(b: Body, x: str) -> str:
    """Write k log10(2) + log(1+f) / ln 10."""
    return _of_base(b, x, 10.0)


def _of_base(b: Body, x: str, base: float) -> str:
    """Write the logarithm to `base`. The products with k and f have two parts each. The upper part
    of the first one is exact."""
    k, f = log_parts(b, x)
    high, low = _LOG_OF_2[base, b.fmt.bits]
    scale = round_to(b.fmt, 1 / math.log(base))
    scale_rest = _LOW_OF_SCALE[base, b.fmt.bits]
    small = b.muladd(
        f, b.const(round_to(b.fmt, scale_rest)), b.mul(_beyond_linear(b, f), b.const(scale))
    )
    small = b.muladd(k, b.const(low), small) if low else small
    finite = b.muladd(k, b.const(high), b.muladd(f, b.const(scale), small))
    return _outside_positive(b, x, finite)


def _beyond_linear(b: Body, f: str) -> str:
    """Return log(1+f) - f."""
    square = b.mul(f, f)
    if b.fmt.bits == 32:
        q = b.polynomial(b.fmt.log, f)
        return b.muladd(square, b.const(-0.5), b.mul(b.mul(q, f), square))
    s = b.div(f, b.add(f, b.const(2.0)))
    z = b.mul(s, s)
    half_square = b.mul(square, b.const(0.5))
    r = b.mul(z, b.polynomial(b.fmt.log, z))
    return b.sub(b.mul(s, b.add(half_square, r)), half_square)


_LOG_OF_2 = {
    (2.0, 32): (1.0, 0.0),
    (2.0, 64): (1.0, 0.0),
    (10.0, 32): (0.30103302001953125, -3.024355464731343e-06),
    (10.0, 64): (0.30102999566395283, 2.8363394551044964e-14),
}
"""log(2) to each base in two parts. The upper one has so few bits that its product with any k is
exact."""
_LOW_OF_SCALE = {
    (2.0, 32): 1.925962935e-08,
    (2.0, 64): 2.0355273740931033e-17,
    (10.0, 32): -1.010305005e-08,
    (10.0, 64): 1.098319650216765e-17,
}
"""1 / ln(base) less its rounded value."""


def asinh(b: Body, x: str) -> str:
    """Write log1p(u), u = a + a^2 / (1 + sqrt(a^2 + 1)) and a = |x|. For large a it is log(a) +
    ln 2, which does not overflow."""
    size = b.intrinsic("fabs", x)
    square = b.mul(size, size)
    root = b.intrinsic("sqrt", b.add(square, b.const(1.0)))
    u = b.add(size, b.div(square, b.add(root, b.const(1.0))))
    return or_itself(b, x, b.copysign(_log1p_or_double(b, size, u), x))


def acosh(b: Body, x: str) -> str:
    """Write log1p(u), u = t + sqrt(t (x + 1)) and t = x - 1, and NaN below 1."""
    one = b.const(1.0)
    t = b.sub(x, one)
    u = b.add(t, b.intrinsic("sqrt", b.mul(t, b.add(x, one))))
    below = b.compare("olt", x, one)
    return b.select(below, b.const(math.nan), _log1p_or_double(b, x, u))


def _log1p_or_double(b: Body, x: str, u: str) -> str:
    """Return log1p(u), or log(2x) if x is so large that log1p(x) = log(x)."""
    large = b.compare("ogt", x, b.const(2.0 ** (b.fmt.mantissa + 7)))
    rest = b.select(large, b.const(round_to(b.fmt, math.log(2))), b.const(0.0))
    return b.add(log1p(b, b.select(large, x, u)), rest)


def atanh(b: Body, x: str) -> str:
    """Write log1p(2a / (1 - a)) / 2 with a = |x|: infinite for 1 and NaN beyond."""
    size = b.intrinsic("fabs", x)
    quotient = b.div(b.add(size, size), b.sub(b.const(1.0), size))
    return or_itself(b, x, b.copysign(b.mul(log1p(b, quotient), b.const(0.5)), x))
