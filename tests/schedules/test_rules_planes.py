"""Images stored plane by plane: windows that are copied, lines that are prefetched before they are
stored, and planes that compete for cache sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.spaces import drawn, drawn_with, target
from tests.support.schedules.workloads import check_meaning
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules import operators
from tilewright.schedules.lowering.lower import clean, lower
from tilewright.schedules.nest.loop_ir import PrefetchHint, leaves
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import Prefetch, PrefetchStores
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache
from tilewright.schedules.workload.workload import Workload

SMALL = replace(target(), caches=(Cache(512, 2), Cache(2048, 4), Cache(1 << 20, 16, shared=True)))
"""A machine whose caches are small: an image of a few pixels does not fit."""


def planes(**sizes: int | str) -> Workload:
    base: dict[str, int | str] = {"N": 2, "H": 5, "W": 21, "CI": 3, "CO": 7, "K": 3}
    return operators.build("conv2d_nchw", base | sizes).normalised()


IMAGES: dict[str, Workload] = {
    "plain": planes(),
    "padded": planes(pad=1),
    "stepped": planes(stride=2, W=37, H=7),
    "dilated": planes(dilation=2, W=27, H=7),
    "fused": planes(pad=1, epilogue="bias+relu"),
    "line": operators.build("conv1d_ncl", N=2, L=70, CI=5, CO=9, K=4).normalised(),
}


def along_rows(workload: Workload) -> Sketch:
    """The sketch whose lanes are along the rows of the image."""
    for sketch in space_for(workload, SMALL).sketches:
        tile = sketch.parts[0]
        if isinstance(tile, TileSketch) and tile.windows and not tile.is_scattered:
            return sketch
    raise AssertionError("no sketch has windows along its columns")


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("knob", ["pack_columns", "prefetch_stores"])
def test_settings_that_copy_windows_or_prefetch_stores_are_right(name: str, knob: str) -> None:
    workload = IMAGES[name]
    sketch = along_rows(workload)
    (full,) = [k.name for k in sketch.knobs if k.name.split(".")[-1] == knob]
    for setting in drawn_with(sketch, full, 5):
        check_meaning(workload, lower(workload, sketch.trace(tuple(int(i) for i in setting))))


def test_windows_of_a_block_of_columns_are_copied_as_one_box(golden: Golden) -> None:
    workload = IMAGES["plain"]
    sketch = along_rows(workload)
    at = {knob.name: n for n, knob in enumerate(sketch.knobs)}
    found = drawn_with(sketch, "pack_columns", 400)
    some = found[(found[:, at["copy_rows"]] == 0) & (found[:, at["peel_remainders"]] == 0)][0]
    nest = clean(lower(workload, sketch.trace(tuple(int(i) for i in some))))
    assert to_text(nest) == golden


def test_tiles_prefetch_what_they_store_only_where_the_output_is_far() -> None:
    def values(workload: Workload, machine: object = SMALL) -> tuple[int, ...]:
        assert isinstance(machine, type(SMALL))
        (sketch, *_) = space_for(workload, machine).sketches
        return next(k.values for k in sketch.knobs if k.name == "prefetch_stores")

    product = operators.build("matmul", M=64, N=64, K=64).normalised()
    assert values(product) == (0, 1)
    assert values(product, target()) == (0,), "the output is in a core's caches"


def test_prefetches_of_stores_are_counted_and_spare_waits() -> None:
    (sketch, *_) = space_for(
        operators.build("matmul", M=60, N=96, K=8).normalised(), SMALL
    ).sketches
    tile = sketch.parts[0]
    names = [knob.name for knob in tile.knobs]
    at, seen = names.index("prefetch_stores"), 0
    for setting in drawn_with(sketch, "prefetch_stores", 8):
        trace = sketch.trace(tuple(int(i) for i in setting))
        assert any(isinstance(step, PrefetchStores) for step in trace.steps)
        nest = lower(sketch.workload, trace)
        seen += any(isinstance(leaf, PrefetchHint) for leaf in leaves(nest.body))
        without = setting.copy()
        without[at] = 0
        found = counts(tile, np.asarray([setting, without]))
        assert found["near_prefetches"][0] >= 60 * 96 * 4 / 64
        assert found["near_prefetches"][1] == 0
        assert found["exposed_lines"][0] < found["exposed_lines"][1]
    assert seen


def test_taps_do_not_compete_with_the_channels_for_cache_sets() -> None:
    """Windows of 3 x 3 in planes at a distance of a power of two: 16 planes are 16 rows. The rows
    of a window are in other sets, and its columns are in the same lines."""
    image = operators.build("conv2d_nchw", N=1, H=130, W=128, CI=16, CO=32, K=3).normalised()
    tile = next(
        part
        for sketch in space_for(image, target()).sketches
        for part in sketch.parts
        if isinstance(part, TileSketch) and part.windows and not part.is_scattered
    )
    settings = drawn(tile)
    settings = settings[tile.feasible(settings)]
    of_planes = [s for s in tile.memory(settings).strided if s.stride_bytes == 130 * 128 * 4]
    assert of_planes
    for strided in of_planes:
        assert np.max(strided.rows) == 16
        assert np.min(strided.row_lines) >= 3


WINDOWS: dict[str, Workload] = {
    "depthwise": operators.build("depthwise_conv2d_nchw", N=1, H=9, W=40, C=3, K=3).normalised(),
    "wide kernel": operators.build(
        "depthwise_conv2d_nchw", N=1, H=9, W=40, C=2, KH=3, KW=7
    ).normalised(),
    "channels last": operators.build(
        "depthwise_conv2d_nhwc", N=1, H=12, W=11, C=16, K=3, pad=1
    ).normalised(),
    "pooled": operators.build(
        "max_pool2d_nchw", N=2, H=12, W=44, C=2, K=3, stride=2, pad=1
    ).normalised(),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_the_next_rows_are_prefetched(name: str) -> None:
    workload, tested = WINDOWS[name], 0
    for sketch in space_for(workload, SMALL).sketches:
        if "prefetch" not in {knob.name for knob in sketch.knobs}:
            continue
        at = [knob.name for knob in sketch.knobs].index("prefetch")
        for setting in drawn_with(sketch, "prefetch", 6):
            without = setting.copy()
            without[at] = 0
            if not sketch.feasible(without[None])[0]:
                continue
            trace = sketch.trace(tuple(int(i) for i in setting))
            ahead = [step for step in trace.steps if isinstance(step, Prefetch)]
            assert {step.tensor for step in ahead} == {workload.inputs[0].name}
            check_meaning(workload, lower(workload, trace))
            found = counts(sketch.parts[0], np.asarray([setting, without]))
            assert found["near_prefetches"][0] > found["near_prefetches"][1]
            assert found["prefetches"].tolist() == [0, 0]
            assert found["exposed_lines"][0] < found["exposed_lines"][1]
            tested += 1
    assert tested


def test_windows_in_a_private_cache_are_not_prefetched() -> None:
    for workload in WINDOWS.values():
        for sketch in space_for(workload, target()).sketches:
            assert "prefetch" not in {knob.name for knob in sketch.knobs if len(knob.values) > 1}
