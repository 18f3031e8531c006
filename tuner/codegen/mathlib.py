"""Vector math functions of generated kernels, as LLVM text, for every lane count.

Branch-free, without tables, gathers or calls of libm: range reduction, a polynomial, and bit
operations that every target has. `docs/math.md` states and measures the errors. Results are the
same for every lane count of a target; targets with and without fused multiply-add may differ in
the last bit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from schedules.dtypes import DType
from schedules.scalar import UnaryOp
from schedules.target import Target

from . import math_polynomials as fitted


@dataclass(frozen=True, slots=True)
class MathFunction:
    """`define internal VECTOR @name(VECTOR %x)`, always inlined.

    Emit `text` once a module, after that of everything in `needs`. The intrinsics it calls need
    no declaration: LLVM's parser knows them.
    """

    name: str
    text: str
    needs: tuple[MathFunction, ...] = ()


def math_function(
    op: UnaryOp, dtype: DType, lanes: int, target: Target | None = None
) -> MathFunction:
    """`op` on `lanes` values of f32 or f64: `<lanes x float>`, or plain `float` for one lane.

    `target` matters where a target lacks an instruction (FLOOR before SSE4.1); None assumes that
    it does not. ValueError for operations that are one LLVM instruction (neg, abs) and for types
    other than f32 and f64: bf16 is computed in f32.
    """
    if op not in _EMITTERS or dtype not in _FORMATS or lanes < 1:
        raise ValueError(
            f"math_function({op.value}, {dtype.value}, lanes={lanes}): takes one of "
            f"{', '.join(o.value for o in _EMITTERS)}, f32 or f64, and at least one lane"
        )
    emit = _EMITTERS[op]
    if op is UnaryOp.FLOOR and target is not None and not _has_rounding(target):
        emit = _floor_by_adding
    name = f"tw_{op.value}_{dtype.value}" + (f"x{lanes}" if lanes > 1 else "")
    body = _Body(_FORMATS[dtype], lanes)
    result = emit(body, "%x")
    head = f"define internal {body.floats} @{name}({body.floats} %x)"
    attributes = "alwaysinline nounwind willreturn memory(none)"
    lines = [f"{head} {attributes} {{", *body.lines, f"  ret {body.floats} {result}", "}"]
    return MathFunction(name, "\n".join(lines) + "\n")


def is_math_function(op: UnaryOp) -> bool:
    """Whether `math_function` makes `op`; the others are one LLVM instruction."""
    return op in _EMITTERS


def _has_rounding(target: Target) -> bool:
    """Whether `llvm.floor` is one instruction; features a `cpu` implies need not be listed."""
    x86 = target.triple.startswith(("x86_64", "i686", "i386"))
    return not x86 or target.vector_bits > 128 or "sse4.1" in target.features


@dataclass(frozen=True, slots=True)
class _Format:
    """A binary floating-point format and the constants of its range reductions.

    `ln2_high` has so few bits that its product with any exponent is exact, fused or not.
    `magic` is 1.5 * 2**mantissa: adding it rounds to an integer, left in the low bits.
    """

    element: str
    bits: int
    mantissa: int
    bias: int
    ln2_high: float
    ln2_low: float
    exp_low: float
    exp_high: float
    sigmoid_shift: int
    tanh_split: float
    tanh_high: float
    erf_split: float
    erf_center: float
    erf_high: float
    exp: tuple[float, ...]
    log: tuple[float, ...]
    tanh_head: tuple[float, ...]
    erf_head: tuple[float, ...]
    erf_tail: tuple[float, ...]

    @property
    def magic(self) -> float:
        return 1.5 * 2.0**self.mantissa

    @property
    def ones(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa


# exp_low and exp_high lie just beyond the arguments where exp becomes 0 and infinity;
# beyond tanh_high and erf_high the result rounds to 1.
_FORMATS = {
    DType.F32: _Format(
        element="float", bits=32, mantissa=23, bias=127,
        ln2_high=0.693145751953125, ln2_low=1.428606765330187e-06,
        exp_low=-104.0, exp_high=89.0, sigmoid_shift=24,
        tanh_split=0.34375, tanh_high=10.0, erf_split=0.9375, erf_center=1.0, erf_high=4.0,
        exp=fitted.EXP_F32, log=fitted.LOG_F32, tanh_head=fitted.TANH_LOW_F32,
        erf_head=fitted.ERF_LOW_F32, erf_tail=fitted.ERF_TAIL_F32,
    ),
    DType.F64: _Format(
        element="double", bits=64, mantissa=52, bias=1023,
        ln2_high=0.6931471805598903, ln2_low=5.497923018708371e-14,
        exp_low=-746.0, exp_high=710.0, sigmoid_shift=60,
        tanh_split=0.0, tanh_high=20.0, erf_split=1.0, erf_center=1.5, erf_high=6.0,
        exp=fitted.EXP_F64, log=fitted.LOG_F64, tanh_head=(),
        erf_head=fitted.ERF_LOW_F64, erf_tail=fitted.ERF_TAIL_F64,
    ),
}  # fmt: skip


class _Body:
    """Writes the instructions of one function. Methods return the name of the value they make."""

    def __init__(self, fmt: _Format, lanes: int) -> None:
        self.fmt = fmt
        self.lines: list[str] = []
        self.floats = self._type(fmt.element, lanes)
        self.ints = self._type(f"i{fmt.bits}", lanes)
        self._bools = self._type("i1", lanes)
        self._lanes = lanes
        self._suffix = (f"v{lanes}" if lanes > 1 else "") + f"f{fmt.bits}"

    @staticmethod
    def _type(element: str, lanes: int) -> str:
        return f"<{lanes} x {element}>" if lanes > 1 else element

    def const(self, value: float) -> str:
        """A float constant, exact: written as the bits of the double of the same value."""
        text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        return f"splat ({self.fmt.element} {text})" if self._lanes > 1 else text

    def int_const(self, value: int) -> str:
        return f"splat (i{self.fmt.bits} {value})" if self._lanes > 1 else str(value)

    def _new(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def arith(self, op: str, a: str, b: str) -> str:
        return self._new(f"{op} {self.floats} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.arith("fadd", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.arith("fsub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.arith("fmul", a, b)

    def div(self, a: str, b: str) -> str:
        return self.arith("fdiv", a, b)

    def int_op(self, op: str, a: str, b: str) -> str:
        return self._new(f"{op} {self.ints} {a}, {b}")

    def muladd(self, a: str, b: str, c: str) -> str:
        """`a * b + c`: fused where the target can, so never relied on for an exact product."""
        t = self.floats
        return self._new(f"call {t} @llvm.fmuladd.{self._suffix}({t} {a}, {t} {b}, {t} {c})")

    def intrinsic(self, name: str, x: str) -> str:
        return self._new(f"call {self.floats} @llvm.{name}.{self._suffix}({self.floats} {x})")

    def copysign(self, magnitude: str, sign: str) -> str:
        t = self.floats
        return self._new(f"call {t} @llvm.copysign.{self._suffix}({t} {magnitude}, {t} {sign})")

    def compare(self, condition: str, a: str, b: str) -> str:
        return self._new(f"fcmp {condition} {self.floats} {a}, {b}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self._new(f"select {self._bools} {condition}, {self.floats} {a}, {self.floats} {b}")

    def at_least(self, x: str, low: str) -> str:
        """`max(x, low)` that keeps a NaN: on x86 one `maxps` with its operands in this order."""
        return self.select(self.compare("ogt", low, x), low, x)

    def at_most(self, x: str, high: str) -> str:
        return self.select(self.compare("olt", high, x), high, x)

    def to_bits(self, x: str) -> str:
        return self._new(f"bitcast {self.floats} {x} to {self.ints}")

    def from_bits(self, x: str) -> str:
        return self._new(f"bitcast {self.ints} {x} to {self.floats}")

    def polynomial(self, coefficients: tuple[float, ...], x: str) -> str:
        """Horner's rule: fewest operations; other vectors of the loop fill the latency."""
        value = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self.muladd(value, x, self.const(c))
        return value


def _reduce(b: _Body, x: str, offset: int, sign: int = 1) -> tuple[str, str]:
    """`(sign * p, z)`: exp(sign * x) = 2**n * (1 + p); the low bits of z hold n + offset.

    n = round(sign * x / ln 2) leaves |r| <= ln(2)/2 when n ln 2 is taken off in two parts (Cody
    and Waite, 1980), p = r + r^2 q(r). With sign = -1 all of it is done on -r, by other constants:
    a negated argument would move into the clamp before it and undo its `minps`.
    """
    f = b.fmt
    magic = b.const(f.magic + offset)
    z = b.muladd(x, b.const(sign * _round(f, 1 / math.log(2))), magic)
    n = b.sub(z, magic)
    r = b.muladd(n, b.const(-sign * f.ln2_high), x)
    r = b.muladd(n, b.const(-sign * f.ln2_low), r)
    q = b.polynomial(tuple(sign ** (i + 1) * c for i, c in enumerate(f.exp)), r)
    return b.muladd(b.mul(r, r), q, r), b.to_bits(z)


def _round(fmt: _Format, value: float) -> float:
    if fmt.bits == 64:
        return value
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _power_of_two(b: _Body, biased: str) -> str:
    """2**(k - bias) for the k in the low bits of `biased`, whose other bits are shifted out.

    A k of 2 * (bias + 1) more gives the same factor with its sign bit set.
    """
    return b.from_bits(b.int_op("shl", biased, b.int_const(b.fmt.mantissa)))


def _exp_in_range(b: _Body, x: str) -> str:
    """exp for arguments clamped to exp_low..exp_high.

    2**n is applied as a product of two halves, each a normal number: results come out gradually
    denormal, and infinite, with a single rounding. One factor 2**n would be neither at the ends.
    """
    p, z = _reduce(b, x, 2 * b.fmt.bias)
    half = b.int_op("lshr", z, b.int_const(1))
    rest = b.int_op("sub", z, half)
    first = _power_of_two(b, half)
    return b.mul(b.muladd(p, first, first), _power_of_two(b, rest))


def _exp(b: _Body, x: str) -> str:
    f = b.fmt
    clamped = b.at_most(b.at_least(x, b.const(f.exp_low)), b.const(f.exp_high))
    return _exp_in_range(b, clamped)


def _sigmoid(b: _Body, x: str) -> str:
    """c / (c + c exp(-x)) with c = 2**-sigmoid_shift.

    c keeps the exponential finite down to where the result becomes 0, so small results come out
    right, denormal ones too; and the power of two is a normal number over the whole range.
    """
    f = b.fmt
    clamped = b.at_most(b.at_least(x, b.const(f.exp_low)), b.const(-f.exp_low / 2))
    sign_bit = 2 * (f.bias + 1)  # of the factor: both it and p come out negated
    p, z = _reduce(b, clamped, f.bias - f.sigmoid_shift + sign_bit, sign=-1)
    scale, c = _power_of_two(b, z), b.const(2.0**-f.sigmoid_shift)
    return b.div(c, b.sub(b.muladd(p, scale, c), scale))


def _tanh(b: _Body, x: str) -> str:
    """t / (t+2) with t = expm1(2|x|): no cancellation anywhere, as 2**n - 1 is exact.

    The roundings of t, t+2 and the division may add up to 2.5 units where |x| is small; f32,
    held to 2, takes x + x^3 p(x^2) there.
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


def _erf(b: _Body, x: str) -> str:
    """x + x p(x^2) near zero, 1 - exp(p(|x|)) beyond; both are computed, one is taken."""
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


def _log_parts(b: _Body, x: str) -> tuple[str, str]:
    """`(k, f)`: x = 2**k * (1+f), sqrt(1/2) <= 1+f < sqrt(2), for x > 0, denormal or not.

    k is made by writing the exponent into the mantissa of 2**mantissa: conversions of 64-bit
    integers, and their arithmetic shifts, are slow or missing before AVX-512.
    """
    f = b.fmt
    smallest = b.const(2.0 ** (1 - f.bias))
    denormal = b.compare("olt", x, smallest)
    scaled = b.select(denormal, b.mul(x, b.const(2.0**f.mantissa)), x)
    base = 2.0**f.mantissa
    offset = b.select(denormal, b.const(base + f.bias + f.mantissa), b.const(base + f.bias))
    low = _bits_of(f, math.sqrt(0.5))
    moved = b.int_op("add", b.to_bits(scaled), b.int_const(f.ones - low))
    exponent = b.int_op("lshr", moved, b.int_const(f.mantissa))
    in_mantissa = b.int_op("or", exponent, b.int_const((f.bias + f.mantissa) << f.mantissa))
    k = b.sub(b.from_bits(in_mantissa), offset)
    mantissa = b.int_op("and", moved, b.int_const((1 << f.mantissa) - 1))
    m = b.from_bits(b.int_op("add", mantissa, b.int_const(low)))
    return k, b.sub(m, b.const(1.0))


def _bits_of(fmt: _Format, value: float) -> int:
    code, integer = ("<d", "<Q") if fmt.bits == 64 else ("<f", "<I")
    return int(struct.unpack(integer, struct.pack(code, value))[0])


def _log(b: _Body, x: str) -> str:
    """k ln 2 + log(1+f); zero, negative, infinite and NaN arguments are put right at the end."""
    k, f = _log_parts(b, x)
    finite = _log_of_parts_f32(b, k, f) if b.fmt.bits == 32 else _log_of_parts_f64(b, k, f)
    zero, infinity = b.const(0.0), b.const(math.inf)
    kept = b.select(b.compare("olt", x, infinity), finite, x)  # infinity and NaN stay themselves
    outside = b.select(b.compare("oeq", x, zero), b.const(-math.inf), b.const(math.nan))
    return b.select(b.compare("ole", x, zero), outside, kept)


def _log_of_parts_f32(b: _Body, k: str, f: str) -> str:
    square = b.mul(f, f)
    q = b.polynomial(b.fmt.log, f)
    y = b.muladd(b.mul(q, f), square, b.mul(k, b.const(b.fmt.ln2_low)))
    y = b.muladd(square, b.const(-0.5), y)
    return b.muladd(k, b.const(b.fmt.ln2_high), b.add(y, f))


def _log_of_parts_f64(b: _Body, k: str, f: str) -> str:
    """Through s = f / (2+f), where 2 atanh(s) = log(1+f): a division saves ten multiply-adds.

    Source: K. C. Ng, `e_log.c` of FDLIBM (Sun Microsystems, 1993), for the order of the sum.
    """
    s = b.div(f, b.add(f, b.const(2.0)))
    z = b.mul(s, s)
    r = b.mul(z, b.polynomial(b.fmt.log, z))
    half_square = b.mul(b.mul(f, f), b.const(0.5))
    low = b.muladd(s, b.add(half_square, r), b.mul(k, b.const(b.fmt.ln2_low)))
    return b.muladd(k, b.const(b.fmt.ln2_high), b.add(b.sub(low, half_square), f))


def _sqrt(b: _Body, x: str) -> str:
    return b.intrinsic("sqrt", x)


def _rsqrt(b: _Body, x: str) -> str:
    """1 / sqrt(x): two correctly rounded operations."""
    return b.div(b.const(1.0), b.intrinsic("sqrt", x))


def _floor(b: _Body, x: str) -> str:
    return b.intrinsic("floor", x)


def _floor_by_adding(b: _Body, x: str) -> str:
    """floor without a rounding instruction, where `llvm.floor` would call libm.

    Adding and subtracting 2**mantissa rounds to an integer; one too high is corrected. Larger
    magnitudes, infinities and NaN are integers or themselves already.
    """
    large = b.const(2.0**b.fmt.mantissa)
    magnitude = b.intrinsic("fabs", x)
    rounded = b.copysign(b.sub(b.add(magnitude, large), large), x)
    lower = b.sub(rounded, b.const(1.0))
    floor = b.select(b.compare("ogt", rounded, x), lower, rounded)
    return b.select(b.compare("olt", magnitude, large), floor, x)


_EMITTERS: dict[UnaryOp, Callable[[_Body, str], str]] = {
    UnaryOp.EXP: _exp,
    UnaryOp.LOG: _log,
    UnaryOp.SQRT: _sqrt,
    UnaryOp.RSQRT: _rsqrt,
    UnaryOp.TANH: _tanh,
    UnaryOp.ERF: _erf,
    UnaryOp.SIGMOID: _sigmoid,
    UnaryOp.FLOOR: _floor,
}
