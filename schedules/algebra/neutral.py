"""Conditions that exclude neutral terms from reductions.

A term is neutral if it is the reducer's identity, for example 0 in a sum. The functions of this
module find such conditions in a term, add or replace them, and simplify a term by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .comparisons import Cond
from .scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    rewrite,
)


def identity_of(reducer: Reducer, value: Scalar) -> Const:
    """Return the identity of `reducer` in the type of `value`."""
    return Const(reducer.identity(value.dtype), value.dtype)


def only_where(conds: tuple[Cond, ...], value: Scalar, reducer: Reducer) -> Scalar:
    """Return `value` guarded by `conds`, with the identity of `reducer` if one of them fails."""
    return Select(All(conds), value, identity_of(reducer, value)) if conds else value


def is_identity(value: Scalar, reducer: Reducer) -> bool:
    """Return whether `value` is proved to be the identity of `reducer` everywhere."""
    return _needed(value, reducer) is None


def neutral_conditions(value: Scalar, reducer: Reducer) -> tuple[Cond, ...]:
    """Return conditions that must all hold for `value` to contribute. If one of them fails, `value`
    is the identity of `reducer`."""
    return _needed(value, reducer) or ()


def _needed(value: Scalar, reducer: Reducer) -> tuple[Cond, ...] | None:
    """Return conditions such that `value` is the identity if one of them fails. Return None if
    `value` is always the identity."""
    match value:
        case Const(found):
            return None if found == reducer.identity(value.dtype) else ()
        case Select(All(conds), on_true, on_false):
            inside = _needed(on_true, reducer)
            within = None if inside is None else (*conds, *inside)
            return _in_both(within, _needed(on_false, reducer))
        case Cast(x) if reducer in (Reducer.SUM, Reducer.PROD):
            # Casts preserve zero and one, but not the least value of a type.
            return _needed(x, reducer)
    if reducer is not Reducer.SUM:
        return ()
    match value:
        case Binary(BinaryOp.MUL, a, b):
            left, right = _needed(a, reducer), _needed(b, reducer)
            return None if left is None or right is None else (*left, *right)
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            return _in_both(_needed(a, reducer), _needed(b, reducer))
        case Unary(UnaryOp.NEG | UnaryOp.ABS, x):
            return _needed(x, reducer)
        case _:
            return ()


def _in_both(
    one: tuple[Cond, ...] | None, other: tuple[Cond, ...] | None
) -> tuple[Cond, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(cond for cond in one if cond in other)


def _chosen(value: Scalar, cond: Cond, then: Callable[[Select, All], Scalar]) -> Scalar:
    """Return `value` with `then` applied to each select that has `cond` among its conditions."""

    def choice(node: Scalar) -> Scalar | None:
        if isinstance(node, Select) and isinstance(node.cond, All) and cond in node.cond.conds:
            return then(node, node.cond)
        return None

    return rewrite(value, choice)


def with_instead(value: Scalar, cond: Cond, instead: tuple[Cond, ...]) -> Scalar:
    """Return `value` with `cond` replaced by the conditions `instead`."""

    def then(node: Select, every: All) -> Scalar:
        conds = (*(c for c in every.conds if c != cond), *instead)
        on_true = with_instead(node.on_true, cond, instead)
        on_false = with_instead(node.on_false, cond, instead)
        return Select(All(conds), on_true, on_false) if conds else on_true

    return _chosen(value, cond, then)


def assuming(value: Scalar, conds: Iterable[Cond]) -> Scalar:
    """Return `value` simplified under the assumption that all `conds` hold."""
    for cond in conds:
        value = with_instead(value, cond, ())
    return value


def where_fails(value: Scalar, cond: Cond) -> Scalar:
    """Return `value` simplified under the assumption that `cond` fails."""
    return _chosen(value, cond, lambda node, _: where_fails(node.on_false, cond))


def without_unit_factors(value: Scalar) -> Scalar:
    """Return `value` without factors that are the constant one."""

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Binary) or node.op is not BinaryOp.MUL:
            return None
        a, b = rewrite(node.a, leaf), rewrite(node.b, leaf)
        one = Const(1, node.dtype)
        if one in (a, b):
            return b if a == one else a
        return node if a is node.a and b is node.b else Binary(BinaryOp.MUL, a, b)

    return rewrite(value, leaf)
