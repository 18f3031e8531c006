"""Planes at a distance of whole pages, and streams through rows of one page: what tiles wait for
although they prefetch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.schedules.spaces import target
from tilewright.costmodel.counts.counting import counts
from tilewright.costmodel.counts.table import Counts
from tilewright.schedules import operators
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.tile.memory import LATE_STORES
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.target import Cache
from tilewright.schedules.workload.workload import Workload

MACHINE = replace(
    target(1), caches=(Cache(1 << 15, 8), Cache(1 << 19, 8), Cache(1 << 24, 16, shared=True))
)

FLAT = {
    "tile_vectors": 2, "tile_rows": 6, "tile_rows2": 1, "row_blocks": 1, "row_blocks2": 1,
    "reduction_blocks": 1, "unroll_reduction": 1, "split_reduction": 1, "peel_remainders": 1,
    "pack_columns": 1,
}  # fmt: skip
ROWS_OF_WINDOWS = FLAT | {
    "pack_columns": 0,
    "unroll_reduction": 3,
    "unroll_window": 1,
    "peel_remainders": 0,
}


def pointwise(height: int) -> Workload:
    sizes = {"N": 1, "CI": 64, "CO": 128, "H": height, "W": 128, "K": 1}
    return operators.build("conv2d_nchw", sizes).normalised()


def depthwise(pad: int = 0) -> Workload:
    sizes = {"N": 1, "C": 64, "H": 128, "W": 128, "K": 3, "pad": pad}
    return operators.build("depthwise_conv2d_nchw", sizes).normalised()


def counted(workload: Workload, base: dict[str, int], **knobs: int) -> Counts:
    tile = space_for(workload, MACHINE).sketches[0].parts[0]
    assert isinstance(tile, TileSketch)
    asked = base | knobs
    setting: IntArray = np.asarray([[k.values.index(asked.get(k.name, 0)) for k in tile.knobs]])
    assert tile.feasible(setting)[0]
    return counts(tile, setting)


def exposed(workload: Workload, base: dict[str, int], **knobs: Any) -> float:
    return float(counted(workload, base, **knobs)["exposed_lines"][0])


@pytest.mark.parametrize("knob", ["prefetch_stores", "nontemporal_stores"])
def test_short_runs_at_a_stride_of_pages_wait_although_they_are_prefetched(knob: str) -> None:
    """Planes of 128x128 elements are 16 pages apart, planes of 129x128 are not."""
    plain, covered = (
        [exposed(pointwise(rows), FLAT, column_blocks=8, **some) for rows in (128, 129)]
        for some in ({}, {knob: 1})
    )
    assert covered[0] == plain[0]
    # each line is a run of its own
    lines = 128 * 129 * 128 * 4 / 64
    assert plain[1] - covered[1] == pytest.approx((1 - LATE_STORES) * 4 * (2 / 3) * lines)


def test_panels_are_packed_from_runs_of_a_whole_block() -> None:
    narrow, wide = (exposed(pointwise(129), FLAT, column_blocks=n) for n in (8, 1))
    assert wide < 0.4 * narrow  # runs of eight lines, and of one


def test_tests_at_the_edges_of_an_image_remain_in_tiles_that_blocks_share() -> None:
    base = ROWS_OF_WINDOWS | {"skip_padding": 1, "tile_vectors": 2, "tile_rows": 2}
    whole, halves = (counted(depthwise(pad=1), base, column_blocks=n) for n in (1, 2))
    assert whole["lost_ops"][0] == 0
    assert halves["lost_ops"][0] > 0.5 * halves["vector_ops"][0]


def test_prefetches_hardly_help_if_blocks_or_many_rows_end_the_stream_of_a_page() -> None:
    def saved(**knobs: int) -> float:
        plain = exposed(depthwise(), ROWS_OF_WINDOWS, **knobs)
        return 1.0 - exposed(depthwise(), ROWS_OF_WINDOWS, **knobs, prefetch=1) / plain

    stream = saved(tile_vectors=2, tile_rows=2, column_blocks=1)
    assert stream > 0.4  # the others are stores
    assert 0 < saved(tile_vectors=2, tile_rows=2, column_blocks=2) < 0.5 * stream
    assert 0 < saved(tile_vectors=1, tile_rows=7, column_blocks=1) < 0.5 * stream
