"""The Python front end. Index notation and the operator library are built on it.

    A = placeholder("A", (512, 512))
    B = placeholder("B", (512, 512))
    k = reduce_axis(512, "k")
    C = compute("C", (512, 512), lambda i, j: sum(A[i, k] * B[k, j], axis=k))
    matmul = Workload.of(C, inputs=[A, B])

Index variables have integer arithmetic (`+ - *`, and `//` and `%` by a constant). A tensor indexed
by index variables is a value. Comparisons of indices or of values are conditions for `select`. For
equality write `eq(i, j)`: `==` has Python's meaning. Every error is a `WorkloadError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from ..algebra import values
from ..algebra.affine import Interval, var
from ..algebra.comparisons import Eq0, prove
from ..algebra.conditions import within
from ..algebra.gathers import Outside
from ..algebra.scalar import BinaryOp, CompareOp, Reducer
from ..dtypes import DType
from ..errors import WorkloadError
from ..python_numbers import as_number
from ..workload.checks import check_name, check_shape
from ..workload.tensors import Tensor
from .array.arrays import (
    ArrayExpr,
    Axis,
    LazyArray,
    Mask,
    TensorArray,
    accumulated,
    calculated,
    cast_array,
    comparison,
    is_array,
    positions,
    reduced,
    tensor_array,
    tuples_reduced,
)  # fmt: skip
from .array.stages import made_up_name
from .expr_core import (
    Condition,
    Expr,
    Index,
    Operand,
    ReduceAxis,
    arithmetic,
    as_condition,
    as_index,
    as_value,
    chosen,
    derived,
    guard,
    index_condition,
    number,
    operand,
    reduced_over,
    shown,
    value_condition,
)
from .reading import DataIndex, TensorExpr
from .references import LoopVar, Running
from .running import SCANS, position_over, scanned_over
from .staging import build_stages
from .tuples import Combine, combination, tuples_over, widened


@overload
def minimum(a: Operand, b: Operand) -> Expr: ...
@overload
def minimum(a: ArrayExpr, b: ArrayExpr | Operand) -> LazyArray: ...
@overload
def minimum(a: Operand, b: ArrayExpr) -> LazyArray: ...
def minimum(a: ArrayExpr | Operand, b: ArrayExpr | Operand) -> Expr | LazyArray:
    """Return the smaller of two values or of the elements of two arrays. To reduce over an axis,
    use `min`."""
    if is_array(a) or is_array(b):
        return calculated(BinaryOp.MIN, a, b)
    return arithmetic(BinaryOp.MIN, a, b)


@overload
def maximum(a: Operand, b: Operand) -> Expr: ...
@overload
def maximum(a: ArrayExpr, b: ArrayExpr | Operand) -> LazyArray: ...
@overload
def maximum(a: Operand, b: ArrayExpr) -> LazyArray: ...
def maximum(a: ArrayExpr | Operand, b: ArrayExpr | Operand) -> Expr | LazyArray:
    """Return the larger of two values or of the elements of two arrays. To reduce over an axis, use
    `max`."""
    if is_array(a) or is_array(b):
        return calculated(BinaryOp.MAX, a, b)
    return arithmetic(BinaryOp.MAX, a, b)


@overload
def relu(x: Operand) -> Expr: ...
@overload
def relu(x: ArrayExpr) -> LazyArray: ...
def relu(x: ArrayExpr | Operand) -> Expr | LazyArray:
    """Return max(x, 0) of a value or of the elements of an array."""
    return maximum(x, 0)


def const(value: float, dtype: str = "f32") -> Expr:
    """Return a number with an explicit type, or True or False of the type "bool"."""
    wanted = values.dtype_named(dtype)
    if isinstance(value, bool) and wanted is DType.BOOL:
        value = int(value)
    return number(operand(value), wanted)


@overload
def cast(x: Operand, dtype: str) -> Expr: ...
@overload
def cast(x: ArrayExpr, dtype: str) -> LazyArray: ...
def cast(x: ArrayExpr | Operand, dtype: str) -> Expr | LazyArray:
    """Return `x`, a value or an array, cast to `dtype`. Float to integer truncates towards zero and
    saturates."""
    if is_array(x):
        return cast_array(x, dtype)
    wanted = values.dtype_named(dtype)
    given = operand(x)
    if not isinstance(given, Expr):
        return number(given, wanted)
    return derived(values.cast(given.node, wanted), given)


@overload
def eq(a: Operand, b: Operand) -> Condition: ...
@overload
def eq(a: ArrayExpr, b: ArrayExpr | Operand) -> Mask: ...
@overload
def eq(a: Operand, b: ArrayExpr) -> Mask: ...
def eq(a: ArrayExpr | Operand, b: ArrayExpr | Operand) -> Condition | Mask:
    """Return the condition `a == b` of two indices, two values or the elements of two arrays."""
    if is_array(a) or is_array(b):
        return comparison(CompareOp.EQ, a, b)
    if any(isinstance(as_number(x), Expr | float) for x in (a, b)):
        return value_condition(CompareOp.EQ, a, b)
    left = as_index(a)
    found: Condition = index_condition(left, b, lambda x, y: Eq0(x - y))
    return found


@overload
def ne(a: Operand, b: Operand) -> Condition: ...
@overload
def ne(a: ArrayExpr, b: ArrayExpr | Operand) -> Mask: ...
@overload
def ne(a: Operand, b: ArrayExpr) -> Mask: ...
def ne(a: ArrayExpr | Operand, b: ArrayExpr | Operand) -> Condition | Mask:
    """Return the condition `a != b` of two indices, two values or the elements of two arrays."""
    if is_array(a) or is_array(b):
        return comparison(CompareOp.NE, a, b)
    if any(isinstance(as_number(x), Expr | float) for x in (a, b)):
        return value_condition(CompareOp.NE, a, b)
    equal = eq(a, b)
    assert isinstance(equal, Condition)
    return not_(equal)


def not_(condition: Condition | Expr) -> Condition:
    """Return the negation of `condition`, a condition or a value of type bool."""
    given = as_condition(condition)
    return Condition(lambda a, b: given.choose(b, a))


def all_of(*conditions: Condition | Expr) -> Condition:
    """Return the condition that every one of `conditions` holds."""
    if not conditions:
        raise WorkloadError("all_of needs at least one condition", code="bad_node")
    found, *others = (as_condition(c) for c in conditions)
    for condition in others:
        found = found & condition
    return found


def any_of(*conditions: Condition | Expr) -> Condition:
    """Return the condition that at least one of `conditions` holds."""
    return not_(all_of(*(not_(c) for c in conditions)))


def select(condition: Condition | Expr, on_true: Operand, on_false: Operand) -> Expr:
    """Return `on_true` if `condition` holds, else `on_false`; the other one is not evaluated."""
    return chosen(as_condition(condition), on_true, on_false)


def clamp(position: Operand) -> DataIndex:
    """Return an integer as an index of a read: outside, it is the first or the last position."""
    return DataIndex(as_value(position), Outside.CLAMP)


def wrap(position: Operand) -> DataIndex:
    """Return an integer as an index of a read: it is taken modulo the extent, so that -1 is the
    last position."""
    return DataIndex(as_value(position), Outside.WRAP)


def zero(position: Operand) -> DataIndex:
    """Return an integer as an index of a read: outside, the read is zero. This is the policy of a
    plain integer value, too."""
    return DataIndex(as_value(position), Outside.ZERO)


def padded(tensor: TensorExpr, *index: Index | DataIndex | Expr | int, fill: float = 0) -> Expr:
    """Return `tensor[index]`, or `fill` if the index is outside the tensor."""
    read = tensor.element(tuple(index), fill)
    ranges = {name: Interval(0, v.extent - 1) for name, v in read.vars.items()}
    conds = tuple(
        c
        for i, extent in zip(index, tensor.shape, strict=True)
        if not isinstance(i, DataIndex | Expr)
        for c in within(as_index(i).affine, extent)
    )
    if all(prove(c, ranges) for c in conds):
        return read
    # Redundant conditions are removed later, when the stage and its axes are known.
    return guard(conds, read.vars).choose(read, number(fill, tensor.dtype))


@overload
def placeholder(
    name: str, shape: Sequence[int], dtype: str = "f32", constant: bool = False
) -> TensorArray: ...
@overload
def placeholder(
    shape: Sequence[int], dtype: str = "f32", constant: bool = False
) -> TensorArray: ...
def placeholder(*arguments: Any, **named: Any) -> TensorArray:
    """Return an input tensor. `shape` may be empty: a number that is given at each call. `constant`
    states that its values do not change between calls.

    Without a name, the workload names it `x`, or `x1`, `x2`, ... in the order of its inputs.
    """
    fields: tuple[str, ...] = ("name", "shape", "dtype", "constant")
    if arguments and not isinstance(arguments[0], str):
        fields = fields[1:]
    given = dict(zip(fields, arguments, strict=False))
    twice = given.keys() & named.keys() or len(arguments) > len(fields)
    if twice or not named.keys() <= {"name", *fields} or "shape" not in given | named:
        raise TypeError("placeholder takes [name,] shape, dtype and constant, each once")
    given |= named
    name, shape = given.get("name"), given["shape"]
    if name is not None:
        check_name(name, "a tensor")
    shape = tuple(map(as_number, shape if isinstance(shape, Sequence) else (shape,)))
    check_shape(name or "x", shape)
    dtype = values.dtype_named(given.get("dtype", "f32"))
    tensor = Tensor(name or made_up_name("x"), shape, dtype, given.get("constant", False))
    return tensor_array(TensorExpr(tensor))


def reduce_axis(extent: int, name: str | None = None) -> ReduceAxis:
    """Return an index variable over `0..extent-1` to reduce over. Its label is `name`, or "k" by
    default."""
    return ReduceAxis(LoopVar("k" if name is None else name, as_number(extent), reduce=True))


def reduction(reducer: Reducer, x: object, axis: object) -> Expr:
    """Return `x` reduced over `axis` by `reducer`, as `sum`, `max`, `min` and `prod` do."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if not axes or not all(isinstance(a, ReduceAxis) for a in axes):
        better = {Reducer.MAX: "maximum", Reducer.MIN: "minimum"}.get(reducer)
        hint = f" (of two values: {better}(a, b))" if better and not isinstance(axis, tuple) else ""
        raise WorkloadError(
            f"{reducer} needs axis=k or axis=(k1, k2) made by reduce_axis, got {shown(axis)}{hint}",
            code="bad_reduction",
        )
    value = as_value(x)
    loop_vars = tuple(a.var for a in axes if isinstance(a, ReduceAxis))
    for n, v in enumerate(loop_vars):
        if v.name not in value.vars:
            raise WorkloadError(
                f"{reducer} over axis {v.label!r}, which the expression does not use",
                code="unused_axis",
            )
        if v in loop_vars[:n]:
            raise WorkloadError(f"axis {v.label!r} is named twice", code="duplicate")
    return reduced_over(reducer, value, loop_vars)


@overload
def sum(x: Operand, axis: object) -> Expr: ...
@overload
def sum(x: ArrayExpr, axis: Axis = None, keepdims: bool = False) -> LazyArray: ...
def sum(x: ArrayExpr | Operand, axis: object = None, keepdims: bool = False) -> Expr | LazyArray:
    """Return the sum of `x` over `axis`: of a value over reduce axes, of an array over axes given
    as integers (None: all axes). Narrow types are summed in their wide type."""
    if is_array(x):
        return reduced(Reducer.SUM, x, axis, keepdims)
    return reduction(Reducer.SUM, x, axis)


@overload
def prod(x: Operand, axis: object) -> Expr: ...
@overload
def prod(x: ArrayExpr, axis: Axis = None, keepdims: bool = False) -> LazyArray: ...
def prod(x: ArrayExpr | Operand, axis: object = None, keepdims: bool = False) -> Expr | LazyArray:
    """Return the product of `x` over `axis`; see `sum`."""
    if is_array(x):
        return reduced(Reducer.PROD, x, axis, keepdims)
    return reduction(Reducer.PROD, x, axis)


@overload
def max(x: Operand, axis: object) -> Expr: ...
@overload
def max(x: ArrayExpr, axis: Axis = None, keepdims: bool = False) -> LazyArray: ...
def max(x: ArrayExpr | Operand, axis: object = None, keepdims: bool = False) -> Expr | LazyArray:
    """Return the greatest `x` over `axis`; see `sum`. For the larger of two values, use
    `maximum`."""
    if is_array(x):
        return reduced(Reducer.MAX, x, axis, keepdims)
    return reduction(Reducer.MAX, x, axis)


@overload
def min(x: Operand, axis: object) -> Expr: ...
@overload
def min(x: ArrayExpr, axis: Axis = None, keepdims: bool = False) -> LazyArray: ...
def min(x: ArrayExpr | Operand, axis: object = None, keepdims: bool = False) -> Expr | LazyArray:
    """Return the least `x` over `axis`; see `sum`. For the smaller of two values, use
    `minimum`."""
    if is_array(x):
        return reduced(Reducer.MIN, x, axis, keepdims)
    return reduction(Reducer.MIN, x, axis)


@overload
def argmax(x: Operand, axis: object, *, last: bool = False) -> Expr: ...
@overload
def argmax(x: ArrayExpr, axis: object, *, last: bool = False) -> LazyArray: ...
def argmax(x: ArrayExpr | Operand, axis: object, *, last: bool = False) -> Expr | LazyArray:
    """Return the position of the greatest `x` along `axis`, as i32: of a value along one reduce
    axis, of an array along one axis given as an integer.

    Of equal values, the first one counts, or if `last`, the last one. A NaN counts as greater than
    every number: the position is that of the first (or last) NaN.
    """
    return _position(Reducer.MAX, x, axis, last=last)


@overload
def argmin(x: Operand, axis: object, *, last: bool = False) -> Expr: ...
@overload
def argmin(x: ArrayExpr, axis: object, *, last: bool = False) -> LazyArray: ...
def argmin(x: ArrayExpr | Operand, axis: object, *, last: bool = False) -> Expr | LazyArray:
    """Return the position of the least `x` along `axis`, as i32. Axes, equal values and NaN are
    treated as by `argmax`."""
    return _position(Reducer.MIN, x, axis, last=last)


@overload
def reduce_tuple(
    given: Sequence[ArrayExpr],
    identity: Sequence[object],
    combine: Combine,
    axis: Axis,
    *,
    commutative: bool = False,
) -> tuple[LazyArray, ...]: ...
@overload
def reduce_tuple(
    given: Sequence[Operand],
    identity: Sequence[object],
    combine: Combine,
    axis: object,
    *,
    commutative: bool = False,
) -> tuple[Expr, ...]: ...
def reduce_tuple(
    given: Sequence[Any],
    identity: Sequence[object],
    combine: Combine,
    axis: object,
    *,
    commutative: bool = False,
) -> tuple[Expr, ...] | tuple[LazyArray, ...]:
    """Return the components of the combination of all tuples `given` along `axis`: of values along
    one or several reduce axes, of arrays along axes given as integers.

    `combine(a, b)` returns the tuple that combines two tuples of values. It must be associative,
    and `identity` its identity on both sides. Tuples are combined in ascending order of the
    positions, in any grouping; of several axes, the last one is the fastest. If `commutative`, they
    are combined in any order, which allows vectors along the axis. Each value is reduced in its own
    type; bools and narrow floats in their wide type. The first position of the maximum:

        first, position = reduce_tuple(
            (X[i, k], k), identity=(-inf, 0), axis=k,
            combine=lambda a, b: (maximum(a[0], b[0]), select(b[0] > a[0], b[1], a[1])),
        )
    """
    if any(is_array(value) for value in given):
        return tuples_reduced(given, identity, combine, axis, commutative=commutative)
    over = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(one.var for one in over if isinstance(one, ReduceAxis))
    if not axes or len(axes) < len(over):
        raise WorkloadError(
            f"reduce_tuple needs axis=k, axes made by reduce_axis, got {shown(axis)}",
            code="bad_reduction",
        )
    parts = [widened(as_value(value)) for value in given]
    used = {name for part in parts for name in part.vars}
    for one in axes:
        if one.name not in used:
            raise WorkloadError(
                f"reduce_tuple over axis {one.label!r}, which the values do not use",
                code="unused_axis",
            )
    how = combination([p.dtype for p in parts], identity, combine, commutative=commutative)
    return tuples_over(parts, how, axes)


def _position(
    reducer: Reducer, x: ArrayExpr | Operand, axis: object, *, last: bool
) -> Expr | LazyArray:
    if is_array(x):
        return positions(reducer, x, axis, last=last)
    if not isinstance(axis, ReduceAxis):
        raise WorkloadError(
            f"arg{reducer} needs axis=k, one axis made by reduce_axis, got {shown(axis)}",
            code="bad_reduction",
        )
    value = as_value(x)
    if axis.var.name not in value.vars:
        raise WorkloadError(
            f"arg{reducer} over axis {axis.var.label!r}, which the expression does not use",
            code="unused_axis",
        )
    return position_over(reducer, value, axis.var, last=last)


def scan(
    reducer: Reducer, x: ArrayExpr | Operand, axis: object, *, reverse: bool, exclusive: bool
) -> Expr | LazyArray:
    """Return the running results of `x` along `axis` by `reducer`, as `cumsum` and the others
    do."""
    if is_array(x):
        return accumulated(reducer, x, axis, reverse=reverse, exclusive=exclusive)
    along = _alone(axis)
    if along is None:
        raise WorkloadError(
            f"{SCANS[reducer]} needs axis=k, an index variable of the tensor, got {shown(axis)}",
            code="bad_reduction",
        )
    return scanned_over(reducer, as_value(x), Running(along, reverse, exclusive))


def _alone(axis: object) -> LoopVar | None:
    """Return the variable of `axis` if it is an index made of one variable only."""
    if not isinstance(axis, Index) or len(axis.vars) != 1:
        return None
    (found,) = axis.vars.values()
    return found if axis.affine == var(found.name) else None


@overload
def cumsum(x: Operand, axis: object, *, reverse: bool = False, exclusive: bool = False) -> Expr: ...
@overload
def cumsum(
    x: ArrayExpr, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> LazyArray: ...
def cumsum(
    x: ArrayExpr | Operand, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> Expr | LazyArray:
    """Return the sum of `x` over all positions along `axis` up to its own: `S[k] = x[0] + ... +
    x[k]`. The axis is an index variable of a value, or an integer of an array.

    If `reverse`, the sum is over its own position and all later ones. If `exclusive`, its own
    position is left out, so that the first result is 0. Floats are added in any grouping. Narrow
    types are summed in their wide type.
    """
    return scan(Reducer.SUM, x, axis, reverse=reverse, exclusive=exclusive)


@overload
def cumprod(
    x: Operand, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> Expr: ...
@overload
def cumprod(
    x: ArrayExpr, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> LazyArray: ...
def cumprod(
    x: ArrayExpr | Operand, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> Expr | LazyArray:
    """Return the running product of `x` along `axis`; see `cumsum`."""
    return scan(Reducer.PROD, x, axis, reverse=reverse, exclusive=exclusive)


@overload
def cummax(x: Operand, axis: object, *, reverse: bool = False, exclusive: bool = False) -> Expr: ...
@overload
def cummax(
    x: ArrayExpr, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> LazyArray: ...
def cummax(
    x: ArrayExpr | Operand, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> Expr | LazyArray:
    """Return the greatest `x` so far along `axis`; see `cumsum`. NaN is treated as by `max`."""
    return scan(Reducer.MAX, x, axis, reverse=reverse, exclusive=exclusive)


@overload
def cummin(x: Operand, axis: object, *, reverse: bool = False, exclusive: bool = False) -> Expr: ...
@overload
def cummin(
    x: ArrayExpr, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> LazyArray: ...
def cummin(
    x: ArrayExpr | Operand, axis: object, *, reverse: bool = False, exclusive: bool = False
) -> Expr | LazyArray:
    """Return the least `x` so far along `axis`; see `cummax`."""
    return scan(Reducer.MIN, x, axis, reverse=reverse, exclusive=exclusive)


def compute(
    name: str, shape: Sequence[int], fn: Callable[..., Any], dtype: str | None = None
) -> TensorArray:
    """Return the tensor whose element `[i, j, ...]` is `fn(i, j, ...)`.

    The axes are named after the parameters of `fn`. The result is cast to `dtype`; by default, the
    tensor has the type of the expression. A reduction inside a larger expression becomes a separate
    stage, over the axes on which it depends.
    """
    check_name(name, "a tensor")
    shape = tuple(map(as_number, shape))
    check_shape(name, shape)
    labels = _labels(fn, name, len(shape))
    return compute_labelled(name, tuple(zip(labels, shape, strict=True)), fn, dtype)


def compute_labelled(
    name: str,
    labelled: Sequence[tuple[str, int]],
    fn: Callable[..., Any],
    dtype: str | None = None,
) -> TensorArray:
    """Return the tensor whose element `[i, j, ...]` is `fn(i, j, ...)`, with axes `labelled`, given
    as (name, extent). The result is cast to `dtype`."""
    check_name(name, "a tensor")
    check_shape(name, tuple(extent for _, extent in labelled))
    axes = tuple(LoopVar(label, extent, reduce=False) for label, extent in labelled)
    given = as_number(fn(*(Index(var(v.name), {v.name: v}) for v in axes)))
    wanted = values.dtype_named(dtype) if dtype is not None else None
    value = as_value(given, wanted or (DType.F32 if isinstance(given, int) else None))
    if wanted is not None and value.dtype is not wanted:
        value = derived(values.cast(value.node, wanted), value)
    return tensor_array(build_stages(name, axes, value))


def _labels(fn: Callable[..., Any], name: str, rank: int) -> list[str]:
    labels: list[str] = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return labels + [f"i{n}" for n in range(len(labels), rank)]
        if parameter.default is parameter.empty:
            labels.append(parameter.name)
    if len(labels) != rank:
        raise WorkloadError(
            f"{name} has {rank} dimensions, its function takes {len(labels)} indices"
            f" ({', '.join(labels)})",
            code="bad_rank",
        )
    return labels
