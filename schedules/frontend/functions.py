"""The scalar functions of Python and of index notation, one per row of `algebra/functions.py`.

from tilewright.schedules.frontend.functions import exp, tanh
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..algebra.functions import NAMED, UnaryOp
from .expr_core import Expr, Operand, function

ValueFunction: TypeAlias = Callable[[Operand], Expr]


def _named(op: UnaryOp) -> ValueFunction:
    def apply(x: Operand) -> Expr:
        return function(op, x)

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
