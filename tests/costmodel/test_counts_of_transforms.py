"""Transforms whose lanes lie along tiles of the contiguous axis: images with channels first."""

from __future__ import annotations

import pytest

from benchmarks.counts.compare import EXACT, compared
from benchmarks.counts.drawing import parts_of
from tests.support.paths import example_target
from tilewright.schedules import parse_workload
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.sketches import space_for


@pytest.mark.parametrize(("height", "width", "threads"), [(14, 14, 1), (6, 13, 2), (8, 16, 1)])
def test_lanes_along_tiles_are_counted(height: int, width: int, threads: int) -> None:
    """Two or four neighbours have formulas of their own, so lanes are as far apart: once they were
    taken for a vector of neighbours."""
    convolution = parse_workload(
        expr="Y[n,o,h,w] += X[n,c,h+r,w+s] * W[o,c,r,s]",
        tensors=[f"X=f32[1,8,{height + 2},{width + 2}]", "W=f32[8,8,3,3]"],
        ranges=[f"h={height}", f"w={width}"],
        allow_error=1e-3,
    )
    space = space_for(convolution.normalised(), example_target("znver5", threads))
    found = []
    for sketch in space.sketches:
        nest = lower(space.workload, sketch.trace(sketch.default()))
        parts = parts_of(sketch, tuple(sketch.default()), nest, space.target)
        found += [each for part in parts if part.kind == "transform" for each in compared(part)]
    assert found
    wrong = [each for each in found if each.column in EXACT and each.said != each.recounted]
    assert not wrong, wrong
