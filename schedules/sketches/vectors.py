"""Vectors along an axis: which axis suits them, how many are taken at once, what is left over.

Traces are written from this (`TraceWriter.vectorise_loop`), and leaves of nests read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import FloatArray
from ..leaves import Number
from .analysis import MOST_STEP, Loop, StageView


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


def whole_vectors(extent: int, lanes: int, most: int) -> tuple[int, int]:
    """How much of an axis the iterations of as many vectors at once as fit cover, and how many
    vectors those are."""
    vectors = fitting(most, extent // lanes)
    step = lanes * vectors
    return extent // step * step, vectors


def row_pieces(extent: int, lanes: int, most: int) -> tuple[float, ...]:
    """Trips, copies and lanes along an axis that is cut where its last few whole vectors end, and
    of what is left (`TraceWriter.vectorise_parts`)."""
    whole, vectors = whole_vectors(extent, lanes, most)
    if whole in (0, extent):
        return (*one_piece(extent, lanes, most), 0, 1, 1)
    return (*one_piece(whole, lanes, vectors), *one_piece(extent - whole, lanes, most))


def one_piece(extent: int, lanes: int, most: int) -> tuple[float, ...]:
    """Trips, copies, and lanes that have an element."""
    width, copies = vectors_of(extent, lanes, most)
    return -(-extent // (width * copies)), copies, min(width, extent)


def contiguity(step: int | None) -> int:
    """How well lanes that are `step` elements apart suit an access; None where its index divides
    their axis."""
    return {0: 0, 1: 2}.get(step if step is not None else -1, -1)


def vector_axis(view: StageView, axes: Sequence[Loop]) -> Loop | None:
    """The axis that is contiguous in the most accesses of a stage; None if none is
    (`TraceWriter.best_vector_loop`)."""
    inner: dict[str, int] = {}
    size = 1
    for loop in reversed(view.spatial):
        inner[loop.name] = size
        size *= loop.extent

    def score(axis: Loop) -> int:
        steps = [read.element_stride(axis.name) for read in view.reads]
        far = [step for step in steps if step is None or not 2 <= abs(step) <= MOST_STEP]
        return 2 * contiguity(inner[axis.name]) + sum(map(contiguity, far))

    scored = [(score(axis), n) for n, axis in enumerate(axes) if axis.extent > 1]
    best, n = max(scored, default=(0, 0))
    return axes[n] if best > 0 else None


def share_of(extent: int, parts: int, step: int) -> int:
    """How much of an axis each of some `parts` of it has, in whole steps."""
    return -(-extent // (parts * step)) * step
