"""A database of which half is wrong costs a search nothing that matters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import transfer
from benchmarks.search_comparison import MACHINES, Landscape, geomean
from tilewright.schedules.sketches import space_for
from tilewright.schedules.spelling import parse_operator
from tilewright.tuner.measure.mocked.simulated import read_simulated
from tilewright.tuner.testing import mocked_target

WORKLOADS = ("softmax_mn:M=64,N=1000", "softmax_mn:M=200,N=384", "softmax_mn:M=16,N=5000")
MOST_LOST = 1.05


@pytest.fixture(scope="module", params=["small_code", "plain"])
def searched(request: pytest.FixtureRequest) -> transfer.Family:
    """Searches from an empty database on a machine that its workloads have half in common."""
    machine = replace(read_simulated(MACHINES / f"{request.param}.json"), common=0.5)
    found = {}
    for text in WORKLOADS:
        space = space_for(parse_operator(text), mocked_target(2))
        landscape = Landscape(space, machine, {})
        found[text] = landscape, transfer.search(landscape)
    return found


@pytest.mark.parametrize("broken", [transfer.halved, transfer.noisy])
def test_half_of_the_records_of_a_broken_machine_cost_under_5_percent(
    searched: transfer.Family, broken: transfer.Breaks
) -> None:
    """Geometric means over the workloads, after each number of trials from 4 on."""
    ratios = []
    for text, (landscape, alone) in searched.items():
        others = [(land.space, one) for name, (land, one) in searched.items() if name != text]
        trials = transfer.related(landscape.space, others, breaks=broken)
        with_them = transfer.search(landscape, trials)
        pairs = zip(with_them.incumbents, alone.incumbents, strict=True)
        ratios.append([one / other for one, other in pairs])
    lost = [geomean(column) for column in np.array(ratios).T[1:]]
    assert max(lost) <= MOST_LOST, lost
