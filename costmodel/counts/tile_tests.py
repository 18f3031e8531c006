"""Tests of padding that stay in the steps of a tile."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import BoolArray
from tilewright.schedules.sketches.tile.loops import Values
from tilewright.schedules.sketches.tile.sketch import TileSketch

MOST_TESTS_MOVED = 3
"""Rows whose tests do not change in the innermost loop and cost nothing: LLVM tells them apart
ahead of it. Source: measured on a Zen 5; capsules, 8 rows with 2 at the edges, or 3 in each of
several tiles: no difference; 6 rows of a dilated window: 1,270 us, 715 with columns in their place.
"""


def chooses_sums(sketch: TileSketch, v: Values, s: Values) -> BoolArray:
    """(P,) whether padding along the second rows is left out by tests in each step of a loop: LLVM
    makes them choices between the sums of before and after, an operation for each update."""
    roles = sketch.roles
    skips = (v["skip_padding"] == 1) & (v["copy_rows"] == 0) & (v["tile_rows2"] > 1)
    # Tests in steps that are not repeated are branches, and cost next to nothing.
    skips &= v["unroll_reduction"] < roles.main.extent
    if len(roles.rows) < 2 or sketch.view.phase_steps or not skips.any():
        return np.zeros_like(skips)  # phases have tests of their own
    extent, tested = roles.rows[1].extent, sketch.rows_tested[v["unroll_window"]]
    # Any of several tiles may be at an edge.
    some = (s["row2_tiles"] > 1) & (tested > 0) & (tested < extent)
    tested = np.where(some, np.minimum(v["tile_rows2"], extent), tested)
    return np.asarray(skips & (tested > MOST_TESTS_MOVED))
