"""What the prior knows of rows with math functions: latency, registers, row ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import notation
from tilewright.costmodel.analysis import Analysis
from tilewright.costmodel.prior import Prior
from tilewright.schedules import operators
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.search.prior_ranking import rank_for_default


def softmax(rows: int, length: int) -> Workload:
    return operators.build("softmax_mn", M=rows, N=length)


def analysed(workload: Workload, bits: int = 512, registers: int = 32, **knobs: Any) -> Analysis:
    space = space_for(workload.normalised(), target(2, bits, registers))
    sketch = space.sketches[0]
    asked = {
        "vectors": 4,
        "parallel": 1,
        "split_reduction": 1,
        "interleave_rows": 1,
        "software_pipelining": 1,
        **knobs,
    }
    setting = [
        k.values.index(asked[k.name]) if asked.get(k.name) in k.values else 0 for k in sketch.knobs
    ]
    row = np.asarray([setting])
    assert sketch.feasible(row)[0]
    return Prior(space).analyse(0, row)


def pipes(found: Analysis) -> float:
    return float(found.components[0, 0])


@pytest.mark.parametrize(("rows", "length"), [(512, 512), (1536, 128), (64, 32000), (992, 600)])
def test_exponentials_are_proposed_staggered(rows: int, length: int) -> None:
    space = space_for(softmax(rows, length).normalised(), target(2, 512, 32))
    chosen = rank_for_default(space).default
    sketch = space.sketches[chosen.sketch]
    values = {k.name: k.values[i] for k, i in zip(sketch.knobs, chosen.setting, strict=True)}
    assert values["software_pipelining"] == 1
    assert values["vectors"] in (1, 2, 4)  # with eight, no registers are left for first halves


def test_math_functions_wait_for_no_accumulator() -> None:
    few, many = (analysed(softmax(512, 512), vectors=n) for n in (4, 8))
    assert pipes(few) < 1.01 * pipes(many)
    norm = notation("s[i] += A[i,k] * A[i,k]", A="f32[64,4096]")
    few, many = (analysed(norm, vectors=n) for n in (4, 8))
    assert pipes(few) > 1.5 * pipes(many)  # nothing but sums: they do


def test_sums_of_all_joined_walks_are_in_registers() -> None:
    found = {n: float(analysed(softmax(512, 512), vectors=n).columns["live_registers"][0])
             for n in (2, 4, 8)}  # fmt: skip
    assert found == {2: 6.0, 4: 10.0, 8: 18.0}  # two sums, and what one copy reads
    by_itself = analysed(softmax(512, 512), vectors=8, software_pipelining=0)
    assert by_itself.columns["live_registers"][0] == 10.0


def test_a_block_of_rows_waits_once_for_the_ends_of_sums_and_staggered_ones_for_all_at_once() -> (
    None
):
    def late(**knobs: int) -> float:
        return float(analysed(softmax(512, 128), **knobs).columns["latency_cycles"][0])

    once = late(interleave_rows=1)
    assert once > 0
    assert late(interleave_rows=4) == once / 4
    assert late(interleave_rows=4, software_pipelining=0) == once / 2


@pytest.mark.parametrize(("length", "blocks"), [(4096, (1,)), (128, (1, 2, 4))])
def test_no_more_rows_are_at_work_than_the_first_cache_holds(
    length: int, blocks: tuple[int, ...]
) -> None:
    sketch = space_for(softmax(96, length).normalised(), target(2, 512, 32)).sketches[0]
    assert next(knob.values for knob in sketch.knobs if knob.name == "interleave_rows") == blocks


def test_nothing_waits_for_sums_after_which_no_walk_comes() -> None:
    norm = notation("s[i] += A[i,k] * A[i,k]; Y[i] = sqrt(s[i])", A="f32[96,4096]")
    assert analysed(norm, interleave_rows=1).columns["latency_cycles"][0] == 0.0
    assert analysed(norm, interleave_rows=4).columns["latency_cycles"][0] == 0.0
