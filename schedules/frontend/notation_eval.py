"""Evaluate the right side of a statement: convert a syntax tree to an expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from itertools import chain
from typing import Any, TypeAlias

from ..algebra.scalar import BinaryOp
from ..algebra.text_parser import Call, Infix, Name, Number, Prefix, Ref, Tree, syntax_error
from ..dtypes import DType
from ..errors import WorkloadError
from . import expr
from .expr_core import Condition, Expr, Index, Plain, arithmetic, as_condition, complement, power
from .functions import FUNCTIONS, PAIR_FUNCTIONS
from .reading import DataIndex, TensorExpr

CONSTANTS = {"inf": math.inf, "pi": math.pi}
_MAX_INTEGER = 1 << 64
_MAX_SHIFT = 64
_MAX_POWER = 64

_Value: TypeAlias = Plain | Condition


class Evaluator:
    """An evaluator of one right side. Numbers and indices get a type when they are combined with a
    value."""

    def __init__(
        self, text: str, tensors: Mapping[str, TensorExpr], scope: Mapping[str, Index]
    ) -> None:
        self._text = text
        self._tensors = tensors
        self._scope = scope

    def value(self, tree: Tree) -> Plain:
        found = self._evaluate(tree)
        return found.value() if isinstance(found, Condition) else found

    def _condition(self, tree: Tree) -> Condition:
        found = self._evaluate(tree)
        is_bool = isinstance(found, Expr) and found.dtype is DType.BOOL
        if not isinstance(found, Condition) and not is_bool:
            raise self._error(tree, "needs a condition, such as i >= j, or a bool", "bad_node")
        return as_condition(found)

    def _error(self, tree: Tree, message: str, code: str) -> WorkloadError:
        return syntax_error(self._text, tree.pos, message, code)

    def _evaluate(self, tree: Tree) -> _Value:
        match tree:
            case Number(value):
                return value
            case Name(name) if name in self._tensors:
                return self._tensors[name].element(())
            case Name(name):
                return CONSTANTS[name] if name in CONSTANTS else self._scope[name]
            case Ref(name, args):
                return expr.padded(self._tensors[name], *(self._index(a) for a in args))
            case Call():
                return self._located(tree, lambda: self._call(tree))
            case Prefix("!", x):
                return expr.not_(self._condition(x))
            case Prefix("~", x):
                return self._located(tree, lambda: complement(self.value(x)))
            case Prefix(_, x):
                inner = self.value(x)
                return self._located(tree, lambda: -inner)
            case Infix():
                return self._located(tree, lambda: self._infix(tree))

    def _located(self, tree: Tree, build: Callable[[], _Value]) -> _Value:
        """Return `build()`. If it raises an error without a position in the text, add the position
        of `tree`."""
        try:
            return build()
        except WorkloadError as error:
            if "\n" in str(error):
                raise
            raise self._error(tree, str(error), error.code) from error

    def _index(self, tree: Tree) -> Index | DataIndex | int:
        if isinstance(tree, Call) and tree.name in POLICIES:
            self._arity(tree, 1)
            return POLICIES[tree.name](self.value(tree.args[0]))
        found = self.value(tree)
        if isinstance(found, Index | int):
            return found
        if isinstance(found, Expr) and not found.dtype.is_float:
            return DataIndex(found)
        raise self._error(
            tree, "an index is made of index names and integers, or it is a value of integers",
            "bad_index",
        )  # fmt: skip

    def _infix(self, tree: Infix) -> _Value:
        op = tree.op
        if op == "&&":
            return expr.all_of(self._condition(tree.a), self._condition(tree.b))
        if op == "||":
            return expr.any_of(self._condition(tree.a), self._condition(tree.b))
        a, b = self.value(tree.a), self.value(tree.b)
        plain = not isinstance(a, Expr | Index) and not isinstance(b, Expr | Index)
        if op in _COMPARE:
            if plain:
                raise self._error(tree, "the comparison of two numbers is constant", "bad_node")
            return _COMPARE[op](a, b)
        if plain:
            return self._number(tree, a, b)
        if op == "**":
            return power(a, b)
        if op in ("//", "%"):
            if isinstance(a, Index) and isinstance(b, Index | int):
                return a // b if op == "//" else a % b
            return arithmetic(_VALUE[op], a, b)
        if op in _BITS:
            return arithmetic(_BITS[op], a, b)
        if op == "/" and isinstance(a, Index | int) and isinstance(b, Index | int):
            raise self._error(tree, "/ divides values; // divides indices", "bad_node")
        affine_op = isinstance(a, Index | int) and isinstance(b, Index | int)
        return _INDEX[op](a, b) if affine_op else arithmetic(_VALUE[op], a, b)

    def _number(self, tree: Infix, a: Plain, b: Plain) -> Plain:
        assert isinstance(a, int | float)
        assert isinstance(b, int | float)
        if tree.op in ("/", "//", "%") and b == 0:
            raise self._error(tree, "division by zero", "bad_constant")
        whole = isinstance(a, int) and isinstance(b, int)
        if tree.op in ("//", "%", *_BITS) and not whole:
            raise self._error(tree, f"{tree.op} needs integers", "bad_constant")
        if tree.op in ("<<", ">>") and not 0 <= b < _MAX_SHIFT:
            raise self._error(tree, f"shift by 0 to {_MAX_SHIFT - 1} bits", "bad_constant")
        if tree.op == "**" and not (a > 0 and abs(b) <= _MAX_POWER and abs(a) <= _MAX_INTEGER):
            message = f"a power of numbers has a base above 0 and an exponent of +-{_MAX_POWER}"
            raise self._error(tree, message, "bad_constant")
        found: int | float = _NUMBER[tree.op](a, b)
        infinite = isinstance(found, float) and math.isinf(found) and math.inf not in (a, b, -a, -b)
        if infinite or (isinstance(found, int) and abs(found) > _MAX_INTEGER):
            raise self._error(tree, "the number is too large", "bad_constant")
        return found

    def _call(self, tree: Call) -> Plain:
        name, args = tree.name, tree.args
        if name == "where":
            self._arity(tree, 3)
            condition = self._condition(args[0])
            return expr.select(condition, self.value(args[1]), self.value(args[2]))
        if name in ("min", "max"):
            if len(args) < 2:
                raise self._error(tree, f"{name} takes two values or more", "bad_node")
            combine = expr.minimum if name == "min" else expr.maximum
            found = self.value(args[0])
            for other in args[1:]:
                found = combine(found, self.value(other))
            return found
        if name in SCAN_FUNCTIONS:
            value, axis, words = self._along(tree, ("reverse", "exclusive"))
            return SCAN_FUNCTIONS[name](value, axis, **dict.fromkeys(words, True))
        if name in POSITIONS:
            value, axis, words = self._along(tree, ("last",))
            return POSITIONS[name](value, axis, last="last" in words)
        if name in _FUNCTIONS:
            self._arity(tree, 1)
            return _FUNCTIONS[name](self.value(args[0]))
        if name in PAIR_FUNCTIONS:
            self._arity(tree, 2)
            return PAIR_FUNCTIONS[name](self.value(args[0]), self.value(args[1]))
        if name in _CASTS:
            self._arity(tree, 1)
            return expr.cast(self.value(args[0]), name)
        if name in POLICIES:
            message = f"{name} is for the index of a read, such as T[{name}(I[i]), j]"
            raise self._error(tree, message, "bad_node")
        known = (_FUNCTIONS, PAIR_FUNCTIONS, _CASTS, SCAN_FUNCTIONS, POSITIONS)
        choices = ", ".join(sorted([*chain(*known), "min", "max", "where"]))
        hint = " (a sum needs a separate statement: T[i] += ...)" if name in ("sum", "prod") else ""
        raise self._error(tree, f"unknown function {name!r}{hint}; choices: {choices}",
                          "unknown_function")  # fmt: skip

    def _along(self, tree: Call, words: tuple[str, ...]) -> tuple[Plain, Index, list[str]]:
        """Return the value, the index and the further words of a call such as
        `cumsum(X[i,k], k, reverse)`."""
        value, *others = tree.args or (Number(0, tree.pos),)
        names = [other.name if isinstance(other, Name) else "" for other in others]
        if not names or names[0] not in self._scope or not set(names[1:]) <= set(words):
            raise self._error(
                tree,
                f"{tree.name} takes a value and an index name, then {' or '.join(words)} if wanted:"
                f" {tree.name}(X[i,k], k, {words[0]})",
                "bad_node",
            )
        return self.value(value), self._scope[names[0]], names[1:]

    def _arity(self, tree: Call, count: int) -> None:
        if len(tree.args) != count:
            raise self._error(
                tree, f"{tree.name} takes {count} values, got {len(tree.args)}", "bad_node"
            )


def is_data(tree: Tree, tensors: Container[str]) -> bool:
    """Return whether an index is data: whether it reads one of `tensors` or calls a function."""
    match tree:
        case Ref() | Call():
            return True
        case Prefix(_, x):
            return is_data(x, tensors)
        case Infix(_, a, b):
            return is_data(a, tensors) or is_data(b, tensors)
        case Name(name):
            return name in tensors
        case Number():
            return False


POLICIES: dict[str, Callable[[Any], DataIndex]] = {
    "clamp": expr.clamp,
    "wrap": expr.wrap,
    "zero": expr.zero,
}
"""Functions of the integers in the index of a read."""


def relu(x: Plain) -> Expr:
    return expr.maximum(x, 0)


SCAN_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "cumsum": expr.cumsum,
    "cumprod": expr.cumprod,
    "cummax": expr.cummax,
    "cummin": expr.cummin,
}
POSITIONS: dict[str, Callable[..., Expr]] = {"argmax": expr.argmax, "argmin": expr.argmin}
"""Functions that reduce over the index in their second argument."""
_FUNCTIONS = FUNCTIONS | {"relu": relu}
_CASTS = frozenset(dtype.value for dtype in DType)
_VALUE = {
    "+": BinaryOp.ADD, "-": BinaryOp.SUB, "*": BinaryOp.MUL, "/": BinaryOp.DIV,
    "//": BinaryOp.FLOOR_DIV, "%": BinaryOp.FLOOR_MOD,
}  # fmt: skip
_BITS = {
    "&": BinaryOp.BIT_AND, "|": BinaryOp.BIT_OR, "^": BinaryOp.BIT_XOR,
    "<<": BinaryOp.SHIFT_LEFT, ">>": BinaryOp.SHIFT_RIGHT,
}  # fmt: skip
_INDEX: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_NUMBER: dict[str, Callable[[Any, Any], Any]] = {
    **_INDEX,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b if isinstance(a, int) and isinstance(b, int) else float(a) ** b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}
_COMPARE: dict[str, Callable[[Any, Any], Condition]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": expr.eq,
    "!=": expr.ne,
}
