"""Shapes of array expressions by NumPy's rules: broadcasting, axes, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from typing import TypeGuard

from ...errors import WorkloadError
from ...limits import MAX_DIMS
from ...python_numbers import as_number
from ...workload.checks import check_extent
from ..expr_core import shown


def check_rank(shape: tuple[int, ...]) -> None:
    """Raise WorkloadError if an array of `shape` has too many dimensions or an extent below 1."""
    if len(shape) > MAX_DIMS:
        raise WorkloadError(
            f"an array has 0..{MAX_DIMS} dimensions, this one would have {len(shape)}: {shape}",
            code="bad_shape",
        )
    for dim, extent in enumerate(shape):
        check_extent(extent, f"dimension {dim} of an array of the shape {shape}")


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape to which NumPy broadcasts `shapes`. Raise WorkloadError if they do not
    match."""
    found: list[int] = []
    for extents in zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        wanted = {e for e in extents if e != 1}
        if len(wanted) > 1:
            raise WorkloadError(
                f"the shapes {listed(shapes)} do not broadcast: counted from the last dimension,"
                f" extents must be equal or 1, dimension -{len(found) + 1} has"
                f" {' and '.join(map(str, sorted(wanted)))}",
                code="shape_clash",
            )
        found.append(wanted.pop() if wanted else 1)
    shape = tuple(reversed(found))
    check_rank(shape)
    return shape


def listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(map(str, shapes))


def is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def axis_of(axis: object, rank: int, what: str) -> int:
    """Return `axis` counted from 0. Raise WorkloadError if an array of `rank` does not have it."""
    axis = as_number(axis)
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise WorkloadError(
            f"{what}: an axis of an array is an integer, got {shown(axis)}", code="unknown_axis"
        )
    if not -rank <= axis < rank:
        axes = f"axes are {-rank}..{rank - 1}" if rank else "there are no axes"
        raise WorkloadError(
            f"{what}: the array has {rank} dimensions, {axes}, got {axis}", code="unknown_axis"
        )
    return axis % rank


def axes_of(axis: object, rank: int, what: str) -> tuple[int, ...]:
    """Return the axes that `axis` names, an integer or a tuple of integers, or all axes if it is
    None."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    found = tuple(axis_of(a, rank, what) for a in given)
    for n, a in enumerate(found):
        if a in found[:n]:
            raise WorkloadError(f"{what}: axis {a} is given twice in {axis}", code="duplicate")
    return found


def integers(value: object, what: str, accepted: str) -> tuple[int, ...]:
    """Return an integer or a sequence of integers as a tuple. `accepted` describes both in the
    error."""
    given = tuple(map(as_number, value if isinstance(value, tuple | list) else (value,)))
    whole = tuple(v for v in given if is_integer(v))
    if len(whole) < len(given):
        raise WorkloadError(f"{what} takes {accepted}, got {shown(value)}", code="bad_shape")
    return whole


def reshaped_shape(old: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return `wanted` with its -1, if there is one, computed from the number of elements."""
    if wanted.count(-1) == 1:
        rest = prod(e for e in wanted if e != -1)
        if rest > 0 and prod(old) % rest == 0:
            wanted = tuple(prod(old) // rest if e == -1 else e for e in wanted)
    if -1 in wanted or prod(wanted) != prod(old):
        raise WorkloadError(
            f"reshape of {old}, {prod(old)} elements, to {wanted}: the numbers of elements"
            " must be equal, and one extent may be -1",
            code="shape_clash",
        )
    check_rank(wanted)
    return wanted
