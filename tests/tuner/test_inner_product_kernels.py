"""Kernels with lanes along the reduction: images of many channels of which few are made."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.paths import example_target
from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.spaces import settings
from tests.support.schedules.workloads import notation
from tilewright.schedules import operators
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import assembly_text

CASES: dict[str, Workload] = {
    "padded": notation(
        "Y[h,w,o] += X[h+r-1,w+s-1,c] * K[r,s,c,o]", {"h": 20, "w": 21}, X="f32[20,21,64]",
        K="f32[3,3,64,3]",
    ),
    "not whole vectors": notation(
        "Y[h,w,o] += X[h+r,w+s,c] * K[r,s,c,o]", X="f32[20,21,60]", K="f32[3,3,60,2]"
    ),
    "phases": operators.conv2d_transpose_nhwc(
        N=2, H=12, W=12, CI=64, CO=3, K=4, stride=2, pad=1
    ),
    "phases of three": operators.conv2d_transpose_nhwc(
        N=1, H=18, W=18, CI=64, CO=2, K=6, stride=3, pad=0
    ),
    "with an epilogue": notation(
        "T[h,w,o] += X[h+r-1,w+s-1,c] * K[r,s,c,o]; Y[h,w,o] = tanh(T[h,w,o] + b[o])",
        {"h": 24, "w": 24}, X="f32[24,24,64]", K="f32[3,3,64,3]", b="f32[3]",
    ),
    "doubles": notation(
        "Y[h,w,o] += X[h+r-1,w+s-1,c] * K[r,s,c,o]", {"h": 12, "w": 14}, X="f64[12,14,40]",
        K="f64[3,3,40,2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_every_setting_computes_the_same(name: str, threads: int, bits: int) -> None:
    sketches = space_for(CASES[name], this_machine(threads, bits)).sketches
    found = [sketch for sketch in sketches if "inner_product" in sketch.name]
    assert found
    for sketch in found:
        for setting in (sketch.default(), *settings(sketch, 8, seed=5)):
            check_pair(Pair(name, CASES[name], sketch.trace(setting), threads, bits))


def test_phases_of_a_tile_share_its_rows_without_a_spill() -> None:
    """Eight pixels by three channels are 24 sums, all in registers, each step of them 24 products:
    the parity of a pixel is known in the code. At the edges of the image, steps have conditions."""
    target = example_target("znver5")
    workload = CASES["phases"].normalised()
    sketch = next(s for s in space_for(workload, target).sketches if "inner_product" in s.name)
    names = [knob.name for knob in sketch.knobs]
    setting = [len(knob.values) - 1 for knob in sketch.knobs]
    assert sketch.knobs[names.index("tile_columns")].values[-1] == 8
    code = assembly_text(workload, sketch.trace(tuple(setting)), target)
    assert len(re.findall(r"vfmadd\w+\t.*zmm", code)) == 2 * 24


BLOCKS: dict[str, Workload] = {
    "weights by output": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[8,1024]", B="f32[48,1024]"),
    "batched doubles": notation(
        "C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f64[2,4,1024]", B="f64[2,12,1024]"
    ),
    "few columns": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[512,1024]", B="f32[1024,8]"),
    "layer": notation(
        "C[i,j] += A[i,k] * B[j,k]; Y[i,j] = max(C[i,j] + b[j], 0.0)",
        A="f32[16,1024]", B="f32[40,1024]", b="f32[40]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_blocks_of_the_reduction_compute_the_same(
    name: str, threads: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.schedules.sketches.inner_product.roles.MOST_BLOCK_COLUMNS", 8)
    machine = this_machine(threads, bits)
    first = replace(machine.caches[0], bytes=1 << 15)  # so that these are many rows anywhere
    machine = replace(machine, caches=(first, *machine.caches[1:]))
    tried = 0
    for sketch in space_for(BLOCKS[name], machine).sketches:
        places = [
            n for n, k in enumerate(sketch.knobs) if k.name.split(".")[-1] == "reduction_blocks"
        ]
        if "inner_product" not in sketch.name:
            continue
        for setting in settings(sketch, 24, seed=7):
            if setting[places[0]]:
                check_pair(Pair(name, BLOCKS[name], sketch.trace(setting), threads, bits))
                tried += 1
    assert tried > 2
