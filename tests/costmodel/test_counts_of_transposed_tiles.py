"""What the sketch of a reduction that is transposed row by row counts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.counts.compare import EXACT, compared
from benchmarks.counts.drawing import machine, parts_of
from tests.support.schedules.spaces import settings, target
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.operators import build
from tilewright.schedules.sketches import space_for

NEAR = ("footprint", "live_registers")
"""Columns within their bounds. The others are those of the tile sketch."""


@pytest.mark.parametrize("seed", range(8))
def test_what_must_be_exact_is_exact(seed: int) -> None:
    """Copies, stores, tasks and parallel regions: the row is neither a copy nor an output."""
    rng = random.Random(seed)
    workload = build(
        "conv2d_transpose_nchw",
        {
            "N": rng.choice((1, 2)), "H": rng.choice((4, 6)), "W": rng.choice((7, 9)),
            "CI": rng.choice((2, 5)), "CO": rng.choice((8, 16, 17, 33)), "K": rng.choice((3, 4)),
            "stride_h": rng.choice((1, 2)), "stride_w": rng.choice((2, 3)), "pad": 1,
        },
        epilogue=rng.choice(("", "bias+relu")),
    ).normalised()  # fmt: skip
    space = space_for(workload, machine(rng))
    sketch = next(sketch for sketch in space.sketches if "tile_transpose" in sketch.name)
    for setting in settings(sketch, 60, seed):
        nest = lower(workload, sketch.trace(setting))
        (part,) = parts_of(sketch, setting, nest, space.target)
        for found in compared(part):
            if found.column in EXACT:
                assert found.ratio == 1.0, found
            elif found.column in NEAR:
                assert found.is_within, found


def test_the_row_is_private_and_other_accesses_are_not() -> None:
    sizes = {"N": 2, "H": 32, "W": 64, "CI": 8, "CO": 32, "K": 3, "stride": 2, "pad": 1}
    workload = build("conv2d_transpose_nchw", sizes, epilogue="bias+add").normalised()
    sketch = space_for(workload, target()).sketches[0]
    (part,) = sketch.parts
    plan = part.plan(np.asarray([sketch.default()]))
    read = {access.buffer: access.private_levels for access in plan.accesses}
    (row,) = (name for name, levels in read.items() if levels)
    assert row not in {tensor.name for tensor in sketch.workload.arguments}
    assert read.keys() == {row, *(tensor.name for tensor in sketch.workload.arguments)}
    assert [access.buffer for access in plan.accesses if access.is_output] == [
        plan.accesses[-1].buffer
    ]
    assert plan.accesses[-1].buffer in sketch.workload.outputs
