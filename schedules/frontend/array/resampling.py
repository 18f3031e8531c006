"""Arrays with more or fewer elements along an axis: repeat, and interpolation.

Position i of an axis with n elements, resized from m, has its centre at position (2i + 1) m / (2n)
- 1/2 of the old axis, as in PyTorch with `align_corners=False`. Quotient and remainder of this
fraction are affine in i, so reads are proved in bounds like all others.
"""

from __future__ import annotations

from ...errors import WorkloadError
from ..expr_core import Expr, Index, chosen, number, shown
from .node import ORIGIN, Indices, Node, Read, view
from .shapes import axes_of, axis_of, check_rank, integers

_LINEAR = {"linear": None, "bilinear": 2, "trilinear": 3}
"""The number of axes of each mode that interpolates linearly, or None if it is any number."""


def repeated(x: Node, count: object, axis: object) -> Node:
    """Return `x` with each element `count` times in a row along `axis`."""
    dim = axis_of(axis, len(x.shape), "repeat")
    (times,) = integers(count, "repeat", "a number of repeats >= 1")
    if times < 1:
        raise WorkloadError(f"repeat takes a number of repeats >= 1, got {times}", code="bad_shape")
    shape = (*x.shape[:dim], x.shape[dim] * times, *x.shape[dim + 1 :])
    return view(x, shape, lambda i: (*i[:dim], i[dim] // times, *i[dim + 1 :]))


def resized(x: Node, size: object, axes: object, mode: object) -> Node:
    """Return `x` interpolated to the extents `size` along `axes`, by the "nearest" element or
    "linear" along each axis ("bilinear" for two, "trilinear" for three)."""
    if not isinstance(mode, str) or mode not in ("nearest", *_LINEAR):
        raise WorkloadError(
            'resize: the modes are "nearest" and "linear" ("bilinear", "trilinear"), got'
            f" {shown(mode)}",
            code="bad_node",
        )
    dims = axes_of(axes, len(x.shape), "resize")
    extents = integers(size, "resize", "an extent >= 1 for each axis")
    if len(extents) != len(dims) or min(extents, default=1) < 1:
        raise WorkloadError(
            f"resize takes an extent >= 1 for each of {len(dims)} axes, got {shown(size)}",
            code="bad_shape",
        )
    if mode != "nearest" and _LINEAR[mode] not in (None, len(dims)):
        raise WorkloadError(
            f"resize: {shown(mode)} is for {_LINEAR[mode]} axes, got {len(dims)};"
            ' "linear" is for any number',
            code="bad_shape",
        )
    if mode != "nearest" and not x.dtype.is_float:
        raise WorkloadError(f'linear resize of {x.dtype}; write x.astype("f32")', code="bad_dtype")
    for dim, extent in zip(dims, extents, strict=True):
        if extent != x.shape[dim]:
            x = _nearest(x, dim, extent) if mode == "nearest" else _linear(x, dim, extent)
    return x


def _nearest(x: Node, dim: int, extent: int) -> Node:
    """Return `x` with the element at position floor(i * old / new), as PyTorch's "nearest"."""
    old = x.shape[dim]
    shape = (*x.shape[:dim], extent, *x.shape[dim + 1 :])
    return view(x, shape, lambda i: (*i[:dim], i[dim] * old // extent, *i[dim + 1 :]))


def _linear(x: Node, dim: int, extent: int) -> Node:
    old = x.shape[dim]
    shape = (*x.shape[:dim], extent, *x.shape[dim + 1 :])
    check_rank(shape)

    def element(index: Indices, read: Read) -> Expr:
        def at(i: Index) -> Expr:
            return read(x, (*index[:dim], i, *index[dim + 1 :]))

        centre = index[dim] * (2 * old) + (old - extent)  # in units of 1 / (2 extent)
        low, rest = centre // (2 * extent), centre % (2 * extent)
        dtype = x.dtype.wide
        share = number(rest, dtype) * number(1 / (2 * extent), dtype)
        last = ORIGIN + (old - 1)
        near = at(low)
        between = near + share * (at(low + 1) - near)
        inside = chosen(low < old - 1, between, at(last))
        return chosen(low >= 0, inside, at(ORIGIN))

    return Node(shape=shape, dtype=x.dtype.wide, element=element, operands=(x,), label="resize")
