"""Vector math functions of generated kernels, as LLVM text, for every lane count.

The functions have no branches, tables in memory, gathers or calls of libm. They consist of a range
reduction, a polynomial, and bit operations that every target has. With AVX2 or AVX-512, some look
up coefficients in registers. `docs/math.md` states and measures the errors. Results are the same
for every lane count of a target. Targets with different instructions may differ in the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tilewright.schedules.algebra.scalar import UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import Target

from ..isa.instruction_set import instruction_set
from . import math_polynomials as fitted
from .math_body import FORMATS, Body, bits_of, round_to
from .piecewise import piecewise
from .sine import sine


@dataclass(frozen=True, slots=True)
class MathFunction:
    """A function `define internal VECTOR @name(VECTOR %x)`, which is always inlined.

    It calls intrinsics without declarations, because LLVM's parser knows them.
    """

    name: str
    text: str
    """Its definition."""
    lines: tuple[str, ...] = ()
    """Its instructions."""
    result: str = ""
    """The name of its result."""


@lru_cache(maxsize=256)
def math_function(
    op: UnaryOp, dtype: DType, lanes: int, target: Target | None = None
) -> MathFunction:
    """Return the function that computes `op` for `lanes` values of f32 or f64. Its argument is a
    vector `<lanes x float>`, or a `float` if there is one lane.

    `target` selects the instructions. Without it, they fit every target that rounds to integers.
    Raise ValueError for operations that are one LLVM instruction (neg, abs) and for types other
    than f32 and f64: narrow floats are computed in f32.
    """
    if op not in _EMITTERS or dtype not in FORMATS or lanes < 1:
        raise ValueError(
            f"math_function({op.value}, {dtype.value}, lanes={lanes}): takes one of "
            f"{', '.join(o.value for o in _EMITTERS)}, f32 or f64, and at least one lane"
        )
    name = f"tw_{op.value}_{dtype.value}" + (f"x{lanes}" if lanes > 1 else "")
    body = Body(FORMATS[dtype], lanes)
    table = _by_table(op, dtype, target)
    if table is not None:
        result = _side_by_side(table.emit, body, "%x", table.lanes)
    else:
        result = _emitter(op, dtype, lanes, target)(body, "%x")
    head = f"define internal {body.floats} @{name}({body.floats} %x)"
    attributes = "alwaysinline nounwind willreturn memory(none)"
    lines = [f"{head} {attributes} {{", *body.lines, f"  ret {body.floats} {result}", "}"]
    return MathFunction(name, "\n".join(lines) + "\n", tuple(body.lines), result)


@dataclass(frozen=True, slots=True)
class _ByTable:
    """A function that looks up tables in registers. It uses them for every number of lanes, because
    results must not depend on that number."""

    emit: Callable[[Body, str], str]
    lanes: int
    """The number of lanes of the vectors for which `emit` writes code."""


def _by_table(op: UnaryOp, dtype: DType, target: Target | None) -> _ByTable | None:
    """Return how `target` computes `op` with tables in registers, or None if it does not."""
    if target is None or dtype is not DType.F32:
        return None
    floats = instruction_set(target).table_floats
    if op is UnaryOp.EXP and floats == len(_SIXTEENTHS) and _scales(target, dtype, floats):
        return _ByTable(_exp_by_table, floats)
    if op is UnaryOp.LOG and floats == len(fitted.LOG_16_F32_LOGS):
        return _ByTable(_log_by_table, floats)
    emit = piecewise(op, floats)
    return None if emit is None else _ByTable(emit, floats)


def _emitter(
    op: UnaryOp, dtype: DType, lanes: int, target: Target | None
) -> Callable[[Body, str], str]:
    """Return the function that writes `op` without tables."""
    if op is UnaryOp.FLOOR and target is not None and not instruction_set(target).floor:
        return _floor_by_adding
    if op is UnaryOp.EXP and target is not None and _scales(target, dtype, lanes):
        return _exp_scaled
    return _EMITTERS[op]


def _side_by_side(emit: Callable[[Body, str], str], body: Body, x: str, width: int) -> str:
    """Apply `emit`, which only writes code for vectors of `width` lanes, to a vector of any number
    of lanes. The instructions of these vectors alternate, so that their dependence chains
    overlap."""
    if body.lanes == width:
        return emit(body, x)
    one = Body(body.fmt, width)
    result = emit(one, "%x")
    parts = [body.part(x, start, width) for start in range(0, body.lanes, width)]
    copies = [body.beside(one.lines, result, part) for part in parts]
    for step in zip(*(lines for lines, _ in copies), strict=True):
        body.lines.extend(step)
    return body.joined([name for _, name in copies], width)


def is_math_function(op: UnaryOp) -> bool:
    """Return whether `op` needs `math_function`. Other operations are one LLVM instruction."""
    return op in _EMITTERS


def _scales(target: Target, dtype: DType, lanes: int) -> bool:
    """Return whether AVX-512 can scale vectors of `lanes` by powers of two and limit their
    magnitude."""
    return lanes * dtype.bytes * 8 in instruction_set(target).scaled_bits


def _reduce(b: Body, x: str, offset: int, sign: int = 1) -> tuple[str, str]:
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


def _reduced(b: Body, x: str) -> tuple[str, str]:
    """Return `(p, n)` with exp(x) = 2**n * (1 + p). n is a float, and p is finite for every x."""
    f = b.fmt
    magic = b.const(f.magic)
    n = b.sub(b.muladd(x, b.const(round_to(f, 1 / math.log(2))), magic), magic)
    r = _remainder(b, x, n, 1.0)
    return b.muladd(b.mul(r, r), b.polynomial(f.exp, r), r), n


def _remainder(b: Body, x: str, n: str, step: float) -> str:
    """Return x - n ln 2. n is the multiple of `step` that is nearest to x / ln 2. If x is NaN or
    too large for n, the result is limited to about step * ln(2) / 2."""
    f = b.fmt
    r = b.muladd(n, b.const(-f.ln2_high), x)
    r = b.muladd(n, b.const(-f.ln2_low), r)
    return b.limited(r, round_to(f, 0.51 * step * math.log(2)))


def _power_of_two(b: Body, biased: str) -> str:
    """Return 2**(k - bias) for the number k in the low bits of `biased`. The other bits are
    ignored.

    If k is larger by 2 * (bias + 1), the result is negated.
    """
    return b.from_bits(b.int_op("shl", biased, b.int_const(b.fmt.mantissa)))


def _exp(b: Body, x: str) -> str:
    """Write exp for arguments clamped to exp_low..exp_high.

    2**n is applied as two factors, each a normal number, so that results become denormal or
    infinite with a single rounding. At the ends of the range a single factor 2**n is not
    representable.
    """
    f = b.fmt
    clamped = b.at_most(b.at_least(x, b.const(f.exp_low)), b.const(f.exp_high))
    p, z = _reduce(b, clamped, 2 * f.bias)
    half = b.int_op("lshr", z, b.int_const(1))
    rest = b.int_op("sub", z, half)
    first = _power_of_two(b, half)
    return b.mul(b.muladd(p, first, first), _power_of_two(b, rest))


def _exp_scaled(b: Body, x: str) -> str:
    """Write exp with the instruction that scales by a power of two. The bits equal those of `_exp`.

    The remainder is clamped instead of x. Then the number to be scaled is finite, so n alone makes
    the result 0, infinity or NaN outside the range of finite results.
    """
    p, n = _reduced(b, x)
    return b.scalef(b.add(p, b.const(1.0)), n)


def _exp_by_table(b: Body, x: str) -> str:
    """Write exp with n in steps of 1/16 and the instruction that scales by a power of two.

    For |r| <= ln(2)/32, exp(r) = 1 + r (1 + r/2 + r^2/6) to 2^-26.7. The low four bits of z are j,
    the number of sixteenths in n: 2**(j/16) is read from a table in a register, and `scalef` uses
    floor(n).
    """
    f = b.fmt
    magic = b.const(f.magic / len(_SIXTEENTHS))
    z = b.muladd(x, b.const(round_to(f, 1 / math.log(2))), magic)
    n = b.sub(z, magic)
    power = b.lookup(tuple(round_to(f, v) for v in _SIXTEENTHS), b.to_bits(z))
    r = _remainder(b, x, n, 1 / len(_SIXTEENTHS))
    q = b.polynomial((1.0, 0.5, round_to(f, 1 / 6)), r)
    return b.scalef(b.muladd(b.mul(power, r), q, power), n)


_SIXTEENTHS = tuple(2.0 ** (j / 16) for j in range(16))


def _sigmoid(b: Body, x: str) -> str:
    """Write c / (c + c exp(-x)), where c is 2**-sigmoid_shift.

    c keeps the exponential finite for all x whose result is above 0. Therefore denormal results are
    accurate, and the power of two is a normal number for all x.
    """
    f = b.fmt
    clamped = b.at_most(b.at_least(x, b.const(f.exp_low)), b.const(-f.exp_low / 2))
    sign_bit = 2 * (f.bias + 1)  # it negates the power of two; p is negated too
    p, z = _reduce(b, clamped, f.bias - f.sigmoid_shift + sign_bit, sign=-1)
    scale, c = _power_of_two(b, z), b.const(2.0**-f.sigmoid_shift)
    return b.div(c, b.sub(b.muladd(p, scale, c), scale))


def _tanh(b: Body, x: str) -> str:
    """Write t / (t + 2) with t = expm1(2|x|). 2**n - 1 is exact, so nothing cancels.

    For small |x|, the roundings of t, t + 2 and the quotient may add up to 2.5 units in the last
    place. The limit of f32 is 2 units, so for small |x| f32 uses x + x^3 p(x^2).
    """
    f = b.fmt
    size = b.intrinsic("fabs", x)
    clamped = b.at_most(size, b.const(f.tanh_high))
    p, z = _reduce(b, b.add(clamped, clamped), f.bias)
    scale = _power_of_two(b, z)
    t = b.muladd(p, scale, b.sub(scale, b.const(1.0)))
    far = b.div(t, b.add(t, b.const(2.0)))
    if not f.tanh_head:
        return b.copysign(far, x)
    square = b.mul(x, x)
    near = b.muladd(b.mul(square, size), b.polynomial(f.tanh_head, square), size)
    return b.copysign(b.select(b.compare("olt", size, b.const(f.tanh_split)), near, far), x)


def _erf(b: Body, x: str) -> str:
    """Write x + x p(x^2) near zero and 1 - exp(p(|x|)) for larger |x|, and select one of them."""
    f = b.fmt
    magnitude = b.intrinsic("fabs", x)
    square = b.mul(magnitude, magnitude)
    near = b.muladd(b.polynomial(f.erf_head, square), magnitude, magnitude)
    t = b.sub(b.at_most(magnitude, b.const(f.erf_high)), b.const(f.erf_center))
    p, z = _reduce(b, b.polynomial(f.erf_tail, t), f.bias)
    scale = _power_of_two(b, z)
    complement = b.muladd(p, scale, scale)
    far = b.sub(b.const(1.0), complement)
    chosen = b.select(b.compare("olt", magnitude, b.const(f.erf_split)), near, far)
    return b.copysign(chosen, x)


def _log_parts(b: Body, x: str) -> tuple[str, str]:
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


def _log(b: Body, x: str) -> str:
    """Write k ln 2 + log(1+f), then select the results of zero, negative, infinite and NaN
    arguments."""
    k, f = _log_parts(b, x)
    finite = _log_of_parts_f32(b, k, f) if b.fmt.bits == 32 else _log_of_parts_f64(b, k, f)
    zero, infinity = b.const(0.0), b.const(math.inf)
    # infinity and NaN are returned unchanged
    kept = b.select(b.compare("olt", x, infinity), finite, x)
    outside = b.select(b.compare("oeq", x, zero), b.const(-math.inf), b.const(math.nan))
    return b.select(b.compare("ole", x, zero), outside, kept)


def _log_by_table(b: Body, x: str) -> str:
    """Write log of f32 with the instructions that split x into 2**k m, and a table of 16 entries.

    log(x) = k ln 2 + log[j] + log(1 + r), r = (m - center[j]) * inverse[j]. The sum of the upper
    part of k ln 2 and log[j] is exact, and so is m - center[j]. The instructions give the results
    of zero, negative, infinite and NaN arguments.
    """
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
    return b.add(high, b.muladd(difference, inverse, low))


def _log_of_parts_f32(b: Body, k: str, f: str) -> str:
    square = b.mul(f, f)
    q = b.polynomial(b.fmt.log, f)
    y = b.muladd(b.mul(q, f), square, b.mul(k, b.const(b.fmt.ln2_low)))
    y = b.muladd(square, b.const(-0.5), y)
    return b.muladd(k, b.const(b.fmt.ln2_high), b.add(y, f))


def _log_of_parts_f64(b: Body, k: str, f: str) -> str:
    """Write log by s = f / (2+f), as 2 atanh(s) = log(1+f): one division saves ten multiply-adds.

    Source for the order of the sum: K. C. Ng, `e_log.c` of FDLIBM (Sun Microsystems, 1993).
    """
    s = b.div(f, b.add(f, b.const(2.0)))
    z = b.mul(s, s)
    r = b.mul(z, b.polynomial(b.fmt.log, z))
    half_square = b.mul(b.mul(f, f), b.const(0.5))
    low = b.muladd(s, b.add(half_square, r), b.mul(k, b.const(b.fmt.ln2_low)))
    return b.muladd(k, b.const(b.fmt.ln2_high), b.add(b.sub(low, half_square), f))


def _sqrt(b: Body, x: str) -> str:
    return b.intrinsic("sqrt", x)


def _rsqrt(b: Body, x: str) -> str:
    """Write 1 / sqrt(x) by two correctly rounded operations."""
    return b.div(b.const(1.0), b.intrinsic("sqrt", x))


def _floor(b: Body, x: str) -> str:
    return b.intrinsic("floor", x)


def _floor_by_adding(b: Body, x: str) -> str:
    """Write floor without a rounding instruction, for targets on which `llvm.floor` calls libm.

    Adding and subtracting 2**mantissa rounds to an integer, which is corrected if it is too high.
    Larger magnitudes, infinities and NaN are returned unchanged.
    """
    large = b.const(2.0**b.fmt.mantissa)
    magnitude = b.intrinsic("fabs", x)
    rounded = b.copysign(b.sub(b.add(magnitude, large), large), x)
    lower = b.sub(rounded, b.const(1.0))
    floor = b.select(b.compare("ogt", rounded, x), lower, rounded)
    return b.select(b.compare("olt", magnitude, large), floor, x)


_EMITTERS: dict[UnaryOp, Callable[[Body, str], str]] = {
    UnaryOp.EXP: _exp,
    UnaryOp.LOG: _log,
    UnaryOp.SQRT: _sqrt,
    UnaryOp.RSQRT: _rsqrt,
    UnaryOp.TANH: _tanh,
    UnaryOp.ERF: _erf,
    UnaryOp.SIGMOID: _sigmoid,
    UnaryOp.FLOOR: _floor,
    UnaryOp.SIN: sine,
}
