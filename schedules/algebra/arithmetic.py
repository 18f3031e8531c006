"""What each scalar operation means, on NumPy scalars: the arithmetic of the interpreter.

A value of `DType` d is a scalar of NumPy type `value_type(d)`: the stored type, except that bf16
values are f32 scalars which bf16 can hold. Every function here is given the types first and
returns a function of values, so that nothing is decided again for each element.

Choices the node definitions leave open, made here: `min` and `max` of a NaN are NaN; a number is
true unless it is zero; numbers become bf16 by way of f32. There is no arithmetic on bf16 (cast to
f32 first) and none on bool. Callers switch NumPy's warnings off: integers wrap without one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from .scalar import BinaryOp, CompareOp, UnaryOp

Value: TypeAlias = Any
"""A NumPy scalar. NumPy's own types do not say that x + y keeps the type of x and y."""


class UndefinedOperationError(Exception):
    """An operation that has no meaning for a type: a malformed nest, which is a bug of ours."""


def value_type(dtype: DType) -> type[np.generic]:
    """The NumPy scalar type of a value of `dtype` while it is computed with."""
    return np.float32 if dtype is DType.BF16 else dtype.numpy.type


def f32_to_bf16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The bf16 nearest to each value, ties to even, as its 16 bits; NaN stays (a quiet) NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    nearest = bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))
    return (np.where(np.isnan(values), bits | 0x00400000, nearest) >> 16).astype(np.uint16)


def bf16_bits_to_f32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The f32 with the same value as each bf16."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def from_storage(array: npt.NDArray[Any], dtype: DType) -> list[Value]:
    """The elements of a buffer as values, in row-major order."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return list(bf16_bits_to_f32(flat) if dtype is DType.BF16 else flat)


def to_storage(values: list[Value], dtype: DType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values as a buffer of `dtype` and `shape`; the reverse of `from_storage`."""
    flat = np.array(values, dtype=value_type(dtype))
    return (f32_to_bf16_bits(flat) if dtype is DType.BF16 else flat).reshape(shape)


def constant(value: int | float, dtype: DType) -> Value:
    """`value` as a `dtype`: floats are rounded, integers wrap."""
    if isinstance(value, float) and not dtype.is_float:
        return cast(DType.F64, dtype)(np.float64(value))
    if not dtype.is_float:
        return from_index(dtype)(int(value))
    return _rounded(np.float64(value), dtype)


def from_index(dtype: DType) -> Callable[[int], Value]:
    """The number of type `dtype` for an index: floats are rounded, integers wrap."""
    if dtype is DType.BOOL:
        return lambda index: np.bool_(index != 0)
    if dtype.is_float:
        return lambda index: _rounded(np.int64(index), dtype)
    kind, low, span = value_type(dtype), _low(dtype), 1 << dtype.bits
    return lambda index: kind((index - low) % span + low)


def cast(source: DType, target: DType) -> Callable[[Value], Value]:
    """`scalar.Cast`: rounds to floats, wraps integers, truncates and saturates floats."""
    if source is target:
        return lambda x: x
    if target is DType.BOOL:
        return lambda x: np.bool_(x != 0)
    if target.is_float:
        return lambda x: _rounded(x, target)
    if source.is_float:
        return _saturating(target)
    wrap = from_index(target)
    return lambda x: wrap(int(x))


def unary(op: UnaryOp, dtype: DType) -> Callable[[Value], Value]:
    """`op` on values of `dtype`. UndefinedOperationError if it has no meaning there."""
    if op is UnaryOp.NEG and dtype in _NUMBERS:
        return operator.neg
    if op is UnaryOp.ABS and dtype in _NUMBERS:
        return abs if dtype.is_signed else lambda x: x
    if dtype not in (DType.F32, DType.F64):
        raise UndefinedOperationError(f"{op} is defined on {_choices(op)}, got {dtype}")
    kind, values = value_type(dtype), op.function.values
    return lambda x: kind(values(np, x))


def binary(op: BinaryOp, dtype: DType) -> Callable[[Value, Value], Value]:
    """`op` on two values of `dtype`. UndefinedOperationError if it has no meaning there."""
    if dtype not in _NUMBERS or (op is BinaryOp.DIV and not dtype.is_float):
        raise UndefinedOperationError(f"{op} is defined on {_choices(op)}, got {dtype}")
    return _ON_NUMBERS[op]


def compare(op: CompareOp) -> Callable[[Value, Value], Value]:
    """`op` on two values of one type; with a NaN only `ne` is true."""
    return _COMPARE[op]


def _choices(op: UnaryOp | BinaryOp) -> str:
    integers = op is not BinaryOp.DIV if isinstance(op, BinaryOp) else op.function.on_integers
    return "f32, f64 and integers" if integers else "f32 and f64"


def _rounded(x: Value, dtype: DType) -> Value:
    """`x` as the float type `dtype`, rounded once (bf16: by way of f32)."""
    value = x.astype(value_type(dtype))
    if dtype is DType.BF16:
        return bf16_bits_to_f32(f32_to_bf16_bits(value.reshape(1)))[0]
    return value


def _saturating(target: DType) -> Callable[[Value], Value]:
    kind, low, high = value_type(target), _low(target), _low(target) + (1 << target.bits) - 1

    def convert(x: Value) -> Value:
        exact = float(x)  # Python compares a float with an integer exactly
        if math.isnan(exact):
            return kind(0)
        return kind(low if exact <= low else high if exact >= high else int(exact))

    return convert


def _low(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def _min(a: Value, b: Value) -> Value:
    return a if a < b or a != a else b  # noqa: PLR0124 (true for NaN only)


def _max(a: Value, b: Value) -> Value:
    return a if a > b or a != a else b  # noqa: PLR0124


_NUMBERS = frozenset({DType.F32, DType.F64, DType.I64, DType.I32, DType.I8, DType.U8})
_ON_NUMBERS: dict[BinaryOp, Callable[[Value, Value], Value]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.DIV: operator.truediv,
    BinaryOp.MIN: _min,
    BinaryOp.MAX: _max,
}
_COMPARE: dict[CompareOp, Callable[[Value, Value], Value]] = {
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
}
