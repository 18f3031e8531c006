"""Where threads may not pay, schedules with and without a parallel region are offered and tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import this_machine
from tilewright.costmodel.counts.counting import program_counts
from tilewright.costmodel.prior import Prior
from tilewright.schedules.operators import build
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.target import Probes, Target
from tilewright.tuner.search.base import SearchGoal
from tilewright.tuner.search.prior_ranking import rank_by_prior
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.search.strategies import make_strategy
from tilewright.tuner.search.threading_choice import best_with_other_threading

SMALL = {
    "product": build("matmul", {"M": 40, "N": 48, "K": 40}),
    "windows": build("depthwise_conv2d_nhwc", {"H": 7, "W": 7, "C": 256, "K": 3, "pad": 1}),
    "pooling": build("max_pool2d_nhwc", {"N": 1, "H": 16, "W": 16, "C": 64, "K": 2, "stride": 2}),
    "norm": build("norm_bmn", {"B": 1, "M": 128, "N": 256}),
    "softmax": build("softmax_mn", {"M": 16, "N": 64}),
    "elementwise": build("elementwise_add_relu", {"M": 64, "N": 64}),
    "columns": build("colsum_mn", {"M": 64, "N": 128}),
    "transposition": build("transpose_mn", {"M": 64, "N": 64}),
    "rows by a vector": build("gemv", {"N": 64, "K": 256}),
}
LARGE = build("matmul", {"M": 512, "N": 512, "K": 512})


def machine(region_secs: float = 5e-7, threads: int = 2) -> Target:
    return replace(this_machine(threads), probes=Probes(parallel_region_secs=region_secs))


def regions(space: ScheduleSpace, candidate: Candidate) -> int:
    setting = np.array([candidate.setting], np.int64)
    return int(program_counts(space.sketches[candidate.sketch], setting)["regions"][0])


@pytest.mark.parametrize("name", SMALL)
def test_every_small_space_has_schedules_with_and_without_regions(name: str) -> None:
    space = space_for(SMALL[name], machine())
    entered: set[bool] = set()
    for grid in setting_grids(space):
        settings = grid.some_feasible(4096)
        entered |= set(
            (program_counts(space.sketches[grid.index], settings)["regions"] > 0).tolist()
        )
    assert entered == {False, True}


def test_windows_far_from_the_peak_may_be_computed_by_one_thread() -> None:
    """7 by 7 by 1024 depthwise is 441 thousand updates: 5 us on one thread, 3 to 6 on two."""
    large = build("depthwise_conv2d_nhwc", {"H": 7, "W": 7, "C": 1024, "K": 3, "pad": 1})
    space = space_for(large, machine())
    (grid,) = setting_grids(space)
    entered = program_counts(space.sketches[grid.index], grid.some_feasible(4096))["regions"]
    assert set(entered.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("name", SMALL)
def test_where_a_region_costs_more_than_the_work_there_is_none(name: str) -> None:
    space = space_for(SMALL[name], machine(region_secs=1e-3))
    assert regions(space, rank_by_prior(space, Prior(space), 1).default) == 0


def test_where_the_work_is_long_all_threads_share_it_and_nothing_else_is_tried() -> None:
    space = space_for(LARGE, machine())
    prior = Prior(space)
    look = rank_by_prior(space, prior, 64)
    assert regions(space, look.default) > 0
    assert best_with_other_threading(space, prior, look) is None


@pytest.mark.parametrize("region_secs", [2e-7, 1e-3])
@pytest.mark.parametrize("name", ["product", "norm", "elementwise"])
def test_a_search_tries_both_kinds_first_where_either_may_win(
    name: str, region_secs: float
) -> None:
    space = space_for(SMALL[name], machine(region_secs))
    asked = make_strategy("annealing", space, SearchGoal()).ask(4)
    if region_secs < 1e-3:
        assert {regions(space, c) > 0 for c in asked[:2]} == {False, True}
    else:  # hopeless: no trial is spent on it on purpose
        assert regions(space, asked[0]) == 0


def test_one_thread_has_no_other_kind() -> None:
    space = space_for(SMALL["norm"], machine(threads=1))
    prior = Prior(space)
    assert best_with_other_threading(space, prior, rank_by_prior(space, prior, 16)) is None
