"""Reductions whose vectors lie along an axis that no operand has, such as the votes of a histogram,
are computed in tiles of several rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.spaces import SMALL, drawn, settings, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload

VOTES = {
    "blocks of an image": (
        "H[y,x,z] += where(i32(X[4*y+r,4*x+s] * 3.0) == z, X[4*y+r,4*x+s], 0.0)",
        {"X": "f32[12,28]"}, {"r": 4, "s": 4, "z": 11},
    ),
    "rows": ("H[i,z] += where(I[i,k] == z, 1, 0)", {"I": "i32[5,40]"}, {"z": 16}),
    "all": ("H[z] += where(I[k] == z, W[k], 0.0)", {"I": "i32[90]", "W": "f64[90]"}, {"z": 9}),
    "nearest": ("D[i,z] min= abs(X[i,k] - f32(z))", {"X": "f32[7,33]"}, {"z": 24}),
    "levels of several images": (
        "H[n,z,i] += where(X[i,k] > f32(z) * B[n], 1.0, 0.0)",
        {"X": "f32[9,40]", "B": "f32[3]"}, {"z": 8},
    ),
}  # fmt: skip


def made(name: str) -> Workload:
    text, tensors, ranges = VOTES[name]
    return notation(text, ranges, **tensors).normalised()


@pytest.mark.parametrize("name", VOTES)
def test_every_sketch_means_the_same(name: str) -> None:
    workload = made(name)
    for machine in (target(1), target(2, 512, 32), SMALL):
        space = space_for(workload, machine)
        assert not space.dropped
        for sketch in space.sketches:
            for setting in settings(sketch, 6, 1):
                check_meaning(workload, lower(workload, sketch.trace(setting)))


@pytest.mark.parametrize("name", ["blocks of an image", "rows", "nearest"])
def test_several_rows_accumulate_at_once(name: str) -> None:
    """One row is one chain of dependent additions."""
    sketch = space_for(made(name), target(1, 512, 32)).sketches[0]
    assert sketch.name == "tile"
    (rows,) = (n for n, knob in enumerate(sketch.knobs) if knob.name == "tile_rows")
    assert sketch.knobs[rows].values[sketch.default()[rows]] >= 3
    assert not any(knob.name == "copy_rows" and len(knob.values) > 1 for knob in sketch.knobs)


@pytest.mark.parametrize("name", VOTES)
def test_every_setting_can_be_predicted(name: str) -> None:
    for sketch in space_for(made(name), SMALL).sketches:
        tried = np.asarray([sketch.default(), *drawn(sketch, 40)])
        for part, own in zip(sketch.parts, sketch.split_settings(tried), strict=True):
            found = counts(part, own[part.feasible(own)])
            assert all(np.isfinite(column).all() for column in found.values())
