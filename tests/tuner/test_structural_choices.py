"""Early trials include schedules of other structures than those that the prior prefers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.paths import example_target
from tilewright.costmodel.counts.counting import program_counts
from tilewright.costmodel.prior import Prior
from tilewright.schedules.operators import build
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate
from tilewright.tuner.search.base import SearchGoal
from tilewright.tuner.search.prior_ranking import rank_by_prior
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.search.strategies import make_strategy
from tilewright.tuner.search.structural_choices import (
    MAX_SLOWDOWN,
    MIN_CHANGE,
    structural_choices,
)

WORKLOADS = {
    "product": build("matmul", {"M": 500, "N": 740, "K": 370}),
    "transposed": build("matmul_tn", {"M": 384, "N": 512, "K": 1024}),
    "convolution": build(
        "conv2d_nchw", {"N": 1, "CI": 32, "H": 56, "W": 56, "CO": 64, "KH": 3, "KW": 3, "pad": 1}
    ),
    "softmax": build("softmax_mn", {"M": 256, "N": 1024}),
    "elementwise": build("elementwise_add_relu", {"M": 64, "N": 64}),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_choices_are_feasible_distinct_and_not_hopeless(name: str) -> None:
    space = space_for(WORKLOADS[name], example_target("znver5"))
    prior, grids = Prior(space), setting_grids(space)
    look = rank_by_prior(space, prior, 256)
    found = structural_choices(grids, prior, look, [], 100)
    usual = prior.analyse(look.default.sketch, np.array([look.default.setting]))
    parts = [usual.components[:, 0]]
    for item in found:
        setting = np.array([item.candidate.setting])
        assert grids[item.candidate.sketch].sketch.feasible(setting).all()
        analysis = prior.analyse(item.candidate.sketch, setting)
        assert analysis.secs[0] <= MAX_SLOWDOWN * usual.secs[0] * 1.001
        own = analysis.components[:, 0]
        for other in parts:
            assert np.abs(own - other).sum() > 0.999 * MIN_CHANGE * analysis.secs[0]
        parts.append(own)
    assert [item.log2_secs for item in found] == sorted(item.log2_secs for item in found)
    assert structural_choices(grids, prior, look, [], 100) == found
    chosen = [item.candidate for item in found]
    assert not structural_choices(grids, prior, look, chosen, 100)


@pytest.mark.parametrize("name", ["product", "transposed"])
def test_products_are_tried_with_and_without_copies(name: str) -> None:
    """The prior's first four may all read in place, or all from copies."""
    space = space_for(WORKLOADS[name], example_target("znver5"))
    strategy = make_strategy("annealing", space, SearchGoal(seed=0))
    asked: list[Candidate] = []
    while len(asked) < 8:
        asked += strategy.ask(8 - len(asked))
    copied = {
        float(program_counts(space.sketches[c.sketch], np.array([c.setting]))["packed_bytes"][0])
        > 0
        for c in asked
    }
    assert copied == {False, True}
