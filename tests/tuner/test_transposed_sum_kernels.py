"""Sums that read one tensor along the reduction and another across it: right at any size, and from
blocks that are transposed, with no element gathered."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.workloads import notation
from tilewright.costmodel.prior import Prior
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches.program import space_for
from tilewright.schedules.space import Sketch
from tilewright.schedules.workload.workload import Workload

SUMS = {
    "whole blocks": ("Y[i] += A[i,k] * B[k,i]", {"A": "f32[64,48]", "B": "f32[48,64]"}),
    "both ends": ("Y[i] += A[i,k] * B[k,i]", {"A": "f32[85,37]", "B": "f32[37,85]"}),
    "less than a block": ("Y[i] += A[i,k] * B[k,i]", {"A": "f32[9,11]", "B": "f32[11,9]"}),
    "one tensor twice": ("Y[i] += X[i,k] * X[k,i]", {"X": "f32[43,43]"}),
    "a batch": ("Y[b,i] += A[b,i,k] * B[b,k,i]", {"A": "f32[5,20,33]", "B": "f32[5,33,20]"}),
    "two reductions": ("Y[i] += A[i,c,k] * B[k,c,i]", {"A": "f32[30,3,18]", "B": "f32[18,3,30]"}),
    "the greatest": ("Y[i] max= A[i,k] - B[k,i]", {"A": "f32[40,24]", "B": "f32[24,40]"}),
    "with factors": (
        "Y[i] += A[i,k] * B[k,i] * V[k] + W[i]",
        {"A": "f32[33,20]", "B": "f32[20,33]", "V": "f32[20]", "W": "f32[33]"},
    ),
    "all into one": ("Y[0] += A[i,k] * B[k,i]", {"A": "f32[70,35]", "B": "f32[35,70]"}),
    "one for each": ("Y[b] += A[b,i,k] * B[b,k,i]", {"A": "f32[6,37,19]", "B": "f32[6,19,37]"}),
    "differences": ("Y[0] += (X[i,k] - X[k,i]) * (X[i,k] - X[k,i])", {"X": "f32[45,45]"}),
    "doubles": ("Y[i] += A[i,k] * B[k,i]", {"A": "f64[21,30]", "B": "f64[30,21]"}),
    "integers": ("Y[i] += A[i,k] * B[k,i]", {"A": "i32[21,30]", "B": "i32[30,21]"}),
}


def turned_sum(name: str, bits: int) -> tuple[Workload, Sketch]:
    text, tensors = SUMS[name]
    workload = notation(text, None, **tensors)
    sketch, *_ = space_for(workload, this_machine(2, bits)).sketches
    assert sketch.name == "transposed_sum"
    return workload, sketch


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("name", SUMS)
def test_every_setting_gives_the_same_sum(name: str, bits: int) -> None:
    workload, sketch = turned_sum(name, bits)
    rng = random.Random(5)
    drawn = [tuple(rng.randrange(len(k.values)) for k in sketch.knobs) for _ in range(3)]
    for setting in sorted({sketch.default(), *drawn}):
        check_pair(Pair("transposed sum", workload, sketch.trace(setting), 2, bits))


def test_sums_stay_in_registers_and_blocks_are_transposed() -> None:
    workload, sketch = turned_sum("whole blocks", 256)
    setting = tuple(len(k.values) - 1 for k in sketch.knobs)
    text = to_text(lower(workload.normalised(), sketch.trace(setting)))
    assert "alloc s0.acc1: f32[32]" in text
    assert "alloc s0.i0.block2: f32[8, 8]" in text
    assert "# parallel" in text
    assert "if " not in text


def test_it_is_expected_to_be_faster_than_gathering() -> None:
    for text in ("Y[i] += A[i,k] * B[k,i]", "Y[0] += A[i,k] * B[k,i]"):
        workload = notation(text, A="f32[512,512]", B="f32[512,512]")
        space = space_for(workload, this_machine(1, 256))
        assert [s.name for s in space.sketches] == ["transposed_sum", "rows"]
        ours, rows = (
            Prior(space).log2_secs(n, np.asarray([s.default()]))[0]
            for n, s in enumerate(space.sketches)
        )
        assert ours < rows


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        ("Y[i] += A[i,k] * V[k]", {"A": "f32[64,64]", "V": "f32[64]"}),
        ("Y[i] += A[k,i]", {"A": "f32[64,64]"}),
        ("Y[i,j] += A[i,k] * B[k,j]", {"A": "f32[64,64]", "B": "f32[64,64]"}),
        ("Y[i] += A[i,k] * B[k,i]", {"A": "f32[64,5]", "B": "f32[5,64]"}),
        ("Y[i] += where(k > i, A[i,k] * B[k,i], 0)", {"A": "f32[64,64]", "B": "f32[64,64]"}),
    ],
)
def test_what_reads_one_way_or_under_a_condition_is_left_to_others(
    text: str, tensors: dict[str, str]
) -> None:
    space = space_for(notation(text, None, **tensors), this_machine(1, 256))
    assert all(s.name != "transposed_sum" for s in space.sketches)
