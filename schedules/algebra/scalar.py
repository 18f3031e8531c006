"""Scalar expressions: the computation of one element, used by stages and by loop nests.

An expression is a tree of frozen nodes. Every node has a `dtype`. The operands of an arithmetic
node have the same type; casts are explicit. A `Select` evaluates only the branch taken, and reads
in the other branch are not executed. Padding is therefore a select around a read that may be out of
bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import copysign, isnan
from typing import TypeAlias, assert_never

from ..dtypes import DType
from .affine import Affine, Cond, Eq0, Ge0, substitute_cond
from .binary_functions import BINARY_FUNCTIONS, BinaryFunction
from .functions import UnaryOp


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


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A constant. Equality compares the stored bits: 0.0 differs from -0.0, and a NaN equals
    itself. 0 equals 0.0 if `dtype` is a float type."""

    value: int | float
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const):
            return NotImplemented
        if self.dtype is not other.dtype:
            return False
        if self.value == 0 == other.value:
            return copysign(1.0, self.value) == copysign(1.0, other.value)
        return self.value == other.value or (isnan(self.value) and isnan(other.value))

    def __hash__(self) -> int:
        return hash((self.dtype, "nan" if isnan(self.value) else self.value))

    @property
    def is_plus_zero(self) -> bool:
        """Whether the constant is +0, the value of padding. The pattern `case Const(0)` also
        matches -0.0, which would change the sign of a product."""
        return self.value == 0 and copysign(1.0, self.value) > 0


@dataclass(frozen=True, slots=True)
class Load:
    """The read `tensor[index]`; `dtype` is the tensor's type. The index is in bounds whenever the
    read is executed."""

    tensor: str
    index: tuple[Affine, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index used as a number."""

    index: Affine
    dtype: DType


@dataclass(frozen=True, slots=True)
class Unary:
    op: UnaryOp
    x: Scalar

    @property
    def dtype(self) -> DType:
        return self.x.dtype


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    a: Scalar
    b: Scalar

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@dataclass(frozen=True, slots=True)
class Compare:
    op: CompareOp
    a: Scalar
    b: Scalar

    @property
    def dtype(self) -> DType:
        return DType.BOOL


@dataclass(frozen=True, slots=True)
class Cast:
    """`x` cast to `dtype`. Float to integer truncates towards zero and saturates; NaN becomes 0."""

    x: Scalar
    dtype: DType


@dataclass(frozen=True, slots=True)
class All:
    """A conjunction of index conditions, true if every condition holds."""

    conds: tuple[Cond, ...]

    @property
    def dtype(self) -> DType:
        return DType.BOOL


@dataclass(frozen=True, slots=True)
class Select:
    """`on_true if cond else on_false`; only the branch taken is evaluated."""

    cond: Scalar
    on_true: Scalar
    on_false: Scalar

    @property
    def dtype(self) -> DType:
        return self.on_true.dtype


Scalar: TypeAlias = Const | Load | IndexValue | Unary | Binary | Compare | Cast | All | Select


def children(node: Scalar) -> tuple[Scalar, ...]:
    match node:
        case Const() | Load() | IndexValue() | All():
            return ()
        case Unary() | Cast():
            return (node.x,)
        case Binary() | Compare():
            return (node.a, node.b)
        case Select():
            return (node.cond, node.on_true, node.on_false)
        case _:
            assert_never(node)


def is_defined(op: UnaryOp | BinaryOp, dtype: DType) -> bool:
    """Return whether `op` is defined for operands of `dtype`.

    There is no arithmetic on narrow floats, bools have only the operations of `ON_BOOLS`, integers
    have neither `div` nor most functions, and only integers have bits and remainders.
    """
    if dtype is DType.BOOL:
        return op in ON_BOOLS
    if dtype.is_narrow_float:
        return False
    if op in ON_INTEGERS_ONLY:
        return not dtype.is_float
    integers = op not in ON_FLOATS_ONLY if isinstance(op, BinaryOp) else op.function.on_integers
    return dtype.is_float or integers


def calls_of(node: Scalar) -> int:
    """Return the number of calls of exp, tanh and similar functions that the operation of `node`
    takes, without its operands."""
    match node:
        case Unary(op):
            return op.function.calls
        case Binary(op):
            return op.function.calls if op.function else 0
        case _:
            return 0


def walk(node: Scalar) -> Iterator[Scalar]:
    """Yield `node` and all nodes below it in preorder."""
    yield node
    for child in children(node):
        yield from walk(child)


def depth_of(node: Scalar) -> int:
    """Return the number of levels of `node`; 1 for a leaf."""
    return 1 + max((depth_of(child) for child in children(node)), default=0)


def loads(node: Scalar) -> tuple[Load, ...]:
    """Return every read in `node`, left to right."""
    return tuple(n for n in walk(node) if isinstance(n, Load))


def chain_terms(node: Scalar, sign: int = 1) -> list[tuple[int, Scalar]]:
    """Return the terms of a chain of additions and subtractions, each with its sign (1 or -1)."""
    if isinstance(node, Binary) and node.op in (BinaryOp.ADD, BinaryOp.SUB):
        second = sign if node.op is BinaryOp.ADD else -sign
        return chain_terms(node.a, sign) + chain_terms(node.b, second)
    return [(sign, node)]


def conditional_loads(
    node: Scalar, conds: tuple[Cond, ...] = ()
) -> Iterator[tuple[Load, tuple[Cond, ...]]]:
    """Yield the loads of `node`, each with the conditions under which selects need it. `conds` are
    the conditions around `node`."""
    if isinstance(node, Load):
        yield node, conds
    elif isinstance(node, Select) and isinstance(node.cond, All):
        yield from conditional_loads(node.on_true, (*conds, *node.cond.conds))
        yield from conditional_loads(node.on_false, conds)
    else:
        for child in children(node):
            yield from conditional_loads(child, conds)


def index_conds(node: Scalar) -> Iterator[Cond]:
    for n in walk(node):
        if isinstance(n, All):
            yield from n.conds


def rewrite(node: Scalar, leaf: Callable[[Scalar], Scalar | None]) -> Scalar:
    """Return `node` with each subtree replaced by the result of `leaf`, which is called top down.

    If `leaf` returns None for a subtree, its children are rewritten. Unchanged nodes keep their
    identity.
    """
    replaced = leaf(node)
    if replaced is not None:
        return replaced
    match node:
        case Const() | Load() | IndexValue() | All():
            return node
        case Unary() | Cast():
            x = rewrite(node.x, leaf)
            return node if x is node.x else replace(node, x=x)
        case Binary():
            a, b = rewrite(node.a, leaf), rewrite(node.b, leaf)
            return node if a is node.a and b is node.b else Binary(node.op, a, b)
        case Compare():
            a, b = rewrite(node.a, leaf), rewrite(node.b, leaf)
            return node if a is node.a and b is node.b else Compare(node.op, a, b)
        case Select():
            c = rewrite(node.cond, leaf)
            t, f = rewrite(node.on_true, leaf), rewrite(node.on_false, leaf)
            same = c is node.cond and t is node.on_true and f is node.on_false
            return node if same else Select(c, t, f)
        case _:
            assert_never(node)


def map_index(node: Scalar, change: Callable[[Affine], Affine]) -> Scalar:
    """Return `node` with `change` applied to every index: in loads, in conditions, and in indices
    that are used as values."""

    def leaf(n: Scalar) -> Scalar | None:
        match n:
            case Load():
                index = tuple(change(i) for i in n.index)
                same = all(a is b for a, b in zip(index, n.index, strict=True))
                return n if same else Load(n.tensor, index, n.dtype)
            case IndexValue():
                return replace(n, index=change(n.index))
            case All():
                return All(tuple(type(c)(change(c.index)) for c in n.conds))
            case _:
                return None

    return rewrite(node, leaf)


def substitute(node: Scalar, mapping: Mapping[str, Affine]) -> Scalar:
    """Return `node` with all index variables in `mapping` replaced simultaneously."""
    return map_index(node, lambda index: index.substitute(mapping))


def rename_tensors(node: Scalar, names: Mapping[str, str]) -> Scalar:
    def leaf(n: Scalar) -> Scalar | None:
        if isinstance(n, Load):
            return Load(names.get(n.tensor, n.tensor), n.index, n.dtype)
        return None

    return rewrite(node, leaf)


def vars_of(node: Scalar) -> frozenset[str]:
    """Return the names of all index variables in `node`."""
    names: set[str] = set()
    for n in walk(node):
        match n:
            case Load():
                for i in n.index:
                    names |= i.vars()
            case IndexValue():
                names |= n.index.vars()
            case All():
                for c in n.conds:
                    names |= c.index.vars()
            case _:
                pass
    return frozenset(names)


__all__ = [
    "COMMUTATIVE", "All", "Binary", "BinaryOp", "Cast", "Compare", "CompareOp", "Const", "Eq0",
    "Ge0", "IndexValue", "Load", "Reducer", "Scalar", "Select", "Unary", "UnaryOp", "calls_of",
    "children", "depth_of", "index_conds", "loads", "map_index", "rename_tensors", "rewrite",
    "substitute", "substitute_cond", "vars_of", "walk",
]  # fmt: skip
