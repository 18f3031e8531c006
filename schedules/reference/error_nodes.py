"""The error bound of one node: how far any legal schedule's value is from the exact one.

`error_bound` states the rules. Here each kind of node gets its values, those of the reference,
together with its bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import numpy as np

from ..algebra.narrow import round_to
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from ..dtypes import DType
from .error_exact import (
    common_step,
    exact_function,
    exact_product,
    exact_quotient,
    exact_sum,
    exact_sums,
    is_number_of,
    sample,
)
from .error_rounding import (
    Errors,
    as_array,
    as_error,
    or_overflow,
    or_wrapped,
    plus,
    rounded,
    rounding_growth,
    smallest_normal,
    smallest_step,
    unit_roundoff,
)
from .evaluate import value_of
from .math import Array, binary, cast, compare, unary
from .reads import Box, Stored, read

Bounded: TypeAlias = tuple[Array, Errors]


class BoundedTensors:
    """Tensors computed so far, and their errors."""

    def __init__(self, tensors: dict[str, Stored], errors: dict[str, Stored | None]) -> None:
        self.tensors = tensors
        self.errors = errors


def bounded_value(node: Scalar, box: Box, env: BoundedTensors) -> Bounded:
    """`node` and its error at every point of `box`, in shapes that broadcast to its extents."""
    match node:
        case Const() | All():
            return value_of(node, box, env.tensors), None
        case IndexValue(_, dtype):
            values = value_of(node, box, env.tensors)
            return values, _conversion_error(values, None, dtype)
        case Load(tensor, index, _):
            errors = env.errors[tensor]
            read_errors = None if errors is None else read(errors, index, box)
            return value_of(node, box, env.tensors), read_errors
        case Unary(op, x):
            return _unary(op, bounded_value(x, box, env), node.dtype)
        case Binary(BinaryOp.ADD | BinaryOp.SUB):
            return _addition(node, box, env)
        case Binary(op, a, b):
            return _binary(op, bounded_value(a, box, env), bounded_value(b, box, env), node.dtype)
        case Compare(op, a, b):
            (left, left_errors), (right, right_errors) = (
                bounded_value(x, box, env) for x in (a, b)
            )
            truth = compare(op, left, right)
            close = plus(left_errors, right_errors)
            if close is None:
                return truth, None
            distance = np.abs(left.astype(np.float64) - right)
            return truth, as_error((distance <= close) & (close > 0))
        case Cast(x, dtype):
            return _cast(bounded_value(x, box, env), x.dtype, dtype)
        case Select(cond, on_true, on_false):
            chosen = bounded_value(cond, box, env)
            if chosen[1] is None and chosen[0].all():
                return bounded_value(on_true, box, env)
            if chosen[1] is None and not chosen[0].any():
                return bounded_value(on_false, box, env)
            return _select(chosen, *(bounded_value(x, box, env) for x in (on_true, on_false)))
        case _:
            assert_never(node)


def _select(cond: Bounded, on_true: Bounded, on_false: Bounded) -> Bounded:
    chosen, doubt = cond
    values = np.where(chosen, on_true[0], on_false[0])
    if doubt is None and on_true[1] is None and on_false[1] is None:
        return values, None
    true_errors, false_errors = as_array(on_true[1]), as_array(on_false[1])
    errors = np.where(chosen, true_errors, false_errors)
    if doubt is not None:
        # A difference of two infinities is no number: the bound becomes infinite at the end.
        apart = np.abs(on_true[0].astype(np.float64) - on_false[0])
        other = np.where(chosen, false_errors, true_errors)
        errors = np.where(doubt > 0, np.maximum(errors, apart + other), errors)
    return values, errors


def chain_terms(node: Scalar, sign: int = 1) -> list[tuple[int, Scalar]]:
    """The terms of a chain of additions and subtractions, with their signs."""
    if isinstance(node, Binary) and node.op in (BinaryOp.ADD, BinaryOp.SUB):
        second = sign if node.op is BinaryOp.ADD else -sign
        return chain_terms(node.a, sign) + chain_terms(node.b, second)
    return [(sign, node)]


def signed_sum(terms: list[tuple[int, Bounded]]) -> Array:
    total: Array | None = None
    for sign, (value, _) in terms:
        if total is None:
            total = value if sign > 0 else unary(UnaryOp.NEG, value)
        else:
            total = binary(BinaryOp.ADD if sign > 0 else BinaryOp.SUB, total, value)
    assert total is not None, "a chain of additions has terms"
    return total


def _addition(node: Binary, box: Box, env: BoundedTensors) -> Bounded:
    terms = [(sign, bounded_value(t, box, env)) for sign, t in chain_terms(node)]
    values = signed_sum(terms)
    operands = [v for _, (v, _) in terms]
    errors = plus(*(e for _, (_, e) in terms))
    if not node.dtype.is_float:
        reach = sum(np.abs(v.astype(float)) for v in operands)
        return values, or_wrapped(node.dtype, np.asarray(reach), errors)
    if len(terms) == 2:
        (_, (a, _)), (sign, (b, _)) = terms
        size = np.abs(values)
        exact = exact_sum(a, b if sign > 0 else -b, values, node.dtype)
    else:
        size = np.asarray(sum(np.abs(v) for v in operands))
        exact = exact_sums(joint_step(operands, node.dtype), size, errors, node.dtype)
    growth = rounding_growth(node.dtype, len(terms) - 1)
    return values, rounded(node.dtype, values, errors, growth * size, operands, exact)


def joint_step(operands: Sequence[Array], dtype: DType) -> int | None:
    """The `common_step` of all `operands` of type `dtype`."""
    steps = []
    for values in operands:
        step = common_step(values, dtype) if dtype.is_float else None
        if step is None:
            return None
        steps.append(step)
    return min(steps)


def _binary(op: BinaryOp, a: Bounded, b: Bounded, dtype: DType) -> Bounded:
    (x, ex), (y, ey) = a, b
    values = binary(op, x, y)
    if op in (BinaryOp.MAX, BinaryOp.MIN):
        if ex is None and ey is None:
            return values, None
        high = binary(op, x + as_array(ex), y + as_array(ey)) - values
        low = values - binary(op, x - as_array(ex), y - as_array(ey))
        return values, np.where(np.isinf(values), _finite_or_inf(ex, ey), np.maximum(high, low))
    if op is BinaryOp.DIV:
        errors = _quotient_error(values, y, ex, ey)
        exact = exact_quotient(x, y, values, dtype)
    else:
        errors = _product_error(x, y, ex, ey)
        exact = exact_product(x, y, values, dtype)
    if not dtype.is_float:
        return values, or_wrapped(dtype, np.abs(x.astype(float)) * np.abs(y.astype(float)), errors)
    fresh = rounding_growth(dtype, 1 if op is BinaryOp.MUL else 2) * np.abs(values)
    fresh = fresh + np.where(values != 0, smallest_step(dtype), 0.0)
    if exact is not None and not _all_zero(errors):
        # Operands with errors: zero times what is uncertain, say, is in `errors` already.
        exact = exact & (as_array(ex) == 0) & (as_array(ey) == 0)
    return values, rounded(dtype, values, errors, fresh, (x, y), exact)


def _all_zero(errors: Errors) -> bool:
    return errors is None or not errors.any()


def _finite_or_inf(*errors: Errors) -> Array:
    """0 where every error is finite: an infinite value is then exact."""
    return np.where(np.isfinite(as_array(plus(*errors))), 0.0, np.inf)


def _product_error(x: Array, y: Array, ex: Errors, ey: Errors) -> Errors:
    first = None if ex is None else np.abs(y.astype(float)) * ex
    second = None if ey is None else np.abs(x.astype(float)) * ey
    both = None if ex is None or ey is None else ex * ey
    return plus(first, second, both)


def _quotient_error(quotient: Array, y: Array, ex: Errors, ey: Errors) -> Errors:
    if ex is None and ey is None:
        return None
    room = np.abs(y) - as_array(ey)
    change = as_array(ex) + np.abs(quotient) * as_array(ey)
    return np.where(room > 0, change / np.where(room > 0, room, 1.0), np.inf)


def _unary(op: UnaryOp, x: Bounded, dtype: DType) -> Bounded:
    value, error = x
    values = unary(op, value)
    if op in (UnaryOp.NEG, UnaryOp.ABS):
        return values, error
    change = None if error is None else _moved(op, value, values, error)
    if op is UnaryOp.FLOOR:
        return values, change
    # 1 ulp is at most 2 u |result|; the float64 function is within 2 ulps itself. Below the
    # smallest normal number a kernel may also return zero.
    fresh = (op.function.allowed_ulps * 2 * unit_roundoff(dtype) + 2.0**-51) * np.abs(values)
    if op is not UnaryOp.SQRT:
        fresh = fresh + np.where(values != 0, smallest_normal(dtype), 0.0)
    exact = exact_function(op, value, values, dtype)
    if exact is not None and error is not None:
        exact = exact & (error == 0)
    return values, rounded(dtype, values, change, fresh, (value,), exact)


def _moved(op: UnaryOp, x: Array, values: Array, error: Array) -> Array:
    """How far a function moves at most while its argument moves by `error`.

    By a formula where the function has one: evaluating it at both ends takes three times as long.
    """
    change = op.function.change
    found = None if change is None else change(np, x, values, error)
    if found is not None:
        return found
    low, high = _neighbourhood(x, error)
    return _change(values, unary(op, low), unary(op, high))


def _neighbourhood(value: Array, error: Array) -> tuple[Array, Array]:
    """`value -+ error`, rounded outwards where there is an error at all."""
    low, high = np.nextafter(value - error, -np.inf), np.nextafter(value + error, np.inf)
    return np.where(error > 0, low, value), np.where(error > 0, high, value)


def _change(values: Array, low: Array, high: Array) -> Array:
    """How far a monotone function moves between the ends of an argument's neighbourhood."""
    wide, low, high = (x.astype(np.float64) for x in (values, low, high))
    below = np.where(low == wide, 0.0, np.abs(wide - low))
    return np.maximum(below, np.where(high == wide, 0.0, np.abs(high - wide)))


def _cast(x: Bounded, source: DType, target: DType) -> Bounded:
    value, error = x
    values = cast(value, target)
    if target.is_narrow_float:
        # By way of f32, or directly: both are legal.
        way = target.wide
        narrow = None if source is way else _conversion_error(value, error, way)
        total = error if narrow is None else narrow
        if total is None:
            return values, None
        low, high = _neighbourhood(value.astype(np.float64), total)
        change = _change(values, round_to(low, target), round_to(high, target))
        return values, or_overflow(target, np.abs(values), change)
    if target.is_float:
        narrowing = not source.is_float or source.binary.precision > target.binary.precision
        return values, _conversion_error(value, error, target) if narrowing else error
    if error is None:
        return values, None
    if source.is_float:
        low, high = _neighbourhood(value, error)
        return values, _change(values, cast(low, target), cast(high, target))
    return values, or_wrapped(target, np.abs(value.astype(float)), error)


def _conversion_error(values: Array, error: Errors, dtype: DType) -> Errors:
    """The error of rounding `values`, which carry `error`, to the float type `dtype`."""
    if not dtype.is_float:
        return error
    size = np.abs(values.astype(np.float64))
    whole = 2.0**dtype.binary.precision
    if error is None and values.dtype.kind != "f" and not (size > whole).any():
        return None
    fresh = rounding_growth(dtype, 1) * size + np.where(size > 0, smallest_step(dtype), 0.0)
    exact = None
    if values.dtype.kind == "f" and is_number_of(sample(values), dtype).any():
        exact = is_number_of(values, dtype)
    return rounded(dtype, values, error, fresh, (values,), exact)
