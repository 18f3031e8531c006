"""Build scalar nodes by the type rules, for all front ends.

Rules: arithmetic (`+ - * /`, functions, comparisons, sums and products) on narrow types is done in
a wide type: narrow floats in f32, i8 and u8 in i32. A bool beside a
number is 0 or 1 in its type, else in i32. Copies, `select`, and `min` and `max` of one
integer type keep the type. A literal takes the type of the other operand. All other conversions
need an explicit `cast`.
"""

from __future__ import annotations

import math

from ..dtypes import DType
from ..errors import WorkloadError
from .scalar import (
    ON_BOOLS,
    ON_INTEGERS_ONLY,
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    Reducer,
    Scalar,
    Unary,
    UnaryOp,
)  # fmt: skip

_KEEPS_INTEGERS = frozenset({
    BinaryOp.MIN, BinaryOp.MAX, BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR,
    BinaryOp.SHIFT_RIGHT, BinaryOp.FLOOR_MOD,
})  # fmt: skip
"""Operations whose result is a value of the type of the operands, so that narrow integers need no
wide type."""


def dtype_named(name: str) -> DType:
    """Return the element type `name`. Raise WorkloadError with the choices if it does not exist."""
    try:
        return DType(name)
    except ValueError:
        choices = ", ".join(DType)
        raise WorkloadError(
            f"unknown element type {name!r}; choices: {choices}", code="bad_dtype"
        ) from None


def const(value: float, dtype: DType) -> Const:
    """Return `value` as a constant of `dtype`, rounded if `dtype` is a float type. Raise
    WorkloadError if the value does not fit."""
    if isinstance(value, bool) and dtype is DType.BOOL:
        return Const(int(value), dtype)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or (isinstance(value, float) and math.isnan(value)):
        raise WorkloadError(f"a constant is a number, got {value!r}", code="bad_constant")
    if dtype.is_float:
        return Const(_rounded(value, dtype), dtype)
    if isinstance(value, float) and not value.is_integer():
        raise WorkloadError(
            f"{value} is not a value of {dtype}; cast the other operand to a float type",
            code="dtype_clash",
        )
    whole = int(value)
    low, high = dtype.integer_range
    if not low <= whole <= high:
        shown = str(whole) if abs(whole) < 10**40 else "a huge number"
        raise WorkloadError(f"{shown} does not fit {dtype} ({low}..{high})", code="bad_constant")
    return Const(whole, dtype)


def _rounded(value: float, dtype: DType) -> float:
    """Return the nearest value of `dtype`, so that the kernel and the reference use the same
    constant."""
    try:
        exact = float(value)
    except OverflowError:
        raise WorkloadError(f"a constant does not fit {dtype}", code="bad_constant") from None
    if dtype is DType.F64 or not math.isfinite(exact):
        return exact
    if exact.is_integer() and abs(exact) < 2**dtype.binary.precision:
        return exact
    # Start-up: loading NumPy takes long, and few expressions have numbers that need rounding.
    from .narrow import nearest

    rounded = nearest(value, dtype)
    if math.isinf(rounded):
        raise WorkloadError(f"{value} does not fit {dtype}", code="bad_constant")
    return rounded


def cast(node: Scalar, dtype: DType) -> Scalar:
    """Return `node` cast to `dtype`, or `node` itself if it has that type."""
    return node if node.dtype is dtype else Cast(node, dtype)


def same_type(a: Scalar, b: Scalar, what: str, *, keep: bool = False) -> tuple[Scalar, Scalar]:
    """Return both operands in their wide type. Raise WorkloadError if their wide types differ.

    If `keep` is true, two operands of equal type are returned unchanged. `what` is the name of the
    operation in the error.
    """
    if not (keep and a.dtype is b.dtype):
        a, b = _counted(a, b.dtype.wide), _counted(b, a.dtype.wide)
    if a.dtype is not b.dtype:
        raise WorkloadError(
            f"{what} of {a.dtype} and {b.dtype}: the types differ;"
            f' write cast(x, "{a.dtype}") or cast(x, "{b.dtype}") around one of them',
            code="dtype_clash",
        )
    return a, b


def _counted(x: Scalar, other: DType) -> Scalar:
    """Return `x` in its wide type, or a bool in the wide type `other` of the other operand."""
    return cast(x, other if x.dtype is DType.BOOL else x.dtype.wide)


def binary(op: BinaryOp, a: Scalar, b: Scalar) -> Scalar:
    """Return `op(a, b)`. Raise WorkloadError if the types differ or have no such operation.

    Tests of indices that `&` joins are one conjunction: loops are limited by it, not by bits."""
    if op is BinaryOp.BIT_AND and isinstance(a, All) and isinstance(b, All):
        return All((*a.conds, *b.conds))
    keep = op in (ON_BOOLS if a.dtype is DType.BOOL else _KEEPS_INTEGERS)
    a, b = same_type(a, b, op, keep=keep and not a.dtype.is_float)
    if op.function is not None and not a.dtype.is_float:
        hint = " (integers have whole powers: x ** 2)" if op is BinaryOp.POW else ""
        raise WorkloadError(
            f'{op} of {a.dtype}: only floats have it; cast first: cast(x, "f32"){hint}',
            code="bad_dtype",
        )
    if op is BinaryOp.DIV and not a.dtype.is_float:
        raise WorkloadError(
            f"div of {a.dtype}: only floats divide; cast first, as in i32(floor(f64(x) / f64(y)))",
            code="bad_dtype",
        )
    if op in ON_INTEGERS_ONLY and a.dtype.is_float:
        hint = ", and a power is x ** 2" if op is BinaryOp.BIT_XOR else ""
        raise WorkloadError(
            f'{op} of {a.dtype}: only integers have it; cast first: cast(x, "i32"){hint}',
            code="bad_dtype",
        )
    return Binary(op, a, b)


def keeps_integers(op: BinaryOp) -> bool:
    """Return whether the result of `op` on narrow integers of one type has this type."""
    return op in _KEEPS_INTEGERS


def compare(op: CompareOp, a: Scalar, b: Scalar) -> Scalar:
    keep = not a.dtype.is_float and a.dtype is not DType.BOOL
    a, b = same_type(a, b, op, keep=keep)
    return Compare(op, a, b)


def unary(op: UnaryOp, x: Scalar) -> Scalar:
    """Return `op(x)`; for integers, only `neg` and `abs` are defined."""
    x = cast(x, x.dtype.wide)
    if not (x.dtype.is_float or op.function.on_integers):
        raise WorkloadError(f"{op} of {x.dtype}: cast to f32 or f64 first", code="bad_dtype")
    return Unary(op, x)


def reduced(reducer: Reducer, x: Scalar) -> Scalar:
    """Return the value that a reduction combines: `x` in its wide type for sums and products and
    for all floats, else `x`."""
    if reducer in (Reducer.SUM, Reducer.PROD) or x.dtype.is_float:
        return cast(x, x.dtype.wide)
    return x
