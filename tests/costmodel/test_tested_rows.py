"""What the prior thinks of steps of a tile: padding that each tests, or copies hold, vectors that
wait."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import notation
from tilewright.costmodel.analysis import Analysis
from tilewright.costmodel.prior import COMPONENTS, Prior
from tilewright.schedules import operators
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload


def analysed(workload: Workload, **knobs: Any) -> Analysis:
    space = space_for(workload.normalised(), target(1, 512, 32))
    sketch = space.sketches[0]
    asked = {
        "tile_vectors": 2, "column_blocks": 1, "row_blocks": 1, "row_blocks2": 1,
        "reduction_blocks": 1,
        "unroll_reduction": 1, "split_reduction": 1, "row_tiles_innermost": 1, **knobs,
    }  # fmt: skip
    setting = [knob.values.index(asked.get(knob.name, 0)) for knob in sketch.knobs]
    row = np.asarray([setting])
    assert sketch.feasible(row)[0]
    return Prior(space).analyse(0, row)


def capsules() -> Workload:
    return operators.build("conv2d_capsule_nhwijc", N=1, H=8, W=8, CI=32, CO=32, K=3, pad=1)


def image(size: int) -> Workload:
    return operators.build("conv2d_nhwc", N=1, H=size, W=size, CI=64, CO=64, K=3, pad=1)


def windows(taps: int, stride: int = 1) -> Workload:
    sizes = {"N": 1, "H": 56, "W": 56, "C": 96, "K": taps, "stride": stride, "pad": taps // 2}
    return operators.build("depthwise_conv2d_nhwc", sizes)


WHOLE = {"tile_vectors": 1, "row_tiles_innermost": 0, "unroll_reduction": 3, "unroll_window": 0}


@pytest.mark.parametrize(
    ("workload", "knobs", "chooses"),
    [
        (
            capsules(),
            {"tile_rows": 4, "tile_rows2": 3, "peel_remainders": 2},
            False,
        ),  # three rows a tile
        (
            capsules(),
            {"tile_rows": 4, "tile_rows2": 3, "peel_remainders": 2, "unroll_window": 1},
            False,
        ),
        (capsules(), {"tile_rows": 1, "tile_rows2": 8}, False),  # one tile: two rows at the edges
        (capsules(), {"tile_rows": 1, "tile_rows2": 4}, True),  # two tiles: any of four
        (image(7), {"tile_rows": 1, "tile_rows2": 7, "unroll_window": 1}, True),  # copies differ
        (
            image(7),
            {"tile_rows": 1, "tile_rows2": 7, "unroll_window": 2, "tile_vectors": 1},
            False,
        ),  # no taps left
        (
            image(7),
            {"tile_rows": 7, "tile_rows2": 1, "unroll_window": 1},
            False,
        ),  # rows that tiles decide
        (
            windows(3),
            {"tile_rows": 2, "tile_rows2": 7, **WHOLE},
            False,
        ),  # no loop repeats the steps
    ],
)
def test_tests_choose_sums_where_there_are_too_many_to_move(
    workload: Workload, knobs: dict[str, int], chooses: bool
) -> None:
    found = analysed(workload, skip_padding=1, **knobs).columns
    assert (found["lost_ops"][0] >= found["vector_ops"][0] / 2) == chooses


def test_padding_that_is_the_same_for_all_lanes_is_tested_by_branches() -> None:
    """They take slots of the issue and no pipe."""
    tile = {**WHOLE, "tile_rows": 2, "tile_rows2": 7}
    tested, left_out = (analysed(windows(3), skip_padding=n, **tile) for n in (0, 1))
    assert tested.columns["test_ops"][0] > left_out.columns["test_ops"][0] == 0
    assert tested.columns["lost_ops"][0] == left_out.columns["lost_ops"][0]
    issue = COMPONENTS.index("issue")
    assert tested.components[issue, 0] > left_out.components[issue, 0]


def test_padding_along_the_lanes_is_tested_by_lanes() -> None:
    plane = notation(
        "Y[y,x] += where(x + d >= 1 and x + d < 65, X[y, x + d - 1], 0.0) * W[d]",
        {"y": 64, "x": 64}, X="f32[64,64]", W="f32[3]",
    )  # fmt: skip
    space = space_for(plane.normalised(), target(1, 512, 32))
    every = np.asarray(list(product(*(range(len(k.values)) for k in space.sketches[0].knobs))))
    found = Prior(space).analyse(0, every[space.sketches[0].feasible(every)]).columns
    assert not found["test_ops"].any()
    assert found["lost_ops"].any()


def test_capsules_are_read_in_place_rather_than_copied_with_their_padding() -> None:
    tile = {
        "tile_rows": 4,
        "tile_rows2": 3,
        "peel_remainders": 2,
        "unroll_window": 1,
        "skip_padding": 1,
    }
    in_place, copied = analysed(capsules(), **tile), analysed(capsules(), **tile, copy_rows=1)
    assert in_place.secs[0] < copied.secs[0]


@pytest.mark.parametrize(
    ("workload", "knobs", "waiting"),
    [
        (
            windows(3),
            {"tile_rows": 7, "tile_rows2": 1, "unroll_reduction": 3},
            18,
        ),  # for the next column of taps
        (
            windows(3),
            {"tile_rows": 4, "tile_rows2": 2, "unroll_reduction": 3},
            13,
        ),  # and one for the next row
        (
            windows(3, 2),
            {"tile_rows": 1, "tile_rows2": 7, "unroll_reduction": 3},
            6,
        ),  # for the row after the next
        (
            windows(3),
            {"tile_rows": 1, "tile_rows2": 1, "unroll_reduction": 3},
            0,
        ),  # nothing is shared
    ],
)
def test_vectors_that_taps_share_wait_for_them(
    workload: Workload, knobs: dict[str, int], waiting: int
) -> None:
    tile = {
        "tile_vectors": 1,
        "row_tiles_innermost": 0,
        "unroll_window": 1,
        "skip_padding": 1,
        **knobs,
    }
    found = analysed(workload, **tile)
    assert float(found.columns["kept_values"][0]) == waiting
