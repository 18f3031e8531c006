"""The best schedule of the other kind: without parallel regions, or with them.

Where a region takes as long as the work it divides, the prior cannot tell which is faster: what
a region costs depends on the cores threads run on (`REGION_DOUBT_SECS`), what the work takes on
the prior's errors. One trial of each kind tells.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.costmodel.prior import Prior
from tilewright.costmodel.programs import program_counts
from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace

from .batch import Scored
from .descent import descend
from .prior_ranking import PriorRanking
from .setting_grid import SettingGrid, setting_grids

MAX_SLOWDOWN = 2.2
"""How many times as long as the default the other kind may take, by the prior. It takes short
kernels for up to twice as slow as they are, and with them what threads gain."""

REGION_DOUBT_SECS = 0.8e-6
"""What a parallel region may take beyond what a probe of it shows. At its start and its end threads
hand each other some six cache lines. What that takes depends on which cores they run on, which
virtual machines are dealt anew several times a second, whenever they rest: 0.45 to 0.55 us a region
or 1.2 to 1.4, on one machine in one minute. A short measurement meets one of the two."""

MAX_REGIONS = 10
"""Kernels that take as long as so many regions gain by threads for sure."""

PROHIBITIVE_SECS = 1.0
"""What no region may cost where schedules without any are looked for."""


def best_with_other_threading(
    space: ScheduleSpace, prior: Prior, look: PriorRanking
) -> Scored | None:
    """The best by the prior of those with regions where the default has none, and the other way
    round; None where there is none in reach, or threads pay for sure."""
    if space.target.threads == 1:
        return None
    default = np.array([look.default.setting], np.int64)
    usual = float(prior.log2_secs(look.default.sketch, default)[0])
    region = prior.machine.region_secs + REGION_DOUBT_SECS
    shared = bool(_enters_regions(prior, look.default.sketch, default)[0])
    if shared and 2.0**usual > MAX_REGIONS * region:
        return None
    elsewhere = Prior(space, prior.check)
    cost = PROHIBITIVE_SECS if shared else 0.0
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
    """(J,) the setting that `prior` likes best of those that are shared, or not, among the first
    `known` (P, J) and on the way down from there."""

    def score(settings: IntArray) -> FloatArray:
        return -prior.log2_secs(grid.index, settings)

    start = known[int(np.argmax(score(known)))]
    codes, scores = descend(grid, score, start, np.random.default_rng(0))
    right = _enters_regions(prior, grid.index, grid.decode(codes)) == shared
    if not right.any():
        return None
    best: IntArray = grid.decode(codes[right][[int(np.argmax(scores[right]))]])[0]
    return best


def _enters_regions(prior: Prior, sketch: int, settings: IntArray) -> BoolArray:
    """(P,) whether a call enters any parallel region."""
    found: BoolArray = program_counts(prior.space.sketches[sketch], settings)["regions"] > 0
    return found
