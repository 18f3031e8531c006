"""Arrays: tensors and lazy expressions that are combined as a whole, by NumPy's rules.

    x, b = placeholder("x", (8, 64)), placeholder("b", (64,))
    y = relu(x + b)
    softmax = exp(x - x.max(-1, keepdims=True))
    z = (softmax / softmax.sum(-1, keepdims=True)).named("Z")

An array is either a tensor (`TensorArray`) or an expression that is computed where it is read
(`LazyArray`). `stages.py` describes which expressions become stages. Types follow the rules of
`tilewright.schedules.algebra.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias, TypeGuard, overload

from ...algebra import values
from ...algebra.scalar import BinaryOp, CompareOp, Reducer, UnaryOp
from ...dtypes import DType
from ...errors import WorkloadError
from ...python_numbers import as_number
from ...workload.assemble import Output
from ...workload.checks import check_name
from ..expr_core import (
    ArrayValue,
    Expr,
    Index,
    arithmetic,
    as_index,
    chosen,
    complement,
    derived,
    described,
    function,
    number,
    operand,
    power,
    value_condition,
)
from ..reading import DataIndex, TensorExpr, as_position
from ..tuples import Combine
from . import einsum as products
from . import gathering, reductions, views
from .node import (
    MaskNode,
    Node,
    bools,
    chosen_by,
    combined,
    compared,
    conditions,
    mapped,
    scalar,
    source,
)
from .stages import Tensors, tensors_of

Number: TypeAlias = int | float
Axis: TypeAlias = int | Sequence[int] | None
Operand: TypeAlias = "ArrayExpr | Expr | Number"
"""An operand of an array: an array, a value without index variables, or a number."""
_Part: TypeAlias = "int | slice | EllipsisType | None"
Key: TypeAlias = "ArrayExpr | _Part | tuple[ArrayExpr | _Part, ...]"
"""An index of NumPy's basic indexing, or with one integer array beside slices."""
Position: TypeAlias = "Index | DataIndex | Expr"
"""An index variable, or an integer value that selects an element of a tensor."""


class ArrayExpr(ArrayValue):
    """An array of `shape` and `dtype`. Operators work on elements and broadcast; `==` compares
    identity, use `eq` and `ne`."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy arrays leave `a + array` to this class, which refuses it
    node: Node

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def T(self) -> LazyArray:  # noqa: N802  # NumPy's name
        """The array with its dimensions in reverse order."""
        return self.transpose()

    def single_value(self) -> Expr | None:
        return None if self.node.shape else self._element(())

    def _element(self, index: tuple[object, ...]) -> Expr:
        """Return the element at `index`, which has one integer or index variable per dimension."""
        return Tensors([], inner=[self.node]).read(self.node, tuple(as_index(i) for i in index))

    def transpose(self, *axes: int | Sequence[int]) -> LazyArray:
        """Return the array with its dimensions in the order `axes`; by default, reversed."""
        return LazyArray(views.transposed(self.node, axes))

    def reshape(self, *shape: int | Sequence[int]) -> LazyArray:
        """Return the elements in row-major order with another shape, in which one extent may be
        -1."""
        return LazyArray(views.reshaped(self.node, shape))

    def astype(self, dtype: str) -> LazyArray:
        """Return the array cast to `dtype`; see `cast`."""
        return cast_array(self, dtype)

    def named(self, name: str) -> TensorArray:
        """Return the array as a tensor called `name`, as `compute` does: a stage of its own."""
        check_name(name, "a tensor")
        return tensor_array(tensors_of([_computed(self.node)], name)[0])

    def sum(self, axis: Axis = None, keepdims: bool = False) -> LazyArray:
        """Return the sum over `axis`: an integer, a tuple, or None for all axes. `keepdims` keeps
        the axes with the extent 1. Narrow types are summed in their wide type."""
        return reduced(Reducer.SUM, self, axis, keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False) -> LazyArray:
        """Return the product over `axis`; see `sum`."""
        return reduced(Reducer.PROD, self, axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> LazyArray:
        """Return the greatest element over `axis`; see `sum`."""
        return reduced(Reducer.MAX, self, axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> LazyArray:
        """Return the least element over `axis`; see `sum`."""
        return reduced(Reducer.MIN, self, axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> LazyArray:
        """Return the sum over `axis` divided by the number of elements; see `sum`. The elements
        must be floats."""
        total = self.sum(axis, keepdims)
        return total / (self.node.elements // total.node.elements)

    def var(self, axis: Axis = None, keepdims: bool = False, correction: int = 0) -> LazyArray:
        """Return the mean squared distance from the mean over `axis`; with `correction`, the sum is
        divided by the number of elements less `correction`."""
        centred = self - self.mean(axis, keepdims=True)
        total = (centred * centred).sum(axis, keepdims)
        count = self.node.elements // max(total.node.elements, 1) - correction
        if count < 1:
            raise WorkloadError(
                f"var of {count + correction} elements with correction {correction} divides by 0",
                code="bad_reduction",
            )
        return total / count

    def std(self, axis: Axis = None, keepdims: bool = False, correction: int = 0) -> LazyArray:
        """Return the square root of `var`."""
        return applied(UnaryOp.SQRT, self.var(axis, keepdims, correction))

    def any(self, axis: Axis = None, keepdims: bool = False) -> LazyArray:
        """Return whether any element over `axis` is true (numbers: not 0), as a bool; see `sum`."""
        return cast_array(self, "bool").max(axis, keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> LazyArray:
        """Return whether every element over `axis` is true (numbers: not 0), as a bool."""
        return cast_array(self, "bool").min(axis, keepdims)

    def argmax(self, axis: int, *, last: bool = False) -> LazyArray:
        """Return the position of the greatest element along `axis`, as i32. Of equal elements, the
        first one counts, or if `last`, the last one. A NaN precedes all numbers."""
        return positions(Reducer.MAX, self, axis, last=last)

    def argmin(self, axis: int, *, last: bool = False) -> LazyArray:
        """Return the position of the least element along `axis`; see `argmax`."""
        return positions(Reducer.MIN, self, axis, last=last)

    def take(self, indices: ArrayExpr, axis: int | None = None, mode: str = "zero") -> LazyArray:
        """Return the elements or rows that `indices` select; see the function `take`."""
        return take(self, indices, axis, mode)

    def cumsum(self, axis: int, *, reverse: bool = False, exclusive: bool = False) -> LazyArray:
        """Return the running sum along `axis`. If `reverse`, it runs from the last position down;
        if `exclusive`, its own position is left out."""
        return accumulated(Reducer.SUM, self, axis, reverse=reverse, exclusive=exclusive)

    def cumprod(self, axis: int, *, reverse: bool = False, exclusive: bool = False) -> LazyArray:
        """Return the running product along `axis`; see `cumsum`."""
        return accumulated(Reducer.PROD, self, axis, reverse=reverse, exclusive=exclusive)

    def __add__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.ADD, self, other)

    def __radd__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.ADD, other, self)

    def __sub__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.SUB, other, self)

    def __mul__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.MUL, other, self)

    def __truediv__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.FLOOR_DIV, other, self)

    def __mod__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.FLOOR_MOD, self, other)

    def __rmod__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.FLOOR_MOD, other, self)

    def __and__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.BIT_AND, self, other)

    def __rand__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.BIT_AND, other, self)

    def __or__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.BIT_OR, self, other)

    def __ror__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.BIT_OR, other, self)

    def __xor__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.BIT_XOR, self, other)

    def __rxor__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.BIT_XOR, other, self)

    def __lshift__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.SHIFT_LEFT, self, other)

    def __rlshift__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.SHIFT_LEFT, other, self)

    def __rshift__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.SHIFT_RIGHT, self, other)

    def __rrshift__(self, other: Operand) -> LazyArray:
        return calculated(BinaryOp.SHIFT_RIGHT, other, self)

    def __pow__(self, exponent: Operand) -> LazyArray:
        return raised(power, self, exponent)

    def __rpow__(self, base: Operand) -> LazyArray:
        return raised(power, base, self)

    def __invert__(self) -> LazyArray:
        return LazyArray(mapped(complement, self.node, label="invert"))

    def __neg__(self) -> LazyArray:
        return applied(UnaryOp.NEG, self)

    def __abs__(self) -> LazyArray:
        return applied(UnaryOp.ABS, self)

    def __matmul__(self, other: ArrayExpr) -> LazyArray:
        if not is_array(other):
            raise _no_array(other, "the right side of @")
        return LazyArray(products.matmul(self.node, other.node))

    def __lt__(self, other: Operand) -> Mask:
        return comparison(CompareOp.LT, self, other)

    def __le__(self, other: Operand) -> Mask:
        return comparison(CompareOp.LE, self, other)

    def __gt__(self, other: Operand) -> Mask:
        return comparison(CompareOp.LT, other, self)

    def __ge__(self, other: Operand) -> Mask:
        return comparison(CompareOp.LE, other, self)

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be iterated; index it or use split")

    def _sliced(self, key: object) -> LazyArray:
        entries = key if isinstance(key, tuple) else (key,)
        arrays = [n for n, k in enumerate(entries) if is_array(k)]
        if len(arrays) != 1:
            return LazyArray(views.sliced(self.node, key))
        (at,) = arrays
        dim = gathering.dim_of_array(entries, self.ndim, at)
        slices = (*entries[:at], slice(None), *entries[at + 1 :])
        whole = all(k == slice(None) for k in slices)
        rows = self if whole else LazyArray(views.sliced(self.node, slices))
        return take(rows, _array(entries[at], "an index"), dim)


@dataclass(frozen=True, eq=False, repr=False)
class LazyArray(ArrayExpr):
    """An array expression, which is computed where it is read."""

    node: Node

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @overload
    def __getitem__(self, key: Index | tuple[Index | int, ...]) -> Expr: ...  # type: ignore[overload-overlap]  # tuples of integers are `Key`
    @overload
    def __getitem__(self, key: Key) -> LazyArray: ...
    def __getitem__(self, key: object) -> Expr | LazyArray:
        """Return the element at one index variable or integer per dimension, as of a tensor, or the
        array that NumPy's basic indexing selects (integers, slices, `...`, None)."""
        if not _has_variables(key):
            return self._sliced(key)
        index = key if isinstance(key, tuple) else (key,)
        if len(index) != self.ndim:
            raise WorkloadError(
                f"{self!r} has {self.ndim} dimensions, got {len(index)} indices", code="bad_rank"
            )
        places = tuple(as_position(i) for i in index)
        if any(isinstance(i, DataIndex) for i in places):
            raise WorkloadError(
                f"{self!r} is no tensor; only tensors are indexed by values: name it first, or use"
                " take",
                code="bad_index",
            )
        return self._tensors.read(self.node, places)

    @cached_property
    def _tensors(self) -> Tensors:
        """The tensors that its elements are computed from."""
        return Tensors([], inner=[self.node])

    def tensors_of(self, outputs: Sequence[Output]) -> list[TensorExpr]:
        """Return the tensors of `outputs` of a workload, of which this array is one."""
        arrays = [_array(o, "an output beside arrays") for o in outputs]
        nodes = [_computed(a.node) if isinstance(a, LazyArray) else a.node for a in arrays]
        return tensors_of(nodes)

    def __repr__(self) -> str:
        return f"<array {self.dtype}{list(self.shape)}>"


class TensorArray(ArrayExpr, TensorExpr):
    """A tensor, an input or a result of `compute` or `named`, with the operators of arrays."""

    __slots__ = ("node",)

    @overload  # type: ignore[override]  # other keys than those of a TensorExpr select arrays
    def __getitem__(self, index: int | tuple[int, ...]) -> Any: ...
    @overload
    def __getitem__(self, index: Position | tuple[Position | int, ...]) -> Expr: ...  # type: ignore[overload-overlap]  # tuples of integers are the first case
    @overload
    def __getitem__(self, index: Key) -> LazyArray: ...
    def __getitem__(self, index: object) -> Expr | LazyArray:
        """Return the element at one index variable, integer or integer value per dimension, or the
        array that NumPy's indexing selects: by integers, slices, `...`, None, or by one integer
        array beside slices (see `take`)."""
        entries = tuple(map(as_number, index if isinstance(index, tuple) else (index,)))
        plain = len(entries) == len(self.shape)
        if _has_variables(index) or (plain and all(isinstance(i, int) and i >= 0 for i in entries)):
            return self.element(index)
        return self._sliced(index)

    def __repr__(self) -> str:
        return f"<tensor {self.name}: {self.dtype}{list(self.shape)}>"


def tensor_array(tensor: TensorExpr) -> TensorArray:
    """Return `tensor` with the operators of arrays."""
    found = TensorArray(tensor.tensor, tensor.stages, tensor.reads)
    object.__setattr__(found, "node", source(found))
    return found


@dataclass(frozen=True, eq=False, repr=False)
class Mask(LazyArray):
    """An array of bools, the result of a comparison. `&`, `|` and `~` combine masks, and `where`
    chooses by their conditions."""

    conditions: MaskNode

    def astype(self, dtype: str) -> LazyArray:
        """Return 1 where the condition holds, else 0, in `dtype`."""
        wanted = values.dtype_named(dtype)
        if wanted is DType.BOOL:
            return self
        return where(self, number(1, wanted), number(0, wanted))

    def __and__(self, other: Operand) -> LazyArray:
        if not isinstance(other, Mask):
            return calculated(BinaryOp.BIT_AND, self, other)
        return _mask(combined(lambda a, b: a & b, self.conditions, other.conditions))

    def __or__(self, other: Operand) -> LazyArray:
        if not isinstance(other, Mask):
            return calculated(BinaryOp.BIT_OR, self, other)
        return _mask(combined(lambda a, b: a | b, self.conditions, other.conditions))

    def __invert__(self) -> Mask:
        return _mask(combined(lambda a: ~a, self.conditions))

    def __bool__(self) -> bool:
        raise WorkloadError(
            "a comparison of arrays has no truth value; use it in where, combine masks with &, |"
            " and ~",
            code="bad_node",
        )

    def __repr__(self) -> str:
        return f"<mask {list(self.shape)}>"


def _mask(conditions: MaskNode) -> Mask:
    return Mask(bools(conditions), conditions)


def is_array(value: object) -> TypeGuard[ArrayExpr]:
    """Return whether `value` is an array, with whose elements operators calculate."""
    return isinstance(value, ArrayExpr)


def calculated(op: BinaryOp, a: object, b: object) -> LazyArray:
    """Return `op` of the elements of two operands, of which one is an array. The result is a value
    if an array without dimensions is combined with a value that has index variables."""
    if _are_values(a, b):
        return arithmetic(op, operand(a), operand(b))  # type: ignore[return-value]  # see above
    return _broadcast(lambda x, y: arithmetic(op, x, y), a, b, label=str(op))


def raised(power: Callable[..., Expr], x: object, exponent: object) -> LazyArray:
    """Return `power` of two operands; see `calculated`."""
    if _are_values(x, exponent):
        return power(operand(x), operand(exponent))  # type: ignore[return-value]  # see above
    return _broadcast(power, x, exponent, label="power")


def applied(op: UnaryOp, x: ArrayExpr) -> LazyArray:
    return LazyArray(mapped(lambda v: function(op, v), x.node, label=str(op)))


def cast_array(x: ArrayExpr, dtype: str) -> LazyArray:
    wanted = values.dtype_named(dtype)
    return LazyArray(mapped(lambda v: derived(values.cast(v.node, wanted), v), x.node))


def _are_values(a: object, b: object) -> bool:
    """Return whether one operand is a value with index variables, and the other one an array
    without dimensions."""
    for value, array in ((a, b), (b, a)):
        if isinstance(value, Expr | Index) and getattr(value, "vars", None) and is_array(array):
            return not array.node.shape
    return False


def comparison(op: CompareOp, a: object, b: object) -> Mask:
    """Return the conditions `op` of the elements of two operands; see `calculated`."""
    if _are_values(a, b):
        return value_condition(op, operand(a), operand(b))  # type: ignore[return-value]  # see above
    nodes, call = _operands(a, b)
    return _mask(compared(lambda *v: value_condition(op, *call(v)), *nodes))


def reduced(reducer: Reducer, x: ArrayExpr, axis: object, keepdims: bool = False) -> LazyArray:
    """Return `x` reduced over axes given as integers, as the methods of `ArrayExpr` do."""
    return LazyArray(reductions.reduced(reducer, x.node, axis, keepdims))


def accumulated(
    reducer: Reducer, x: ArrayExpr, axis: object, *, reverse: bool, exclusive: bool
) -> LazyArray:
    """Return the running results of `x` along an axis given as an integer."""
    found = reductions.accumulated(reducer, x.node, axis, reverse=reverse, exclusive=exclusive)
    return LazyArray(found)


def positions(reducer: Reducer, x: ArrayExpr, axis: object, *, last: bool) -> LazyArray:
    """Return the positions of the extremes of `x` along an axis given as an integer."""
    return LazyArray(reductions.positions(reducer, x.node, axis, last=last))


def tuples_reduced(
    given: Sequence[object],
    identity: Sequence[object],
    combine: Combine,
    axis: object,
    *,
    commutative: bool,
) -> tuple[LazyArray, ...]:
    """Return the combinations of tuples of array elements along axes given as integers, one array
    for each component."""
    nodes, _ = _operands(*given)
    if len(nodes) < len(given):
        raise _no_array(next(v for v in given if not is_array(v)), "a component", "an array")
    found = reductions.tuples(nodes, identity, combine, axis, commutative=commutative)
    return tuple(map(LazyArray, found))


def where(mask: ArrayExpr, on_true: object, on_false: object) -> LazyArray:
    """Return the elements of `on_true` where `mask`, an array of bools, holds, else those of
    `on_false`. All three are broadcast. Only the chosen element is evaluated."""
    if not is_array(mask) or mask.node.dtype is not DType.BOOL:
        raise _no_array(
            mask, "the condition of where", "bools, such as x > 0, eq(x, y) or a tensor of bools"
        )
    holds = mask.conditions if isinstance(mask, Mask) else conditions(mask.node)
    nodes, call = _operands(on_true, on_false)
    return LazyArray(chosen_by(lambda condition, *v: chosen(condition, *call(v)), holds, *nodes))


def _broadcast(
    build: Callable[[Any, Any], Expr], a: object, b: object, label: str = "t"
) -> LazyArray:
    nodes, call = _operands(a, b)
    return LazyArray(mapped(lambda *v: build(*call(v)), *nodes, label=label))


def _operands(*given: object) -> tuple[list[Node], Callable[[Sequence[Expr]], list[object]]]:
    """Return the arrays among `given`, and a function of one element of each array that returns all
    operands. Numbers remain numbers, because they take the type of the other operand."""
    nodes: list[Node] = []
    operands = [as_number(value) for value in given]
    for value in operands:
        if isinstance(value, ArrayExpr):
            nodes.append(value.node)
        elif isinstance(value, Expr) and not value.vars:
            nodes.append(scalar(value))
        elif not isinstance(value, int | float) or isinstance(value, bool):
            raise _no_array(value, "an operand beside an array")

    def call(values: Sequence[Expr]) -> list[object]:
        elements = iter(values)
        return [v if isinstance(v, int | float) else next(elements) for v in operands]

    return nodes, call


def _no_array(value: object, what: str, wanted: str = "an array or a number") -> WorkloadError:
    found = f"a value of type {value.dtype}" if isinstance(value, Expr) else described(value)
    hint = ""
    if isinstance(value, Index | Expr):
        hint = "; index the array to combine its elements with an index variable"
    elif isinstance(value, bool):
        hint = "; == has Python's meaning, write eq or ne"
    return WorkloadError(f"{what} must be {wanted}; got {found}{hint}", code="bad_node")


def _has_variables(key: object) -> bool:
    kinds = (Index, Expr, DataIndex)
    return any(isinstance(k, kinds) for k in (key if isinstance(key, tuple) else (key,)))


def take(
    x: ArrayExpr, indices: ArrayExpr, axis: int | None = None, mode: str = "zero"
) -> LazyArray:
    """Return the elements of `x` along `axis` at the positions in the integer array `indices`, as
    NumPy's `take`. Without an axis, positions count the elements in row-major order.

    An index outside, negative ones included, gives zero (mode "zero"), the nearest position
    ("clamp") or is taken modulo the extent ("wrap", in which -1 is the last position). `x` becomes
    a tensor. `x[indices]` is `take(x, indices, 0)`.
    """
    outside = gathering.outside_named(mode)
    nodes = node_of(x, "take"), node_of(indices, "take")
    return LazyArray(gathering.taken(*nodes, axis, outside))


def node_of(x: object, what: str) -> Node:
    return _array(x, f"the argument of {what}").node


def _array(x: object, what: str) -> ArrayExpr:
    if not is_array(x):
        raise _no_array(x, what, "an array")
    return x


def _computed(node: Node) -> Node:
    """Return `node`, or a copy of the elements if it is a tensor already."""
    return node if node.source is None else views.expanded(node, ())
