"""The plan in sentences: what a schedule does, one line a loop, a buffer or a piece of work."""

from __future__ import annotations

import pytest

from tests.support.schedules.spaces import ODD, drawn, target
from tests.support.schedules.spaces import workload as odd
from tests.support.schedules.workloads import notation
from tilewright.schedules.lowering.outline import plan_text
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    Reorder,
    Split,
    TransformLayout,
    Unroll,
    Vectorize,
)
from tilewright.schedules.sketches import space_for
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

PRODUCT = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[50,64]", B="f32[64,96]").named("product")


def first_plan(workload: Workload, threads: int = 1) -> str:
    (sketch, *_) = space_for(workload, target(threads)).sketches
    return plan_text(workload, sketch.trace(sketch.default()))


IN_TILES = Trace(
    (
        Split("s0.d0", 50),
        Split("s0.d0i", 5),
        Split("s0.d1", 48),
        Split("s0.d1i", 16),
        Split("s0.d1ii", 8),
        Reorder(
            ("s0.d1o", "s0.d0o", "s0.d0io", "s0.d1io", "s0.r0", "s0.d0ii", "s0.d1iio", "s0.d1iii")
        ),
        Vectorize("s0.d1iii"),
        Unroll("s0.d0ii"),
        Unroll("s0.d1iio"),
        CacheRead("i1", "s0.d1o", "s0.pack0"),
        TransformLayout("s0.pack0", split=((1, 16),), dims=((1, 1), (0, 0), (1, 2))),
        CacheWrite("s0", "s0.d1io", "s0.acc", register=True),
    )
)


def test_a_product_in_tiles() -> None:
    assert (
        plan_text(PRODUCT, IN_TILES)
        == """\
j: 2 x 48
  keep C.pack0 in memory: 3 x 64 x 16 of f32, 12 KiB
  copy B to C.pack0
  i: 10 x 5
    j: 3 x 16
      keep C.acc in registers: 5 x 16 of f32
      k: 64 (reduction)
        C.acc sum= mul of A, C.pack0: 5 i x 2 vectors of 8 j
      write C"""
    )


def test_what_is_copied_is_called_after_stage_and_tensor() -> None:
    plan = first_plan(notation("B[i,j] = A[j,i]", A="f32[32,32]"))
    assert "copy A to B.A.block" in plan


def test_threads_share_a_loop() -> None:
    assert first_plan(PRODUCT, threads=2).splitlines()[0].endswith("(divided among threads)")


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
                assert not any(line.strip().startswith(":") for line in text.splitlines())
                assert all(line.strip(": ") and "None" not in line for line in text.splitlines())
                break


def test_partial_sums_are_told_as_parts_of_their_axis() -> None:
    plan = first_plan(notation("s[i] += A[i,k]", A="f32[5,300]"))
    assert "  k: 9 x 32 (reduction)\n    s.wide.acc sum= A: 4 vectors of 8 k\n" in plan
