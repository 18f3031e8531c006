"""Invented times for candidates of the synthetic space: an enumerable landscape with known hills.

It is the analytic prior's opinion, bent by waves over the knobs that the prior knows nothing of, so
a search has something to learn and something to find.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tests.support.synthetic_sketch import synthetic_space
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.tuner.search.setting_grid import setting_grids


def bent_log2_secs(space: ScheduleSpace, sketch: int, settings: IntArray) -> FloatArray:
    """(P,) log2 of the invented seconds."""
    x = settings.astype(np.float64)
    waves = (
        0.7 * np.sin(1.3 * x[:, 0] + 0.9 * x[:, 1] + sketch)
        + 0.5 * np.cos(1.1 * x[:, 2] - 0.8 * x[:, 3])
        + 0.4 * np.sin(1.9 * x[:, 4] + x[:, 5])
    )
    secs: FloatArray = Prior(space).log2_secs(sketch, settings) + waves
    return secs


def result_of(space: ScheduleSpace, candidate: Candidate) -> MeasureResult:
    setting = np.array([candidate.setting], np.int64)
    secs = float(2.0 ** bent_log2_secs(space, candidate.sketch, setting)[0])
    return MeasureResult(MeasureStatus.OK, (secs,), secs)


def optimum_secs(space: ScheduleSpace) -> float:
    """The least invented time of the whole space, by looking at all of it."""
    return min(
        float(2.0 ** bent_log2_secs(space, grid.index, grid.decode(codes)).min())
        for grid in setting_grids(space)
        for codes in grid.feasible_codes()
        if len(codes)
    )


@lru_cache(maxsize=1)
def _small_space() -> ScheduleSpace:
    return synthetic_space(64, 64, 64, small=True)


def invented_result(candidate: Candidate) -> MeasureResult:
    """The result for a candidate of `synthetic_space(64, 64, 64, small=True)` or a smaller one."""
    return result_of(_small_space(), candidate)
