"""The scalar functions of Python and of index notation, one per row of `algebra/functions.py`.

from tilewright.schedules.frontend.functions import exp, tanh
"""

from __future__ import annotations

from typing import Protocol, overload

from ..algebra.functions import NAMED, UnaryOp
from .array.arrays import ArrayExpr, LazyArray, applied, is_array
from .expr_core import Expr, Operand, function


class ValueFunction(Protocol):
    """A function of a value, or of each element of an array."""

    @overload
    def __call__(self, x: Operand, /) -> Expr: ...
    @overload
    def __call__(self, x: ArrayExpr, /) -> LazyArray: ...


def _named(op: UnaryOp) -> ValueFunction:
    @overload
    def apply(x: Operand) -> Expr: ...
    @overload
    def apply(x: ArrayExpr) -> LazyArray: ...
    def apply(x: ArrayExpr | Operand) -> Expr | LazyArray:
        return applied(op, x) if is_array(x) else function(op, x)

    apply.__name__ = apply.__qualname__ = op.value
    apply.__doc__ = op.function.summary
    return apply


FUNCTIONS = {name: _named(op) for name, op in NAMED.items()}


def __getattr__(name: str) -> ValueFunction:
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return FUNCTIONS[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *FUNCTIONS])
