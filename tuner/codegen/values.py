"""Values in LLVM IR: types, literals, and masks of shuffles."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.schedules.algebra.narrow import narrowed
from tilewright.schedules.dtypes import DType


def scalar_type(dtype: DType) -> str:
    """Return LLVM's type for one value. A narrow float is represented by its bits, as an
    integer."""
    return dtype.llvm


def type_text(dtype: DType, lanes: int) -> str:
    """Return LLVM's type for `lanes` values. For one lane it is a scalar type."""
    element = dtype.llvm
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix(dtype: DType, lanes: int) -> str:
    """Return the type as the suffix of an intrinsic's name, such as `v16f32`."""
    element = {"float": "f32", "double": "f64"}.get(dtype.llvm, dtype.llvm)
    return element if lanes == 1 else f"v{lanes}{element}"


class Val(NamedTuple):
    """An LLVM value: a register name or a literal, with its type.

    Thousands of values are made for each candidate. A tuple is made in a third of the time of a
    frozen dataclass.
    """

    name: str
    dtype: DType
    lanes: int = 1
    never: frozenset[int] = frozenset()
    """The lanes of a mask that are always false."""

    @property
    def type(self) -> str:
        return type_text(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.name}"


def literal(value: int | float | bool, dtype: DType, lanes: int = 1) -> Val:
    """Return a constant, equal in every lane. Floats are first rounded to the type."""
    if dtype is DType.BOOL:
        text = "true" if value else "false"
    elif dtype in (DType.F32, DType.F64):
        number = float(value)
        if dtype is DType.F32:
            try:
                number = struct.unpack("f", struct.pack("f", number))[0]
            except OverflowError:
                number = float("inf") if number > 0 else float("-inf")
        text = "0x" + struct.pack(">d", number).hex().upper()
    elif dtype.is_narrow_float:
        text = str(narrowed(np.asarray(float(value)), dtype).view(f"int{dtype.bits}"))
    else:
        bits = dtype.bits
        wrapped = int(value) & ((1 << bits) - 1)
        text = str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    if lanes > 1:
        text = f"splat ({scalar_type(dtype)} {text})"
    return Val(text, dtype, lanes)


def lane_numbers(dtype: DType, lanes: int, step: int, start: int = 0) -> str:
    """Return the literal vector start, start+step, start+2*step, ..."""
    element = scalar_type(dtype)
    inner = ", ".join(f"{element} {start + step * lane}" for lane in range(lanes))
    return f"<{inner}>"


def lane_choice(lanes: Sequence[int | None]) -> str:
    """Return the mask of a shufflevector that selects these lanes. None is an undefined lane."""
    inner = ", ".join("i32 poison" if n is None else f"i32 {n}" for n in lanes)
    return f"<{len(lanes)} x i32> <{inner}>"
