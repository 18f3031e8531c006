"""Vectors along an axis: which axis suits them, how many are taken at once, what is left over.

Traces are written from `parts_of` (`TraceWriter.vectorise_loop`), and leaves of nests read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..algebra.affine import Affine
from ..arrays import FloatArray, Number
from .analysis.stages import StageLoop, StageView, element_step, is_near
from .statements import own_place


def fitting(most: int, extent: int) -> int:
    """The largest of `most`, half of it and so on that is not above `extent`; at least 1."""
    while most > max(extent, 1):
        most //= 2
    return most


def fit(most: Number, extent: Number) -> FloatArray:
    """`fitting` for P settings, of powers of two."""
    return np.minimum(most, 2.0 ** np.floor(np.log2(np.maximum(extent, 1))))


def vectors_of(extent: int, lanes: int, most: int) -> tuple[int, int]:
    """The lanes of vectors along one loop, and how many of them an iteration takes where it is long
    enough: up to `most`, in equal iterations. A tail of less than a vector is masked in one of the
    full width."""
    width = fitting(lanes, extent)
    if extent % width:
        width = min(lanes, 2 * width)
    count = -(-extent // width)
    most = min(most, count) if width > 1 else 1
    return width, next(n for n in range(most, 0, -1) if count % n == 0)


def parts_of(extent: int, lanes: int, most: int, cut: bool) -> list[tuple[int, int, int]]:
    """Of each part of an axis that is `cut` where its last few whole vectors end: elements, and
    lanes of vectors and how many of them at once (`vectors_of`)."""
    step = lanes * fitting(most, extent // lanes)
    whole = (extent // step * step if cut else 0) or extent
    return [(part, *vectors_of(part, lanes, most)) for part in (whole, extent - whole) if part]


def row_pieces(extent: int, lanes: int, most: int, cut: bool = True) -> tuple[float, ...]:
    """Trips, copies, lanes that have an element, and the share of the copies that has one: of the
    first part of an axis and of the second, without trips where there is none."""
    parts, none = parts_of(extent, lanes, most, cut), (0, 1, 1, 1)
    found = [(-(-n // (width * copies)), copies, min(width, n), 1) for n, width, copies in parts]
    first, second = (*found, none, none)[:2]
    return (*first, *second)


def vector_loop(
    extents: Mapping[str, int],
    own: Callable[[str], int | None],
    reads: Sequence[tuple[tuple[int, ...], tuple[Affine, ...]]],
) -> str | None:
    """Which of some loops of these `extents` lanes suit best; None if they suit none. What is
    written moves by `own` elements along a loop, `reads` are shapes and indices. Contiguous
    accesses count for a loop, strided ones against it, the written one double; reads from whole
    vectors that reach over the lanes do neither."""

    def score(loop: str) -> int:
        far = (element_step(*read, loop) for read in reads if not is_near(*read, loop))
        return 2 * _score(own(loop)) + sum(map(_score, far))

    scored = [(score(loop), n) for n, loop in enumerate(extents) if extents[loop] > 1]
    best, n = max(scored, default=(0, 0))
    return list(extents)[n] if best > 0 else None


def _score(step: int | None) -> int:
    return {0: 0, 1: 2}.get(step if step is not None else -1, -1)


def vector_axis(view: StageView, axes: Sequence[StageLoop]) -> StageLoop | None:
    """The axis of a stage that lanes suit best; None if they suit none."""
    own = own_place(view, {loop.name: loop.name for loop in view.spatial}).steps
    reads = [(read.shape, read.index) for read in view.reads]
    best = vector_loop({axis.name: axis.extent for axis in axes}, own.get, reads)
    return next((axis for axis in axes if axis.name == best), None)


def share_of(extent: int, parts: int, step: int) -> int:
    """How much of an axis each of some `parts` of it has, in whole steps."""
    return -(-extent // (parts * step)) * step
