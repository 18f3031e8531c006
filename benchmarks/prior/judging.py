"""How well a prior orders what was measured.

Of the settings measured for a row: `first`, the time of the one it likes best over the best (the
geomean of those it likes alike);
`of_16`, the same for the best of the 16 it likes best; `order`, rank correlation. Geomeans
and means over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.costmodel.metrics import spearman
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.target import Target

from .dataset import Measured, rows_by_name, settings_of

LEAST_TIMED = 8
"""Settings that must have been timed for a row to say something."""

TIED = 1e-9
"""log2 seconds between settings that the prior likes alike: any of them may be proposed."""


@dataclass(frozen=True)
class Judged:
    row: str
    threads: int
    first: float
    of_16: float
    order: float


@dataclass(frozen=True)
class Known:
    """One row's space and the settings of it whose times are known."""

    row: str
    space: ScheduleSpace
    found: tuple[tuple[Candidate, float], ...]

    @cached_property
    def secs(self) -> FloatArray:
        return np.asarray([secs for _, secs in self.found])

    def predicted(self) -> FloatArray:
        """(P,) log2 of the seconds that the prior predicts."""
        prior = Prior(self.space)
        out = np.empty(len(self.found))
        for number in range(len(self.space.sketches)):
            places = [n for n, (c, _) in enumerate(self.found) if c.sketch == number]
            if places:
                settings = np.asarray([self.found[n][0].setting for n in places], np.int64)
                out[places] = prior.log2_secs(number, settings)
        return out


def known(measured: Iterable[Measured]) -> list[Known]:
    rows = rows_by_name()
    result = []
    for one in measured:
        space = space_for(rows[one.row].workload, Target.from_json(one.target))
        pairs = zip(settings_of(space, one.timed), one.timed, strict=True)
        found = tuple((candidate, timed.secs) for candidate, timed in pairs if candidate)
        if len(found) >= LEAST_TIMED:
            result.append(Known(f"{one.row} {one.threads}t", space, found))
    return result


def judge(one: Known) -> Judged:
    predicted, best = one.predicted(), float(one.secs.min())
    liked = np.argsort(predicted, kind="stable")
    return Judged(
        one.row,
        one.space.target.threads,
        geomean(one.secs[predicted <= predicted[liked[0]] + TIED].tolist()) / best,
        float(one.secs[liked[:16]].min()) / best,
        spearman(predicted, one.secs) or 0.0,
    )


def geomean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def summary(found: Sequence[Judged]) -> str:
    first, of_16 = (geomean([getattr(j, name) for j in found]) for name in ("first", "of_16"))
    order = float(np.mean([j.order for j in found]))
    return f"first {first:.4f}  best of 16 {of_16:.4f}  order {order:.4f}  ({len(found)} rows)"
