"""Phases of a transposed convolution that have fewer rows than others may lack a whole tile."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.counts.program import program
from benchmarks.counts.recount import recount
from tests.support.paths import example_target
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules import operators
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.sketches import space_for

USUAL = {
    "tile_vectors": 1, "tile_rows2": 1, "column_blocks": 1, "row_blocks": 1, "row_blocks2": 1,
    "reduction_blocks": 1,
    "unroll_reduction": 1, "row_tiles_innermost": 1, "parallel": 1, "split_reduction": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "knobs", "tasks", "counted"),
    [
        # Three rows or two, by phases, in tiles of two: two tiles or one.
        ((3, 3, 3, 3, 2, 1), {"tile_rows": 3, "tile_rows2": 2, "row_blocks2": 2}, 3, 1),
        # Four rows or three, in tiles of three and blocks of one tile, of five lines or four: a
        # test that leaves out a tile stands around its block, unless panels are packed in there.
        (
            (4, 3, 17, 5, 2, 1),
            {"tile_rows": 3, "row_blocks": 2, "row_blocks_outermost": 1},
            (5 + 4) / 5 * (2 + 1) / 2,
            1,
        ),
        (
            (4, 3, 17, 5, 2, 1),
            {
                "tile_rows": 3,
                "row_blocks": 2,
                "row_blocks_outermost": 1,
                "column_blocks": 2,
                "pack_columns": 1,
            },
            (5 + 4) / 5 * 2,
            10 / 7,
        ),
        # Seven rows or six, in tiles of two and blocks of two: the second of a block is cut off,
        # and where it stands alone no loop is left for a test.
        (
            (4, 6, 17, 3, 2, 0),
            {
                "tile_vectors": 2,
                "tile_rows": 2,
                "tile_rows2": 3,
                "row_blocks": 2,
                "row_blocks_outermost": 1,
                "peel_remainders": 2,
                "row_tiles_innermost": 0,
                "copy_rows": 1,
                "parallel": 2,
            },
            4 * 2,
            12 / 11,
        ),
    ],
)
def test_phases_without_a_tile_are_shorter_tasks(
    sizes: tuple[int, ...], knobs: dict[str, int], tasks: float, counted: float
) -> None:
    height, width, channels, taps, stride, pad = sizes
    workload = operators.build(
        "conv2d_transpose_nhwc",
        H=height, W=width, CI=3, CO=channels, K=taps, stride=stride, pad=pad,
    ).normalised()  # fmt: skip
    sketch = space_for(workload, example_target("znver5", 2)).sketches[0]
    (part,) = sketch.parts
    asked = USUAL | knobs
    setting = [knob.values.index(asked.get(knob.name, 0)) for knob in part.knobs]
    assert part.feasible(np.asarray([setting]))[0]
    nest = lower(workload, sketch.trace(setting))
    real = recount(program(nest, frozenset(stage.name for stage in workload.stages), nest.body))
    said = counts(part, np.asarray([setting]))
    assert real["tasks"] == pytest.approx(tasks)
    assert said["tasks"][0] == pytest.approx(tasks)
    # The nest skips updates of which nothing is used (`lowering/unread.py`), here those of tiles
    # that a shorter phase lacks, and where no test around a block does it the model counts them.
    assert said["vector_ops"][0] == pytest.approx(counted * real["vector_ops"])
