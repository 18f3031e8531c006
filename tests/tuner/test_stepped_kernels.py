"""Kernels whose lanes are a few elements apart, or take an element several times in turn."""

from __future__ import annotations

import re

import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.spaces import settings
from tests.support.schedules.workloads import notation
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.fused.rows import RowSketch
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import llvm_text

PLANES = notation(
    "Y[c,h,w] += X[c,2*h+r-1,2*w+s-1] * W[c,r,s]", {"h": 7, "w": 41}, X="f32[3,13,81]",
    W="f32[3,3,3]",
)  # fmt: skip

WINDOWS: dict[str, Workload] = {
    "planes": PLANES,
    "grey": notation(
        "Y[i,j] += X[2*i+r-2,2*j+s-2] * W[r,s]", {"i": 10, "j": 32}, X="f32[20,64]", W="f32[5,5]"
    ),
    "filter": notation("Y[i] += X[2*i+k] * T[k]", {"i": 70}, X="f32[171]", T="f32[33]"),
    "steps of three": notation("Y[b,i] += X[b,3*i+k] * T[k]", X="f32[3,124]", T="f32[5]"),
    "dilated": notation("Y[i] += X[4*i+2*k-3] * T[k]", {"i": 50}, X="f32[201]", T="f32[5]"),
    "greatest": notation(
        "Y[c,h,w] max= X[c,2*h+r-1,2*w+s-1]", {"r": 3, "s": 3, "h": 6, "w": 37}, X="f32[2,11,73]"
    ),
    "doubles": notation(
        "Y[c,i] += X[c,2*i+k-1] * T[c,k]", {"i": 33}, X="f64[3,65]", T="f64[3,3]"
    ),
    "with an epilogue": notation(
        "T[i,j] += X[2*i+r-1,2*j+s-1] * W[r,s]; Y[i,j] = max(T[i,j] + b[i], 0.0)",
        {"i": 9, "j": 35}, X="f32[17,69]", W="f32[3,3]", b="f32[9]",
    ),
}  # fmt: skip

REPEATED: dict[str, Workload] = {
    "doubled": notation("Y[c,i,j] = X[c,i//2,j//2]", {"i": 10, "j": 70}, X="f32[2,5,35]"),
    "between": notation(
        "Y[i,j] = 0.5 * (X[i//2,j//2] + X[i//2,j//2+1])", {"i": 6, "j": 66}, X="f32[3,34]"
    ),
    "odd": notation("Y[i,j] = X[i,(j+1)//2]", {"j": 67}, X="f32[3,34]"),
    "three times": notation("Y[i,j] = X[i,j//3]", {"j": 99}, X="f32[3,33]"),
    "outside is zero": notation("Y[i,j] = X[i,j//2-1]", {"j": 70}, X="f32[3,33]"),
    "rows too": notation("Y[i,j] = X[j//2,i]", {"j": 34}, X="f32[17,40]"),
    "taken apart": notation("Y[i,j] = X[i,j%2,j//2]", {"j": 70}, X="f32[3,2,35]"),
    "bytes": notation("Y[i,j] = X[i,j//2]", {"j": 150}, X="i8[3,75]"),
    "quarters": notation(
        "Y[i,j] = 0.25 * (X[2*i,2*j] + X[2*i+1,2*j] + X[2*i,2*j+1] + X[2*i+1,2*j+1])",
        {"i": 5, "j": 37}, X="f32[10,74]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_every_setting_of_windows_computes_the_same(name: str, threads: int, bits: int) -> None:
    found = 0
    for sketch in space_for(WINDOWS[name], this_machine(threads, bits)).sketches:
        assert isinstance(sketch, ProgramSketch)
        found += any(isinstance(part, TileSketch) and part.lane_step > 1 for part in sketch.parts)
        for setting in (sketch.default(), *settings(sketch, 12, seed=5)):
            check_pair(Pair(name, WINDOWS[name], sketch.trace(setting), threads, bits))
    assert found


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_every_setting_of_repetitions_computes_the_same(name: str, threads: int, bits: int) -> None:
    for sketch in space_for(REPEATED[name], this_machine(threads, bits)).sketches:
        for setting in (sketch.default(), *settings(sketch, 4, seed=5)):
            check_pair(Pair(name, REPEATED[name], sketch.trace(setting), threads, bits))


def test_windows_that_do_not_overlap_are_walked_as_rows() -> None:
    workload = notation("Y[c,i] max= X[c,2*i+k]", {"k": 2}, X="f32[3,80]")
    (sketch,) = space_for(workload, this_machine(1, 512)).sketches
    assert isinstance(sketch, ProgramSketch)
    assert isinstance(sketch.parts[0], RowSketch)


def vectors_loaded(text: str, **shapes: str) -> list[str]:
    workload = notation(text, {"j": 16}, **shapes)
    target = this_machine(1, 512)
    (sketch,) = space_for(workload, target).sketches
    code = llvm_text(workload, sketch.trace(sketch.default()), target)
    return re.findall(r"load (<.*>|float),", code)


def test_phases_of_a_window_share_vectors() -> None:
    """Two neighbours of 16 lanes, two apart, are in the same two vectors, and not in four."""
    assert vectors_loaded("Y[j] = X[2*j] - X[2*j+1]", X="f32[32]") == ["<16 x float>"] * 2


def test_shared_vectors_lie_within_the_tensor() -> None:
    """The last element of a whole vector is behind the end: vectors end where lanes do."""
    assert len(vectors_loaded("Y[j] = X[2*j] - X[2*j+1]", X="f32[32]")) == 2
    assert len(vectors_loaded("Y[j] = X[2*j]", X="f32[31]")) == 2
    assert len(vectors_loaded("Y[j] = X[2*j] - X[2*j+1] * X[2*j+2]", X="f32[33]")) == 4


def test_what_is_taken_twice_is_loaded_once() -> None:
    assert vectors_loaded("Y[j] = X[j//2]", X="f32[8]") == ["<8 x float>"]
    assert vectors_loaded("Y[j] = X[(j+1)//2]", X="f32[16]") == ["<16 x float>"]
    assert set(vectors_loaded("Y[j] = X[(j+1)//2]", X="f32[9]")) == {"float"}
