"""The best schedule with the other threading: without parallel regions if the default schedule has
some, with regions if it has none.

If a parallel region costs about as much time as it saves, the prior cannot decide. The cost of the
region depends on the cores on which its threads run (`REGION_DOUBT_SECS`), and the predicted time
of the computation has an error. So the search measures one schedule of each kind.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.costmodel.counts.counting import program_counts
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace

from .batch import Scored
from .descent import descend
from .prior_ranking import PriorRanking
from .setting_grid import SettingGrid, setting_grids

MAX_SLOWDOWN = 2.2
"""Largest predicted time of the other kind, as a multiple of the default's time. The prior
overestimates short kernels, and so the gain of threads, by up to a factor of two."""

REGION_DOUBT_SECS = 0.8e-6
"""Uncertainty of the cost of a parallel region in addition to its probe.

At its start and end, threads exchange about six cache lines, at a cost that depends on their cores.
A virtual machine changes these cores several times per second, whenever threads rest: on one
machine, 0.45 to 0.55 us or 1.2 to 1.4 us per region within one minute, and a short measurement
observes only one of the two.
"""

MAX_REGIONS = 10
"""A kernel that takes longer than this number of regions certainly gains from threads."""

PROHIBITIVE_SECS = 1.0
"""The assumed cost of a region in a search for schedules without regions."""


def best_with_other_threading(
    space: ScheduleSpace, prior: Prior, look: PriorRanking
) -> Scored | None:
    """Return the prior's best schedule with parallel regions if the default has none, or without
    regions if it has some.

    Return None if that schedule is predicted to be too slow, or if threads certainly pay.
    """
    if space.target.threads == 1:
        return None
    default = np.array([look.default.setting], np.int64)
    usual = float(prior.log2_secs(look.default.sketch, default)[0])
    region = prior.machine.region_secs + REGION_DOUBT_SECS
    shared = bool(_enters_regions(prior, look.default.sketch, default)[0])
    if shared and 2.0**usual > MAX_REGIONS * region:
        return None
    cost = PROHIBITIVE_SECS if shared else 0.0
    elsewhere = Prior(space, prior.check, prior.correction)  # with tables for another machine
    elsewhere.machine = replace(prior.machine, region_secs=cost)
    found = [
        (float(prior.log2_secs(grid.index, best[None])[0]), grid.index, best)
        for grid, codes in zip(setting_grids(space), look.codes, strict=True)
        if len(codes)
        and (best := _best(grid, grid.decode(codes), elsewhere, not shared)) is not None
    ]
    if not found:
        return None
    log2_secs, sketch, setting = min(found, key=lambda item: item[:2])
    if log2_secs > usual + np.log2(MAX_SLOWDOWN):
        return None
    return Scored(Candidate(sketch, tuple(setting.tolist())), log2_secs, 0.0, -log2_secs)


def _best(grid: SettingGrid, known: IntArray, prior: Prior, shared: bool) -> IntArray | None:
    """Return the prior's best setting with regions (`shared`) or without, shape (J,), or None if
    there is none.

    It is selected from the settings of a descent from the best of `known` (P, J).
    """

    def score(settings: IntArray) -> FloatArray:
        return -prior.log2_secs(grid.index, settings)

    start = known[int(np.argmax(score(known)))]
    codes, scores = descend(grid, score, start[None], np.random.default_rng(0))
    right = _enters_regions(prior, grid.index, grid.decode(codes)) == shared
    if not right.any():
        return None
    best: IntArray = grid.decode(codes[right][[int(np.argmax(scores[right]))]])[0]
    return best


def _enters_regions(prior: Prior, sketch: int, settings: IntArray) -> BoolArray:
    """Return whether a call enters any parallel region, shape (P,)."""
    found: BoolArray = program_counts(prior.space.sketches[sketch], settings)["regions"] > 0
    return found
