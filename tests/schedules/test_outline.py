"""The plan in sentences: what a schedule does, one line a loop, a buffer or a piece of work."""

from __future__ import annotations

import pytest

from schedules.lowering.outline import plan_text
from schedules.sketches import space_for
from schedules.trace import Trace
from schedules.workload.workload import Workload
from tests.schedule_fuzz.cases import notation
from tests.schedules.test_rules_spaces import ODD, drawn, target
from tests.schedules.test_rules_spaces import workload as odd

PRODUCT = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[50,64]", B="f32[64,96]").named("product")


def first_plan(workload: Workload, threads: int = 1) -> str:
    (sketch, *_) = space_for(workload, target(threads)).sketches
    return plan_text(workload, sketch.trace(sketch.default()))


def test_a_product_in_tiles() -> None:
    assert (
        first_plan(PRODUCT)
        == """\
j: 2 x 48
  keep C.pack0 in memory: 2 x 64 x 24 of f32, 12 KiB
  copy B to C.pack0
  keep C.rows0 in memory: 51 x 64 of f32, 12.75 KiB
  copy A to C.rows0
  i: 17 x 3
    j: 2 x 24
      keep C.acc in registers: 3 x 24 of f32
      k: 64 (reduction)
        C.acc sum= mul of C.rows0, C.pack0: 3 i x 3 vectors of 8 j
      write C"""
    )


def test_threads_share_a_loop() -> None:
    assert first_plan(PRODUCT, threads=2).splitlines()[0].endswith("(shared by threads)")


def test_no_schedule_is_the_expression_as_it_stands() -> None:
    assert (
        plan_text(PRODUCT, Trace())
        == """\
i: 50
  j: 96
    k: 64 (reduction)
      C sum= mul of A, B"""
    )


@pytest.mark.parametrize("name", ODD)
def test_every_schedule_has_a_plan(name: str) -> None:
    workload = odd(name)
    for sketch in space_for(workload, target()).sketches:
        for setting in drawn(sketch, 40):
            if sketch.feasible(setting[None])[0]:
                text = plan_text(workload, sketch.trace(setting.tolist()))
                assert text
                assert all(line.strip() and "None" not in line for line in text.splitlines())
                break
