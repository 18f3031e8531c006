"""Tools to write math functions: constants of float formats, and a writer of instructions."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.dtypes import DType

from ..isa import x86
from . import math_polynomials as fitted


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format and its constants for range reductions."""

    element: str
    bits: int
    mantissa: int
    bias: int
    ln2_high: float
    """ln 2, rounded to so few bits that its product with any exponent is exact."""
    ln2_low: float
    """ln 2 - `ln2_high`."""
    exp_low: float
    """Just below the arguments for which exp is 0."""
    exp_high: float
    """Just above the arguments for which exp is infinite."""
    sigmoid_shift: int
    tanh_split: float
    tanh_high: float
    """Beyond it, the magnitude of tanh rounds to 1."""
    erf_split: float
    erf_center: float
    erf_high: float
    """Beyond it, the magnitude of erf rounds to 1."""
    exp: tuple[float, ...]
    log: tuple[float, ...]
    atan: tuple[float, ...]
    softplus: tuple[float, ...]
    tanh_head: tuple[float, ...]
    erf_head: tuple[float, ...]
    erf_tail: tuple[float, ...]

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa. Adding it to a number rounds the number to an integer, and the low
        bits of the sum are this integer."""
        return 1.5 * 2.0**self.mantissa

    @property
    def ones(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa


FORMATS = {
    DType.F32: FloatFormat(
        element="float", bits=32, mantissa=23, bias=127,
        ln2_high=0.693145751953125, ln2_low=1.428606765330187e-06,
        exp_low=-104.0, exp_high=89.0, sigmoid_shift=24,
        tanh_split=0.34375, tanh_high=10.0, erf_split=0.9375, erf_center=1.0, erf_high=4.0,
        exp=fitted.EXP_F32, log=fitted.LOG_F32, atan=fitted.ATAN_F32,
        softplus=fitted.SOFTPLUS_F32, tanh_head=fitted.TANH_LOW_F32,
        erf_head=fitted.ERF_LOW_F32, erf_tail=fitted.ERF_TAIL_F32,
    ),
    DType.F64: FloatFormat(
        element="double", bits=64, mantissa=52, bias=1023,
        ln2_high=0.6931471805598903, ln2_low=5.497923018708371e-14,
        exp_low=-746.0, exp_high=710.0, sigmoid_shift=60,
        tanh_split=0.0, tanh_high=20.0, erf_split=1.0, erf_center=1.5, erf_high=6.0,
        exp=fitted.EXP_F64, log=fitted.LOG_F64, atan=fitted.ATAN_F64,
        softplus=fitted.SOFTPLUS_F64, tanh_head=(),
        erf_head=fitted.ERF_LOW_F64, erf_tail=fitted.ERF_TAIL_F64,
    ),
}  # fmt: skip


_VALUE = re.compile(r"%(?:x|v\d+(?:\.\d+)*)(?![\w.])")


class Body:
    """A writer of the instructions of one function. Methods return the name of the result."""

    def __init__(self, fmt: FloatFormat, lanes: int) -> None:
        self.fmt = fmt
        self.lines: list[str] = []
        self.floats = self._type(fmt.element, lanes)
        self.ints = self._type(f"i{fmt.bits}", lanes)
        self._bools = self._type("i1", lanes)
        self.lanes = lanes
        self._copies = 0
        self._suffix = (f"v{lanes}" if lanes > 1 else "") + f"f{fmt.bits}"

    @staticmethod
    def _type(element: str, lanes: int) -> str:
        return f"<{lanes} x {element}>" if lanes > 1 else element

    def const(self, value: float) -> str:
        """Return an exact float constant, written as the bits of the double with the same value."""
        text = self._bits(value)
        return f"splat ({self.fmt.element} {text})" if self.lanes > 1 else text

    @staticmethod
    def _bits(value: float) -> str:
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"

    def int_const(self, value: int) -> str:
        return f"splat (i{self.fmt.bits} {value})" if self.lanes > 1 else str(value)

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
        """Write `a * b + c`, with one rounding if the target has such an instruction, else with
        two."""
        t = self.floats
        return self._new(f"call {t} @llvm.fmuladd.{self._suffix}({t} {a}, {t} {b}, {t} {c})")

    def intrinsic(self, name: str, x: str) -> str:
        return self._new(f"call {self.floats} @llvm.{name}.{self._suffix}({self.floats} {x})")

    def scalef(self, x: str, n: str) -> str:
        """Write `x * 2**floor(n)` with one rounding, by an instruction of AVX-512."""
        return self._avx512(x86.SCALE, f"{self.floats} {x}, {self.floats} {n}")

    def limited(self, x: str, limit: float) -> str:
        """Write `x` clamped to -`limit`..`limit`, by an instruction of AVX-512DQ. NaN becomes
        `limit`."""
        smaller_magnitude = 2
        operands = f"{self.floats} {x}, {self.floats} {self.const(limit)}, i32 {smaller_magnitude}"
        return self._avx512(x86.RANGE, operands)

    def mantissa(self, x: str) -> str:
        """Write `x` scaled by a power of two to within 3/4 <= m < 3/2, by an instruction of
        AVX-512. It is finite for zeros, 1 for infinity, and NaN for NaN and below 0."""
        from_three_quarters, nan_if_negative = 3, 8
        return self._avx512(
            x86.MANTISSA, f"{self.floats} {x}, i32 {from_three_quarters | nan_if_negative}"
        )

    def exponent(self, x: str) -> str:
        """Write floor(log2(abs(`x`))) as a float, by an instruction of AVX-512. It is -inf for
        zeros."""
        return self._avx512(x86.EXPONENT, f"{self.floats} {x}")

    def _avx512(self, name: str, operands: str) -> str:
        """Write an instruction without masking and with the current rounding."""
        t, element = self.floats, "ps" if self.fmt.bits == 32 else "pd"
        bits = self.lanes * self.fmt.bits
        end = f"i{max(self.lanes, 8)} -1" + (", i32 4" if bits == 512 else "")
        arguments = f"{operands}, {t} zeroinitializer, {end}"
        return self._new(f"call {t} @{name}.{element}.{bits}({arguments})")

    def lookup(self, table: tuple[float, ...], index: str) -> str:
        """Write a lookup in a table of as many floats as lanes, 8 or 16, by the low three or four
        bits of each lane of `index`."""
        t = self.floats
        entries = ", ".join(f"float {self._bits(value)}" for value in table)
        permute = x86.PERMUTE[self.lanes]
        return self._new(f"call {t} @{permute}({t} <{entries}>, {self.ints} {index})")

    def part(self, x: str, start: int, width: int) -> str:
        """Write `width` lanes of `x` from `start` on. Lanes beyond the end of `x` are undefined."""
        element = self.fmt.element
        if self.lanes == 1:
            vector = f"<{width} x {element}> poison"
            return self._new(f"insertelement {vector}, {self.floats} {x}, i32 0")
        lanes = range(start, start + width)
        return self._shuffled(x, x, self.lanes, [i if i < self.lanes else None for i in lanes])

    def joined(self, parts: list[str], width: int) -> str:
        """Write the vector whose parts of `width` lanes are `parts`, the inverse of `part`."""
        element = self.fmt.element
        if self.lanes == 1:
            return self._new(f"extractelement <{width} x {element}> {parts[0]}, i32 0")
        while len(parts) > 1:
            parts = [*parts, *parts[-1:] * (len(parts) % 2)]  # lanes beyond the end are undefined
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self._shuffled(a, b, width, list(range(2 * width))) for a, b in pairs]
            width *= 2
        if width == self.lanes:
            return parts[0]
        return self._shuffled(parts[0], parts[0], width, list(range(self.lanes)))

    def _shuffled(self, a: str, b: str, lanes: int, chosen: Sequence[int | None]) -> str:
        t = f"<{lanes} x {self.fmt.element}>"
        mask = ", ".join("i32 poison" if i is None else f"i32 {i}" for i in chosen)
        return self._new(f"shufflevector {t} {a}, {t} {b}, <{len(chosen)} x i32> <{mask}>")

    def beside(self, lines: Sequence[str], result: str, x: str) -> tuple[list[str], str]:
        """Return the lines of another body and the name of its result, with new names.

        The lines are not written. They compute `result` from `x`, which replaces `%x`.
        """
        self._copies += 1
        return renamed(lines, result, x, f".{self._copies}")

    def copysign(self, magnitude: str, sign: str) -> str:
        t = self.floats
        return self._new(f"call {t} @llvm.copysign.{self._suffix}({t} {magnitude}, {t} {sign})")

    def compare(self, condition: str, a: str, b: str) -> str:
        return self._new(f"fcmp {condition} {self.floats} {a}, {b}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self._new(f"select {self._bools} {condition}, {self.floats} {a}, {self.floats} {b}")

    def at_least(self, x: str, low: str) -> str:
        """Write max(x, low), or NaN if `x` is NaN. With this operand order it is one `maxps` on
        x86."""
        return self.select(self.compare("ogt", low, x), low, x)

    def at_most(self, x: str, high: str) -> str:
        return self.select(self.compare("olt", high, x), high, x)

    def to_bits(self, x: str) -> str:
        return self._new(f"bitcast {self.floats} {x} to {self.ints}")

    def from_bits(self, x: str) -> str:
        return self._new(f"bitcast {self.ints} {x} to {self.floats}")

    def polynomial(self, coefficients: tuple[float, ...], x: str) -> str:
        """Write a polynomial by Horner's rule, which has the fewest operations. Its latency is
        hidden, because other vectors are computed concurrently."""
        value = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self.muladd(value, x, self.const(c))
        return value


def renamed(lines: Sequence[str], result: str, x: str, suffix: str) -> tuple[list[str], str]:
    """Return the `lines` and `result` of a body in which `x` replaces the argument `%x`. `suffix`
    is appended to the names of all other values."""

    def replaced(text: str) -> str:
        return _VALUE.sub(lambda m: x if m[0] == "%x" else m[0] + suffix, text)

    return [replaced(line) for line in lines], replaced(result)


def round_to(fmt: FloatFormat, value: float) -> float:
    """Return `value` rounded to the format."""
    if fmt.bits == 64:
        return value
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def bits_of(fmt: FloatFormat, value: float) -> int:
    """Return the bit pattern of `value`, rounded to the format."""
    code, integer = ("<d", "<Q") if fmt.bits == 64 else ("<f", "<I")
    return int(struct.unpack(integer, struct.pack(code, value))[0])
