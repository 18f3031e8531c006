"""The scalar functions of Python and of index notation, one per row of `algebra/functions.py`.

from tilewright.schedules.frontend.functions import exp, tanh
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, overload

from ..algebra.functions import NAMED, UnaryOp
from ..algebra.scalar import NAMED_PAIRS, BinaryOp
from .array.arrays import ArrayExpr, LazyArray, applied, calculated, is_array, raised
from .expr_core import Expr, Operand, arithmetic, function, general_power


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


class PairFunction(Protocol):
    """A function of two values, or of the elements of two arrays, which are broadcast."""

    @overload
    def __call__(self, x: Operand, y: Operand, /) -> Expr: ...
    @overload
    def __call__(self, x: ArrayExpr, y: ArrayExpr | Operand, /) -> LazyArray: ...
    @overload
    def __call__(self, x: Operand, y: ArrayExpr, /) -> LazyArray: ...


def _pair(op: BinaryOp) -> PairFunction:
    def of_values(x: object, y: object) -> Expr:
        return general_power(x, y) if op is BinaryOp.POW else arithmetic(op, x, y)

    @overload
    def apply(x: Operand, y: Operand) -> Expr: ...
    @overload
    def apply(x: ArrayExpr, y: ArrayExpr | Operand) -> LazyArray: ...
    @overload
    def apply(x: Operand, y: ArrayExpr) -> LazyArray: ...
    def apply(x: ArrayExpr | Operand, y: ArrayExpr | Operand) -> Expr | LazyArray:
        if not (is_array(x) or is_array(y)):
            return of_values(x, y)
        return raised(general_power, x, y) if op is BinaryOp.POW else calculated(op, x, y)

    assert op.function is not None
    apply.__name__ = apply.__qualname__ = op.value
    apply.__doc__ = op.function.summary
    return apply


FUNCTIONS = {name: _named(op) for name, op in NAMED.items()}
PAIR_FUNCTIONS = {name: _pair(op) for name, op in NAMED_PAIRS.items()}


if TYPE_CHECKING:
    atan2: PairFunction
    pow: PairFunction

    def __getattr__(name: str) -> ValueFunction: ...
else:

    def __getattr__(name):
        found = FUNCTIONS.get(name) or PAIR_FUNCTIONS.get(name)
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *FUNCTIONS, *PAIR_FUNCTIONS])
