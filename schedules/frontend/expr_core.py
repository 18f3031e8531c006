"""The objects of the Python front end: indices of index variables, values and conditions.

`tilewright.schedules.frontend.expr` is the public interface of this module. Values are immutable,
and operators on them follow the type rules of `tilewright.schedules.algebra.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..algebra import values
from ..algebra.affine import Affine, affine, var
from ..algebra.balance import balanced_sum
from ..algebra.comparisons import Cond, Ge0
from ..algebra.conditions import normal_cond
from ..algebra.scalar import (
    All,
    BinaryOp,
    CompareOp,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    UnaryOp,
    chain_terms,
    depth_of,
    walk,
)
from ..dtypes import DType
from ..errors import WorkloadError
from ..limits import MAX_BODY_DEPTH, MAX_CONDITION_NODES, MAX_JSON_NODES
from ..python_numbers import as_number
from .references import LoopVar, NamedTensor, NestedReduction, Vars


class Index:
    """An integer expression of index variables; comparisons return conditions."""

    __slots__ = ("affine", "vars")

    def __init__(self, index: Affine, variables: Vars) -> None:
        self.affine = index
        self.vars = variables

    def _with(self, other: object, build: Callable[[Affine, Affine], Affine]) -> Index:
        other = as_number(other)
        if isinstance(other, bool) or not isinstance(other, Index | int):
            # Python then calls the reflected method of `other`. An Expr uses the index as a
            # number.
            return NotImplemented  # type: ignore[no-any-return]  # required by Python's operator protocol
        right = as_index(other)
        return Index(build(self.affine, right.affine), {**self.vars, **right.vars})

    def __add__(self, other: Index | int) -> Index:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Index | int) -> Index:
        return self._with(other, lambda a, b: a - b)

    def __radd__(self, other: Index | int) -> Index:
        return self._with(other, lambda a, b: b + a)

    def __rsub__(self, other: Index | int) -> Index:
        return self._with(other, lambda a, b: b - a)

    def __neg__(self) -> Index:
        return Index(-self.affine, self.vars)

    def __mul__(self, other: Index | int) -> Index:
        if isinstance(as_number(other), Expr | float | bool):
            return NotImplemented
        factor, index = _constant_factor(self, other)
        return Index(index.affine * factor, index.vars)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Index | int) -> Index:
        if isinstance(divisor, Expr):  # the index is used as a number
            return NotImplemented
        return Index(self.affine // _divisor(divisor, "//"), self.vars)

    def __mod__(self, divisor: Index | int) -> Index:
        if isinstance(divisor, Expr):
            return NotImplemented
        return Index(self.affine % _divisor(divisor, "%"), self.vars)

    def __lt__(self, other: Operand) -> Condition:
        if isinstance(as_number(other), float):  # compares the index as a number
            return value_condition(CompareOp.LT, self, other)
        return index_condition(self, other, lambda a, b: Ge0(b - a - 1))

    def __le__(self, other: Operand) -> Condition:
        if isinstance(as_number(other), float):  # compares the index as a number
            return value_condition(CompareOp.LE, self, other)
        return index_condition(self, other, lambda a, b: Ge0(b - a))

    def __gt__(self, other: Operand) -> Condition:
        if isinstance(as_number(other), float):  # compares the index as a number
            return value_condition(CompareOp.LT, other, self)
        return index_condition(self, other, lambda a, b: Ge0(a - b - 1))

    def __ge__(self, other: Operand) -> Condition:
        if isinstance(as_number(other), float):  # compares the index as a number
            return value_condition(CompareOp.LE, other, self)
        return index_condition(self, other, lambda a, b: Ge0(a - b))


class ReduceAxis(Index):
    """An index variable to reduce over: use it in indices and as `axis=` of a reducer."""

    __slots__ = ("var",)

    def __init__(self, variable: LoopVar) -> None:
        super().__init__(var(variable.name), {variable.name: variable})
        self.var = variable


def as_index(value: object) -> Index:
    """Convert `value` to an index. Raise WorkloadError if it is neither an index nor an integer."""
    value = as_number(value)
    if isinstance(value, Index):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Index(affine(value), {})
    raise WorkloadError(
        f"an index is an integer or made of index variables, got {described(value)}",
        code="bad_index",
    )


def described(value: object) -> str:
    if isinstance(value, Expr):
        return f"a value of type {value.dtype}, which is only the index of a read"
    return f"{type(value).__name__} {shown(value)}"


def shown(value: object) -> str:
    """Return a short `repr` for messages."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _constant_factor(a: Index, other: object) -> tuple[int, Index]:
    b = as_index(other)
    if b.affine.is_const:
        return b.affine.const, a
    if a.affine.is_const:
        return a.affine.const, b
    raise WorkloadError(
        "the product of two index variables is not an affine index; cast one of them to use"
        " the product as a value",
        code="bad_index",
    )


def _divisor(value: object, what: str) -> int:
    value = as_number(value)
    if isinstance(value, Index) and value.affine.is_const:
        value = value.affine.const
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WorkloadError(
            f"an index {what} needs a constant integer >= 1, got {described(value)}",
            code="bad_index",
        )
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A value computed for one element. `vars` are its free index variables.

    A reduction inside the expression is a `Load` of a name in `reductions`. `size` is the number of
    nodes of the tree and `depth` the number of its levels. Both are limited, and a shared subtree
    counts at every use.
    """

    node: Scalar
    vars: Vars
    tensors: Mapping[str, NamedTensor]
    reductions: Mapping[str, NestedReduction]
    size: int = 1
    depth: int = 1

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def __add__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.ADD, self, other)

    def __radd__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.ADD, other, self)

    def __sub__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.SUB, other, self)

    def __mul__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.MUL, other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.FLOOR_DIV, other, self)

    def __mod__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.FLOOR_MOD, self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.FLOOR_MOD, other, self)

    def __and__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.BIT_AND, self, other)

    def __rand__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.BIT_AND, other, self)

    def __or__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.BIT_OR, self, other)

    def __ror__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.BIT_OR, other, self)

    def __xor__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.BIT_XOR, self, other)

    def __rxor__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.BIT_XOR, other, self)

    def __lshift__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.SHIFT_LEFT, self, other)

    def __rlshift__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.SHIFT_LEFT, other, self)

    def __rshift__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.SHIFT_RIGHT, self, other)

    def __rrshift__(self, other: Operand) -> Expr:
        return arithmetic(BinaryOp.SHIFT_RIGHT, other, self)

    def __invert__(self) -> Expr:
        return complement(self)

    def __pow__(self, exponent: Operand) -> Expr:
        return power(self, exponent)

    def __rpow__(self, base: Operand) -> Expr:
        return power(base, self)

    def __neg__(self) -> Expr:
        return function(UnaryOp.NEG, self)

    def __lt__(self, other: Operand) -> Condition:
        return value_condition(CompareOp.LT, self, other)

    def __le__(self, other: Operand) -> Condition:
        return value_condition(CompareOp.LE, self, other)

    def __gt__(self, other: Operand) -> Condition:
        return value_condition(CompareOp.LT, other, self)

    def __ge__(self, other: Operand) -> Condition:
        return value_condition(CompareOp.LE, other, self)


Plain: TypeAlias = Expr | Index | int | float
"""A value, an index used as a number, or a number."""
Operand: TypeAlias = "Plain | Condition"
"""An operand: a condition is a bool."""


class ArrayValue:
    """The base of the arrays of `frontend/array`, whose own operators combine them with values."""

    __slots__ = ()

    def single_value(self) -> Expr | None:
        """Return the element of an array without dimensions, or None for other arrays."""
        return None


def derived(node: Scalar, *parts: Expr, depth: int | None = None) -> Expr:
    """Return `node` as an expression with the variables, tensors and reductions of `parts`.

    By default, `depth` is one more than the greatest depth of the parts. Raise WorkloadError if the
    expression is too large.
    """
    size = 1 + sum(p.size for p in parts)
    if depth is None:
        depth = 1 + max((p.depth for p in parts), default=0)
    if size > MAX_JSON_NODES or depth > MAX_BODY_DEPTH:
        raise WorkloadError(
            f"an expression may have {MAX_JSON_NODES} operations in {MAX_BODY_DEPTH} levels, this"
            f" one has {size} in {depth}; split it into several stages",
            code="too_large" if size > MAX_JSON_NODES else "too_deep",
        )
    variables: dict[str, LoopVar] = {}
    tensors: dict[str, NamedTensor] = {}
    reductions: dict[str, NestedReduction] = {}
    for part in parts:
        variables.update(part.vars)
        reductions.update(part.reductions)
        for name, tensor in part.tensors.items():
            if tensors.setdefault(name, tensor) is not tensor:
                raise WorkloadError(f"two tensors are named {name!r}", code="duplicate")
    return Expr(node, variables, tensors, reductions, size, depth)


def number(value: Plain, dtype: DType) -> Expr:
    """Return a number or index as a value of `dtype`."""
    if isinstance(value, Index) and value.affine.is_const:
        value = value.affine.const
    if isinstance(value, Index):
        # As a number, an index has a wide type. For a narrow type, this number is cast.
        direct = IndexValue(value.affine, dtype.wide)
        return Expr(values.cast(direct, dtype), value.vars, {}, {})
    if isinstance(value, Expr):
        raise WorkloadError(
            f"a constant is a number, got a {value.dtype} value", code="bad_constant"
        )
    return Expr(values.const(value, dtype), {}, {}, {})


def operand(value: object) -> Plain:
    """Return `value`, a condition as a value of type bool. Raise WorkloadError if it is not an
    operand."""
    value = as_number(value)
    if isinstance(value, Condition):
        return value.value()
    if isinstance(value, Expr | Index) or (
        isinstance(value, int | float) and not isinstance(value, bool)
    ):
        return value
    single = value.single_value() if isinstance(value, ArrayValue) else None
    if single is not None:
        return single
    if isinstance(value, NamedTensor):
        raise WorkloadError(
            f"{value.name} is a tensor; index it to get a value: {value.name}[...]", code="bad_node"
        )
    if isinstance(value, ArrayValue):
        raise WorkloadError(
            f"{value!r} is an array; index it with one index per dimension to get a value",
            code="bad_node",
        )
    raise WorkloadError(
        f"an expression is made of values, indices and numbers, got {described(value)}",
        code="bad_node",
    )


def as_value(value: object, dtype: DType | None = None) -> Expr:
    """Convert `value` to an expression. A number or index gets the type `dtype`; by default, f32 if
    it is a float, else i32."""
    given = operand(value)
    if isinstance(given, Expr):
        return given
    if dtype is None:
        dtype = DType.F32 if isinstance(given, float) else DType.I32
    return number(given, dtype)


def typed_pair(a: object, b: object, *, keep_narrow: bool = False) -> tuple[Expr, Expr]:
    """Return both operands as values. A number gets the type of the other operand. If `keep_narrow`
    is set, this type may be a narrow integer type that the number fits."""
    left, right = operand(a), operand(b)
    if isinstance(left, Expr) and isinstance(right, Expr):
        return left, right
    if isinstance(left, Expr):
        return left, _number_beside(left, right, keep_narrow)
    if isinstance(right, Expr):
        return _number_beside(right, left, keep_narrow), right
    dtype = DType.F32 if isinstance(left, float) or isinstance(right, float) else DType.I32
    return number(left, dtype), number(right, dtype)


def _number_beside(typed: Expr, plain: Plain, keep_narrow: bool) -> Expr:
    """Return the number or index `plain` in the wide type of `typed`. If `keep_narrow` is set, use
    the type of `typed` itself, if it is an integer type that `plain` fits."""
    dtype = typed.dtype.wide
    if keep_narrow and dtype is not typed.dtype and not typed.dtype.is_float:
        low, high = typed.dtype.integer_range
        if isinstance(plain, int) and low <= plain <= high:
            dtype = typed.dtype
    return number(plain, dtype)


def arithmetic(op: BinaryOp, a: object, b: object) -> Expr:
    """Return `op(a, b)` by the type rules of `values`."""
    if isinstance(a, ArrayValue) or isinstance(b, ArrayValue):
        return NotImplemented  # type: ignore[no-any-return]  # the array's method combines them
    left, right = typed_pair(a, b, keep_narrow=values.keeps_integers(op))
    node = values.binary(op, left.node, right.node)
    is_sum = op in (BinaryOp.ADD, BinaryOp.SUB)
    if is_sum and max(left.depth, right.depth) >= MAX_BODY_DEPTH:
        node = balanced_sum(
            chain_terms(node),
            lambda x, y: values.binary(BinaryOp.ADD, x, y),
            lambda x, y: values.binary(BinaryOp.SUB, x, y),
        )
        return derived(node, left, right, depth=depth_of(node))
    return derived(node, left, right)


MAX_EXPONENT = 64


def power(x: object, exponent: object) -> Expr:
    """Return `x ** exponent`: for a whole constant from -64 to 64 a product, by repeated squaring,
    or 1 divided by it; for 0.5 and -0.5 `sqrt` and `rsqrt`; else `general_power`."""
    exponent = as_number(exponent)
    if isinstance(exponent, float) and abs(exponent) == 0.5 and isinstance(x, Expr):
        return function(UnaryOp.SQRT if exponent > 0 else UnaryOp.RSQRT, x)
    return general_power(x, exponent)


def general_power(x: object, exponent: object) -> Expr:
    """Return `x` to the power `exponent`: a product for a whole constant, else the function `pow`.
    Raise WorkloadError if integers have another exponent than a constant from 0 to 64."""
    if isinstance(x, ArrayValue) or isinstance(exponent, ArrayValue):
        return NotImplemented  # type: ignore[no-any-return]  # the array's method combines them
    exponent = as_number(exponent)
    number_given = isinstance(exponent, int | float) and not isinstance(exponent, bool)
    if not isinstance(x, Expr) or not number_given:
        return arithmetic(BinaryOp.POW, x, exponent)
    assert isinstance(exponent, int | float)
    whole = int(exponent) if abs(exponent) <= MAX_EXPONENT else None
    if not x.dtype.is_float and (whole != exponent or whole < 0):
        raise WorkloadError(
            f"a power of integers has a constant exponent of 0 to {MAX_EXPONENT},"
            f' got {shown(exponent)}; cast first: cast(x, "f32") ** y',
            code="bad_node",
        )
    if whole is None or whole != exponent:
        return arithmetic(BinaryOp.POW, x, exponent)
    product = _product_of(x, abs(whole))
    return 1 / product if whole < 0 else product


def _product_of(x: Expr, count: int) -> Expr:
    """Return the product of `count` factors `x`."""
    if count == 0:
        return number(1, x.dtype.wide)
    found: Expr | None = None
    square, left = x, count
    while left:
        if left % 2:
            found = square if found is None else found * square
        left //= 2
        square = square * square if left else square
    assert found is not None
    return found


def complement(x: object) -> Expr:
    """Return `x` with every bit inverted."""
    value = as_value(x)
    ones = -1 if value.dtype.is_signed else value.dtype.integer_range[1]
    return arithmetic(BinaryOp.BIT_XOR, value, number(ones, value.dtype))


def function(op: UnaryOp, x: object) -> Expr:
    """Return `op(x)`. It is computed in f32 for narrow floats and for plain numbers."""
    given = operand(x)
    value = given if isinstance(given, Expr) else number(given, DType.F32)
    return derived(values.unary(op, value.node), value)


def reduced_over(reducer: Reducer, value: Expr, axes: tuple[LoopVar, ...]) -> Expr:
    """Return `value` reduced by `reducer` over `axes`, which it uses."""
    node = values.reduced(reducer, value.node)
    bound = {v.name for v in axes}
    free = {name: v for name, v in value.vars.items() if name not in bound}
    found = NestedReduction(reducer, node, axes, free, value.reductions)
    name = f"{reducer}@{id(found):x}"
    return Expr(
        Load(name, (), node.dtype), free, value.tensors, {name: found}, value.size + 1,
        value.depth,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition over indices and values. `choose(a, b)` returns `a` if the condition holds, else
    `b`."""

    choose: Callable[[Expr, Expr], Expr]
    joined: tuple[_Join, Condition, Condition] | None = None
    """How the condition was joined of two, if it was: a further one is joined with the second."""

    def value(self) -> Expr:
        """Return the condition as a value of type bool."""
        found = self.choose(_BOOLS[1], _BOOLS[0])
        node = found.node
        is_itself = isinstance(node, Select) and (node.on_true, node.on_false) == _TRUE_OR_FALSE
        return replace(found, node=node.cond) if isinstance(node, Select) and is_itself else found

    def __and__(self, other: object) -> Condition:
        return self._with(other, _both)

    def __rand__(self, other: object) -> Condition:
        return self & other

    def __or__(self, other: object) -> Condition:
        return self._with(other, _either)

    def __ror__(self, other: object) -> Condition:
        return self | other

    def __xor__(self, other: object) -> Condition:
        return self._with(other, _one_only)

    def __rxor__(self, other: object) -> Condition:
        return self ^ other

    def __invert__(self) -> Condition:
        return Condition(lambda x, y: self.choose(y, x))

    def _with(self, other: object, join: _Join) -> Condition:
        if isinstance(other, ArrayValue):
            return NotImplemented  # type: ignore[no-any-return]  # the array's method combines
        first, second = self, as_condition(other)
        if self.joined is not None and self.joined[0] is join and join is not _one_only:
            _, head, tail = self.joined
            if not _tests_indices(tail.value()) and not _tests_indices(second.value()):
                first, second = head, _compact(join(tail, second))
        return _compact(replace(join(first, second), joined=(join, first, second)))

    def __bool__(self) -> bool:
        raise WorkloadError(
            "a condition has no truth value yet; combine with all_of, any_of and not_,"
            " use it in select",
            code="bad_node",
        )


_Join: TypeAlias = Callable[[Condition, Condition], Condition]
"""A function that joins two conditions to one."""


def _both(a: Condition, b: Condition) -> Condition:
    return Condition(lambda x, y: a.choose(b.choose(x, y), y))


def _either(a: Condition, b: Condition) -> Condition:
    return Condition(lambda x, y: a.choose(x, b.choose(x, y)))


def _one_only(a: Condition, b: Condition) -> Condition:
    return Condition(lambda x, y: a.choose(b.choose(y, x), b.choose(x, y)))


def _tests_indices(value: Expr) -> bool:
    return any(isinstance(node, All) for node in walk(value.node))


def _compact(condition: Condition) -> Condition:
    """Return `condition`, or a test of its value if it would repeat alternatives often: n pairs
    joined by | and then by & have 2**n paths. Tests of indices stay, since they guard reads."""
    value = condition.value()
    if value.size <= MAX_CONDITION_NODES or _tests_indices(value):
        return condition
    return as_condition(value)


_BOOLS = (number(0, DType.BOOL), number(1, DType.BOOL))
_TRUE_OR_FALSE = (_BOOLS[1].node, _BOOLS[0].node)


def as_condition(value: object) -> Condition:
    """Return `value`, a condition or a value of type bool, as a condition. Raise WorkloadError for
    other values."""
    if isinstance(value, Condition):
        return value
    if not isinstance(value, Expr) or value.dtype is not DType.BOOL:
        found = f"a value of type {value.dtype}" if isinstance(value, Expr) else described(value)
        raise WorkloadError(
            f"needs a condition such as i >= j or eq(i, j), or a bool, got {found}",
            code="bad_node",
        )
    return Condition(lambda a, b: derived(Select(value.node, a.node, b.node), value, a, b))


def index_condition(a: Index, b: object, build: Callable[[Affine, Affine], Cond]) -> Condition:
    """Return the condition `build(a, b)` of two indices."""
    if isinstance(b, Expr):
        return NotImplemented  # type: ignore[no-any-return]  # the value's method compares
    if isinstance(b, ArrayValue):
        return NotImplemented  # type: ignore[no-any-return]  # the array's method compares
    right = as_index(b)
    cond = normal_cond(build(a.affine, right.affine))
    return guard((cond,), {**a.vars, **right.vars})


def chosen(condition: Condition, on_true: object, on_false: object) -> Expr:
    """Return `on_true` if `condition` holds, else `on_false`, in one type."""
    a, b = typed_pair(on_true, on_false, keep_narrow=True)
    if a.dtype is not b.dtype:
        left, right = values.same_type(a.node, b.node, "select")
        a, b = derived(left, a), derived(right, b)
    return condition.choose(a, b)


def guard(conds: tuple[Cond, ...], variables: Vars) -> Condition:
    test = Expr(All(conds), variables, {}, {})

    def choose(a: Expr, b: Expr) -> Expr:
        return derived(Select(test.node, a.node, b.node), test, a, b)

    return Condition(choose)


def value_condition(op: CompareOp, a: object, b: object) -> Condition:
    if isinstance(a, ArrayValue) or isinstance(b, ArrayValue):
        return NotImplemented  # type: ignore[no-any-return]  # the array's method compares
    left, right = typed_pair(a, b, keep_narrow=True)
    test = derived(values.compare(op, left.node, right.node), left, right)

    def choose(x: Expr, y: Expr) -> Expr:
        return derived(Select(test.node, x.node, y.node), test, x, y)

    return Condition(choose)
