"""The operations of scalar expressions with two operands, and the reducers of stages.

`functions.py` has the operations with one operand.
"""

from __future__ import annotations

from enum import StrEnum

from ..dtypes import DType
from .binary_functions import BINARY_FUNCTIONS, BinaryFunction


class BinaryOp(StrEnum):
    """Binary operations. The operations of `ON_FLOATS_ONLY` are for floats, and those of
    `ON_INTEGERS_ONLY` for integers; integers add and multiply modulo 2**n.

    Every operation is defined for all operands, as in NumPy: `floor_div` and `floor_mod` by 0 give
    0; a shift by a negative number or by the number of bits or more shifts out all bits.
    """

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MIN = "min"
    MAX = "max"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    FLOOR_DIV = "floor_div"
    FLOOR_MOD = "floor_mod"
    POW = "pow"
    ATAN2 = "atan2"

    @property
    def function(self) -> BinaryFunction | None:
        """The row of a function of two floats, or None for other operations."""
        return BINARY_FUNCTIONS.get(self)


ON_INTEGERS_ONLY = frozenset({
    BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR, BinaryOp.SHIFT_LEFT,
    BinaryOp.SHIFT_RIGHT, BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD,
})  # fmt: skip

ON_FLOATS_ONLY = frozenset({BinaryOp.DIV, *(op for op in BinaryOp if op.function is not None)})
NAMED_PAIRS = {op.value: op for op in BinaryOp if op.function is not None}
"""The functions of two values that front ends call by name."""


class CompareOp(StrEnum):
    LT = "lt"
    LE = "le"
    EQ = "eq"
    NE = "ne"


ON_BOOLS = frozenset({BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR})
"""The operations of bools, whose result is a bool."""

COMMUTATIVE = frozenset({
    BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX,
    BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR,
})  # fmt: skip


class Reducer(StrEnum):
    """Associative and commutative combiners of a reduction."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"

    @property
    def op(self) -> BinaryOp:
        return _REDUCER_OP[self]

    def identity(self, dtype: DType) -> int | float:
        """Return the identity element: 0, 1, or the least or greatest value of `dtype`."""
        if self is Reducer.SUM:
            return 0
        if self is Reducer.PROD:
            return 1
        if dtype.is_float:
            return float("-inf") if self is Reducer.MAX else float("inf")
        return dtype.integer_range[self is not Reducer.MAX]


_REDUCER_OP = {
    Reducer.SUM: BinaryOp.ADD,
    Reducer.MAX: BinaryOp.MAX,
    Reducer.MIN: BinaryOp.MIN,
    Reducer.PROD: BinaryOp.MUL,
}
