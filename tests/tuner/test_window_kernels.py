"""Kernels whose lanes lie along the axis that windows slide on: images kept plane by plane."""

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

CASES: dict[str, Workload] = {
    "grey": notation("Y[i,j] += X[i+r,j+s] * W[r,s]", X="f32[20,45]", W="f32[5,7]"),
    "padded": notation("Y[i,j] += X[i+r-1,j+s-1] * W[r,s]", X="f32[19,71]", W="f32[3,3]"),
    "padded on one side": notation(
        "Y[i,j] += X[i+r-2,j+s] * W[r,s]", {"i": 17, "j": 45}, X="f32[17,45]", W="f32[3,5]"
    ),
    "whole vectors": notation("Y[i,j] += X[i+r-1,j+s-1] * W[r,s]", X="f32[16,64]", W="f32[3,3]"),
    "smaller than its window": notation(
        "Y[i,j] += X[i+r-3,j+s-3] * W[r,s]", X="f32[4,18]", W="f32[7,7]"
    ),
    "planes": notation(
        "Y[n,c,h,w] += X[n,c,h+r-1,w+s-1] * W[c,r,s]", X="f32[2,3,13,37]", W="f32[3,3,3]"
    ),
    "stepped rows": notation(
        "Y[h,w] += X[2*h+r-1,w+s-1] * W[r,s]", {"h": 9}, X="f32[17,37]", W="f32[3,3]"
    ),
    "few channels": notation(
        "Y[o,h,w] += X[c,h+r-1,w+s-1] * W[o,c,r,s]", X="f32[2,11,37]", W="f32[3,2,3,3]"
    ),
    "sums of boxes": notation("Y[i,j] += X[i+r,j+s]", {"r": 3, "s": 3}, X="f32[20,45]"),
    "smallest": notation("Y[i,j] min= X[i+r,j+s]", {"r": 3, "s": 3}, X="f32[20,45]"),
    "down a column": notation("Y[i,j] += X[i+r-2,j] * g[r]", X="f32[20,45]", g="f32[5]"),
    "nine taps of channels": notation(
        "Y[h,w,c] += X[h+r-4,w+s-4,c] * W[r,s,c]", X="f32[11,23,19]", W="f32[9,9,19]"
    ),
    "thirteen taps in steps": notation(
        "Y[h,w,c] += X[2*h+r-6,2*w+s-6,c] * W[r,s,c]", {"h": 7, "w": 9},
        X="f32[13,17,16]", W="f32[13,13,16]",
    ),
    "with an epilogue": notation(
        "T[i,j] += X[i+r-1,j+s-1] * W[r,s]; Y[i,j] = max(T[i,j] + b[i], 0.0)",
        X="f32[19,37]", W="f32[3,3]", b="f32[19]",
    ),
}  # fmt: skip


def sliding(workload: Workload, threads: int, bits: int) -> tuple[Sketch, ...]:
    found = []
    for sketch in space_for(workload, this_machine(threads, bits)).sketches:
        assert isinstance(sketch, ProgramSketch)
        if any(isinstance(part, TileSketch) and part.is_sliding for part in sketch.parts):
            found.append(sketch)
    return tuple(found)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_every_setting_computes_the_same(name: str, threads: int, bits: int) -> None:
    sketches = sliding(CASES[name], threads, bits)
    assert sketches
    for sketch in sketches:
        for setting in settings(sketch, 12, seed=5):
            check_pair(Pair(name, CASES[name], sketch.trace(setting), threads, bits))
        check_pair(Pair(name, CASES[name], sketch.trace(sketch.default()), threads, bits))


@pytest.mark.parametrize("name", ["padded", "planes", "padded on one side", "with an epilogue"])
def test_padding_is_left_out_on_all_sides(name: str) -> None:
    """Also where a tile of columns touches it, which random settings seldom do."""
    (sketch,) = sliding(CASES[name], 1, 512)
    names = [knob.name.split(".")[-1] for knob in sketch.knobs]
    at = names.index("skip_padding")
    assert sketch.knobs[at].values == (0, 1)
    skipping = [s for s in settings(sketch, 400, seed=6) if s[at]][:12]
    assert skipping
    for setting in skipping:
        check_pair(Pair(name, CASES[name], sketch.trace(setting), 1, 512))


@pytest.mark.parametrize(("name", "taps"), [("nine taps of channels", 9), ("padded", 3)])
def test_the_default_writes_whole_windows_out_and_leaves_padding_out(name: str, taps: int) -> None:
    (sketch,) = sliding(CASES[name], 1, 512)
    chosen = {
        knob.name.split(".")[-1]: knob.values[i]
        for knob, i in zip(sketch.knobs, sketch.default(), strict=True)
    }
    assert (chosen["unroll_reduction"], chosen["skip_padding"], chosen["copy_rows"]) == (taps, 1, 0)


def test_rows_that_share_nothing_are_no_rows() -> None:
    apart = notation("Y[i,j] += X[3*i+r,j+s] * W[r,s]", {"i": 6}, X="f32[18,45]", W="f32[3,3]")
    assert not sliding(apart, 1, 512)
