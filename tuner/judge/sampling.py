"""Which elements of the outputs are compared where all of them would take too long.

A grid of coordinates: along each dimension the ends, both sides of powers of two and of even
shares, one of each residue modulo the lanes (`discriminating_places`), and one by chance in each of
as many equal parts, which are others in every case. So each block that is not smaller than such a
part, each lane, tail, share of a thread and phase has its turn, whatever the schedule is. Every
element that is compared is a whole reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.schedules.reference.cost import predicted_secs
from tilewright.schedules.reference.sample import Grid, Sample, demanded, places_of
from tilewright.schedules.workload.workload import Workload

from .discriminating_inputs import discriminating_places

_SHRINK = 0.7  # of the coordinates along each dimension, from one try to the next
_WIDER = 2  # times as many along the last dimension, along which vectors lie


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is compared: about `count` coordinates along each dimension, all where that is
    None, and the seconds that the reference is predicted to take for them."""

    count: int | None
    secs: float

    def samples(self, forms: Sequence[Workload], seed: int) -> list[Sample | None]:
        """The same elements of the outputs of all `forms` of one workload."""
        if self.count is None:
            return [None] * len(forms)
        return _samples(forms, self.count, seed)


EVERYTHING = Extent(None, 0.0)


def affordable(
    forms: Sequence[Workload], secs: float, *, bounded: bool, finite: bool = True
) -> Extent:
    """The most that is compared if the reference evaluates all `forms` of one workload within
    `secs`, on inputs that are `finite` or not; the least there is if nothing can be."""

    def predicted(samples: Sequence[Sample | None]) -> float:
        pairs = zip(forms, samples, strict=True)
        return sum(predicted_secs(f, s, bounded=bounded, finite=finite) for f, s in pairs)

    found = Extent(None, predicted([None] * len(forms)))
    shapes = [t.shape for t in forms[0].output_tensors]
    count = max((max(shape, default=1) for shape in shapes), default=1)
    while found.secs > secs and count >= 1:
        tried = Extent(count, predicted(_samples(forms, count, 0)))
        found = min(found, tried, key=lambda extent: extent.secs)
        count = int(count * _SHRINK)
    return found


def _samples(forms: Sequence[Workload], count: int, seed: int) -> list[Sample | None]:
    rng = np.random.Generator(np.random.PCG64(seed))

    def grid(shape: tuple[int, ...]) -> Grid:
        counts = [count] * len(shape)
        counts[-1:] = [count * _WIDER] * len(counts[-1:])
        return tuple(
            places_of(coordinates(extent, wanted, rng), extent)
            for extent, wanted in zip(shape, counts, strict=True)
        )

    grids = [grid(t.shape) for t in forms[0].output_tensors]
    return [demanded(form, dict(zip(form.outputs, grids, strict=True))) for form in forms]


def coordinates(extent: int, count: int, rng: np.random.Generator) -> list[int]:
    """About `count` coordinates of a dimension of `extent`, all where it has no more."""
    if count >= extent:
        return list(range(extent))
    telling = discriminating_places(extent)[: -(-count // 2)]
    parts = np.linspace(0, extent, count - len(telling) + 1)
    chance = (parts[:-1] + rng.random(len(parts) - 1) * np.diff(parts)).astype(np.int64)
    return sorted({*telling, *(int(c) for c in chance)})
