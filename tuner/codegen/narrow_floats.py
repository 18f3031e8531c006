"""Values of float types that are stored and not computed in: from their bits to f32, and back.

Rounding is to nearest, ties to even; NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from schedules.dtypes import DType

from .module import ModuleText
from .text import FunctionText
from .values import Val, literal, type_text

Conversion: TypeAlias = Callable[[FunctionText, ModuleText, Val], Val]
"""Writes the instructions that convert a value, in all its lanes, for a module's target."""


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


WIDENED: dict[DType, Conversion] = {DType.BF16: _bf16_to_f32}
"""f32 of a narrow float's bits."""

NARROWED: dict[DType, Conversion] = {DType.BF16: _f32_to_bf16}
"""The bits of the narrow float nearest to an f32."""
