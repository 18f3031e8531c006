"""Simplify the body of a stage, so that it is equal for Python, notation and documents.

Casts of index values, casts that have no effect, and guards that always or never hold are removed.
Validation follows simplification, so a read that never happens need not be in bounds.
"""

from __future__ import annotations

from ..algebra.affine import Affine, Ranges, interval, var
from ..algebra.comparisons import Ge0
from ..algebra.conditions import tidy
from ..algebra.scalar import (
    All,
    Cast,
    Components,
    Const,
    IndexValue,
    Scalar,
    Select,
    rewrite,
    vars_of,
)
from ..algebra.values import const
from ..dtypes import DType

_EXACT_BELOW = {DType.F32: 1 << 24, DType.F64: 1 << 53, DType.I32: 1 << 31, DType.I64: 1 << 31}
"""Index values up to this magnitude are exact in the type. A cast of such a value is therefore
equal to an index value of the target type."""


def settled_body(node: Scalar, ranges: Ranges, reduced: frozenset[str]) -> Scalar:
    """Return the simplified body of a stage. Simplifying it again changes nothing.

    A reduction must use each of its axes `reduced`. If simplification removes the last use of an
    axis, a condition on the axis that always holds is added.
    """
    found = tidy(_plain_numbers(node, ranges), ranges, labels=_labels(ranges, reduced))
    lost = sorted(reduced - vars_of(found))
    if not lost:
        return found
    always = All(tuple(Ge0(var(name)) for name in lost))
    if isinstance(found, Components):
        first, *others = found.values
        return Components((Select(always, first, const(0, first.dtype)), *others))
    return Select(always, found, const(0, found.dtype))


def _labels(ranges: Ranges, reduced: frozenset[str]) -> dict[str, Affine]:
    """Return an index for each axis, by which equivalent conditions are compared. It depends on the
    position of a spatial axis. It depends only on the extent of a reduction axis, whose position
    has no meaning."""
    found: dict[str, Affine] = {}
    for name, values in ranges.items():
        found[name] = var(f"a_{values.hi}" if name in reduced else f"d{len(found)}")
    return found


def _plain_numbers(node: Scalar, ranges: Ranges) -> Scalar:
    """Return `node` with constant indices as constants, and without casts that have no effect."""

    def leaf(n: Scalar) -> Scalar | None:
        match n:
            case IndexValue(index, dtype) if index.is_const:
                return const(index.const, dtype)
            case Cast(x, dtype):
                return _cast(n, rewrite(x, leaf), dtype, ranges)
            case Select(cond, Const(1, DType.BOOL), Const(0, DType.BOOL)):
                return rewrite(cond, leaf)
            case _:
                return None

    return rewrite(node, leaf)


def _cast(node: Cast, x: Scalar, dtype: DType, ranges: Ranges) -> Scalar:
    if x.dtype is dtype:
        return x
    if isinstance(x, IndexValue) and dtype in _EXACT_BELOW:
        found, most = interval(x.index, ranges), _EXACT_BELOW[x.dtype]
        fits = dtype.is_float or -(1 << 31) <= found.lo <= found.hi < 1 << 31
        if fits and -most <= found.lo and found.hi <= most:
            return IndexValue(x.index, dtype)
    return node if x is node.x else Cast(x, dtype)
