"""Functions of arrays by NumPy's rules: joins, cuts, padding, windows, selections by integers."""

from __future__ import annotations

from collections.abc import Sequence

from ...algebra import values
from ...errors import WorkloadError
from ..expr_core import number, shown
from . import einsum as products
from . import gathering, joins, resampling, views
from .arrays import ArrayExpr, Axis, LazyArray, is_array, node_of
from .node import Node
from .shapes import axis_of


def array_nodes(arrays: object, what: str) -> list[Node]:
    """Return the arrays of a list. Raise WorkloadError if it is no list of arrays."""
    given = tuple(arrays) if isinstance(arrays, tuple | list) else ()
    if not given or not all(is_array(a) for a in given):
        raise WorkloadError(f"{what} takes a list of arrays, got {shown(arrays)}", code="bad_node")
    return [a.node for a in given]


def einsum(subscripts: str, *operands: ArrayExpr) -> LazyArray:
    """Return the sum of products of NumPy's einsum: `einsum("ik,kj->ij", a, b)`.

    Subscripts may be repeated (diagonals) and have `...`; without `->`, the result has the
    subscripts that occur once, in alphabetical order. Three and more operands are multiplied pair
    by pair, if that takes fewer multiplications than one sum. Raise WorkloadError if the subscripts
    are wrong or do not fit the shapes.
    """
    return LazyArray(products.einsum(subscripts, array_nodes(operands, "einsum")))


def concat(arrays: Sequence[ArrayExpr], axis: int = 0) -> LazyArray:
    """Return `arrays` joined along `axis`. Their other extents and types must be equal."""
    return LazyArray(joins.concat(array_nodes(arrays, "concat"), axis))


def stack(arrays: Sequence[ArrayExpr], axis: int = 0) -> LazyArray:
    """Return `arrays`, which have one shape, joined along a new axis."""
    nodes = array_nodes(arrays, "stack")
    dim = axis_of(axis, len(nodes[0].shape) + 1, "stack")
    return LazyArray(joins.concat([views.expanded(n, (dim,)) for n in nodes], dim))


def split(x: ArrayExpr, parts: int | Sequence[int], axis: int = 0) -> list[LazyArray]:
    """Return `x` cut along `axis` into `parts` equal arrays, or before each position in `parts`."""
    return [LazyArray(n) for n in views.split(node_of(x, "split"), parts, axis)]


def pad(
    x: ArrayExpr, widths: int | Sequence[int] | Sequence[Sequence[int]], mode: str = "constant",
    value: float = 0,
) -> LazyArray:  # fmt: skip
    """Return `x` with more elements before and after it.

    `widths` is one width, a pair (before, after), or a pair per dimension. The new elements are
    `value` (mode "constant"), the nearest element ("edge"), or the elements on the other side of
    the first and the last element ("reflect").
    """
    return LazyArray(joins.padded(node_of(x, "pad"), widths, mode, value))


def flip(x: ArrayExpr, axis: Axis = None) -> LazyArray:
    """Return `x` in reverse order along `axis`, an integer, a tuple, or None for all axes."""
    return LazyArray(views.flipped(node_of(x, "flip"), axis))


def roll(x: ArrayExpr, shift: int | Sequence[int], axis: Axis = None) -> LazyArray:
    """Return `x` shifted by `shift` along `axis`, with the last elements in front. Without an axis,
    the elements are shifted in row-major order."""
    return LazyArray(views.rolled(node_of(x, "roll"), shift, axis))


def tile(x: ArrayExpr, reps: int | Sequence[int]) -> LazyArray:
    """Return `x` repeated `reps` times, one number per dimension, aligned to the last one."""
    return LazyArray(views.tiled(node_of(x, "tile"), reps))


def repeat(x: ArrayExpr, count: int, axis: int) -> LazyArray:
    """Return `x` with each element `count` times in a row along `axis`."""
    return LazyArray(resampling.repeated(node_of(x, "repeat"), count, axis))


def resize(
    x: ArrayExpr, size: int | Sequence[int], axes: Axis = (-2, -1), mode: str = "nearest"
) -> LazyArray:
    """Return `x` interpolated to the extents `size` along `axes`: by the element at the position
    rounded down ("nearest"), or "linear" along each axis ("bilinear" for two, "trilinear" for
    three), with the centres of elements at equal distances from the ends, as PyTorch's
    `interpolate` without `align_corners`.
    """
    return LazyArray(resampling.resized(node_of(x, "resize"), size, axes, mode))


def windows(
    x: ArrayExpr, size: int | Sequence[int], axes: Axis = None, *,
    stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1,
) -> LazyArray:  # fmt: skip
    """Return the windows of `size` taps along `axes`, by default the last ones, as NumPy's
    `sliding_window_view`: with the positions of the windows instead of `axes`, and the taps of each
    axis as further dimensions at the end.

    Windows begin `stride` elements apart, their taps are `dilation` elements apart, and all of them
    are inside `x`. With `einsum`, windows are convolutions; with `max` and `mean`, pooling.
    """
    return LazyArray(views.windowed(node_of(x, "windows"), size, axes, stride, dilation))


def take_along_axis(
    x: ArrayExpr, indices: ArrayExpr, axis: int = -1, mode: str = "zero"
) -> LazyArray:
    """Return the elements of `x` at the positions `indices` along `axis`, one for each element of
    `indices`, as NumPy's `take_along_axis`. Other dimensions are broadcast; `mode` as for `take`.
    """
    outside = gathering.outside_named(mode)
    nodes = node_of(x, "take_along_axis"), node_of(indices, "take_along_axis")
    return LazyArray(gathering.taken_along(*nodes, axis, outside))


def one_hot(x: ArrayExpr, depth: int, dtype: str = "f32", axis: int = -1) -> LazyArray:
    """Return 1 where the index along the new `axis`, of extent `depth`, is equal to the element of
    the integer array `x`, and 0 elsewhere."""
    one = number(1, values.dtype_named(dtype))
    return LazyArray(joins.one_hot(node_of(x, "one_hot"), depth, axis, one))
