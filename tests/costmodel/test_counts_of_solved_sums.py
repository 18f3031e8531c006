"""Sums of which a condition leaves one term have no loop of a reduction that could be counted."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.paths import example_target
from tilewright.costmodel.prior import Prior
from tilewright.schedules import parse_workload
from tilewright.schedules.sketches import space_for


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sum_of_one_term_is_counted_and_predicted(threads: int) -> None:
    workload = parse_workload(
        expr="Y[i,j] += where(i == r, A[j] * B[i,r], 0)",
        tensors=["A=f32[48]", "B=f32[65,65]"],
    )
    space = space_for(workload, example_target("znver5", threads))
    for number, sketch in enumerate(space.sketches):
        sizes = [len(knob.values) for knob in sketch.knobs]
        drawn = np.random.default_rng(0).integers(0, sizes, (64, len(sizes)))
        found = Prior(space).log2_secs(number, drawn[sketch.feasible(drawn)])
        assert np.isfinite(found).all()
