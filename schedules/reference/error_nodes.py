"""The error bound of one node of an expression.

`error_bound` states the rules; this module evaluates each kind of node together with its bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isnan
from typing import assert_never

import numpy as np

from ..algebra.binary_functions import BinaryFunction
from ..algebra.narrow import round_to
from ..algebra.scalar import (
    ON_INTEGERS_ONLY,
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Components,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    chain_terms,
    data_of,
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
from .error_special import (
    Bounded,
    at_specials,
    finite_size,
    is_open,
    is_sure_nan,
    keeps_zero_sign,
    same,
    special_total,
    sure_function,
    sure_product,
    sure_quotient,
)
from .evaluate import data_over, value_of
from .math import Array, binary, cast, compare, unary
from .padding import without_padding
from .reads import IterationBox, Stored, read
from .repeated import Expression, Once


class BoundedTensors:
    """The tensors computed so far and their errors. `signed` are the tensors whose zeros have the
    same sign in every correct kernel. `once` has the results of subexpressions while an expression
    is evaluated."""

    def __init__(
        self,
        tensors: dict[str, Stored],
        errors: dict[str, Stored | None],
        signed: frozenset[str] = frozenset(),
        once: Once[Bounded] | None = None,
    ) -> None:
        self.tensors = tensors
        self.errors = errors
        self.signed = signed
        self.once = once

    def evaluating(self, node: Scalar) -> BoundedTensors:
        """Return the same tensors for one evaluation of the expression `node`."""
        once: Once[Bounded] = Once(Expression(node))
        return BoundedTensors(self.tensors, self.errors, self.signed, once)


def bounded_value(node: Scalar, box: IterationBox, env: BoundedTensors) -> Bounded:
    """Return the values of `node` and their errors at every point of `box`, in shapes that
    broadcast to its extents. Equal subexpressions are evaluated once."""
    if env.once is None:
        env = env.evaluating(node)
    assert env.once is not None
    return env.once.result(node, lambda x: _bounded(x, box, env))


def _bounded(node: Scalar, box: IterationBox, env: BoundedTensors) -> Bounded:
    match node:
        case Const() | All():
            return value_of(node, box, env.tensors), None
        case IndexValue(_, dtype):
            values = value_of(node, box, env.tensors)
            return values, _conversion_error(values, None, dtype)
        case Load():
            return value_of(node, box, env.tensors), _read_errors(node, box, env)
        case Unary(op, x):
            signed = keeps_zero_sign(x, env.signed)
            return _unary(op, bounded_value(x, box, env), node.dtype, signed_zero=signed)
        case Binary(BinaryOp.ADD | BinaryOp.SUB):
            return _addition(node, box, env)
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b):
            keeps_nan = any(isinstance(x, Const) and not isnan(x.value) for x in (a, b))
            return _extreme(op, bounded_value(a, box, env), bounded_value(b, box, env), keeps_nan)
        case Binary(BinaryOp.DIV, a, b):
            signed = keeps_zero_sign(b, env.signed)
            operands = bounded_value(a, box, env), bounded_value(b, box, env)
            return _quotient(*operands, node.dtype, signed_zeros=signed)
        case Binary(op, a, b) if op.function is not None:
            signed = keeps_zero_sign(a, env.signed) and keeps_zero_sign(b, env.signed)
            operands = bounded_value(a, box, env), bounded_value(b, box, env)
            return _function_of_two(op, op.function, *operands, node.dtype, signed_zeros=signed)
        case Binary(op, a, b) if op in ON_INTEGERS_ONLY:
            return _of_integers(op, bounded_value(a, box, env), bounded_value(b, box, env))
        case Binary(_, a, b):
            return _product(bounded_value(a, box, env), bounded_value(b, box, env), node.dtype)
        case Compare(op, a, b):
            return _comparison(op, bounded_value(a, box, env), bounded_value(b, box, env))
        case Cast(x, dtype):
            return _cast(bounded_value(x, box, env), x.dtype, dtype)
        case Select(cond, on_true, on_false):
            chosen = bounded_value(cond, box, env)
            if chosen[1] is None and chosen[0].all():
                return bounded_value(on_true, box, env)
            if chosen[1] is None and not chosen[0].any():
                return bounded_value(on_false, box, env)
            return _select(chosen, *(bounded_value(x, box, env) for x in (on_true, on_false)))
        case Components():
            raise AssertionError("the components of a tuple are evaluated one by one")
        case _:
            assert_never(node)


def _of_integers(op: BinaryOp, a: Bounded, b: Bounded) -> Bounded:
    """Return `op(a, b)` of integers. Where an operand is not certain, every result is accepted,
    because a difference of one may change all bits."""
    values = binary(op, a[0], b[0])
    if a[1] is None and b[1] is None:
        return values, None
    doubt = (as_array(a[1]) > 0) | (as_array(b[1]) > 0)
    if values.dtype.kind == "b":
        return values, as_error(doubt)
    return values, np.where(doubt, np.inf, 0.0)


def _select(cond: Bounded, on_true: Bounded, on_false: Bounded) -> Bounded:
    chosen, doubt = cond
    values = np.where(chosen, on_true[0], on_false[0])
    if doubt is None and on_true[1] is None and on_false[1] is None:
        return values, None
    true_errors, false_errors = as_array(on_true[1]), as_array(on_false[1])
    errors = np.where(chosen, true_errors, false_errors)
    if doubt is not None:
        distance = np.abs(on_true[0].astype(np.float64) - on_false[0])
        # inf - inf is NaN, and a NaN bound counts as infinite. The factor covers the rounding of
        # the difference if one branch is huge (-1e30).
        distance = np.where(same(on_true[0], on_false[0]), 0.0, distance * (1 + 2.0**-50))
        other = np.where(chosen, false_errors, true_errors)
        errors = np.where(doubt > 0, np.maximum(errors, distance + other), errors)
    return values, errors


def _comparison(op: CompareOp, a: Bounded, b: Bounded) -> Bounded:
    """Return the result of a comparison, with an error of 1 at points at which a correct kernel may
    return the other result. If an operand is certainly NaN, the error is 0."""
    (left, left_errors), (right, right_errors) = a, b
    truth = compare(op, left, right)
    close = plus(left_errors, right_errors)
    if close is None:
        return truth, None
    distance = np.abs(left.astype(np.float64) - right)
    doubt = ~(distance > close) & ~(close == 0)
    if doubt.any() and not np.isfinite(distance).all():
        doubt = doubt & ~(is_sure_nan(a) | is_sure_nan(b))
    return truth, as_error(doubt)


def signed_sum(terms: list[tuple[int, Bounded]]) -> Array:
    total: Array | None = None
    for sign, (value, _) in terms:
        if total is None:
            total = value if sign > 0 else unary(UnaryOp.NEG, value)
        else:
            total = binary(BinaryOp.ADD if sign > 0 else BinaryOp.SUB, total, value)
    assert total is not None, "a chain of additions has terms"
    return total


def _read_errors(load: Load, box: IterationBox, env: BoundedTensors) -> Errors:
    """Return the errors of the elements that `load` reads. They are infinite where an integer in
    the index may differ, so that another element may be read."""
    errors = env.errors[load.tensor]
    found: Errors = None
    if errors is not None:
        found = read(errors, load.index, box, data_over(load, box, env.tensors))
    for datum in data_of(load):
        uncertain = bounded_value(datum.value, box, env)[1]
        if uncertain is not None:
            found = np.where(uncertain > 0, np.inf, as_array(found))
    return found


def _addition(node: Binary, box: IterationBox, env: BoundedTensors) -> Bounded:
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
    bound = rounded(node.dtype, values, errors, growth * size, exact)
    if len(terms) > 2 and (size > node.dtype.binary.largest).any():
        bound = or_overflow(node.dtype, size, as_array(bound))  # as a partial sum may overflow
    signs = [sign for sign, _ in terms]

    def sure(total: Bounded, *parts: Bounded) -> Array:
        return _is_sure_sum(list(zip(signs, parts, strict=True)), total[1], node.dtype)

    return values, at_specials(values, bound, sure, (values, errors), *(t for _, t in terms))


def _is_sure_sum(terms: list[tuple[int, Bounded]], errors: Errors, dtype: DType) -> Array:
    """Return a mask of the sums that are certainly NaN or infinite. Only the terms that are
    certainly NaN or infinite are added. The sum is certain if this total is NaN, or if it is
    infinite and the finite terms cannot overflow."""
    given = special_total(terms)
    reach = np.asarray(sum(finite_size(v) for _, (v, _) in terms))
    fits = np.isfinite(or_overflow(dtype, reach, as_array(errors)))
    return np.asarray(np.isnan(given) | (np.isinf(given) & fits))


def joint_step(operands: Sequence[Array], dtype: DType) -> int | None:
    """Return an s such that all elements of all `operands` are multiples of 2**s. Return None if an
    operand has no `common_step`."""
    steps = []
    for values in operands:
        step = common_step(values, dtype) if dtype.is_float else None
        if step is None:
            return None
        steps.append(step)
    return min(steps)


def _extreme(op: BinaryOp, a: Bounded, b: Bounded, keeps_nan: bool) -> Bounded:
    """Return the maximum or minimum and its error. If an operand is NaN, the result is NaN if
    `keeps_nan`; otherwise a kernel may return either operand."""
    (x, ex), (y, ey) = a, b
    values = binary(op, x, y)
    if ex is None and ey is None:
        errors = None
    else:
        high = binary(op, x + as_array(ex), y + as_array(ey)) - values
        low = values - binary(op, x - as_array(ex), y - as_array(ey))
        errors = np.where(is_open(plus(ex, ey)), np.inf, np.maximum(high, low))

    def sure(one: Bounded, other: Bounded) -> Array:
        nan = is_sure_nan(one) | is_sure_nan(other) if keeps_nan else np.asarray(False)
        number = ~np.isnan(one[0]) & ~np.isnan(other[0])
        return np.asarray(nan | (number & ~is_open(plus(one[1], other[1]))))

    return values, at_specials(values, errors, sure, a, b)


def _product(a: Bounded, b: Bounded, dtype: DType) -> Bounded:
    (x, ex), (y, ey) = a, b
    values = binary(BinaryOp.MUL, x, y)
    errors = _product_error(x, y, ex, ey)
    if not dtype.is_float:
        return values, or_wrapped(dtype, np.abs(x.astype(float)) * np.abs(y.astype(float)), errors)
    exact = exact_product(x, y, values, dtype)
    bound = _scaled(values, errors, rounding_growth(dtype, 1), exact, a, b, dtype)
    return values, at_specials(values, bound, sure_product, a, b)


def _quotient(a: Bounded, b: Bounded, dtype: DType, *, signed_zeros: bool) -> Bounded:
    (x, ex), (y, ey) = a, b
    values = binary(BinaryOp.DIV, x, y)
    errors = _quotient_error(values, y, ex, ey)
    exact = exact_quotient(x, y, values, dtype)
    bound = _scaled(values, errors, rounding_growth(dtype, 2), exact, a, b, dtype)
    sure = partial(sure_quotient, signed_zeros=signed_zeros)
    return values, at_specials(values, bound, sure, a, b)


def _scaled(
    values: Array,
    errors: Errors,
    growth: float,
    exact: Array | None,
    a: Bounded,
    b: Bounded,
    dtype: DType,
) -> Errors:
    """Return the error of `values`, the products or quotients of `a` and `b`. It is the propagated
    `errors` plus the rounding error, which is `growth` times the magnitude. `exact` is a mask of
    values that are exact if `a` and `b` are exact."""
    fresh = growth * np.abs(values)
    fresh = fresh + np.where(values != 0, smallest_step(dtype), 0.0)
    if exact is not None and not _all_zero(errors):
        exact = exact & (as_array(a[1]) == 0) & (as_array(b[1]) == 0)
    return rounded(dtype, values, errors, fresh, exact)


def _all_zero(errors: Errors) -> bool:
    return errors is None or not errors.any()


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


def _unary(op: UnaryOp, x: Bounded, dtype: DType, *, signed_zero: bool) -> Bounded:
    value, error = x
    values = unary(op, value)
    if op in (UnaryOp.NEG, UnaryOp.ABS):
        return values, error
    change = None if error is None else _moved(op, value, values, error)

    def sure(x: Bounded) -> Array:
        ends = _neighbourhood(x[0], as_array(x[1]))
        return sure_function(op, x, *ends, signed_zero=signed_zero)

    if op.function.rounds_to_integer:
        return values, at_specials(values, change, sure, x)
    # 1 ulp is at most 2 u |result|, and the float64 function has an error of up to 2 ulps. Below
    # the smallest normal number a kernel may also return zero.
    fresh = (op.function.allowed_ulps * 2 * unit_roundoff(dtype) + 2.0**-51) * np.abs(values)
    if op is not UnaryOp.SQRT:
        fresh = fresh + np.where(values != 0, smallest_normal(dtype), 0.0)
    exact = exact_function(op, value, values, dtype)
    if exact is not None and error is not None:
        exact = exact & (error == 0)
    bound = rounded(dtype, values, change, fresh, exact)
    return values, at_specials(values, bound, sure, x)


def _function_of_two(
    op: BinaryOp,
    function: BinaryFunction,
    a: Bounded,
    b: Bounded,
    dtype: DType,
    *,
    signed_zeros: bool,
) -> Bounded:
    """Return a function of two values and its error. `signed_zeros` states that zeros of both have
    a certain sign; else any value is accepted that depends on the sign."""
    (x, ex), (y, ey) = a, b
    values = binary(op, x, y)
    change: Errors = None
    if ex is not None or ey is not None:
        change = function.change(np, x, y, values, as_array(ex), as_array(ey))
        change = np.where(is_open(plus(ex, ey)), np.inf, change)
    fresh = (function.allowed_ulps * 2 * unit_roundoff(dtype) + 2.0**-51) * np.abs(values)
    fresh = fresh + np.where(values != 0, smallest_normal(dtype), 0.0)
    bound = rounded(dtype, values, change, fresh, None)
    unsigned = np.asarray(False) if signed_zeros else function.reads_zero_sign(np, x, y)
    if unsigned.any():
        bound = np.where(unsigned, np.inf, as_array(bound))

    def sure(one: Bounded, other: Bounded, unsigned: Bounded) -> Array:
        return np.asarray((as_array(one[1]) == 0) & (as_array(other[1]) == 0) & ~unsigned[0])

    return values, at_specials(values, bound, sure, a, b, (unsigned, None))


def _moved(op: UnaryOp, x: Array, values: Array, error: Array) -> Array:
    """Return the largest change of a function if its argument changes by up to `error`.

    The function's `ScalarFunction.change` is used if it is defined, because it is three times as
    fast as an evaluation at both ends of the interval.
    """
    change = op.function.change
    found = None if change is None else change(np, x, values, error)
    if found is None:
        low, high = _neighbourhood(x, error)
        found = _change(values, unary(op, low), unary(op, high))
    return np.where(is_open(error), np.inf, found)


def _neighbourhood(value: Array, error: Array) -> tuple[Array, Array]:
    """Return `value - error` and `value + error`, rounded outwards unless `error` is zero."""
    low, high = np.nextafter(value - error, -np.inf), np.nextafter(value + error, np.inf)
    return np.where(error > 0, low, value), np.where(error > 0, high, value)


def _change(values: Array, low: Array, high: Array) -> Array:
    """Return the largest distance from `values` to `low` and `high`, the values of a monotone
    function at the ends of an interval."""
    wide, low, high = (x.astype(np.float64) for x in (values, low, high))
    below = np.where(low == wide, 0.0, np.abs(wide - low))
    return np.maximum(below, np.where(high == wide, 0.0, np.abs(high - wide)))


def _cast(x: Bounded, source: DType, target: DType) -> Bounded:
    value, error = x
    values = cast(value, target)
    if target.is_narrow_float:
        if error is None:  # every schedule rounds the same value
            return values, None
        low, high = _neighbourhood(value.astype(np.float64), error)
        change = _change(values, round_to(low, target), round_to(high, target))
        bound = or_overflow(target, np.abs(values), np.where(is_open(error), np.inf, change))
        return values, at_specials(values, bound, _is_given, x)
    if target.is_float:
        narrowing = not source.is_float or source.binary.precision > target.binary.precision
        return values, _conversion_error(value, error, target) if narrowing else error
    if error is None:
        return values, None
    if target is DType.BOOL:
        return values, as_error(~(np.abs(value.astype(np.float64)) > error) & (error != 0))
    if source.is_float:
        low, high = _neighbourhood(value, error)
        change = _change(values, cast(low, target), cast(high, target))
        return values, np.where(is_open(error), np.inf, change)
    return values, or_wrapped(target, np.abs(value.astype(float)), error)


def _conversion_error(values: Array, error: Errors, dtype: DType) -> Errors:
    """Return the error of `values` after rounding to `dtype`. Before rounding, their error is
    `error`."""
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
    bound = rounded(dtype, values, error, fresh, exact)
    return at_specials(values, bound, _is_given, (values, error))


def _is_given(x: Bounded) -> Array:
    """Return a mask of the values that are certainly NaN or infinite."""
    return np.asarray(~np.isfinite(x[0]) & (as_array(x[1]) == 0))


def term_of_sum(term: Scalar, box: IterationBox, env: BoundedTensors) -> Bounded:
    """Return the values of a term of a sum, and their errors. A kernel may compute or omit products
    with padding. The error is infinite at points at which this changes the value."""
    values, errors = bounded_value(term, box, env)
    if np.isfinite(values).all() and not is_open(errors).any():
        return values, errors
    other = without_padding(term)
    if other is term:
        return values, errors
    left_out, _ = bounded_value(other, box, env)
    return values, np.where(same(values, left_out), as_array(errors), np.inf)
