"""Kernels of long windows along the lanes: taps a vector apart are written out together."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.spaces import settings
from tests.support.schedules.workloads import notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import llvm_text

FILTER = notation("Y[i] += X[i+k] * T[k]", X="f32[331]", T="f32[64]")

CASES: dict[str, Workload] = {
    "filter": FILTER,
    "odd": notation("Y[i] += X[i+k] * T[k]", X="f32[237]", T="f32[41]"),
    "one more than a vector": notation("Y[i] += X[i+k] * T[k]", X="f32[99]", T="f32[17]"),
    "long": notation("Y[i] += X[i+k] * T[k]", X="f32[400]", T="f32[259]"),
    "rows": notation("Y[b,i] += X[b,i+k] * T[k]", X="f32[3,100]", T="f32[32]"),
    "padded": notation("Y[i] += X[i+k-20] * T[k]", {"i": 300}, X="f32[300]", T="f32[41]"),
    "padded rows": notation(
        "Y[b,i] += X[b,i+k-16] * T[k]", {"i": 200}, X="f32[2,200]", T="f32[32]"
    ),
    "sums": notation("Y[i] += X[i+k]", {"k": 35}, X="f32[300]"),
    "smallest": notation("Y[i] min= X[i+k]", {"k": 32}, X="f32[300]"),
    "dilated": notation("Y[i] += X[i+2*k] * T[k]", X="f32[300]", T="f32[40]"),
    "doubles": notation("Y[i] += X[i+k] * T[k]", X="f64[150]", T="f64[33]"),
    "with an epilogue": notation(
        "S[b,i] += X[b,i+k] * T[k]; Y[b,i] = max(S[b,i] + c[b], 0.0)",
        X="f32[2,140]", T="f32[36]", c="f32[2]",
    ),
}  # fmt: skip

SHORT = notation("Y[b,i] += X[b,i+k-2] * T[k]", {"i": 600}, X="f32[2,600]", T="f32[5]")


def parts(sketch: Sketch) -> list[TileSketch]:
    assert isinstance(sketch, ProgramSketch)
    return [part for part in sketch.parts if isinstance(part, TileSketch)]


def chosen(sketch: Sketch, **values: int) -> tuple[int, ...]:
    """The first setting that is feasible with these values of knobs."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    drawn = np.random.default_rng(0).integers(0, sizes, (20_000, len(sizes)))
    for n, knob in enumerate(sketch.knobs):
        if knob.name in values:
            drawn[:, n] = knob.values.index(values[knob.name])
    return tuple(int(i) for i in drawn[sketch.feasible(drawn)][0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_every_setting_computes_the_same(name: str, threads: int, bits: int) -> None:
    sketches = space_for(CASES[name], this_machine(threads, bits)).sketches
    assert any(part.step_distance > 1 for sketch in sketches for part in parts(sketch))
    for sketch in sketches:
        for setting in (sketch.default(), *settings(sketch, 15, seed=5)):
            check_pair(Pair(name, CASES[name], sketch.trace(setting), threads, bits))


@pytest.mark.parametrize(
    ("name", "unroll"),
    [
        *((name, 2) for name in ("filter", "odd", "long", "padded", "padded rows", "rows")),
        *((name, 3) for name in ("filter", "odd", "long", "padded")),
    ],
)
def test_steps_apart_compute_the_same(name: str, unroll: int) -> None:
    sketch = space_for(CASES[name], this_machine(1, 512)).sketches[0]
    (part,) = parts(sketch)
    knobs = {knob.name: knob for knob in part.knobs}
    for skip in knobs["skip_padding"].values:
        setting = chosen(sketch, unroll_reduction=unroll, skip_padding=skip)
        check_pair(Pair(name, CASES[name], sketch.trace(setting), 1, 512))


def test_a_tile_shares_what_steps_apart_read() -> None:
    """Four vectors and four taps apart: seven vectors, not sixteen."""
    target = this_machine(1, 512)
    workload = notation("Y[i] += X[i+k] * T[k]", X="f32[319]", T="f32[64]")
    (sketch,) = space_for(workload, target).sketches
    setting = chosen(
        sketch, tile_vectors=4, unroll_reduction=4, column_blocks=1, copy_rows=0, peel_remainders=0
    )
    code = llvm_text(workload, sketch.trace(setting), target)
    assert len(re.findall(r"load <16 x float>.*align 4$", code, re.MULTILINE)) == 7
    assert len(re.findall(r"call .*@llvm.fma.v16f32", code)) == 16


def test_taps_that_end_early_are_written_apart() -> None:
    """No step tests whether its taps are still there: those that are not have other code."""
    workload = CASES["odd"]
    (sketch,) = space_for(workload, this_machine(1, 512)).sketches
    for unroll in (2, 3):
        setting = chosen(
            sketch, unroll_reduction=unroll, column_blocks=1, copy_rows=0, peel_remainders=2
        )
        text = to_text(lower(workload.normalised(), sketch.trace(setting)))
        assert "if s0.r" not in text
        assert "while s0.r" not in text


def test_windows_of_a_step_or_with_rows_are_not_taken_apart() -> None:
    stepped = notation("Y[i] += X[2*i+k] * T[k]", {"i": 80}, X="f32[260]", T="f32[64]")
    shared = notation("Y[o,i] += X[i+k] * T[k,o]", X="f32[300]", T="f32[64,9]")
    short = notation("Y[i] += X[i+k] * T[k]", X="f32[300]", T="f32[16]")
    for workload in (stepped, shared, short):
        for sketch in space_for(workload, this_machine(1, 512)).sketches:
            assert all(part.step_distance == 1 for part in parts(sketch))


@pytest.mark.parametrize("tails", [0, 2])
def test_a_row_of_tiles_leaves_padding_out_at_its_ends(tails: int) -> None:
    (sketch,) = space_for(SHORT, this_machine(1, 512)).sketches
    found = 0
    for vectors in (1, 2, 4, 8):
        try:
            setting = chosen(sketch, skip_padding=1, tile_vectors=vectors, peel_remainders=tails)
        except IndexError:
            continue
        found += 1
        check_pair(Pair("short", SHORT, sketch.trace(setting), 1, 512))
    assert found == (0 if tails == 0 else 4)


def test_only_the_last_tiles_of_a_block_are_tested_where_threads_divide_the_columns() -> None:
    """Blocks of five tiles and of three and a part: the first three are whole in both."""
    workload = notation("Y[i] += X[i+k] * T[k]", X="f32[170]", T="f32[32]")
    (sketch,) = space_for(workload, this_machine(2, 512)).sketches
    setting = chosen(
        sketch,
        tile_vectors=1,
        column_blocks=2,
        parallel=1,
        peel_remainders=2,
        unroll_reduction=2,
        copy_rows=0,
        split_reduction=1,
    )
    text = to_text(lower(workload.normalised(), sketch.trace(setting)))
    whole, *rest = text.split("s0.d0io.t ")
    assert rest
    assert " if " not in whole
    assert " while " not in whole
    check_pair(Pair("divided", workload, sketch.trace(setting), 2, 512))
