"""Scalar operations of the reference on NumPy arrays.

Values of every float type are float64 arrays. Only a cast to a narrow float rounds them. Values of
an integer type are arrays of that type, whose arithmetic wraps modulo 2**bits. Callers silence
floating-point warnings.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..algebra.narrow import nearest, round_to, to_odd
from ..algebra.scalar import (
    ON_BOOLS,
    ON_FLOATS_ONLY,
    ON_INTEGERS_ONLY,
    BinaryOp,
    CompareOp,
    Reducer,
    UnaryOp,
)
from ..dtypes import DType

Array: TypeAlias = npt.NDArray[Any]
"""The values of one node: float64, or the integer or bool type of the node."""


def value_dtype(dtype: DType) -> np.dtype[np.generic]:
    """Return the NumPy type of the reference's values of `dtype`."""
    return np.dtype(np.float64) if dtype.is_float else dtype.numpy


def constant(value: int | float, dtype: DType) -> Array:
    """Return `value` as the nearest number of `dtype`, integers modulo 2**bits, in a 0-d array."""
    if dtype.is_float:
        return np.asarray(nearest(value, dtype))
    if dtype is DType.BOOL:
        return np.asarray(bool(value))
    low, _ = dtype.integer_range
    return np.asarray((int(value) - low) % (1 << dtype.bits) + low, dtype.numpy)


def unary(op: UnaryOp, x: Array) -> Array:
    """Return `op(x)`. Raise ValueError if `op` is for floats only and `x` is not a float array."""
    whole = op.function.rounds_to_integer and x.dtype.kind in "iu"
    if x.dtype.kind == "b" or not (x.dtype.kind == "f" or whole or op.function.on_integers):
        raise ValueError(f"{op} is defined for floats, got values of type {x.dtype}")
    return x if whole else np.asarray(op.function.values(np, x))


_BINARY: dict[BinaryOp, np.ufunc] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.BIT_AND: np.bitwise_and,
    BinaryOp.BIT_OR: np.bitwise_or,
    BinaryOp.BIT_XOR: np.bitwise_xor,
    BinaryOp.SHIFT_LEFT: np.left_shift,
    BinaryOp.SHIFT_RIGHT: np.right_shift,
    BinaryOp.FLOOR_DIV: np.floor_divide,
    BinaryOp.FLOOR_MOD: np.remainder,
    BinaryOp.POW: np.power,
    BinaryOp.ATAN2: np.arctan2,
}


def combiner(op: BinaryOp, dtype: np.dtype[Any]) -> np.ufunc:
    """Return the ufunc that computes `op` on arrays of type `dtype`. Bools are added modulo 2."""
    if dtype.kind == "b" and op in (BinaryOp.ADD, BinaryOp.SUB):
        return np.logical_xor
    return _BINARY[op]


def binary(op: BinaryOp, a: Array, b: Array) -> Array:
    """Return `op(a, b)` with broadcasting. Raise ValueError if the type has no such operation."""
    if op in ON_FLOATS_ONLY and a.dtype.kind != "f":
        raise ValueError(f"{op} is defined for floats, got values of type {a.dtype}")
    kinds = "iub" if op in ON_BOOLS else "iu"
    if op in ON_INTEGERS_ONLY and a.dtype.kind not in kinds:
        raise ValueError(f"{op} is defined for integers, got values of type {a.dtype}")
    return np.asarray(combiner(op, a.dtype)(a, b))


def reduce(reducer: Reducer, values: Array, dims: tuple[int, ...]) -> Array:
    """Return `values` reduced over the dimensions `dims`, in the type of `values`."""
    if not dims:
        return values
    if values.dtype.kind == "b" and reducer is Reducer.SUM:
        return np.asarray(np.add.reduce(values, axis=dims, dtype=np.int64) % 2 == 1)
    ufunc = combiner(reducer.op, values.dtype)
    if reducer in (Reducer.MAX, Reducer.MIN):
        return np.asarray(ufunc.reduce(values, axis=dims))
    # Without `dtype` NumPy would sum narrow integers in 64 bits.
    return np.asarray(ufunc.reduce(values, axis=dims, dtype=values.dtype))


def accumulate(reducer: Reducer, values: Array, dim: int, *, reverse: bool = False) -> Array:
    """Return the running results of `reducer` along dimension `dim`, in the type of `values`: from
    the first position up to each one, or if `reverse`, from the last one down to it. The result is
    contiguous, as readers of stored tensors assume."""
    if reverse:
        turned = accumulate(reducer, np.flip(values, dim), dim)
        return np.ascontiguousarray(np.flip(turned, dim))
    ufunc = combiner(reducer.op, values.dtype)
    return np.asarray(ufunc.accumulate(values, axis=dim, dtype=values.dtype))


_COMPARE: dict[CompareOp, np.ufunc] = {
    CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal,
    CompareOp.EQ: np.equal,
    CompareOp.NE: np.not_equal,
}


def compare(op: CompareOp, a: Array, b: Array) -> Array:
    return np.asarray(_COMPARE[op](a, b))


def cast(x: Array, dtype: DType) -> Array:
    """Return `x` cast to `dtype`.

    Float to integer truncates towards zero and saturates, and NaN becomes 0. Integer to integer
    wraps. A cast to bool is `x != 0`. A cast to a narrow float rounds to nearest even. A cast to
    f32 or f64 does not round, because both are float64 here.
    """
    if dtype.is_narrow_float:
        return round_to(to_odd(x), dtype)
    if dtype.is_float:
        return np.asarray(x, np.float64)
    if dtype is DType.BOOL:
        return np.asarray(x != 0)
    if x.dtype.kind != "f":
        return x.astype(dtype.numpy)
    return _truncate(x, dtype)


def _truncate(x: Array, dtype: DType) -> Array:
    low, high = dtype.integer_range
    inside = np.trunc(np.where((x > low) & (x < high), x, 0.0)).astype(dtype.numpy)
    ends = np.where(x >= high, high, np.where(x <= low, low, 0))  # NaN satisfies neither comparison
    # 2**63 - 1 is not a float64, but float(high) is 2**63 and every smaller float64 fits.
    return np.where((x >= high) | (x <= low), ends.astype(dtype.numpy), inside)
