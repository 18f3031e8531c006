"""Tests of indices in one form: the conditions of a select, outside of tests of data.

A condition may be a bit (`(k <= i) & (M[i] > 0)`), a number (`f32(k <= i) * x`), inside a test of
data, or negated. Loops are limited only by the conditions of `Select(All(conditions), value,
elsewhere)`. The functions of this module write the others so.
"""

from __future__ import annotations

from typing import TypeAlias

from ..dtypes import DType
from .comparisons import Cond, Ge0
from .conditions import negated, normal_cond
from .scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    rewrite,
    walk,
)

_TRUE, _FALSE = Const(1, DType.BOOL), Const(0, DType.BOOL)

Conjunction: TypeAlias = tuple[tuple[Cond, ...], Scalar | None]
"""Conditions on indices and another test, or None; all of them together are equal to a test."""


def index_tests_first(node: Scalar) -> Scalar:
    """Return `node` with the tests of indices that selects and casts contain as conditions of
    selects around all other tests. The value is the same for all data."""

    def leaf(part: Scalar) -> Scalar | None:
        match part:
            case Select():
                cond, on_true, on_false = (
                    rewrite(x, leaf) for x in (part.cond, part.on_true, part.on_false)
                )
                found = _choice(cond, on_true, on_false)
                return part if found == part else found
            case Cast(x, dtype) if x.dtype is DType.BOOL and dtype is not DType.BOOL:
                conds, rest = _conjunction(rewrite(x, leaf))
                one = Const(1, dtype) if rest is None else Cast(rest, dtype)
                return Select(All(conds), one, Const(0, dtype)) if conds else None
            case _:
                return None

    return rewrite(node, leaf)


def _choice(cond: Scalar, on_true: Scalar, on_false: Scalar) -> Scalar:
    """Return `Select(cond, on_true, on_false)` with tests of indices outside."""
    opposite = _negation(cond)
    swaps = _negated(cond) is not None or _is_otherwise(on_true, on_false)
    if opposite is not None and swaps and has_index_test(cond):
        return _choice(opposite, on_false, on_true)
    conds, rest = _conjunction(cond)
    if conds and rest is None:
        return Select(All(conds), on_true, on_false)
    if conds and isinstance(on_false, Const):
        assert rest is not None
        return Select(All(conds), _choice(rest, on_true, on_false), on_false)
    match on_true, on_false:
        case Select(All() as inner, value, elsewhere), _ if elsewhere == on_false:
            return Select(inner, Select(cond, value, on_false), on_false)
        case _, Select(All() as inner, value, elsewhere) if elsewhere == on_true:
            return Select(inner, Select(cond, on_true, value), on_true)
        case _:
            return Select(cond, on_true, on_false)


def _is_otherwise(value: Scalar, other: Scalar) -> bool:
    """Return whether `value` rather than `other` is the constant for where nothing is chosen."""
    if not isinstance(value, Const):
        return False
    if not isinstance(other, Const):
        return True
    return value.dtype is not DType.BOOL and value.value == 0 != other.value


def has_index_test(node: Scalar) -> bool:
    return any(isinstance(part, All) for part in walk(node))


def _negated(test: Scalar) -> Scalar | None:
    """Return the test that `test` negates, or None if it negates none."""
    match test:
        case Binary(BinaryOp.BIT_XOR, a, b) if _TRUE in (a, b):
            return b if a == _TRUE else a
        case Select(a, b, c) if (b, c) == (_FALSE, _TRUE):
            return a
        case _:
            return None


def _conjunction(test: Scalar) -> Conjunction:
    """Return the conditions on indices without which `test`, a bool, is false, and the test that is
    left if they hold."""
    match test:
        case All(conds):
            return conds, None
        case Binary(BinaryOp.BIT_AND, a, b):
            (conds, left), (more, right) = _conjunction(a), _conjunction(b)
            both = left if right is None else right
            if left is not None and right is not None:
                both = Binary(BinaryOp.BIT_AND, left, right)
            return (*conds, *more), both
        case Select(a, b, c) if c == _FALSE:
            (conds, left), (more, right) = _conjunction(a), _conjunction(b)
            both = left if right is None else right
            if left is not None and right is not None:
                both = Select(left, right, _FALSE)
            return (*conds, *more), both
        case Compare(CompareOp.NE, number, Const(0) as zero) if not zero.dtype.is_float:
            return _nonzero(test, number)
        case Compare(CompareOp.NE, Const(0) as zero, number) if not zero.dtype.is_float:
            return _nonzero(test, number)
        case Select(a, b, c) if b == _FALSE != c:
            conds, left = _conjunction(Binary(BinaryOp.BIT_XOR, a, _TRUE))
            more, right = _conjunction(c)
            return (*conds, *more), right if left is None else Select(left, right or _TRUE, _FALSE)
        case _:
            inner = _negated(test)
            opposite = None if inner is None else _negation(inner)
            return ((), test) if opposite is None else _conjunction(opposite)


def _nonzero(test: Scalar, number: Scalar) -> Conjunction:
    """Return the conjunction of `test`, which is true if the integer `number` is not 0."""
    match number:
        case Cast(x) if x.dtype is DType.BOOL:
            return _conjunction(x)
        case Select(All(conds), value, Const(0)):
            if isinstance(value, Const) and value.value != 0:
                return conds, None
            more, rest = _nonzero(Compare(CompareOp.NE, value, Const(0, value.dtype)), value)
            return (*conds, *more), rest
        case _:
            return (), test


def _negation(test: Scalar) -> Scalar | None:
    """Return the negation of `test`, a bool, if tests of indices remain such. Return None
    otherwise, as for two conditions, of which one or the other fails."""
    inner = _negated(test)
    if inner is not None:
        return inner
    match test:
        case All((Ge0() as only,)):
            return All((normal_cond(negated(only)),))
        case Binary(BinaryOp.BIT_OR, a, b) | Select(a, Const(1, DType.BOOL), b):
            one, other = _negation(a), _negation(b)
            if one is None and other is None:
                return None
            one = Binary(BinaryOp.BIT_XOR, a, _TRUE) if one is None else one
            other = Binary(BinaryOp.BIT_XOR, b, _TRUE) if other is None else other
            return Binary(BinaryOp.BIT_AND, one, other)
        case _:
            return None


def without_tested_factors(term: Scalar) -> Scalar:
    """Return `term`, a term of a sum in the form of `index_tests_first`, without factors that are a
    test of indices as a number, `where(k <= i, 1, 0) * x`: they become conditions of the product.

    If the test fails, the product is an implicit zero (docs/math.md).
    """
    match term:
        case Binary(BinaryOp.MUL, a, b):
            return _product(without_tested_factors(a), without_tested_factors(b))
        case Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b):
            return Binary(op, without_tested_factors(a), without_tested_factors(b))
        case Unary(UnaryOp.NEG | UnaryOp.ABS as op, x):
            return Unary(op, without_tested_factors(x))
        case Cast(x, dtype) if x.dtype is not DType.BOOL:
            return _cast(without_tested_factors(x), dtype)
        case Select(cond, on_true, on_false):
            on_true, on_false = map(without_tested_factors, (on_true, on_false))
            return Select(cond, on_true, on_false)
        case _:
            return term


def _product(a: Scalar, b: Scalar) -> Scalar:
    """Return `a * b`, under the conditions of a factor if one of the two factors is a test as a
    number."""
    for factor, other, is_first in ((a, b, True), (b, a, False)):
        match factor:
            case Select(All() as test, value, Const() as zero) if zero.is_plus_zero and (
                is_test(value) or is_test(other)
            ):
                one, two = (value, other) if is_first else (other, value)
                return Select(test, other if _is_one(value) else _product(one, two), zero)
            case _:
                pass
    return Binary(BinaryOp.MUL, a, b)


def _cast(x: Scalar, dtype: DType) -> Scalar:
    """Return `x` cast to `dtype`; a test of indices as a number remains one."""
    match x:
        case Select(All() as test, value, Const() as zero) if zero.is_plus_zero and is_test(value):
            one = Const(1, dtype) if _is_one(value) else _cast(value, dtype)
            return Select(test, one, Const(0, dtype))
        case _:
            return Cast(x, dtype)


def _is_one(value: Scalar) -> bool:
    return isinstance(value, Const) and value.value == 1


def is_test(value: Scalar) -> bool:
    """Return whether `value` is the number 0 or 1 that tells whether a test holds."""
    match value:
        case Const(number):
            return number == 1
        case Cast(x):
            return x.dtype is DType.BOOL or is_test(x)
        case Select(_, on_true, Const() as zero):
            return zero.is_plus_zero and is_test(on_true)
        case _:
            return False
