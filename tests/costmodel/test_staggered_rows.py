"""What the prior knows of rows with math functions: latency, registers for halves, row ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.counts.rows import WAIT_FOR_A_ROW
from costmodel.prior import Analysis, Prior
from schedules import operators
from schedules.sketches import space_for
from schedules.workload.workload import Workload
from tests.schedule_fuzz.cases import notation
from tests.schedules.test_rules_spaces import target
from tuner.search.first_look import default_look


def softmax(rows: int, length: int) -> Workload:
    return operators.build("softmax_mn", M=rows, N=length)


def analysed(workload: Workload, bits: int = 512, registers: int = 32, **knobs: Any) -> Analysis:
    space = space_for(workload.normalised(), target(2, bits, registers))
    sketch = space.sketches[0]
    asked = {
        "vectors": 4,
        "parallel": 1,
        "split_k": 1,
        "block": 1,
        "merge": 1,
        "stagger": 1,
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
def test_staggered_exponentials_are_proposed_with_room_for_first_halves(
    rows: int, length: int
) -> None:
    space = space_for(softmax(rows, length).normalised(), target(2, 512, 32))
    chosen = default_look(space).default
    sketch = space.sketches[chosen.sketch]
    values = {k.name: k.values[i] for k, i in zip(sketch.knobs, chosen.setting, strict=True)}
    assert (values["stagger"], values["vectors"]) == (1, 4)


def test_a_body_needs_registers_and_several_functions_to_hide_their_latency() -> None:
    fixed = {n: analysed(softmax(512, 512), vectors=n).components[-1, 0] for n in (2, 4, 8)}
    assert fixed[4] < fixed[2] < fixed[8]
    values = notation("Y[i,j] = exp(X[i,j]) + X[i,j]", X="f32[512,512]")  # no sums: room for eight
    fixed = {n: analysed(values, vectors=n).components[-1, 0] for n in (2, 4, 8)}
    assert fixed[8] == pytest.approx(fixed[4])
    assert fixed[4] < fixed[2]


def test_math_functions_wait_for_no_accumulator() -> None:
    few, many = (analysed(softmax(512, 512), vectors=n) for n in (4, 8))
    assert pipes(few) < 1.01 * pipes(many)
    norm = notation("s[i] += A[i,k] * A[i,k]", A="f32[512,512]")
    few, many = (analysed(norm, vectors=n) for n in (4, 8))
    assert pipes(few) > 1.5 * pipes(many)  # nothing but sums: they do


def test_sums_of_all_joined_walks_are_in_registers() -> None:
    found = {n: float(analysed(softmax(512, 512), vectors=n).columns["live_registers"][0])
             for n in (2, 4, 8)}  # fmt: skip
    assert found == {2: 8.0, 4: 14.0, 8: 26.0}
    by_itself = analysed(softmax(512, 512), vectors=8, stagger=0)
    assert by_itself.columns["live_registers"][0] == 18.0


def test_a_block_of_staggered_rows_waits_once_for_the_ends_of_their_sums() -> None:
    def late(**knobs: int) -> float:
        return float(analysed(softmax(512, 128), **knobs).columns["exposed_lines"][0])

    assert late(block=1) == 512 * WAIT_FOR_A_ROW
    assert late(block=4) == 128 * WAIT_FOR_A_ROW
    assert late(block=4, stagger=0, merge=0) == 128 * WAIT_FOR_A_ROW


def test_blocks_of_long_rows_crowd_the_first_cache() -> None:
    def late(block: int, stagger: int) -> float:
        found = analysed(softmax(96, 4096), block=block, stagger=stagger)
        return float(found.columns["exposed_lines"][0])

    assert late(1, 0) < late(2, 0) < late(4, 0) + 96 * WAIT_FOR_A_ROW
    assert late(1, 1) < late(2, 1)


def test_nothing_waits_for_sums_after_which_no_walk_comes() -> None:
    norm = notation("s[i] += A[i,k] * A[i,k]; Y[i] = sqrt(s[i])", A="f32[96,4096]")
    assert analysed(norm, block=1).columns["exposed_lines"][0] == 0.0
    assert analysed(norm, block=4).columns["exposed_lines"][0] == 0.0
