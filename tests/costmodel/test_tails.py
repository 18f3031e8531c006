"""What the prior knows of incomplete tiles: guards around rows, whole tiles of columns, balance."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import notation
from tilewright.costmodel.analysis import Analysis
from tilewright.costmodel.prior import COMPONENTS, Prior
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload


def product(m: int, n: int, k: int) -> Workload:
    return notation("C[i,j] += A[i,k] * B[k,j]", A=f"f32[{m},{k}]", B=f"f32[{k},{n}]")


def analysed(workload: Workload, threads: int, **knobs: Any) -> Analysis:
    space = space_for(workload, target(threads, 512, 32))
    sketch = space.sketches[0]
    asked = {
        "tile_vectors": 4, "tile_rows": 6, "tile_rows2": 1, "column_blocks": 1, "row_blocks": 1,
        "row_blocks2": 1,
        "reduction_blocks": 1, "unroll_reduction": 1, "peel_remainders": 2, "parallel": 1 if
        threads > 1 else 0, "split_reduction": 1,
        **knobs,
    }  # fmt: skip
    setting = [knob.values.index(asked.get(knob.name, 0)) for knob in sketch.knobs]
    row = np.asarray([setting])
    assert sketch.feasible(row)[0]
    return Prior(space).analyse(0, row)


def test_rows_that_threads_divide_into_a_short_last_block_are_not_cut_and_guards_are_dear() -> None:
    # 17 tiles of 6 rows in 4 blocks: 5, 5, 5, and of the last 2 one is whole.
    divided = {
        "row_blocks_outermost": 1,
        "row_blocks": 4,
        "column_blocks": 1,
        "reduction_blocks": 2,
    }
    guarded = analysed(product(100, 1008, 500), 2, **divided)
    alone = analysed(product(100, 1008, 500), 1, **divided)
    copied = analysed(product(100, 1008, 500), 2, **divided, copy_rows=1)
    even = analysed(product(100, 1008, 500), 2, **divided, tile_rows=5)
    deep = analysed(product(100, 1008, 500), 2, **{**divided, "reduction_blocks": 1})
    shares = [float(a.columns["masked_share"][0]) for a in (guarded, alone, copied, even, deep)]
    # The sums of two blocks of the reduction, one in 256 operations, are added up without a guard.
    assert shares == [255 / 256, 0.0, 0.0, 0.0, 1.0]
    loads = [float(a.components[COMPONENTS.index("loads"), 0]) for a in (guarded, copied)]
    assert loads[1] <= loads[0] / 1.99


def test_an_incomplete_tile_of_columns_is_computed_whole_where_threads_divide_columns() -> None:
    blocks = {"column_blocks": 4, "tile_rows": 5, "pack_columns": 1}
    divided = analysed(product(1000, 648, 512), 2, **blocks)
    alone = analysed(product(1000, 648, 512), 1, **blocks)
    ratio = divided.columns["vector_ops"][0] / alone.columns["vector_ops"][0]
    # 11 tiles of 4 vectors, 3 a block and one whole one in the last, against 41 vectors
    assert abs(ratio - 44 / 41) < 1e-9


def test_a_last_block_of_fewer_tiles_unbalances_the_threads() -> None:
    # 22 tiles of 48 columns in 8 blocks: 3, 3, 3, 3 against 3, 3, 3, 1.
    blocks = {"tile_vectors": 3, "tile_rows": 8, "column_blocks": 8, "pack_columns": 1}
    uneven = analysed(product(1024, 1024, 512), 2, **blocks)
    assert abs(uneven.imbalance[0] - 12 * 2 / 22) < 1e-9
    # Two blocks, one of them half as long, are still two threads' work.
    two = analysed(
        product(1024, 192, 512), 2, tile_vectors=4, tile_rows=6, column_blocks=2, pack_columns=1
    )
    assert abs(two.imbalance[0] - 2 * 2 / 3) < 1e-9


def test_whole_vectors_that_a_tile_lacks_are_tested_where_nothing_is_copied() -> None:
    # 6 vectors in tiles of 4. A mask of lanes, or a block of the reduction that ends, is no test.
    whole, ragged, deep = product(60, 96, 64), product(60, 95, 64), product(60, 64, 100)
    shares = [
        float(analysed(workload, 1, **knobs).columns["masked_share"][0])
        for workload, knobs in (
            (whole, {"peel_remainders": 0}),
            (whole, {}),
            (whole, {"peel_remainders": 0, "pack_columns": 1}),
            (ragged, {"peel_remainders": 0}),
            (deep, {"peel_remainders": 0, "reduction_blocks": 3}),
        )
    ]
    assert shares == [1.0, 0.0, 0.0, 0.0, 0.0]
