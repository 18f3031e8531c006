"""Vectorise an axis: choose the axis, the number of vectors per iteration, and the remainder. Trace
emission (`TraceWriter.vectorise_loop`) and leaves both use `parts_of`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..algebra.affine import Affine
from ..arrays import FloatArray, Number
from .analysis.neighbours import is_near, lane_step
from .analysis.stages import StageLoop, StageView
from .statements import own_place


def fitting(most: int, extent: int) -> int:
    """Return the largest of `most`, `most` / 2, ..., 1 that does not exceed `extent`, or 1."""
    while most > max(extent, 1):
        most //= 2
    return most


def fit(most: Number, extent: Number) -> FloatArray:
    """Return the results of `fitting` for arrays. `most` are powers of two."""
    return np.minimum(most, 2.0 ** np.floor(np.log2(np.maximum(extent, 1))))


def vectors_of(extent: int, lanes: int, most: int) -> tuple[int, int]:
    """Return (lanes per vector, vectors per iteration) along a loop. All iterations have the same
    number of vectors, at most `most`. A remainder shorter than a vector is masked in a vector of
    full width."""
    width = fitting(lanes, extent)
    if extent % width:
        width = min(lanes, 2 * width)
    count = -(-extent // width)
    most = min(most, count) if width > 1 else 1
    return width, next(n for n in range(most, 0, -1) if count % n == 0)


def parts_of(extent: int, lanes: int, most: int, cut: bool) -> list[tuple[int, int, int]]:
    """Return (elements, lanes per vector, vectors per iteration) of each part of an axis. If `cut`,
    the axis is partitioned after its last full iteration."""
    step = lanes * fitting(most, extent // lanes)
    whole = (extent // step * step if cut else 0) or extent
    return [(part, *vectors_of(part, lanes, most)) for part in (whole, extent - whole) if part]


def row_pieces(extent: int, lanes: int, most: int, cut: bool = True) -> tuple[float, ...]:
    """Return the loops of the first and of the second part of an axis as one tuple.

    Each part has four numbers: iterations, vectors per iteration, lanes, and the fraction of
    vectors with elements. A part that does not exist has 0 iterations.
    """
    parts, none = parts_of(extent, lanes, most, cut), (0, 1, 1, 1)
    found = [(-(-n // (width * copies)), copies, min(width, n), 1) for n, width, copies in parts]
    first, second = (*found, none, none)[:2]
    return (*first, *second)


def vector_loop(
    extents: Mapping[str, int],
    own: Callable[[str], int | None],
    reads: Sequence[tuple[tuple[int, ...], tuple[Affine, ...]]],
) -> str | None:
    """Return the most suitable loop for vectors among `extents`, or None if no loop is suitable.

    `own` returns the stride of the written element along a loop. `reads` are pairs of a shape and
    an index. Contiguous accesses count for a loop and strided ones against it. The written element
    counts double. Reads whose lanes are selected from whole vectors do not count.
    """

    def score(loop: str) -> int:
        far = (lane_step(*read, loop) for read in reads if not is_near(*read, loop))
        return 2 * _score(own(loop)) + sum(map(_score, far))

    scored = [(score(loop), n) for n, loop in enumerate(extents) if extents[loop] > 1]
    best, n = max(scored, default=(0, 0))
    return list(extents)[n] if best > 0 else None


def _score(step: int | None) -> int:
    return {0: 0, 1: 2}.get(step if step is not None else -1, -1)


def vector_axis(view: StageView, axes: Sequence[StageLoop]) -> StageLoop | None:
    """Return the most suitable axis of a stage for vectors, or None."""
    own = own_place(view, {loop.name: loop.name for loop in view.spatial}).steps
    reads = [(read.shape, read.index) for read in view.reads]
    best = vector_loop({axis.name: axis.extent for axis in axes}, own.get, reads)
    return next((axis for axis in axes if axis.name == best), None)


def share_of(extent: int, parts: int, step: int) -> int:
    """Return the length of each of `parts` equal parts of an axis, rounded up to a multiple of
    `step`."""
    return -(-extent // (parts * step)) * step
