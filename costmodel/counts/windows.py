"""Elements that several unrolled copies of a leaf read, because their windows overlap."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from tilewright.schedules.arrays import Number, map_unique
from tilewright.schedules.leaves import MAX_LANE_STRIDE, AccessPattern, Dim, Leaf

MOST_SHAPES = 1 << 14
"""The size of the cache of leaf shapes. A search has few shapes, each many times."""


def read_by(leaf: Leaf, place: AccessPattern) -> tuple[Number, Number, Number]:
    """Return three counts of a leaf, each a scalar or of shape (P,).

    The first is the number of distinct vectors that all its copies read (of elements, if all lanes
    use the same element). The second is the number of registers that these occupy in one reduction
    step. The third is the number of registers that stay live for a later step. An element that all
    lanes use and that several steps read is loaded before all steps, as LLVM does. Each step loads
    only the vectors that no earlier step has loaded.
    """
    moving = [{axis for axis, step in dim.terms if step} & leaf.copies.keys() for dim in place.dims]
    steps = [axis for axis in leaf.copies if axis in leaf.statement.reduction_axes]
    here = _met_again(leaf, place, steps)
    if all(len(axes) < 2 for axes in moving) and place.steps.keys() >= set(steps):
        return leaf.copies_along(place.steps), here, 0
    axes = (*steps, *set().union(*moving).difference(steps))
    apart = abs(place.steps.get(leaf.vector_axis, 0))
    spacing = tuple(leaf.spacing.get(axis, 1) for axis in axes)

    def count(*sizes: int) -> tuple[float, ...]:
        return _met(place.dims, axes, spacing, sizes, len(steps), leaf.vector_axis, apart)

    found, several, waiting = map_unique(count, *(leaf.copies[axis] for axis in axes))
    found = found * leaf.copies_along(place.steps.keys() - set(axes))
    if apart:
        return found, here, waiting
    return found, several + here * (several < found), 0


def _met_again(leaf: Leaf, place: AccessPattern, steps: list[str]) -> Number:
    """Return the number of registers that one reduction step needs for the access `place`, a
    scalar or of shape (P,).

    The number is 1 if all uses of a vector are consecutive. Unrolled copies are executed in the
    order of `leaf.copies`, outermost axis first. If an axis that does not change the access has
    several copies, each of them uses the vectors of all later axes. These vectors then all stay in
    registers.
    """
    kept: Number = 1
    again = np.zeros(1, np.bool_)
    for axis, size in leaf.copies.items():
        if axis not in steps and axis in place.steps:
            kept = kept * np.where(again, size, 1)
        elif axis not in steps:
            again = again | (np.asarray(size) > 1)
    return kept


@lru_cache(MOST_SHAPES)
def _met(
    dims: tuple[Dim, ...], axes: tuple[str, ...], spacing: tuple[int, ...], sizes: tuple[int, ...],
    steps: int, along: str, apart: int,
) -> tuple[float, ...]:  # fmt: skip
    """Return three numbers of elements that copies of the given `sizes` along `axes` read.

    They are the distinct elements, those that several reduction steps read, and the largest number
    that is live between two steps. The first `steps` axes are reduction axes. If lanes are at a
    small stride `apart`, they are selected from whole vectors. Then elements are counted in units
    of that stride.
    """
    places = dict(zip(axes, np.ogrid[tuple(map(slice, sizes))], strict=True))
    far = dict(zip(axes, spacing, strict=True))
    number = np.zeros(sizes, np.int64)
    for terms, offset in dims:
        moved = [step * far[axis] * places[axis] for axis, step in terms if axis in places]
        index = sum(moved, np.zeros((), np.int64))
        if 1 < apart <= MAX_LANE_STRIDE and along in dict(terms):
            index = (index + offset) // apart
        number = number * (1 << 20) + index
    different, which = np.unique(number, return_inverse=True)
    read = np.zeros((prod(sizes[:steps]), len(different)), np.bool_)
    read[np.arange(len(read)).repeat(which.size // len(read)), which.reshape(-1)] = True
    before = np.logical_or.accumulate(read)[:-1]
    after = np.logical_or.accumulate(read[::-1])[::-1][1:]
    return (
        len(different),
        int(np.count_nonzero(read.sum(0) > 1)),
        int(np.max((before & after).sum(1), initial=0)),
    )
