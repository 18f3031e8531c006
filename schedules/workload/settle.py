"""The one form of a stage's body, whoever wrote it: Python, notation and documents end here.

What is simple in one spelling and not in another goes: indices as numbers that are cast, casts to
the type a value has, guards that hold always or never. Only what is left must be valid: a read
that never happens has no bounds to keep.
"""

from __future__ import annotations

from ..algebra.affine import Affine, Ge0, Ranges, interval, var
from ..algebra.conditions import tidy
from ..algebra.scalar import All, Cast, IndexValue, Scalar, Select, rewrite, vars_of
from ..algebra.values import const
from ..dtypes import DType

_EXACT_BELOW = {DType.F32: 1 << 24, DType.F64: 1 << 53, DType.I32: 1 << 31, DType.I64: 1 << 31}
"""Below this an index as a number of the type is exact, and may be cast before or after."""


def settled_body(node: Scalar, ranges: Ranges, reduced: frozenset[str]) -> Scalar:
    """The body of a stage in its one form; `settled_body` of that is the same again.

    A reduction may not lose one of its axes `reduced`: where all reads are in the padding, or a
    guard always holds, the body may not depend on one any more. It is kept by a condition that
    always holds, and the others that did are gone.
    """
    found = tidy(_plain_numbers(node, ranges), ranges, labels=_labels(ranges, reduced))
    lost = sorted(reduced - vars_of(found))
    if not lost:
        return found
    always = All(tuple(Ge0(var(name)) for name in lost))
    return Select(always, found, const(0, found.dtype))


def _labels(ranges: Ranges, reduced: frozenset[str]) -> dict[str, Affine]:
    """Spatial axes by position, which is part of the computation; reduction axes have none, and
    are called by their extents."""
    found: dict[str, Affine] = {}
    for name, values in ranges.items():
        found[name] = var(f"a_{values.hi}" if name in reduced else f"d{len(found)}")
    return found


def _plain_numbers(node: Scalar, ranges: Ranges) -> Scalar:
    """`node` with constant indices as constants, and without casts that change nothing."""

    def leaf(n: Scalar) -> Scalar | None:
        match n:
            case IndexValue(index, dtype) if index.is_const:
                return const(index.const, dtype)
            case Cast(x, dtype):
                return _cast(n, rewrite(x, leaf), dtype, ranges)
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
