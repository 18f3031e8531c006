"""Scalar expressions: the computation of one element, used by stages and by loop nests.

An expression is a tree of frozen nodes. Every node has a `dtype`. The operands of an arithmetic
node have the same type; casts are explicit. A `Select` evaluates only the branch taken, and reads
in the other branch are not executed. Padding is therefore a select around a read that may be out of
bounds.

The index of a read may contain data: a read whose index has a `Clamped` is a gather. The reads
inside the index are children of the read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import copysign, isnan
from typing import TypeAlias, assert_never

from ..dtypes import DType
from .affine import Affine, Datum
from .comparisons import Cond, Eq0, Ge0, substitute_cond
from .functions import UnaryOp
from .operations import (
    COMMUTATIVE,
    NAMED_PAIRS,
    ON_BOOLS,
    ON_FLOATS_ONLY,
    ON_INTEGERS_ONLY,
    BinaryOp,
    CompareOp,
    Reducer,
)


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


DATA_TYPES = (DType.I32, DType.I64)
"""The types of integers in indices; narrower ones are cast."""


@dataclass(frozen=True, slots=True)
class Clamped(Datum):
    """The integer `value`, saturated to 0..extent-1, in the index of a read.

    The other ways to treat integers outside the range are expressions around it (see `gathers.py`).
    """

    value: Scalar
    extent: int

    def vars(self) -> frozenset[str]:
        return vars_of(self.value)

    def map_index(self, change: Callable[[Affine], Affine]) -> Clamped:
        return self.with_value(map_index(self.value, change))

    def with_value(self, value: Scalar) -> Clamped:
        return self if value is self.value else Clamped(value, self.extent)

    def __str__(self) -> str:
        return f"clamp({to_scalar_text(self.value)})"


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


@dataclass(frozen=True, slots=True)
class Components:
    """The values of the components of a tuple: the body of a reduction of tuples, and nothing else.

    It is the root of such a body, so that whatever reads or rewrites a body sees all components.
    Its `dtype` is that of the first component.
    """

    values: tuple[Scalar, ...]

    @property
    def dtype(self) -> DType:
        return self.values[0].dtype


Scalar: TypeAlias = (
    Const | Load | IndexValue | Unary | Binary | Compare | Cast | All | Select | Components
)


def children(node: Scalar) -> tuple[Scalar, ...]:
    match node:
        case Const() | IndexValue() | All():
            return ()
        case Load():
            return tuple(datum.value for datum in data_of(node))
        case Unary() | Cast():
            return (node.x,)
        case Binary() | Compare():
            return (node.a, node.b)
        case Select():
            return (node.cond, node.on_true, node.on_false)
        case Components():
            return node.values
        case _:
            assert_never(node)


def data_of(load: Load) -> tuple[Clamped, ...]:
    """Return the data in the index of `load`."""
    found = (datum for index in load.index if index.has_data for datum in index.data())
    return tuple(datum for datum in dict.fromkeys(found) if isinstance(datum, Clamped))


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
    if isinstance(node, Select) and isinstance(node.cond, All):
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

    If `leaf` returns None for a subtree, its children are rewritten. The children of a read, which
    are in its index, are rewritten before `leaf` is called for the read. Unchanged nodes keep their
    identity.
    """
    if isinstance(node, Load):
        node = with_data(node, lambda value: rewrite(value, leaf))
    replaced = leaf(node)
    return _with_children(node, lambda x: rewrite(x, leaf)) if replaced is None else replaced


def with_data(load: Load, change: Callable[[Scalar], Scalar]) -> Load:
    """Return `load` with `change` applied to each value in its index."""
    if not any(i.has_data for i in load.index):
        return load

    def changed(datum: Datum) -> Affine:
        assert isinstance(datum, Clamped)
        return Affine(((datum.with_value(change(datum.value)), 1),), 0)

    index = tuple(i.replace_data(changed) for i in load.index)
    return load if index == load.index else Load(load.tensor, index, load.dtype)


def replace_reads(node: Scalar, change: Callable[[Load], Load]) -> Scalar:
    """Return `node` with each read outside of indices replaced by `change` of it."""
    if isinstance(node, Load):
        return change(node)
    return _with_children(node, lambda x: replace_reads(x, change))


def _with_children(node: Scalar, change: Callable[[Scalar], Scalar]) -> Scalar:
    """Return `node` with `change` applied to its children, except those in the index of a read."""
    match node:
        case Const() | Load() | IndexValue() | All():
            return node
        case Unary() | Cast():
            x = change(node.x)
            return node if x is node.x else replace(node, x=x)
        case Binary():
            a, b = change(node.a), change(node.b)
            return node if a is node.a and b is node.b else Binary(node.op, a, b)
        case Compare():
            a, b = change(node.a), change(node.b)
            return node if a is node.a and b is node.b else Compare(node.op, a, b)
        case Select():
            c, t, f = change(node.cond), change(node.on_true), change(node.on_false)
            same = c is node.cond and t is node.on_true and f is node.on_false
            return node if same else Select(c, t, f)
        case Components():
            values = tuple(map(change, node.values))
            same = all(a is b for a, b in zip(values, node.values, strict=True))
            return node if same else Components(values)
        case _:
            assert_never(node)


def map_index(node: Scalar, change: Callable[[Affine], Affine]) -> Scalar:
    """Return `node` with `change` applied to every index: in loads, in conditions, and in indices
    that are used as values. `change` must apply itself to data in the index, as `substitute` and
    `simplify` of `affine.py` do."""
    match node:
        case Load():
            index = tuple(change(i) for i in node.index)
            same = all(a is b for a, b in zip(index, node.index, strict=True))
            return node if same else Load(node.tensor, index, node.dtype)
        case IndexValue():
            return replace(node, index=change(node.index))
        case All():
            return All(tuple(type(c)(change(c.index)) for c in node.conds))
        case _:
            return _with_children(node, lambda x: map_index(x, change))


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


KEPT = "\0"
"""Placeholder of a space at which the printer does not break a line."""


def to_scalar_text(scalar: Scalar) -> str:
    """Return `scalar` as one line with the fewest parentheses."""
    return scalar_text(scalar)[0].replace(KEPT, " ")


def access_text(name: str, index: tuple[Affine, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


def kept_access_text(name: str, index: tuple[Affine, ...]) -> str:
    """Return the text of an access in which no line is broken."""
    return access_text(name, index).replace(" ", KEPT)


def conds_text(conds: tuple[Cond, ...]) -> str:
    each = (str(c).replace(" ", KEPT) for c in conds)
    return f" and{KEPT}".join(each) if conds else "true"


# Precedences; an operand of lower precedence is put in parentheses.
(
    _CHOICE, _AND, _RELATION, _BITS_OR, _BITS_XOR, _BITS_AND, _SHIFT, _SUM, _PRODUCT, _SIGN, _ATOM,
) = range(11)  # fmt: skip

_INFIX = {
    BinaryOp.ADD: ("+", _SUM),
    BinaryOp.SUB: ("-", _SUM),
    BinaryOp.MUL: ("*", _PRODUCT),
    BinaryOp.DIV: ("/", _PRODUCT),
    BinaryOp.FLOOR_DIV: ("//", _PRODUCT),
    BinaryOp.FLOOR_MOD: ("%", _PRODUCT),
    BinaryOp.SHIFT_LEFT: ("<<", _SHIFT),
    BinaryOp.SHIFT_RIGHT: (">>", _SHIFT),
    BinaryOp.BIT_AND: ("&", _BITS_AND),
    BinaryOp.BIT_XOR: ("^", _BITS_XOR),
    BinaryOp.BIT_OR: ("|", _BITS_OR),
}
_RELATION_SIGN = {CompareOp.LT: "<", CompareOp.LE: "<=", CompareOp.EQ: "==", CompareOp.NE: "!="}


def scalar_text(node: Scalar) -> tuple[str, int]:
    """Return the text of `node`, and the precedence of its outermost operator."""
    match node:
        case Const(value, dtype):
            return _const(value, dtype)
        case Load(tensor, index):
            return kept_access_text(tensor, index), _ATOM
        case IndexValue(index, dtype):
            return f"{dtype}({index})", _ATOM
        case Cast(x, dtype):
            return f"{dtype}({scalar_text(x)[0]})", _ATOM
        case Unary(UnaryOp.NEG, x):
            return f"-{_operand(x, _ATOM)}", _SIGN
        case Unary(op, x):
            return f"{op}({scalar_text(x)[0]})", _ATOM
        case Binary(op, a, b):
            if op not in _INFIX:
                return f"{op}({scalar_text(a)[0]}, {scalar_text(b)[0]})", _ATOM
            # Operators of equal precedence associate to the left.
            sign, strength = _INFIX[op]
            return f"{_operand(a, strength)} {sign}{KEPT}{_operand(b, strength + 1)}", strength
        case Compare(op, a, b):
            sign = _RELATION_SIGN[op]
            return f"{_operand(a, _BITS_OR)} {sign}{KEPT}{_operand(b, _BITS_OR)}", _RELATION
        case All(conds):
            return conds_text(conds), _AND if len(conds) > 1 else _RELATION if conds else _ATOM
        case Select(cond, on_true, on_false):
            taken, other = _operand(on_true, _AND), _operand(on_false, _CHOICE)
            return f"{taken} if{KEPT}{_operand(cond, _AND)} else{KEPT}{other}", _CHOICE
        case Components(values):
            return f"({', '.join(scalar_text(v)[0] for v in values)})", _ATOM
        case _:
            assert_never(node)


def _operand(node: Scalar, strength: int) -> str:
    text, found = scalar_text(node)
    return text if found >= strength else f"({text})"


def _const(value: int | float, dtype: DType) -> tuple[str, int]:
    if dtype is DType.BOOL:
        return ("true" if value else "false"), _ATOM
    text = repr(float(value) if dtype.is_float else int(value))
    return text, _SIGN if text.startswith("-") else _ATOM


__all__ = [
    "COMMUTATIVE", "DATA_TYPES", "KEPT", "NAMED_PAIRS", "ON_BOOLS", "ON_FLOATS_ONLY",
    "ON_INTEGERS_ONLY", "All", "Binary", "BinaryOp", "Cast", "Clamped", "Compare", "CompareOp",
    "Components", "Const", "Eq0", "Ge0", "IndexValue", "Load", "Reducer", "Scalar", "Select",
    "Unary", "UnaryOp", "access_text", "calls_of", "chain_terms", "children", "conds_text",
    "data_of", "depth_of", "index_conds", "is_defined", "kept_access_text", "loads", "map_index",
    "rename_tensors", "replace_reads", "rewrite", "scalar_text", "substitute", "substitute_cond",
    "to_scalar_text", "vars_of", "walk", "with_data",
]  # fmt: skip
