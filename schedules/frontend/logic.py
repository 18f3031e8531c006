"""Reductions of bools: whether any or every one of them is true."""

from __future__ import annotations

from typing import Any, overload

from ..algebra.scalar import Reducer
from .array.arrays import ArrayExpr, Axis, LazyArray, is_array
from .expr import cast, reduction
from .expr_core import Expr, Operand


@overload
def any(x: Operand, axis: object) -> Expr: ...
@overload
def any(x: ArrayExpr, axis: Axis = None, keepdims: bool = False) -> LazyArray: ...
def any(x: ArrayExpr | Operand, axis: Any = None, keepdims: bool = False) -> Expr | LazyArray:
    """Return whether any `x` over `axis` is true (numbers: not 0), as a bool; see `sum`."""
    if is_array(x):
        return x.any(axis, keepdims)
    return reduction(Reducer.MAX, cast(x, "bool"), axis)


@overload
def all(x: Operand, axis: object) -> Expr: ...
@overload
def all(x: ArrayExpr, axis: Axis = None, keepdims: bool = False) -> LazyArray: ...
def all(x: ArrayExpr | Operand, axis: Any = None, keepdims: bool = False) -> Expr | LazyArray:
    """Return whether every `x` over `axis` is true (numbers: not 0), as a bool; see `sum`."""
    if is_array(x):
        return x.all(axis, keepdims)
    return reduction(Reducer.MIN, cast(x, "bool"), axis)
