"""The scalar functions of Python and of index notation, by name: one for each row of the function
table.

    from tilewright.schedules.frontend.functions import exp, tanh

They are generated from the table in `algebra/functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..algebra.functions import NAMED, UnaryOp
from .expr_core import Expr, Operand, function

ValueFunction: TypeAlias = Callable[[Operand], Expr]


def _spelt(op: UnaryOp) -> ValueFunction:
    def apply(x: Operand) -> Expr:
        return function(op, x)

    apply.__name__ = apply.__qualname__ = op.value
    apply.__doc__ = op.function.summary
    return apply


FUNCTIONS = {name: _spelt(op) for name, op in NAMED.items()}


def __getattr__(name: str) -> ValueFunction:
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return FUNCTIONS[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *FUNCTIONS])
