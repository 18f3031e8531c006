"""Kernels of the transpose sketch: however pieces are walked, results are the same at any size."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.workloads import notation
from tilewright.costmodel.prior import Prior
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches.program import space_for
from tilewright.schedules.space import ScheduleSpace, Sketch
from tilewright.schedules.workload.workload import Workload

TURNED = {
    "whole": ("Y[i,j] = X[j,i]", {"X": "f32[128,64]"}),
    "both ends": ("Y[i,j] = X[j,i]", {"X": "f32[85,75]"}),
    "less than a block": ("Y[i,j] = X[j,i]", {"X": "f32[37,5]"}),
    "one long row": ("Y[i,j] = X[j,i] * 2", {"X": "f32[200,3]"}),
    "few long columns": ("Y[i,j] = X[j,i]", {"X": "f32[9,200]"}),
    "channels last": ("Y[n,h,w,c] = X[n,c,h,w]", {"X": "f32[2,19,5,21]"}),
    "channels first": ("Y[n,c,h,w] = X[n,h,w,c]", {"X": "f32[2,3,23,35]"}),
    "a batch of small ones": ("Y[b,i,j] = X[b,j,i]", {"X": "f32[6,20,18]"}),
    "outer axes move too": ("Y[k,j,i] = X[i,j,k]", {"X": "f32[34,3,41]"}),
    "with a straight read": (
        "Y[i,j] = max(X[j,i] + Z[i,j], 0) + V[j]",
        {"X": "f32[50,70]", "Z": "f32[70,50]", "V": "f32[50]"},
    ),
    "two of them": ("Y[i,j] = X[j,i] - Z[j,i]", {"X": "f32[49,33]", "Z": "f32[49,33]"}),
    "planes": ("Y[n,h,w,c] = X[n,c,h,w] * V[c]", {"X": "f32[2,37,7,7]", "V": "f32[37]"}),
    "to planes": ("Y[n,c,h,w] = X[n,h,w,c] + V[h,w]", {"X": "f32[2,6,11,34]", "V": "f32[6,11]"}),
    "one element left": ("Y[h,w,c] = X[c,h,w]", {"X": "f32[33,5,13]"}),
    "three axes as one": ("Y[c,d,h,w] = X[d,h,w,c]", {"X": "f32[3,4,5,18]"}),
    "beside itself": ("Y[i,j] = X[i,j] + 2 * X[j,i]", {"X": "f32[53,53]"}),
    "beside itself, one left": ("Y[i,j] = X[i,j] + 2 * X[j,i]", {"X": "f32[49,49]"}),
    "beside a part of itself": (
        "Y[b,i,j] = X[b,i,j] * X[b,j,i] + X[0,0,0] + V[j]",
        {"X": "f32[2,40,40]", "V": "f32[40]"},
    ),
    "doubles": ("Y[i,j] = X[j,i]", {"X": "f64[77,43]"}),
    "bytes": ("Y[i,j] = X[j,i]", {"X": "i8[90,70]"}),
    "interleaved planes": ("Y[c,d] = X[c*2+d%2,d//2]", {"X": "f32[6,37]"}),
    "interleaved in both axes": (
        "Y[n,c,h,w] = X[n,c*6+(h%2)*3+w%3,h//2,w//3] + V[c]",
        {"X": "f32[2,12,5,19]", "V": "f32[2]"},
    ),
    "interleaved far apart": ("Y[i,d] = X[d%4,i,d//4] * 2", {"X": "f32[4,3,33]"}),
    "interleaved with a straight read": (
        "Y[i,d] = X[i*2+d%2,d//2] - Z[i,d]",
        {"X": "f32[10,35]", "Z": "f32[5,70]"},
    ),
    "interleaved bytes": ("Y[i,d] = X[i*3+d%3,d//3]", {"X": "i8[9,67]"}),
    "to another type": ("Y[i,j] = f32(X[j,i])", {"X": "i8[60,70]"}),
}


def transposed(name: str, threads: int, bits: int) -> tuple[Workload, ScheduleSpace, Sketch]:
    """The workload called `name`, its space and the sketch that transposes it as it is written."""
    text, tensors = TURNED[name]
    workload = notation(text, None, **tensors)
    space = space_for(workload, this_machine(threads, bits))
    *_, sketch = (s for s in space.sketches if "transpose" in s.name)
    return workload, space, sketch


def setting(sketch: Sketch, **wanted: int) -> tuple[int, ...]:
    """The default with other values of some knobs: the nearest one there is."""
    return tuple(
        max(n for n, value in enumerate(k.values) if value <= wanted.get(k.name, k.values[at]))
        for k, at in zip(sketch.knobs, sketch.default(), strict=True)
    )


def drawn(sketch: Sketch, count: int) -> Sequence[tuple[int, ...]]:
    rng = random.Random(3)
    return [tuple(rng.randrange(len(k.values)) for k in sketch.knobs) for _ in range(count)]


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("name", TURNED)
def test_every_way_of_walking_gives_the_same(name: str, bits: int) -> None:
    workload, space, _ = transposed(name, 2, bits)
    for sketch in (s for s in space.sketches if "transpose" in s.name):
        chosen = {sketch.default(), *drawn(sketch, 3)}
        chosen |= {setting(sketch, tile_rows=4, tile_columns=4, buffer_output=c) for c in (0, 1)}
        for one in sorted(chosen):
            check_pair(Pair("transposed", workload, sketch.trace(one), 2, bits))


def test_a_collected_piece_is_written_in_whole_rows() -> None:
    workload, _, sketch = transposed("whole", 1, 256)
    one = setting(sketch, tile_rows=2, tile_columns=8, buffer_output=1)
    text = to_text(lower(workload.normalised(), sketch.trace(one)))
    assert "alloc s0.piece1: f32[8, 16, 8]" in text
    assert "= s0.piece1[" in text
    assert "if " not in text


def test_of_two_reads_of_a_tensor_one_is_transposed() -> None:
    workload, _, sketch = transposed("beside itself", 1, 256)
    text = " ".join(to_text(lower(workload.normalised(), sketch.trace(sketch.default()))).split())
    values = re.findall(r"(?<= s0)\[[^=]*\] = ([^=]*) 2\.0 \* (\S*)\[", text)
    assert len(values) == 4
    assert all(plain.startswith("i0[") for plain, _ in values)
    assert all(transposed.startswith("s0.i0.block") for _, transposed in values)


def test_pieces_need_not_divide_and_nothing_is_tested_in_a_whole_one() -> None:
    workload, _, sketch = transposed("both ends", 2, 256)
    assert {k.name: k.values for k in sketch.knobs}["tile_rows"] == (1, 2, 4, 8)
    for collect in (0, 1):
        one = setting(sketch, tile_rows=4, tile_columns=4, buffer_output=collect, parallel=1)
        text = to_text(lower(workload.normalised(), sketch.trace(one)))
        assert text.count("# parallel") == 2
        guarded = [line for line in text.splitlines() if line.strip().startswith("if ")]
        assert len(guarded) <= 2 * collect


def test_rows_a_page_apart_are_collected_or_streamed_first() -> None:
    def best(pitch: int) -> dict[str, int]:
        workload = notation("Y[i,j] = X[j,i]", X=f"f32[{pitch},512]")
        space = space_for(workload, this_machine(1, 256))
        sketch = space.sketches[0]
        settings = [
            setting(sketch, buffer_output=c, tile_rows=4, tile_columns=8, nontemporal_stores=0)
            for c in (0, 1)
        ]
        secs = [float(Prior(space).log2_secs(0, np.asarray([s]))[0]) for s in settings]
        chosen = settings[secs.index(min(secs))]
        return {k.name: k.values[n] for k, n in zip(sketch.knobs, chosen, strict=True)}

    assert best(1024)["buffer_output"] == 1
    assert best(1000)["buffer_output"] == 0
