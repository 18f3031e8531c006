"""Views: arrays whose elements are elements of another array, at indices that are always inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from types import EllipsisType
from typing import TypeAlias

from ...algebra.affine import affine
from ...errors import WorkloadError
from ...python_numbers import as_number
from ..expr_core import Index, shown
from .node import ORIGIN, Indices, Node, view
from .shapes import axes_of, axis_of, integers, is_integer, reshaped_shape

Entry: TypeAlias = int | slice | None
"""One entry of a basic index, after `...` was replaced."""


def transposed(x: Node, axes: Sequence[object]) -> Node:
    """Return `x` with its dimensions in the order `axes`, or reversed if there are none."""
    rank = len(x.shape)
    given = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else tuple(axes)
    order = axes_of(given, rank, "transpose") if given else tuple(reversed(range(rank)))
    if len(order) != rank:
        raise WorkloadError(
            f"transpose of {rank} dimensions needs each of the axes 0..{rank - 1} once,"
            f" got {shown(given)}",
            code="bad_rank",
        )
    return view(
        x,
        tuple(x.shape[a] for a in order),
        lambda index: tuple(index[order.index(dim)] for dim in range(rank)),
        inserted=frozenset(n for n, a in enumerate(order) if a in x.inserted),
        rearranges=True,
    )


def expanded(x: Node, axes: Sequence[int]) -> Node:
    """Return `x` with dimensions of extent 1 at the positions `axes` of the result. Without axes,
    it is a copy."""
    rank = len(x.shape) + len(axes)
    old = [dim for dim in range(rank) if dim not in axes]
    shape = [1] * rank
    for dim, extent in zip(old, x.shape, strict=True):
        shape[dim] = extent
    return view(
        x,
        tuple(shape),
        lambda index: tuple(index[dim] for dim in old),
        inserted=frozenset(axes) | {old[dim] for dim in x.inserted},
        rearranges=True,
    )


def sliced(x: Node, key: object) -> Node:
    """Return `x[key]` by NumPy's basic indexing: integers, slices, `...` and None."""
    starts: list[Index] = []
    """For each dimension of x: the index of the first element."""
    steps: list[tuple[int, int]] = []
    """For each dimension of the result with a slice: the dimension of x and the step."""
    shape: list[int] = []
    inserted: list[int] = []
    positions: list[int] = []
    for entry in _entries(key, x.shape):
        dim = len(starts)
        if entry is None:
            inserted.append(len(shape))
            shape.append(1)
            continue
        if isinstance(entry, slice):
            start, step, extent = _range(entry, x.shape[dim], dim)
            steps.append((dim, step))
            if dim in x.inserted:
                inserted.append(len(shape))
            positions.append(len(shape))
            shape.append(extent)
        else:
            start = _position(entry, x.shape[dim], dim)
        starts.append(Index(affine(start), {}))

    def index_of(index: Indices) -> Indices:
        found = list(starts)
        for position, (dim, step) in zip(positions, steps, strict=True):
            found[dim] = starts[dim] + index[position] * step
        return tuple(found)

    return view(x, tuple(shape), index_of, inserted=frozenset(inserted), rearranges=True)


def _entries(key: object, shape: tuple[int, ...]) -> Iterator[Entry]:
    """Yield the entries of `key` with `...` and missing dimensions as full slices."""
    given = tuple(map(as_number, key if isinstance(key, tuple) else (key,)))
    taken = sum(1 for k in given if is_integer(k) or isinstance(k, slice))
    dots = sum(1 for k in given if isinstance(k, EllipsisType))
    if dots > 1 or taken > len(shape):
        raise WorkloadError(
            f"an array of {len(shape)} dimensions {shape} has at most that many indices and one"
            f" ..., got {shown(key)}",
            code="bad_rank",
        )
    missing = [slice(None)] * (len(shape) - taken)
    for k in given if dots else (*given, ...):
        if isinstance(k, EllipsisType):
            yield from missing
        elif k is None or isinstance(k, slice) or (isinstance(k, int) and is_integer(k)):
            yield k
        else:
            raise WorkloadError(
                "an array is indexed by integers, slices, ... and None, or by one index variable"
                f" or integer per dimension; got {shown(k)}",
                code="bad_index",
            )


def _range(entry: slice, extent: int, dim: int) -> tuple[int, int, int]:
    """Return the start, the step and the number of elements of a slice."""
    parts = tuple(map(as_number, (entry.start, entry.stop, entry.step)))
    if not all(p is None or is_integer(p) for p in parts) or parts[2] == 0:
        raise WorkloadError(
            f"a slice has integers and a step that is not 0, got {shown(entry)}", code="bad_index"
        )
    positions = range(*entry.indices(extent))
    if not positions:
        raise WorkloadError(
            f"{shown(entry)} selects nothing of the extent {extent} of dimension {dim};"
            " extents are >= 1",
            code="bad_extent",
        )
    return positions.start, positions.step, len(positions)


def _position(entry: int, extent: int, dim: int) -> int:
    if not -extent <= entry < extent:
        raise WorkloadError(
            f"index {entry} is out of bounds: dimension {dim} has the extent {extent}",
            code="out_of_bounds",
        )
    return entry % extent


def reshaped(x: Node, wanted: Sequence[object]) -> Node:
    """Return the elements of `x` in row-major order with another shape; one extent may be -1."""
    given = wanted[0] if len(wanted) == 1 else tuple(wanted)
    extents = integers(given, "reshape", "integers or a tuple of integers")
    shape = reshaped_shape(x.shape, extents)
    groups = list(_groups(x.shape, shape))

    def index_of(index: Indices) -> Indices:
        found: list[Index] = []
        for old, new in groups:
            flat = ORIGIN
            for dim in new:
                flat = flat * shape[dim] + index[dim]
            found += _unravelled(flat, [x.shape[dim] for dim in old])
        return tuple(found)

    return view(x, shape, index_of)


def _groups(
    old: tuple[int, ...], new: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the smallest groups of adjacent dimensions of `old` and `new` with as many elements, so
    that an index is divided only where dimensions are merged or split."""
    a, b = 0, 0
    while a < len(old) or b < len(new):
        # The last group takes dimensions of extent 1 at the end of either shape.
        first_a, first_b = a, b
        a, b = min(a + 1, len(old)), min(b + 1, len(new))
        while prod(old[first_a:a]) != prod(new[first_b:b]):
            if prod(old[first_a:a]) < prod(new[first_b:b]):
                a += 1
            else:
                b += 1
        yield tuple(range(first_a, a)), tuple(range(first_b, b))


def _unravelled(flat: Index, extents: Sequence[int]) -> list[Index]:
    """Return the row-major index of the element number `flat` in dimensions of `extents`."""
    found: list[Index] = []
    for n, extent in enumerate(extents):
        quotient = flat // prod(extents[n + 1 :])
        # The first quotient is below its extent already.
        found.append(quotient % extent if n else quotient)
    return found


def flipped(x: Node, axis: object) -> Node:
    """Return `x` in reverse order along `axis`, an integer, a tuple, or None for all axes."""
    axes = axes_of(axis, len(x.shape), "flip")
    return view(
        x,
        x.shape,
        lambda index: tuple(
            x.shape[dim] - 1 - i if dim in axes else i for dim, i in enumerate(index)
        ),
        inserted=x.inserted,
        rearranges=True,
    )


def rolled(x: Node, shift: object, axis: object) -> Node:
    """Return `x` shifted by `shift` along `axis`, with the last elements in front. The elements are
    shifted in row-major order if `axis` is None."""
    if axis is None:
        return reshaped(rolled(reshaped(x, (-1,)), shift, 0), x.shape) if x.shape else x
    axes = [
        axis_of(a, len(x.shape), "roll") for a in (axis if isinstance(axis, tuple) else (axis,))
    ]
    given = integers(shift, "roll", "a shift, an integer, or one shift per axis")
    if len(given) not in (1, len(axes)):
        raise WorkloadError(
            f"roll takes one shift, or one per axis: {len(axes)} axes, {len(given)} shifts",
            code="bad_shape",
        )
    shifts = [0] * len(x.shape)
    for n, dim in enumerate(axes):  # an axis that is given twice is shifted twice
        shifts[dim] += given[n if len(given) > 1 else 0]
    return view(
        x,
        x.shape,
        lambda index: tuple(
            (i + -by % e) % e if by % e else i
            for i, by, e in zip(index, shifts, x.shape, strict=True)
        ),
        inserted=x.inserted,
    )


def tiled(x: Node, reps: object) -> Node:
    """Return `x` repeated `reps` times, an integer for the last dimension or one per dimension."""
    given = integers(reps, "tile", "a number of repetitions >= 1 per dimension")
    if any(n < 1 for n in given):
        raise WorkloadError(
            f"tile takes numbers of repetitions >= 1, got {shown(reps)}", code="bad_extent"
        )
    rank = max(len(given), len(x.shape))
    times = (1,) * (rank - len(given)) + given
    if rank > len(x.shape):
        x = expanded(x, range(rank - len(x.shape)))
    return view(
        x,
        tuple(e * n for e, n in zip(x.shape, times, strict=True)),
        lambda index: tuple(
            i % e if n > 1 else i for i, e, n in zip(index, x.shape, times, strict=True)
        ),
        inserted=frozenset(dim for dim in x.inserted if times[dim] == 1),
    )


def windowed(x: Node, size: object, axes: object, stride: object, dilation: object) -> Node:
    """Return the windows of `size` taps along `axes` of `x`. The result has the positions of the
    windows instead of `axes`, and one more dimension of taps for each of them at the end. `axes`
    are the last ones if it is None."""
    taps = integers(size, "windows", "a number of taps >= 1 for each axis")
    last = tuple(range(-len(taps), 0))
    dims = axes_of(last if axes is None else axes, len(x.shape), "windows")
    steps, gaps = (
        integers(given, "windows", "one stride and one dilation >= 1, or one for each axis")
        for given in (stride, dilation)
    )
    steps, gaps = (n * len(dims) if len(n) == 1 else n for n in (steps, gaps))
    counts = {len(taps), len(dims), len(steps), len(gaps)}
    if len(counts) > 1 or min((*taps, *steps, *gaps), default=0) < 1:
        raise WorkloadError(
            f"windows takes a number of taps, a stride and a dilation >= 1 for each of {len(dims)}"
            f" axes; got size {shown(size)}, stride {shown(stride)}, dilation {shown(dilation)}",
            code="bad_shape",
        )
    shape = list(x.shape)
    for dim, count, step, gap in zip(dims, taps, steps, gaps, strict=True):
        span = gap * (count - 1) + 1
        if span > x.shape[dim]:
            raise WorkloadError(
                f"a window of {count} taps spans {span} elements, more than the extent"
                f" {x.shape[dim]} of dimension {dim}",
                code="bad_extent",
            )
        shape[dim] = (x.shape[dim] - span) // step + 1

    def index_of(index: Indices) -> Indices:
        found = list(index[: len(x.shape)])
        for dim, step, gap, tap in zip(dims, steps, gaps, index[len(x.shape) :], strict=True):
            found[dim] = found[dim] * step + tap * gap
        return tuple(found)

    return view(x, (*shape, *taps), index_of, inserted=x.inserted - set(dims))


def split(x: Node, parts: object, axis: object) -> list[Node]:
    """Return `x` cut along `axis` into `parts` equal arrays, or before each position in `parts`."""
    dim = axis_of(axis, len(x.shape), "split")
    extent, parts = x.shape[dim], as_number(parts)
    if isinstance(parts, int) and is_integer(parts):
        if parts < 1 or extent % parts:
            raise WorkloadError(
                f"split into {parts} equal parts: the extent {extent} of axis {dim} is not a"
                " multiple; give the positions of the cuts",
                code="shape_clash",
            )
        cuts = [n * (extent // parts) for n in range(1, parts)]
    else:
        cuts = list(integers(parts, "split", "a number of parts or positions of cuts"))
    ends = zip([0, *cuts], [*cuts, extent], strict=True)
    return [sliced(x, (slice(None),) * dim + (slice(low, high),)) for low, high in ends]
