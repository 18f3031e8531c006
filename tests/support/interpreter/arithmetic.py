"""The semantics of scalar operations on NumPy scalars, as the interpreter uses them.

A value of `DType` d is a scalar of NumPy type `value_type(d)`: the stored type, but f32 for narrow
floats. Each function takes types and returns a function of values, so that types are dispatched
once, not per element.

Where the node definitions leave a choice: `min` and `max` of a NaN are NaN; a number is true unless
it is zero. There is no arithmetic on narrow floats (cast to f32 first); bools have only `& | ^`.
Callers switch NumPy's warnings off: integers wrap without one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.narrow import narrowed, round_to, to_odd, widened
from tilewright.schedules.algebra.scalar import ON_FLOATS_ONLY, BinaryOp, CompareOp, UnaryOp
from tilewright.schedules.dtypes import NUMBERS, DType

Value: TypeAlias = Any
"""A NumPy scalar. NumPy's stubs do not state that x + y has the type of x and y."""


class UndefinedOperationError(Exception):
    """An operation that has no meaning for a type: a malformed nest, which is a bug of ours."""


def value_type(dtype: DType) -> type[np.generic]:
    """The NumPy scalar type of a value of `dtype` while it is computed with."""
    return np.float32 if dtype.is_narrow_float else dtype.numpy.type


def from_storage(array: npt.NDArray[Any], dtype: DType) -> list[Value]:
    """The elements of a buffer as values, in row-major order."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return list(widened(flat, dtype))


def to_storage(values: list[Value], dtype: DType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values as a buffer of `dtype` and `shape`; the reverse of `from_storage`."""
    return narrowed(np.array(values, dtype=value_type(dtype)), dtype).reshape(shape)


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
    kind, low, span = value_type(dtype), dtype.integer_range[0], 1 << dtype.bits
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
    if not dtype.is_float or dtype.is_narrow_float:
        raise UndefinedOperationError(f"{op} is defined on {_choices(op)}, got {dtype}")
    kind, values = value_type(dtype), op.function.values
    return lambda x: kind(values(np, x))


def binary(op: BinaryOp, dtype: DType) -> Callable[[Value, Value], Value]:
    """`op` on two values of `dtype`. UndefinedOperationError if it has no meaning there."""
    if dtype is DType.BOOL and op in _ON_BOOLS:
        return _ON_BOOLS[op]
    is_other = op in _ON_INTEGERS if dtype.is_float else op in ON_FLOATS_ONLY
    if dtype not in _NUMBERS or is_other:
        raise UndefinedOperationError(f"{op} is defined on {_choices(op)}, got {dtype}")
    return _ON_INTEGERS[op] if op in _ON_INTEGERS else _ON_NUMBERS[op]


def compare(op: CompareOp) -> Callable[[Value, Value], Value]:
    """`op` on two values of one type; with a NaN only `ne` is true."""
    return _COMPARE[op]


def _choices(op: UnaryOp | BinaryOp) -> str:
    if op in _ON_INTEGERS:
        return "integers"
    integers = op not in ON_FLOATS_ONLY if isinstance(op, BinaryOp) else op.function.on_integers
    return "f32, f64 and integers" if integers else "f32 and f64"


def _rounded(x: Value, dtype: DType) -> Value:
    """`x` as the float type `dtype`, rounded once."""
    if dtype.is_narrow_float:
        return np.float32(round_to(to_odd(x), dtype))
    return x.astype(value_type(dtype))


def _saturating(target: DType) -> Callable[[Value], Value]:
    kind, (low, high) = value_type(target), target.integer_range

    def convert(x: Value) -> Value:
        exact = float(x)  # Python compares a float with an integer exactly
        if math.isnan(exact):
            return kind(0)
        return kind(low if exact <= low else high if exact >= high else int(exact))

    return convert


def _min(a: Value, b: Value) -> Value:
    return a if a < b or a != a else b


def _max(a: Value, b: Value) -> Value:
    return a if a > b or a != a else b


_NUMBERS = frozenset(dtype for dtype in NUMBERS if not dtype.is_narrow_float)
_ON_NUMBERS: dict[BinaryOp, Callable[[Value, Value], Value]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.DIV: operator.truediv,
    BinaryOp.MIN: _min,
    BinaryOp.MAX: _max,
    BinaryOp.POW: lambda a, b: type(a)(np.power(a, b)),
    BinaryOp.ATAN2: lambda a, b: type(a)(np.arctan2(a, b)),
}


def _whole(compute: Callable[[int, int, int], int]) -> Callable[[Value, Value], Value]:
    """`compute(a, b, bits)` on Python's integers, wrapped to the type of `a`."""

    def apply(a: Value, b: Value) -> Value:
        bits, kind = 8 * a.itemsize, type(a)
        found = compute(int(a), int(b), bits) % (1 << bits)
        signed = np.issubdtype(kind, np.signedinteger) and found >> (bits - 1)
        return kind(found - (1 << bits) if signed else found)

    return apply


_ON_INTEGERS: dict[BinaryOp, Callable[[Value, Value], Value]] = {
    BinaryOp.BIT_AND: _whole(lambda a, b, bits: a & b),
    BinaryOp.BIT_OR: _whole(lambda a, b, bits: a | b),
    BinaryOp.BIT_XOR: _whole(lambda a, b, bits: a ^ b),
    BinaryOp.SHIFT_LEFT: _whole(lambda a, b, bits: a << b if 0 <= b < bits else 0),
    BinaryOp.SHIFT_RIGHT: _whole(lambda a, b, bits: a >> (b if 0 <= b < bits else bits)),
    BinaryOp.FLOOR_DIV: _whole(lambda a, b, bits: a // b if b else 0),
    BinaryOp.FLOOR_MOD: _whole(lambda a, b, bits: a % b if b else 0),
}
_ON_BOOLS: dict[BinaryOp, Callable[[Value, Value], Value]] = {
    BinaryOp.BIT_AND: lambda a, b: np.bool_(bool(a) and bool(b)),
    BinaryOp.BIT_OR: lambda a, b: np.bool_(bool(a) or bool(b)),
    BinaryOp.BIT_XOR: lambda a, b: np.bool_(bool(a) != bool(b)),
}
_COMPARE: dict[CompareOp, Callable[[Value, Value], Value]] = {
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
}
