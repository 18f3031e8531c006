"""Build reads whose index is data, by the policies for integers outside a dimension.

The one node of a gather is `Clamped`, so that every read is inside its tensor whatever the data
are. The other policies are expressions around it: `wrap` is a remainder, and `zero` a selection by
comparisons of the integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..dtypes import DType
from ..errors import WorkloadError
from . import values
from .affine import Affine, Datum
from .scalar import (
    Binary,
    BinaryOp,
    Cast,
    Clamped,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
)


class Outside(StrEnum):
    """What a read gives if an integer is outside its dimension of n positions: zero, the element at
    the nearest position, or the element at the integer modulo n."""

    ZERO = "zero"
    CLAMP = "clamp"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class DataPosition:
    """An integer that selects a position of one dimension."""

    value: Scalar
    outside: Outside


def gathered(
    tensor: str,
    shape: Sequence[int],
    dtype: DType,
    index: Sequence[Affine | DataPosition],
    fill: Const,
) -> Scalar:
    """Return the read `tensor[index]`, or `fill` if an integer with the policy `zero` is outside
    its dimension. Raise WorkloadError if data in `index` are no integers."""
    places: list[Affine] = []
    tests: list[Compare] = []
    for extent, i in zip(shape, index, strict=True):
        place, needed = (i, []) if isinstance(i, Affine) else place_of(i, extent)
        places.append(place)
        tests += needed
    found: Scalar = Load(tensor, tuple(places), dtype)
    for test in reversed(tests):
        found = Select(test, found, fill)
    return found


def place_of(position: DataPosition, extent: int) -> tuple[Affine, list[Compare]]:
    """Return the index of a read at `position` in a dimension of `extent` positions, and the
    comparisons that must hold for it to be read. Raise WorkloadError if it is no integer."""
    value, tests = _integer(position.value), list[Compare]()
    if position.outside is Outside.WRAP:
        value = Binary(BinaryOp.FLOOR_MOD, value, Const(extent, value.dtype))
    if position.outside is Outside.ZERO:
        tests = _outside_tests(value, extent)
    return Affine(((Clamped(value, extent), 1),), 0), tests


def unlimited(index: Affine) -> Affine:
    """Return `index` with each saturated index value replaced by the index itself. Other data are
    kept."""

    def change(datum: Datum) -> Affine:
        value = datum.value if isinstance(datum, Clamped) else None
        return value.index if isinstance(value, IndexValue) else Affine(((datum, 1),), 0)

    return index.replace_data(change)


def _integer(value: Scalar) -> Scalar:
    if value.dtype.is_float or value.dtype is DType.BOOL:
        raise WorkloadError(
            f'a value in an index is an integer, got {value.dtype}; write cast(x, "i32")',
            code="bad_index",
        )
    return values.cast(value, value.dtype.wide)


def is_inside(value: Scalar, extent: int) -> bool:
    """Return whether the operation or the type of `value` keeps it in 0..extent-1."""
    return not _outside_tests(value, extent)


def _outside_tests(value: Scalar, extent: int) -> list[Compare]:
    """Return the comparisons that hold where `value` is in 0..extent-1, except those that always
    hold."""
    low, high = _range(value)
    tests: list[Compare] = []
    if low < 0:
        tests.append(Compare(CompareOp.LE, Const(0, value.dtype), value))
    if high >= extent:
        tests.append(Compare(CompareOp.LT, value, Const(extent, value.dtype)))
    return tests


def _range(value: Scalar) -> tuple[int, int]:
    """Return a range of the values of an integer, from its operation and its type."""
    match value:
        case Const(constant):
            return int(constant), int(constant)
        case Cast(x) if not x.dtype.is_float and x.dtype.bits < value.dtype.bits:
            return _range(x)
        case Binary(BinaryOp.BIT_AND, a, b):
            mask = [int(x.value) for x in (a, b) if isinstance(x, Const) and x.value >= 0]
            return (0, min(mask)) if mask else value.dtype.integer_range
        case Binary(BinaryOp.FLOOR_MOD, _, Const(divisor)) if divisor > 0:
            return 0, int(divisor) - 1
        case _:
            return value.dtype.integer_range
