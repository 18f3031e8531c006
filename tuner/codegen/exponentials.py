"""exp and the functions made of it, as LLVM text: exp, exp2, expm1, sigmoid, and the hyperbolic
functions."""

from __future__ import annotations

import math

from .math_body import Body, round_to


def reduced_exponent(b: Body, x: str, offset: int, sign: int = 1) -> tuple[str, str]:
    """Return `(sign * p, z)` with exp(sign * x) = 2**n * (1 + p). The low bits of z are n + offset.

    n is round(sign * x / ln 2). n ln 2 is subtracted in two steps (Cody and Waite, 1980), which
    leaves a remainder r with |r| <= ln(2)/2, and p is r + r^2 q(r). If sign is -1, -r and -p are
    computed with negated constants. Otherwise LLVM would move the negation of x into the preceding
    clamp, which is then no longer one `minps`.
    """
    f = b.fmt
    magic = b.const(f.magic + offset)
    z = b.muladd(x, b.const(sign * round_to(f, 1 / math.log(2))), magic)
    n = b.sub(z, magic)
    r = b.muladd(n, b.const(-sign * f.ln2_high), x)
    r = b.muladd(n, b.const(-sign * f.ln2_low), r)
    q = b.polynomial(tuple(sign ** (i + 1) * c for i, c in enumerate(f.exp)), r)
    return b.muladd(b.mul(r, r), q, r), b.to_bits(z)


def reduced_by_scaling(b: Body, x: str) -> tuple[str, str]:
    """Return `(p, n)` with exp(x) = 2**n * (1 + p). n is a float, and p is finite for every x."""
    f = b.fmt
    magic = b.const(f.magic)
    n = b.sub(b.muladd(x, b.const(round_to(f, 1 / math.log(2))), magic), magic)
    r = remainder(b, x, n, 1.0)
    return b.muladd(b.mul(r, r), b.polynomial(f.exp, r), r), n


def remainder(b: Body, x: str, n: str, step: float) -> str:
    """Return x - n ln 2. n is the multiple of `step` that is nearest to x / ln 2. If x is NaN or
    too large for n, the result is limited to about step * ln(2) / 2."""
    f = b.fmt
    r = b.muladd(n, b.const(-f.ln2_high), x)
    r = b.muladd(n, b.const(-f.ln2_low), r)
    return b.limited(r, round_to(f, 0.51 * step * math.log(2)))


def power_of_two(b: Body, biased: str) -> str:
    """Return 2**(k - bias) for the number k in the low bits of `biased`. The other bits are
    ignored.

    If k is larger by 2 * (bias + 1), the result is negated.
    """
    return b.from_bits(b.int_op("shl", biased, b.int_const(b.fmt.mantissa)))


def exp(b: Body, x: str) -> str:
    """Write exp for arguments clamped to exp_low..exp_high.

    2**n is applied as two factors, each a normal number, so that results become denormal or
    infinite with a single rounding. At the ends of the range a single factor 2**n is not
    representable.
    """
    f = b.fmt
    clamped = b.at_most(b.at_least(x, b.const(f.exp_low)), b.const(f.exp_high))
    return scaled(b, *reduced_exponent(b, clamped, 2 * f.bias))


def exp_scaled(b: Body, x: str) -> str:
    """Write exp with the instruction that scales by a power of two. The bits equal those of `exp`.

    The remainder is clamped instead of x. Then the number to be scaled is finite, so n alone makes
    the result 0, infinity or NaN outside the range of finite results.
    """
    p, n = reduced_by_scaling(b, x)
    return b.scalef(b.add(p, b.const(1.0)), n)


def exp_by_table(b: Body, x: str) -> str:
    """Write exp with n in steps of 1/16 and the instruction that scales by a power of two.

    For |r| <= ln(2)/32, exp(r) = 1 + r (1 + r/2 + r^2/6) to 2^-26.7. The low four bits of z are j,
    the number of sixteenths in n: 2**(j/16) is read from a table in a register, and `scalef` uses
    floor(n).
    """
    f = b.fmt
    magic = b.const(f.magic / len(SIXTEENTHS))
    z = b.muladd(x, b.const(round_to(f, 1 / math.log(2))), magic)
    n = b.sub(z, magic)
    power = b.lookup(tuple(round_to(f, v) for v in SIXTEENTHS), b.to_bits(z))
    r = remainder(b, x, n, 1 / len(SIXTEENTHS))
    q = b.polynomial((1.0, 0.5, round_to(f, 1 / 6)), r)
    return b.scalef(b.muladd(b.mul(power, r), q, power), n)


SIXTEENTHS = tuple(2.0 ** (j / 16) for j in range(16))


def sigmoid(b: Body, x: str) -> str:
    """Write c / (c + c exp(-x)), where c is 2**-sigmoid_shift.

    c keeps the exponential finite for all x whose result is above 0. Therefore denormal results are
    accurate, and the power of two is a normal number for all x.
    """
    f = b.fmt
    clamped = b.at_most(b.at_least(x, b.const(f.exp_low)), b.const(-f.exp_low / 2))
    sign_bit = 2 * (f.bias + 1)  # it negates the power of two; p is negated too
    p, z = reduced_exponent(b, clamped, f.bias - f.sigmoid_shift + sign_bit, sign=-1)
    scale, c = power_of_two(b, z), b.const(2.0**-f.sigmoid_shift)
    return b.div(c, b.sub(b.muladd(p, scale, c), scale))


def tanh(b: Body, x: str) -> str:
    """Write t / (t + 2) with t = expm1(2|x|). 2**n - 1 is exact, so nothing cancels.

    For small |x|, the roundings of t, t + 2 and the quotient may add up to 2.5 units in the last
    place. The limit of f32 is 2 units, so for small |x| f32 uses x + x^3 p(x^2).
    """
    f = b.fmt
    size = b.intrinsic("fabs", x)
    clamped = b.at_most(size, b.const(f.tanh_high))
    p, z = reduced_exponent(b, b.add(clamped, clamped), f.bias)
    scale = power_of_two(b, z)
    t = b.muladd(p, scale, b.sub(scale, b.const(1.0)))
    far = b.div(t, b.add(t, b.const(2.0)))
    if not f.tanh_head:
        return b.copysign(far, x)
    square = b.mul(x, x)
    near = b.muladd(b.mul(square, size), b.polynomial(f.tanh_head, square), size)
    return b.copysign(b.select(b.compare("olt", size, b.const(f.tanh_split)), near, far), x)


def expm1(b: Body, x: str) -> str:
    """Write 2 (2**(n-1) p + (2**(n-1) - 1/2)), where exp(x) = 2**n (1 + p).

    The difference is exact or far from zero, so nothing cancels. With half of 2**n, which is a
    normal number for all x, the result overflows only if expm1 does. Below `low`, expm1 rounds to
    -1. If |x| is below half the last place of 1, the result is x, so that zeros keep their sign and
    denormals keep their bits.
    """
    f = b.fmt
    low = b.const(round_to(f, -(f.mantissa + 3) * math.log(2)))
    clamped = b.at_most(b.at_least(x, low), b.const(f.exp_high))
    p, z = reduced_exponent(b, clamped, f.bias - 1)
    scale = power_of_two(b, z)
    half = b.muladd(p, scale, b.sub(scale, b.const(0.5)))
    return or_itself(b, x, b.add(half, half))


def or_itself(b: Body, x: str, y: str) -> str:
    """Write `x` if |x| is below half the last place of 1, otherwise `y`. This is the nearest number
    to every f(x) = x + c x^2 + ... with |c| <= 1/2."""
    small = b.const(2.0 ** -(b.fmt.mantissa + 1))
    return b.select(b.compare("olt", b.intrinsic("fabs", x), small), x, y)


def exp2(b: Body, x: str) -> str:
    """Write 2**x for arguments clamped to where the result is 0 or infinite, as `exp`."""
    f = b.fmt
    low, high = -float(f.bias + f.mantissa + 3), float(f.bias + 2)
    clamped = b.at_most(b.at_least(x, b.const(low)), b.const(high))
    magic = b.const(f.magic + 2 * f.bias)
    z = b.add(clamped, magic)
    p = _of_fraction(b, b.sub(clamped, b.sub(z, magic)))
    return scaled(b, p, b.to_bits(z))


def exp2_scaled(b: Body, x: str) -> str:
    """Write 2**x with the instruction that scales by a power of two. The bits equal those of
    `exp2`."""
    magic = b.const(b.fmt.magic)
    n = b.sub(b.add(x, magic), magic)
    p = _of_fraction(b, b.limited(b.sub(x, n), 0.5))
    return b.scalef(b.add(p, b.const(1.0)), n)


def exp2_by_table(b: Body, x: str) -> str:
    """Write 2**x as `exp_by_table`."""
    f = b.fmt
    magic = b.const(f.magic / len(SIXTEENTHS))
    z = b.add(x, magic)
    n = b.sub(z, magic)
    power = b.lookup(tuple(round_to(f, v) for v in SIXTEENTHS), b.to_bits(z))
    fraction = b.limited(b.sub(x, n), 0.5 / len(SIXTEENTHS))
    r = b.mul(fraction, b.const(round_to(f, math.log(2))))
    q = b.polynomial((1.0, 0.5, round_to(f, 1 / 6)), r)
    return b.scalef(b.muladd(b.mul(power, r), q, power), n)


def _of_fraction(b: Body, fraction: str) -> str:
    """Return 2**`fraction` - 1, |`fraction`| <= 1/2."""
    r = b.mul(fraction, b.const(round_to(b.fmt, math.log(2))))
    return b.muladd(b.mul(r, r), b.polynomial(b.fmt.exp, r), r)


def scaled(b: Body, p: str, biased: str) -> str:
    """Return 2**n (1 + p) for the number n + 2 bias in the low bits of `biased`.

    2**n is applied as two factors, each a normal number, so that results become denormal or
    infinite with a single rounding. At the ends of the range a single factor 2**n is not
    representable.
    """
    half = b.int_op("lshr", biased, b.int_const(1))
    rest = b.int_op("sub", biased, half)
    first = power_of_two(b, half)
    return b.mul(b.muladd(p, first, first), power_of_two(b, rest))


def sinh(b: Body, x: str) -> str:
    """Write 2 (q + q / (4q + 1)) with q = expm1(|x|) / 4. A quarter overflows only if sinh does."""
    quarter = b.const(0.25)
    p, scale = _quarter(b, b.intrinsic("fabs", x))
    q = b.muladd(p, scale, b.sub(scale, quarter))
    y = b.add(q, b.div(q, b.muladd(q, b.const(4.0), b.const(1.0))))
    return or_itself(b, x, b.copysign(b.add(y, y), x))


def cosh(b: Body, x: str) -> str:
    """Write 2q + 1 / (8q) with q = exp(|x|) / 4."""
    p, scale = _quarter(b, b.intrinsic("fabs", x))
    q = b.muladd(p, scale, scale)
    return b.muladd(q, b.const(2.0), b.div(b.const(0.125), q))


def _quarter(b: Body, x: str) -> tuple[str, str]:
    """Return `(p, s)` with exp(x) = 4 s (1 + p) for x >= 0, clamped to where exp(x) / 2 is
    infinite and s is not."""
    limit = round_to(b.fmt, (b.fmt.bias + 2.45) * math.log(2))
    p, z = reduced_exponent(b, b.at_most(x, b.const(limit)), b.fmt.bias - 2)
    return p, power_of_two(b, z)


def softplus(b: Body, x: str) -> str:
    """Write max(x, 0) + log(1 + t) with t = exp(-|x|), and the logarithm as a polynomial in t."""
    return _softplus(b, x, exp(b, _minus_magnitude(b, x)))


def softplus_scaled(b: Body, x: str) -> str:
    """Write softplus with `exp_scaled`."""
    return _softplus(b, x, exp_scaled(b, _minus_magnitude(b, x)))


def softplus_by_table(b: Body, x: str) -> str:
    """Write softplus with `exp_by_table`."""
    return _softplus(b, x, exp_by_table(b, _minus_magnitude(b, x)))


def _minus_magnitude(b: Body, x: str) -> str:
    return b.from_bits(b.int_op("or", b.to_bits(x), b.int_const(1 << (b.fmt.bits - 1))))


def _softplus(b: Body, x: str, t: str) -> str:
    rest = b.muladd(b.mul(t, t), b.polynomial(b.fmt.softplus, t), t)
    return b.add(b.at_least(x, b.const(0.0)), rest)
