"""Values that depend on positions along an axis: running results, and positions of extremes."""

from __future__ import annotations

from ..algebra import values
from ..algebra.affine import var
from ..algebra.scalar import BinaryOp, CompareOp, Load, Reducer
from ..dtypes import DType
from ..errors import WorkloadError
from .expr_core import (
    Expr,
    Index,
    arithmetic,
    chosen,
    derived,
    number,
    reduced_over,
    value_condition,
)
from .references import LoopVar, NestedReduction, Running

SCANS = {
    Reducer.SUM: "cumsum",
    Reducer.PROD: "cumprod",
    Reducer.MAX: "cummax",
    Reducer.MIN: "cummin",
}
"""The names of the functions that return running results."""

MAX_POSITIONS = 1 << 30
"""Positions of `argmax` and their sum with the extent are i32."""


def scanned_over(reducer: Reducer, value: Expr, running: Running) -> Expr:
    """Return the running results of `value` by `reducer`."""
    node = values.reduced(reducer, value.node)
    free = {**value.vars, running.along.name: running.along}
    found = NestedReduction(reducer, node, (), free, value.reductions, running)
    name = f"{SCANS[reducer]}@{id(found):x}"
    return Expr(
        Load(name, (), node.dtype), free, value.tensors, {name: found}, value.size + 1,
        value.depth,
    )  # fmt: skip


def position_over(reducer: Reducer, value: Expr, axis: LoopVar, *, last: bool) -> Expr:
    """Return the first (or last) position of the maximum or minimum of `value`, which uses `axis`.
    A NaN counts as the extreme.

    Positions are reduced together with the test for NaN: those of NaNs are moved outside
    `0..extent-1`, so that they precede all others. Raise WorkloadError if the axis is too long.
    """
    extent, index = axis.extent, Index(var(axis.name), {axis.name: axis})
    if extent > MAX_POSITIONS:
        raise WorkloadError(
            f"arg{reducer} takes an axis of at most {MAX_POSITIONS} positions, got {extent}",
            code="too_large",
        )
    best = reduced_over(reducer, value, (axis,))
    same = derived(values.cast(value.node, best.dtype), value)
    none = number(-1 if last else extent, DType.I32)
    found = chosen(value_condition(CompareOp.EQ, same, best), number(index, DType.I32), none)
    pick = Reducer.MAX if last else Reducer.MIN
    if not value.dtype.is_float:
        return reduced_over(pick, found, (axis,))
    shift = extent if last else -extent
    is_nan = value_condition(CompareOp.NE, value, value)
    moved = chosen(is_nan, number(index + shift, DType.I32), found)
    position = reduced_over(pick, moved, (axis,))
    is_moved = (extent, position) if last else (position, -1)
    back = arithmetic(BinaryOp.SUB, position, shift)
    return chosen(value_condition(CompareOp.LE, *is_moved), back, position)
