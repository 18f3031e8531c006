"""sin, cos and tan of every argument, as LLVM text: no branch, no table in memory, f32 in f64.

The argument is reduced to f = x / pi - n with |f| <= 1/2, by the digits of 1/pi (M. Payne and R.
Hanek, ACM SIGNUM Newsletter 18(1), 1983). For large x, the products with the first digits are
multiples of two, which do not change the result. Therefore a few selects by the exponent of x
choose the significant digits. Digits have so few bits that their products are exact. Then sin(x) =
(-1)**n sin(pi f) is computed by a Taylor polynomial. It has two terms more than the best fit, but
needs no fitting. cos(x) is the same with f = x / pi + 1/2 - n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, reduce

from tilewright.schedules.dtypes import DType

from .math_body import FORMATS, Body


@dataclass(frozen=True, slots=True)
class _Window:
    """The digits of 1/pi, and the choice of the digits that are significant for an argument.

    One leading digit is dropped for |x| >= 2**`first`, and one more for each further factor of
    2**`bits`.
    """

    bits: int
    """Size of a digit."""
    first: int
    steps: tuple[int, ...]
    """The number of digits that each select drops."""
    count: int
    """The number of digits that remain for each part of x."""
    tops: tuple[int, ...]
    """One entry per part of x. The product of the part and the first digit is below 2**top, with
    the next digit below 2**(top - `bits`)."""
    scale: int
    """Digits are multiplied by 2**`scale` and the argument by its inverse, so that no digit is
    denormal."""


_NARROW = _Window(bits=27, first=24, steps=(2, 1), count=4, tops=(51,), scale=0)
_WIDE = _Window(bits=24, first=29, steps=(21, 10, 5, 3, 1, 1), count=8, tops=(51, 53), scale=600)
_QUARTER = 0.5
"""A quarter of a turn, in half turns: cos(x) = sin(x + pi/2)."""
_LEAST_SUMMED = -60
"""The binary exponent below which products are summed separately, because they are below the last
place of f."""
_LOW_HALF = (1 << 27) - 1
_PI_HIGH = float.fromhex("0x1.921fb5p+1")
_PI_LOW = float.fromhex("0x1.110b4611a6263p-25")


def sine(b: Body, x: str) -> str:
    """Write sin of `x`, an f32 or f64. It is NaN for infinities."""
    y = _of_f32(b, x) if b.fmt.bits == 32 else _of_f64(b, x)
    # If the cube is below a quarter of the last place, the result is x. So zeros keep their sign.
    small = 2.0 ** -(b.fmt.mantissa // 2 + 2)
    return b.select(b.compare("olt", b.intrinsic("fabs", x), b.const(small)), x, y)


def cosine(b: Body, x: str) -> str:
    """Write cos of `x`, an f32 or f64. It is NaN for infinities."""
    y = _of_f32(b, x, _QUARTER) if b.fmt.bits == 32 else _of_f64(b, x, _QUARTER)
    # If half the square is below half the last place, the result is 1.
    small = 2.0 ** -(b.fmt.mantissa // 2 + 2)
    one = b.const(1.0)
    return b.select(b.compare("olt", b.intrinsic("fabs", x), b.const(small)), one, y)


def tangent(b: Body, x: str) -> str:
    """Write tan of `x`, an f32 or f64, as sin(x) / cos(x). It is NaN for infinities."""
    if b.fmt.bits == 32:
        wide = widened(b)
        y = wide.div(_sine_of_f32(b, x, wide), _sine_of_f32(b, x, wide, _QUARTER))
        y = converted(wide, "fptrunc", y, b)
    else:
        y = b.div(_of_f64(b, x), _of_f64(b, x, _QUARTER))
    small = 2.0 ** -(b.fmt.mantissa // 2 + 2)
    return b.select(b.compare("olt", b.intrinsic("fabs", x), b.const(small)), x, y)


def widened(b: Body) -> Body:
    """Return a writer of f64 operations among the lines of `b`."""
    wide = Body(FORMATS[DType.F64], b.lanes)
    wide.lines = b.lines
    return wide


def _of_f32(b: Body, x: str, shift: float = 0.0) -> str:
    """Write sin(x + pi `shift`) of an f32."""
    wide = widened(b)
    return converted(wide, "fptrunc", _sine_of_f32(b, x, wide, shift), b)


def _sine_of_f32(b: Body, x: str, wide: Body, shift: float = 0.0) -> str:
    """Return sin(x + pi `shift`) as an f64, of an f32."""
    parts = (converted(b, "fpext", x, wide),)
    turns, _, sign = _half_turns(wide, parts, _NARROW, shift)
    r = wide.mul(turns, wide.const(math.pi))
    z = wide.mul(r, r)
    y = wide.mul(r, wide.polynomial((1.0, *_taylor(6)), z))
    return _with_sign(wide, y, sign)


def _of_f64(b: Body, x: str, shift: float = 0.0) -> str:
    """Write sin(x + pi `shift`) of an f64. pi f is represented by two numbers, because rounding to
    one number would be the largest error."""
    high = without_low_half(b, x)
    turns, rest, sign = _half_turns(b, (b.sub(x, high), high), _WIDE, shift)
    turns_high = without_low_half(b, turns)
    turns_low = b.add(b.sub(turns, turns_high), rest)
    r_high = b.mul(turns_high, b.const(_PI_HIGH))
    r_low = b.muladd(turns_high, b.const(_PI_LOW), b.mul(turns_low, b.const(math.pi)))
    r = b.add(r_high, r_low)
    z = b.mul(r, r)
    y = b.add(r_high, b.muladd(b.mul(r, z), b.polynomial(_taylor(10), z), r_low))
    return _with_sign(b, y, sign)


def _half_turns(b: Body, parts: tuple[str, ...], w: _Window, shift: float) -> tuple[str, str, str]:
    """Return `(f, rest, sign)` with x / pi + `shift` = n + f + rest for some integer n.

    x is the sum of `parts`, the smallest first. The lowest bit of `sign` is the lowest bit of n.
    `rest` is below the last place of f. Sums are exact near zero. Each is reduced to within 1/2
    before smaller products are added. Therefore the remainder has all its bits even if x is near a
    multiple of pi.
    """
    digits = _digits(b, parts[-1], len(parts) - 1, w)
    parts = tuple(b.mul(part, b.const(2.0**-w.scale)) for part in parts) if w.scale else parts
    products = [(top - w.bits * i, part, digits[n + i])
                for n, (top, part) in enumerate(zip(w.tops, parts, strict=True))
                for i in range(w.count)]  # fmt: skip
    is_double = len(parts) > 1
    total, rest, signs = b.const(shift) if shift else "", b.const(0.0), list[str]()
    for top, part, digit in sorted(products, key=lambda product: -product[0]):
        if top < _LEAST_SUMMED and is_double:
            rest = b.muladd(part, digit, rest)
            continue
        if top > b.fmt.mantissa - 1:  # drop a multiple of four, which does not change the sign
            even = b.const(4 * b.fmt.magic)
            term = b.muladd(part, digit, b.sub(even, b.muladd(part, digit, even)))
        elif top > -2:
            n, less = _rounded(b, b.muladd(part, digit, total) if total else b.mul(part, digit))
            term = b.muladd(part, digit, less)
            signs.append(n)
        else:
            term = b.mul(part, digit)
        if total and is_double:
            total, error = two_sum(b, total, term)
            rest = b.add(rest, error)
        else:
            total = b.add(total, term) if total else term
    n, less = _rounded(b, total)
    sign = reduce(lambda one, other: b.int_op("xor", one, other), [*signs, n])
    return b.add(total, less), rest, sign


def _digits(b: Body, x: str, leading_zeros: int, w: _Window) -> list[str]:
    """Select the digits of 1/pi that are significant for |x|. Return them with their place values
    (`_inverse_pi`). `leading_zeros` zeros are placed before the first digit of 1/pi."""
    left = sum(w.steps)
    wanted = w.count + leading_zeros
    values = (0.0,) * leading_zeros + _inverse_pi(w.bits, wanted + left, w.scale)
    digits = [b.const(value) for value in values]
    size = b.intrinsic("fabs", x)
    for step in w.steps:
        left -= step
        is_large = b.compare("oge", size, b.const(2.0 ** (w.bits * step + w.first)))
        digits = [b.select(is_large, digits[i + step], digits[i]) for i in range(wanted + left)]
        if left:
            size = b.select(is_large, b.mul(size, b.const(2.0 ** (-w.bits * step))), size)
    return digits


@cache
def _inverse_pi(bits: int, count: int, scale: int) -> tuple[float, ...]:
    """Return the first `count` digits of 1/pi in base 2**bits with their place values: digit i,
    counted from 0, times 2**(scale - bits * (i + 1)). Their sum is about 2**scale / pi.

    pi is computed in integers by Machin's formula, 16 arctan(1/5) - 4 arctan(1/239).
    """
    one = 1 << (bits * count + 64)

    def arctan_of_inverse(n: int) -> int:
        terms, power = 0, one // n
        for k in range(1, one.bit_length(), 2):
            terms += power // k if k % 4 == 1 else -(power // k)
            power //= n * n
        return terms

    pi = 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)
    inverse = (one << (bits * count)) // pi
    last = (1 << bits) - 1
    return tuple(
        math.ldexp((inverse >> (bits * (count - 1 - i))) & last, scale - bits * (i + 1))
        for i in range(count)
    )


def _taylor(count: int) -> tuple[float, ...]:
    """Return the first `count` coefficients of the series of sin(r) / r in powers of r**2, without
    the leading 1."""
    return tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(1, count + 1))


def _rounded(b: Body, x: str) -> tuple[str, str]:
    """Return `(t, -n)` for the integer n nearest to `x`. n is in the low bits of t."""
    magic = b.const(b.fmt.magic)
    t = b.add(x, magic)
    return b.to_bits(t), b.sub(magic, t)


def two_sum(b: Body, x: str, y: str) -> tuple[str, str]:
    """Return x + y rounded, and the rounding error (D. Knuth, The Art of Computer Programming 2,
    4.2.2)."""
    total = b.add(x, y)
    virtual = b.sub(total, x)
    return total, b.add(b.sub(x, b.sub(total, virtual)), b.sub(y, virtual))


def without_low_half(b: Body, x: str) -> str:
    """Return `x` with only the upper 26 bits of its significand."""
    return b.from_bits(b.int_op("and", b.to_bits(x), b.int_const(~_LOW_HALF)))


def _with_sign(b: Body, x: str, sign: str) -> str:
    """Return `x`, negated if the lowest bit of `sign` is set."""
    moved = b.int_op("shl", sign, b.int_const(b.fmt.bits - 1))
    return b.from_bits(b.int_op("xor", b.to_bits(x), moved))


def converted(b: Body, how: str, x: str, to: Body) -> str:
    """Return `x` converted from the format of `b` to that of `to` by the instruction `how`."""
    name = f"%v{len(b.lines)}"
    b.lines.append(f"  {name} = {how} {b.floats} {x} to {to.floats}")
    return name
