"""Kernels of tiles whose lanes are no neighbours in the result: images kept plane by plane."""

from __future__ import annotations

import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.spaces import settings
from tests.support.schedules.workloads import notation
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.workload.workload import Workload

STEPPED = "Y[n,o,h,w] += X[n,c,2*h+r-1,2*w+s-1] * W[o,c,r,s]"
PLANES = "Y[n,o,h,w] += X[n,c,h+r-1,w+s-1] * W[o,c,r,s]"
STRIP = "Y[o,w] += X[c,3*w+s-6] * W[s,c,o]"


def case(name: str) -> Workload:
    match name:
        case "stepped":
            return notation(STEPPED, X="f32[2,5,9,11]", W="f32[19,5,3,3]")
        case "narrow":
            return notation(PLANES, X="f32[1,4,7,7]", W="f32[32,4,3,3]")
        case "strip":
            return notation(STRIP, X="f32[5,40]", W="f32[13,5,20]")
        case "with an epilogue":
            text = STEPPED + "; Z[n,o,h,w] = max(Y[n,o,h,w] + b[o], 0) + R[n,o,h,w]"
            return notation(
                text, X="f32[1,5,9,11]", W="f32[18,5,3,3]", b="f32[18]", R="f32[1,18,5,6]"
            )
        case _:
            text = "Y[g,o,h,w] += X[g,c,2*h+r-1,2*w+s-1] * W[g,o,c,r,s]"
            return notation(text, X="f32[3,4,9,11]", W="f32[3,17,4,3,3]")


def scattered(workload: Workload, threads: int, bits: int) -> tuple[Sketch, ...]:
    space = space_for(workload, this_machine(threads, bits))
    found = []
    for sketch in space.sketches:
        assert isinstance(sketch, ProgramSketch)
        if any(isinstance(part, TileSketch) and part.is_scattered for part in sketch.parts):
            found.append(sketch)
    return tuple(found)


@pytest.mark.parametrize("name", ["stepped", "narrow", "strip", "with an epilogue", "grouped"])
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_every_setting_computes_the_same(name: str, threads: int, bits: int) -> None:
    workload = case(name)
    sketches = scattered(workload, threads, bits)
    assert sketches
    for sketch in sketches:
        for setting in settings(sketch, 30, seed=3):
            check_pair(Pair(name, workload, sketch.trace(setting), threads, bits))


def test_a_contiguous_axis_that_fills_its_vectors_is_taken_alone() -> None:
    assert not scattered(notation(PLANES, X="f32[1,4,8,32]", W="f32[32,4,3,3]"), 1, 512)


def test_short_sums_are_not_written_element_by_element() -> None:
    assert not scattered(
        notation("Y[o,w] += X[c,2*w] * W[o,c]", X="f32[5,21]", W="f32[16,5]"), 1, 512
    )
