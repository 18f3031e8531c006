"""The sample of output elements that are compared if comparing all elements would take too long.

A sample is a grid of coordinates. Along each dimension, it has the ends, both sides of powers of
two and of even divisions, and one coordinate of each residue modulo the lanes
(`discriminating_places`). It has as many random coordinates, one in each of equal intervals, which
differ from case to case. So with any schedule, it has elements of every lane, of every remainder,
of every thread, and of every block that is at least as long as an interval. Each compared element
is a whole reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from tilewright.schedules.reference.cost import predicted_secs
from tilewright.schedules.reference.sample import Grid, Sample, demanded, places_of
from tilewright.schedules.workload.workload import Workload

from ..arrays import Array
from .discriminating_inputs import discriminating_places

_SHRINK = 0.7  # ratio of the coordinates per dimension in one attempt and in the attempt before
# A sample may cost this much more than the smallest one, even if that already exceeds the limit: a
# reduction that every element needs is evaluated once, however many elements are compared.
_LITTLE_MORE = 1.25
_MANY_COORDINATES = 1 << 18  # smaller samples shrink in steps of `_SHRINK`
_WIDER = 2  # factor for the last dimension, which is contiguous in memory


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a sample."""

    count: int | None
    """The approximate number of coordinates per dimension. None means all coordinates."""
    secs: float
    """The predicted seconds of the reference for the sample."""

    def samples(self, forms: Sequence[Workload], seed: int) -> list[Sample | None]:
        """Return a sample of this size for each of `forms`, which are forms of one workload. All
        samples have the same elements."""
        if self.count is None:
            return [None] * len(forms)
        return _samples(forms, self.count, seed)


EVERYTHING = Extent(None, 0.0)


def affordable(
    forms: Sequence[Workload],
    secs: float,
    *,
    bounded: bool,
    finite: bool = True,
    most_secs: float = inf,
) -> Extent:
    """Return the largest sample for which the reference evaluates all `forms` of a workload within
    `secs`.

    If there is none, return the largest sample that costs hardly more than the smallest one, and at
    most `most_secs` unless the smallest one costs more.
    `finite` states whether all inputs are finite.
    """

    def predicted(samples: Sequence[Sample | None]) -> float:
        pairs = zip(forms, samples, strict=True)
        return sum(predicted_secs(f, s, bounded=bounded, finite=finite) for f, s in pairs)

    tried = [Extent(None, predicted([None] * len(forms)))]
    shapes = [t.shape for t in forms[0].output_tensors]
    count = max((max(shape, default=1) for shape in shapes), default=1)
    rank = max((len(shape) for shape in shapes), default=1)
    while tried[-1].secs > secs and count >= 1:
        tried.append(Extent(count, predicted(_samples(forms, count, 0))))
        needed = (secs / tried[-1].secs) ** (1 / max(rank, 1))
        # Millions of coordinates take seconds to list, so large samples shrink to about the right
        # size at once.
        count = min(int(count * _SHRINK), max(int(count * needed), _MANY_COORDINATES))
    least_secs = min(extent.secs for extent in tried)
    limit_secs = max(secs, least_secs, min(_LITTLE_MORE * least_secs, most_secs))
    return next(extent for extent in tried if extent.secs <= limit_secs)


def _samples(forms: Sequence[Workload], count: int, seed: int) -> list[Sample | None]:
    rng = np.random.Generator(np.random.PCG64(seed))

    def grid(shape: tuple[int, ...]) -> Grid:
        counts = [count] * len(shape)
        counts[-1:] = [count * _WIDER] * len(counts[-1:])
        return tuple(
            None if wanted >= extent else places_of(coordinates(extent, wanted, rng), extent)
            for extent, wanted in zip(shape, counts, strict=True)
        )

    grids = [grid(t.shape) for t in forms[0].output_tensors]
    return [demanded(form, dict(zip(form.outputs, grids, strict=True))) for form in forms]


def coordinates(extent: int, count: int, rng: np.random.Generator) -> Array:
    """Return about `count` coordinates of a dimension of `extent` elements, in any order, or all
    coordinates if there are fewer."""
    if count >= extent:
        return np.arange(extent)
    chosen = discriminating_places(extent)[: -(-count // 2)]
    parts = np.linspace(0, extent, count - len(chosen) + 1)
    chance = (parts[:-1] + rng.random(len(parts) - 1) * np.diff(parts)).astype(np.int64)
    return np.concatenate([np.asarray(chosen, np.int64), chance])
