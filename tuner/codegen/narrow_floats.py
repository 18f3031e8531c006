"""Conversions between f32 and the narrow float types, whose values are represented by their bits.

Narrow floats are used only for storage. Rounding is to nearest, ties to even. NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.schedules.dtypes import DType

from .module import ModuleText
from .text import FunctionText
from .values import Val, literal, type_text

Conversion: TypeAlias = Callable[[FunctionText, ModuleText, Val], Val]
"""The type of functions that write a conversion of all lanes of a value."""


_F32_BITS, _F64_BITS = 24, 53
"""The number of bits in the significands."""
_LOST = 0xFFF
"""The low 12 bits of a 64-bit integer: the 11 bits that f64 cannot represent, and one more."""


def _bf16_to_f32(text: FunctionText, module: ModuleText, x: Val) -> Val:
    wide, result = type_text(DType.I32, x.lanes), type_text(DType.F32, x.lanes)
    bits = text.assign(f"zext {x.typed} to {wide}")
    high = text.assign(f"shl {wide} {bits}, {literal(16, DType.I32, x.lanes).name}")
    return Val(text.assign(f"bitcast {wide} {high} to {result}"), DType.F32, x.lanes)


def _f32_to_bf16(text: FunctionText, module: ModuleText, x: Val) -> Val:
    lanes = x.lanes
    wide, narrow = type_text(DType.I32, lanes), type_text(DType.BF16, lanes)

    def number(value: int) -> str:
        return literal(value, DType.I32, lanes).name

    assign = text.assign
    bits = assign(f"bitcast {x.typed} to {wide}")
    shifted = assign(f"lshr {wide} {bits}, {number(16)}")
    odd = assign(f"and {wide} {shifted}, {number(1)}")
    bias = assign(f"add {wide} {odd}, {number(0x7FFF)}")
    rounded = assign(f"lshr {wide} {assign(f'add {wide} {bits}, {bias}')}, {number(16)}")
    nan = assign(f"fcmp uno {x.typed}, {x.name}", "c")
    quiet = assign(f"or {wide} {shifted}, {number(0x40)}")
    kept = assign(f"select {type_text(DType.BOOL, lanes)} {nan}, {wide} {quiet}, {wide} {rounded}")
    return Val(assign(f"trunc {wide} {kept} to {narrow}"), DType.BF16, lanes)


def _f16_to_f32(text: FunctionText, module: ModuleText, x: Val) -> Val:
    """Convert by the target's instruction, or by integer operations on the bits.

    These operations change the bias of the exponent, and correct denormal numbers, infinity and
    NaN.
    """
    w, assign, floats = _Words(text, x.lanes), text.assign, type_text(DType.F32, x.lanes)
    if module.instructions.halves:
        half = assign(f"bitcast {x.typed} to {_half(x.lanes)}")
        return Val(assign(f"fpext {_half(x.lanes)} {half} to {floats}"), DType.F32, x.lanes)
    bits = assign(f"zext {x.typed} to {w.type}")
    size = w.op("shl", w.op("and", bits, 0x7FFF), 13)
    # With the fraction f, 2**-14 (1 + f) - 2**-14 is exact and involves no denormal numbers of f32.
    above = assign(f"bitcast {w.type} {w.op('add', size, 113 << 23)} to {floats}")
    least = literal(2.0**-14, DType.F32, x.lanes).name
    small = assign(f"bitcast {floats} {assign(f'fsub {floats} {above}, {least}')} to {w.type}")
    moved, beyond = w.op("add", size, 112 << 23), w.op("add", size, 224 << 23)
    normal = w.select("uge", size, 31 << 23, beyond, moved)
    found = w.select("ult", size, 1 << 23, small, normal)
    whole = w.op("or", found, w.op("shl", w.op("and", bits, 0x8000), 16))
    return Val(assign(f"bitcast {w.type} {whole} to {floats}"), DType.F32, x.lanes)


def _f32_to_f16(text: FunctionText, module: ModuleText, x: Val) -> Val:
    """Convert by the target's instruction, or by integer operations on the bits. If the magnitude
    is below 2**-14, adding 1/2 rounds to multiples of 2**-24. From 65520 on, the result is
    infinite. Source: F. Giesen, "Float to half done quic", 2012."""
    w, assign, narrow = _Words(text, x.lanes), text.assign, type_text(DType.F16, x.lanes)
    if module.instructions.halves:
        half = assign(f"fptrunc {x.typed} to {_half(x.lanes)}")
        return Val(assign(f"bitcast {_half(x.lanes)} {half} to {narrow}"), DType.F16, x.lanes)
    bits = assign(f"bitcast {x.typed} to {w.type}")
    size = w.op("and", bits, 0x7FFFFFFF)
    odd = w.op("and", w.op("lshr", size, 13), 1)
    normal = w.op("lshr", w.op("add", w.op("add", size, odd), 0xFFF - (112 << 23)), 13)
    magnitude = assign(f"bitcast {w.type} {size} to {x.type}")
    half = literal(0.5, DType.F32, x.lanes).name
    shifted = assign(f"fadd {x.type} {magnitude}, {half}")
    small = w.op("sub", assign(f"bitcast {x.type} {shifted} to {w.type}"), 126 << 23)
    beyond = w.select("ugt", size, 255 << 23, w.number(0x7E00), w.number(0x7C00))
    large = w.select("uge", size, 143 << 23, beyond, normal)
    found = w.select("ult", size, 113 << 23, small, large)
    whole = w.op("or", found, w.op("and", w.op("lshr", bits, 16), 0x8000))
    return Val(assign(f"trunc {w.type} {whole} to {narrow}"), DType.F16, x.lanes)


def before_narrowing(text: FunctionText, x: Val, to: DType) -> Val | None:
    """Return an f32 that rounds to the same bits of the narrow float `to` as `x`, an f64 or
    integer. Return None if ordinary rounding of `x` to f32 gives such a number.

    The f32 is `x` rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded
    sums: proved algorithms using rounding to odd", IEEE Trans. Comput. 57 (2008)).
    """
    if x.dtype is DType.F64:
        return _f64_to_odd_f32(text, x)
    # f32 represents every integer in the range of a type that ends below 2**24.
    if x.dtype.is_float or x.dtype.bits <= _F32_BITS or to.binary.max_exponent <= _F32_BITS:
        return None
    whole = _i64_in_53_bits(text, x) if x.dtype.bits > _F64_BITS else x
    convert = "sitofp" if x.dtype.is_signed else "uitofp"
    wide = text.assign(f"{convert} {whole.typed} to {type_text(DType.F64, x.lanes)}")
    return _f64_to_odd_f32(text, Val(wide, DType.F64, x.lanes))


def _f64_to_odd_f32(text: FunctionText, x: Val) -> Val:
    """Return `x` rounded to odd. An `x` that is an f32, infinity or NaN stays unchanged. Otherwise
    the result is the neighbouring f32 whose last bit is set. For finite `x` beyond the range of
    f32, that is its largest number. Denormal results have enough bits for the narrow types."""
    w, assign, floats = _Words(text, x.lanes), text.assign, type_text(DType.F32, x.lanes)
    bools = type_text(DType.BOOL, x.lanes)
    near = assign(f"fptrunc {x.typed} to {floats}")
    again = assign(f"fpext {floats} {near} to {x.type}")
    bits = assign(f"bitcast {floats} {near} to {w.type}")
    # Signs are equal, so the order of values is the order of magnitudes or its reverse.
    above = assign(f"fcmp ogt {x.type} {again}, {x.name}", "c")
    negative = assign(f"icmp slt {w.type} {bits}, {w.number(0)}", "c")
    inexact = assign(f"fcmp one {x.type} {again}, {x.name}", "c")
    beyond = assign(
        f"and {bools} {inexact}, {assign(f'xor {bools} {above}, {negative}', 'c')}", "c"
    )
    cut = w.op("sub", bits, assign(f"zext {bools} {beyond} to {w.type}"))
    odd = w.op("or", cut, assign(f"zext {bools} {inexact} to {w.type}"))
    return Val(assign(f"bitcast {w.type} {odd} to {floats}"), DType.F32, x.lanes)


def _i64_in_53_bits(text: FunctionText, x: Val) -> Val:
    """Return an integer of at most 53 significant bits that rounds to the same narrow float as `x`.
    Up to 2**53 it is `x`. Above 2**53 its last 12 bits are zero, and the bit before them is set if
    the removed bits were not zero."""

    def number(value: int) -> str:
        return literal(value, x.dtype, x.lanes).name

    assign, type_ = text.assign, x.type
    lost = assign(f"and {x.typed}, {number(_LOST)}")
    # Adding 4095 carries into the bit above unless all removed bits are zero.
    carried = assign(f"add {type_} {lost}, {number(_LOST)}")
    sticky = assign(f"or {x.typed}, {carried}")
    odd = assign(f"and {type_} {sticky}, {number(~_LOST)}")
    shifted = assign(f"add {x.typed}, {number(1 << _F64_BITS)}")
    small = assign(f"icmp ult {type_} {shifted}, {number(1 << (_F64_BITS + 1))}", "c")
    bools = type_text(DType.BOOL, x.lanes)
    return Val(assign(f"select {bools} {small}, {x.typed}, {type_} {odd}"), x.dtype, x.lanes)


def _half(lanes: int) -> str:
    return "half" if lanes == 1 else f"<{lanes} x half>"


@dataclass(frozen=True, slots=True)
class _Words:
    """Integer arithmetic on the 32 bits of each lane."""

    text: FunctionText
    lanes: int

    @property
    def type(self) -> str:
        return type_text(DType.I32, self.lanes)

    def number(self, value: int) -> str:
        return literal(value, DType.I32, self.lanes).name

    def op(self, name: str, a: str, b: str | int) -> str:
        other = b if isinstance(b, str) else self.number(b)
        return self.text.assign(f"{name} {self.type} {a}, {other}")

    def select(self, test: str, a: str, b: int, on_true: str, on_false: str) -> str:
        cond = self.text.assign(f"icmp {test} {self.type} {a}, {self.number(b)}", "c")
        bools = type_text(DType.BOOL, self.lanes)
        sides = f"{self.type} {on_true}, {self.type} {on_false}"
        return self.text.assign(f"select {bools} {cond}, {sides}")


WIDENED: dict[DType, Conversion] = {DType.BF16: _bf16_to_f32, DType.F16: _f16_to_f32}
"""The conversion of each narrow float's bits to f32."""

NARROWED: dict[DType, Conversion] = {DType.BF16: _f32_to_bf16, DType.F16: _f32_to_f16}
"""The conversion of f32 to the bits of the nearest narrow float."""
