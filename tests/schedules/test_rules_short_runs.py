"""Row operands of short runs: prefetches for the next row of the image, and what goes without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules import operators
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.lowering.lower import clean, lower
from tilewright.schedules.nest.loop_ir import PrefetchHint, leaves
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

SMALL = replace(target(), caches=(Cache(512, 2), Cache(2048, 4), Cache(1 << 20, 16, shared=True)))
"""A machine whose caches are small: an image of a few pixels does not fit."""


def grouped(**sizes: int | str) -> Workload:
    base: dict[str, int | str] = {"N": 1, "H": 6, "W": 7, "CI": 48, "CO": 12, "K": 3, "groups": 3}
    return operators.build("conv2d_nhwc", base | sizes).normalised()


SHORT: dict[str, Workload] = {
    "padded": grouped(pad=1, CO=6),
    "stepped": grouped(pad=1, stride=2, H=9),
    "few taps": grouped(K=2, CO=24),
    "wide kernel": grouped(K=5, pad=2, H=5, CO=6),
    "dilated": grouped(dilation=2, pad=2, CO=6),
    "images": grouped(N=2, H=3, CO=6, pad=1),
    "volume": operators.build(
        "conv3d_ndhwc", D=3, H=4, W=5, CI=48, CO=6, K=2, groups=3
    ).normalised(),
}


def sketch_of(workload: Workload, machine: Target = SMALL) -> Sketch:
    return next(s for s in space_for(workload, machine).sketches if "tile" in s.name)


def tile_of(workload: Workload) -> TileSketch:
    sketch = sketch_of(workload)
    part = sketch.parts[0]
    assert isinstance(part, TileSketch)
    return part


def fetch_values(workload: Workload, machine: Target = SMALL) -> tuple[int, ...]:
    (knob,) = [k for k in sketch_of(workload, machine).knobs if k.name.endswith("prefetch")]
    return knob.values


def prefetched(sketch: Sketch | TileSketch) -> IntArray:
    at = next(n for n, knob in enumerate(sketch.knobs) if knob.name.endswith("prefetch"))
    settings = drawn(sketch, 60000)
    settings[:, at] = 1
    return settings[sketch.feasible(settings)]


def test_prefetches_are_offered_for_runs_that_nobody_foresees() -> None:
    assert fetch_values(SHORT["padded"]) == (0, 1)
    assert fetch_values(SHORT["padded"], target()) == (0,), "the image is in a core's cache"
    assert fetch_values(grouped(groups=1)) == (0,), "pixels lie one behind the other"
    assert fetch_values(grouped(CI=192, CO=6)) == (0,), "four lines in a row are foreseen"
    assert fetch_values(grouped(CI=12)) == (0,), "lines are shared with the next group"


@pytest.mark.parametrize("name", SHORT)
def test_settings_with_prefetches_are_legal_and_right(name: str) -> None:
    workload = SHORT[name]
    sketch = sketch_of(workload)
    settings = prefetched(sketch)[:6]
    assert len(settings)
    for setting in settings:
        nest = lower(workload, sketch.trace(tuple(int(i) for i in setting)))
        assert any(isinstance(leaf, PrefetchHint) and leaf.far for leaf in leaves(nest.body))
        check_meaning(workload, nest)


@pytest.mark.parametrize("name", ["padded", "stepped", "dilated", "wide kernel"])
def test_prefetches_are_loads_and_spare_waits(name: str) -> None:
    workload, tile = SHORT[name], tile_of(SHORT[name])
    program = ProgramSketch(tile.workload, (), (tile,))
    names = [knob.name for knob in tile.knobs]
    for setting in prefetched(tile)[:5]:
        nest = clean(lower(workload, program.trace(tuple(int(i) for i in setting))))
        written = {leaf.index for leaf in leaves(nest.body) if isinstance(leaf, PrefetchHint)}
        assert written
        plain = setting.copy()
        plain[names.index("prefetch")] = 0
        with_prefetches, without = (
            counts(tile, np.asarray([setting])),
            counts(tile, np.asarray([plain])),
        )
        assert with_prefetches["prefetches"] > without["prefetches"]
        assert with_prefetches["exposed_lines"] < without["exposed_lines"]


def test_rows_that_are_copied_are_not_late() -> None:
    tile = tile_of(SHORT["padded"])
    names = [knob.name for knob in tile.knobs]
    settings = drawn(tile, 60000)
    settings[:, [names.index("prefetch"), names.index("skip_padding")]] = 0
    settings[:, names.index("copy_rows")] = 1
    copied = settings[tile.feasible(settings)][:50]
    in_place = copied.copy()
    in_place[:, names.index("copy_rows")] = 0
    late = counts(tile, in_place)["exposed_lines"] - counts(tile, copied)["exposed_lines"]
    assert (late > 0).all()


def test_tiles_across_two_groups_ask_for_nothing() -> None:
    """An epilogue's columns are those of all groups."""
    layer = grouped(pad=1, CO=48, epilogue="bias+relu")
    assert fetch_values(layer) == (0,)
    tile = tile_of(layer)
    assert tile.short_runs
    assert tile.feasible(np.asarray([tile.default()]))[0]


def test_the_default_asks_ahead() -> None:
    tile = tile_of(SHORT["padded"])
    default = dict(zip((knob.name for knob in tile.knobs), tile.default(), strict=True))
    assert default["prefetch"] == 1
    assert default["copy_rows"] == 0
