"""Arrays whose elements are selected by the elements of an integer array."""

from __future__ import annotations

from dataclasses import replace
from types import EllipsisType

from ...algebra.gathers import Outside
from ...dtypes import DType
from ...errors import WorkloadError
from ..expr_core import Expr, shown
from ..reading import DataIndex
from .node import ORIGIN, Indices, Node, Places, Read, broadcast_inserted
from .shapes import axis_of, broadcast, check_rank
from .views import reshaped


def outside_named(mode: str) -> Outside:
    """Return the policy `mode`. Raise WorkloadError with the choices if it does not exist."""
    try:
        return Outside(mode)
    except ValueError:
        choices = ", ".join(Outside)
        raise WorkloadError(
            f"a mode for indices outside is one of {choices}, got {shown(mode)}", code="bad_index"
        ) from None


def taken(x: Node, indices: Node, axis: object, outside: Outside) -> Node:
    """Return `x` with the dimension `axis` replaced by those of `indices`; without an axis, of the
    elements in row-major order."""
    if axis is None:
        x, axis = reshaped(x, (-1,)), 0
    dim, rank = axis_of(axis, len(x.shape), "take"), len(indices.shape)
    _check_integers(indices, "take")
    shape = (*x.shape[:dim], *indices.shape, *x.shape[dim + 1 :])
    check_rank(shape)

    def element(index: Indices, read: Read) -> Expr:
        at = read(indices, index[dim : dim + rank])
        places: Places = (*index[:dim], DataIndex(at, outside), *index[dim + rank :])
        return read(x, places)

    x = _without_inserted(x)
    return Node(
        shape=shape, dtype=x.dtype, element=element, operands=(x, indices), label="take",
        looked_up=(x,),
    )  # fmt: skip


def taken_along(x: Node, indices: Node, axis: object, outside: Outside) -> Node:
    """Return the elements of `x` at `indices` along `axis`. Their other dimensions are broadcast,
    and their numbers of dimensions are equal."""
    rank = len(x.shape)
    dim = axis_of(axis, rank, "take_along_axis")
    _check_integers(indices, "take_along_axis")
    if len(indices.shape) != rank:
        raise WorkloadError(
            f"take_along_axis: the indices have as many dimensions as the array, {rank},"
            f" got the shape {indices.shape}",
            code="shape_clash",
        )
    extent = indices.shape[dim]
    around = broadcast([(*x.shape[:dim], extent, *x.shape[dim + 1 :]), indices.shape])
    x = _without_inserted(x)

    def element(index: Indices, read: Read) -> Expr:
        own = tuple(ORIGIN if n == 1 else i for n, i in zip(indices.shape, index, strict=True))
        at = DataIndex(read(indices, own), outside)
        places: Places = tuple(
            at if d == dim else (ORIGIN if n == 1 else i)
            for d, (n, i) in enumerate(zip(x.shape, index, strict=True))
        )
        return read(x, places)

    return Node(
        shape=around, dtype=x.dtype, element=element, operands=(x, indices), label="take",
        inserted=broadcast_inserted(around, (x, indices)), looked_up=(x,),
    )  # fmt: skip


def dim_of_array(key: tuple[object, ...], rank: int, at: int) -> int:
    """Return the dimension that the array in place `at` of an index selects. Raise WorkloadError
    if another entry is no slice: then NumPy would put the new dimensions elsewhere."""
    others = [k for n, k in enumerate(key) if n != at]
    if not all(isinstance(k, slice | EllipsisType) for k in others):
        raise WorkloadError(
            "beside an array, an index has only slices and ...; use take for one array, and index"
            " tensors by index variables for several",
            code="bad_index",
        )
    dots = [n for n, k in enumerate(key) if isinstance(k, EllipsisType)]
    return at - len(key) + rank if dots and dots[0] < at else at


def _without_inserted(x: Node) -> Node:
    """Return `x` with all of its dimensions in the tensor that it becomes."""
    return replace(x, inserted=frozenset()) if x.inserted else x


def _check_integers(indices: Node, what: str) -> None:
    if indices.dtype.is_float or indices.dtype is DType.BOOL:
        raise WorkloadError(
            f'{what}: indices are integers, got {indices.dtype}; write indices.astype("i32")',
            code="bad_index",
        )
