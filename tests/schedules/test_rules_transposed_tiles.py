"""A tiled reduction whose result is transposed row by row: transposed convolutions with channels
first."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.transposed import Convolution
from tests.support.golden_text import Golden
from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.spaces import drawn, settings, target
from tests.support.schedules.transposed import ALL_SPELLINGS, random_convolution
from tests.support.schedules.workloads import check_meaning
from tilewright.costmodel.prior import Prior
from tilewright.schedules.nest.finding import buffers_in
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.operators import build
from tilewright.schedules.primitives import CacheRead, ComputeAt
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.transposed_tile.sketch import TransposedTileSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

FUSED = "tile_transpose"


def planes(epilogue: str = "", **sizes: int) -> Workload:
    base = {"N": 2, "H": 3, "W": 5, "CI": 3, "CO": 9, "K": 3, "stride": 2, "pad": 1}
    return build("conv2d_transpose_nchw", base | sizes, epilogue=epilogue).normalised()


IMAGES: dict[str, Workload] = {
    "two phases": planes(),
    "three phases along rows only": planes(H=6, stride_h=1, stride_w=3),
    "more phases than taps": planes(W=9, stride=4),
    "with an epilogue": planes(epilogue="bias+relu"),
    "grouped volumes": ALL_SPELLINGS["definition"](
        Convolution.of(
            3, size=(2, 3, 5), ci=4, co=16, kernel=3, stride=2, pad=1, out_pad=1, groups=2
        )
    ).normalised(),
}  # fmt: skip


def fused(workload: Workload, machine: Target) -> tuple[Sketch, ...]:
    sketches = space_for(workload, machine).sketches
    return tuple(s for s in sketches if any(part.name == FUSED for part in s.parts))


def part_of(sketch: Sketch) -> TransposedTileSketch:
    part = next(part for part in sketch.parts if part.name == FUSED)
    assert isinstance(part, TransposedTileSketch)
    return part


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", IMAGES)
def test_settings_keep_the_meaning(name: str, threads: int) -> None:
    (sketch,) = fused(IMAGES[name], target(threads))
    for setting in settings(sketch, 30, seed=threads):
        check_meaning(sketch.workload, sketch.lowered(setting)[1])


def test_one_row_of_all_channels_is_private_to_each_iteration(golden: Golden) -> None:
    workload = planes(W=8, CO=16)
    (sketch,) = fused(workload, target())
    trace, nest = sketch.lowered(sketch.default())
    assert sum(isinstance(step, ComputeAt) for step in trace.steps) == 1
    (row,) = (found for name, found in buffers_in(nest).items() if name == "s0")
    assert row.shape == (1, 1, 15, 16)
    shared = [loop for loop in loops(nest.body) if loop.kind is LoopKind.PARALLEL]
    assert 2 * 5 in [loop.extent for loop in shared]
    assert to_text(nest) == golden


def test_columns_are_packed_once_per_call() -> None:
    (sketch,) = fused(planes(), target())
    names = [knob.name for knob in sketch.knobs]
    for setting in settings(sketch, 60, seed=4):
        copies = [
            step
            for step in sketch.trace(setting).steps
            if isinstance(step, CacheRead) and step.name.startswith("s0.pack")
        ]
        packs = sketch.knobs[names.index("pack_columns")].values[
            setting[names.index("pack_columns")]
        ]
        assert [step.loop for step in copies] == [""] * packs


def test_the_unfused_stages_stay_in_the_space() -> None:
    names = [sketch.name for sketch in space_for(planes(), target()).sketches]
    assert names[0].endswith(FUSED)
    assert any(name.endswith("tile+transpose") for name in names)


@pytest.mark.parametrize(
    ("workload", "machine"),
    [
        (planes(CO=3), target()),  # too few channels for blocks
        (planes(stride=1), target()),  # no phases
        (planes(N=1, H=1, stride_h=1, K=1, pad=0), target()),  # a single row
        # A row does not fit half of the private caches.
        (planes(), replace(target(), caches=(Cache(512, 2), Cache(1 << 20, 16, shared=True)))),
    ],
)
def test_stages_that_do_not_profit_are_not_fused(workload: Workload, machine: Target) -> None:
    assert not fused(workload, machine)


def test_threads_divide_the_common_loops_or_none() -> None:
    (sketch,) = fused(planes(), target(threads=2))
    part, at = part_of(sketch), [knob.name for knob in sketch.knobs].index("parallel")
    found = drawn(sketch, 4000)
    for setting in found[sketch.feasible(found)][:20]:
        for parallel in (0, 1):
            setting[at] = parallel
            _, nest = sketch.lowered(setting.tolist())
            kinds = {loop.kind for loop in loops(nest.body)}
            assert (LoopKind.PARALLEL in kinds) == bool(parallel)
            levels = part.plan(setting[None]).levels
            divided = [np.any(level.is_parallel) for level in levels if level.role == "batches"]
            assert divided[: part.tiles.outer] == [bool(parallel)] * part.tiles.outer
            assert not any(divided[part.tiles.outer :])


def test_a_large_image_is_predicted_to_be_faster_in_one_pass() -> None:
    workload = build(
        "conv2d_transpose_nchw",
        {"N": 4, "H": 64, "W": 128, "CI": 32, "CO": 64, "K": 3, "stride": 2, "pad": 1},
    )
    space = space_for(workload, target())
    prior = Prior(space)
    secs = [
        float(prior.analyse(n, np.asarray([sketch.default()])).secs[0])
        for n, sketch in enumerate(space.sketches[:2])
    ]
    assert space.sketches[0].name.endswith(FUSED)
    assert secs[0] < secs[1]


@pytest.mark.parametrize("seed", range(12))
def test_kernels_of_random_convolutions_are_right(seed: int) -> None:
    """Strides of 1 to 5 in one to three dimensions, with dilation, padding and groups."""
    rng = random.Random(seed)
    threads, bits = rng.choice((1, 2)), rng.choice((128, 256, 512))
    while True:
        groups = rng.choice((1, 1, 2))
        convolution = replace(
            random_convolution(rng), first=True, batch=4, groups=groups,
            ci=groups * rng.choice((1, 2, 5)), co=groups * rng.choice((8, 9, 16, 17)),
        )  # fmt: skip
        if convolution.out[-1] < 8:
            continue
        workload = rng.choice([*ALL_SPELLINGS.values()])(convolution)
        sketches = fused(workload, this_machine(threads, bits))
        if sketches:
            break
    for setting in settings(sketches[0], 30, seed):
        check_pair(Pair("knobs", workload, sketches[0].trace(setting), threads, bits))
