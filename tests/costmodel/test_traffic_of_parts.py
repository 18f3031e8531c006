"""The traffic that the prior counts is not more than the executed accesses can cause."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.public_chains import public_chains
from tests.support.schedules.spaces import drawn, target
from tilewright.costmodel.counts.counting import counts
from tilewright.costmodel.footprint import cache_traffic
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.hardware import LINES_TO_FOLLOW
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import SpacePart

CHAINS = public_chains()
CACHES = (8 << 10, 64 << 10)  # small, so that few accesses find their data
LINE_BYTES = 64


@pytest.mark.parametrize("name", CHAINS)
def test_an_access_moves_at_most_a_line(name: str) -> None:
    """Scattered lines count up to `LINES_TO_FOLLOW` times."""
    text, tensors, ranges = CHAINS[name]
    for sketch in space_for(from_notation(text, tensors, ranges), target(1)).sketches:
        settings = drawn(sketch, 40)
        settings = settings[sketch.feasible(settings)]
        settings = np.concatenate([settings, [sketch.default()]])
        for part, own in zip(sketch.parts, sketch.split_settings(settings), strict=True):
            check(part, own)


def check(part: SpacePart, settings: np.ndarray) -> None:
    plan, found = part.plan(settings), counts(part, settings)
    traffic = cache_traffic(plan, part.workload.tensors, CACHES, line_bytes=LINE_BYTES)
    lanes = max(part.target.lanes(tensor.dtype) for tensor in part.workload.tensors.values())
    executed = lanes * (found["vector_loads"] + found["vector_stores"]) + found["scalar_accesses"]
    copied = 2 * found["packed_bytes"]  # at least a byte is an access
    assert (
        traffic.moved[0].sum(axis=0) <= LINES_TO_FOLLOW * LINE_BYTES * (executed + copied)
    ).all()
