"""Schedules that once came out wrong, or brought a primitive or the compiler down."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilewright as tw
from tests.support.schedule_fuzz.check import (
    CACHES,
    SMALL_CACHES,
    Pair,
    check_pair,
    this_machine,
)
from tests.support.schedules.spaces import settings
from tests.support.schedules.workloads import applied, bias_relu, matmul, notation, softmax
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, plain_nest
from tilewright.schedules.nest.loop_ir import Allocate, Stmt, StoreElement, transform, walk
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.operators import build
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Inline,
    Parallel,
    Prefetch,
    Primitive,
    Reorder,
    RFactor,
    Split,
    TransformLayout,
    Unroll,
    Vectorize,
)
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload


def holds(workload: Workload, *steps: Primitive, threads: int = 1, bits: int = 256) -> None:
    assert check_pair(Pair("steps", workload, Trace(steps), threads, bits))


def test_a_guard_stays_on_a_buffer_the_loops_would_leave() -> None:
    nest = applied(bias_relu(), Split("s0.d0", 2), Split("s1.d0", 2))
    text = to_text(clean(nest))
    assert "while s0.d0i + 2*s0.d0o <= 6" in text
    holds(bias_relu(), Split("s0.d0", 2), Split("s1.d0", 2))


def test_one_element_read_by_lanes_under_a_mask_is_zero_outside_it() -> None:
    triangle = notation("C[i,j] = where(i >= j, A[i], 0)", {"j": 9}, A="f32[9]")
    holds(triangle, Vectorize("s0.d1"))
    running = notation("C[i] += where(i >= k, A[k], 0)", {"i": 9}, A="f32[9]")
    holds(running, Reorder(("s0.r0", "s0.d0")), Vectorize("s0.d0"))


def test_padding_read_from_registers_is_zero() -> None:
    spread = notation("Y[i] = where(i%2 == 0, X[i//2], 0)", {"i": 10}, X="f32[5]")
    holds(spread, CacheRead("i0", "", "r", True), Unroll("s0.d0"), Unroll("r.0"))


@pytest.mark.parametrize("lanes", [12, 16, 17, 33, 64])
@pytest.mark.parametrize("condition", ["i < 2", "i + 3 >= j"])
def test_wide_masked_loads_with_lanes_that_are_never_read(lanes: int, condition: str) -> None:
    # LLVM 22 loads all of a half of a vector when it finds that half's mask to be empty.
    for known in (f"j < {lanes // 4}", f"j >= {lanes - 3}"):
        masked = notation(
            f"C[i,j] = where({known}, where({condition}, A[i,j], 0), 0)", A=f"f32[4,{lanes}]"
        )
        holds(masked, Vectorize("s0.d1"))


def test_a_parallel_region_gets_the_variables_of_open_loops_only() -> None:
    holds(bias_relu(), Split("s0.d0", 2), Parallel("s1.d0"), threads=2)


def test_prefetches_go_with_their_buffers() -> None:
    two = notation("T[i,j] = exp(A[i,j]); C[i] += T[i,j]", A="f32[7,8]")
    applied(two, Prefetch("s0", "s1.d0", 1), Inline("s0"))
    applied(two, Prefetch("s0", "s1.d0", 1), ComputeAt("s0", "s1.r0"))
    applied(
        matmul(), Reorder(("s0.r0", "s0.d1")), CacheRead("i0", "s0.r0", "p"),
        CacheRead("i1", "s0.r0", "q"), Prefetch("p", "s0.r0", 1),
    )  # fmt: skip


def test_prefetches_in_vector_loops_and_behind_divisions() -> None:
    copied = notation("C[i,j] = A[i,j] + 1", A="f32[7,8]")
    holds(copied, Prefetch("i0", "s0.d1", 1), Vectorize("s0.d1"))
    grouped = notation("C[i] = A[i//2]", {"i": 6}, A="f32[3]")
    holds(grouped, Split("s0.d0", 4), Prefetch("i0", "s0.d0i", 3))


def test_a_guard_is_not_dropped_for_reads_of_what_was_never_written() -> None:
    product = bias_relu(7, 3, 5)
    holds(
        product, Split("s0.d1", 3),
        TransformLayout("s0", ((0, 3), (1, 4)), ((1, 2), (0, 2), (1, 1), (0, 1))),
        CacheWrite("s0", "s0.d1o", "q3", False), Split("s1.d0", 3), Split("s1.d1", 3),
        Split("s0.d1i", 16), CacheWrite("s1", "", "q7", False),
    )  # fmt: skip
    holds(
        notation("C[i,j] += A[k,i] * B[k,j]", A="f32[65,17]", B="f32[65,2]"),
        CacheRead("i1", "s0.d0", "q8"), Split("q8.0", 16), CacheWrite("s0", "s0.r0", "q5", False),
        Split("s0.d0", 7),
    )  # fmt: skip


def test_buffers_that_a_moved_stage_reads_move_with_it() -> None:
    applied(softmax(), RFactor("s2.r0", "p"), ComputeAt("s2", "s3.d0"))
    copied = notation("T[i] = A[i] + 1; C[i,j] = T[i] * B[j]", A="f32[5]", B="f32[4]")
    nest = applied(copied, CacheWrite("s0", "", "w", False), Inline("s0"))
    names = {s.buffer.name for s in walk(nest.body) if isinstance(s, Allocate)}
    assert names == {"w"}


def test_axes_read_in_parts_are_divided_before_a_reduction_is_factored() -> None:
    summed = notation("S[i] += A[k//2, k%2] * B[k]", {"i": 3, "k": 26}, A="f32[13,2]", B="f32[26]")
    space = space_for(summed, this_machine(2))
    for sketch in space.sketches:
        trace = sketch.trace(sketch.default())
        assert check_pair(Pair("knobs", summed, trace, 2))


def every_drawn_setting_is_legal(workload: Workload, target: Target) -> None:
    for sketch in space_for(workload, target).sketches:
        for setting in settings(sketch, 400, seed=1):
            sketch.trace(setting)


def test_rows_of_one_element_are_not_pipelined_with_whole_rows() -> None:
    # The loop over the one element was to be merged with the loop over the row.
    x = tw.placeholder("x", (6, 40))
    least = x.min(axis=1, keepdims=True)
    value = (x - least).max(axis=1, keepdims=True) * 0.5
    for caches in CACHES:
        every_drawn_setting_is_legal(
            tw.Workload.of(value).normalised(), this_machine(1, 512, caches)
        )


def test_one_axis_of_quotients_and_remainders_is_vectorised() -> None:
    # The coefficient of the remainder was reduced, so that it did not match its quotient.
    same = notation("C[i] = A[i//40, i%40] * 2", {"i": 120}, A="f32[3,40]")
    every_drawn_setting_is_legal(same, this_machine(1, 512))


def test_a_panel_is_counted_along_the_axes_that_it_has() -> None:
    # It was counted along all axes of the reduction, and no tile fitted the last cache.
    wide = notation(
        "C[i] += A[j,k] * B[i%7, l%40]", {"i": 21, "l": 80}, A="f32[7,40]", B="f32[7,40]"
    )
    every_drawn_setting_is_legal(wide, this_machine(1, 512, SMALL_CACHES))


def test_a_small_cache_leaves_a_default_for_sliding_windows() -> None:
    # The default of operands beyond half of a cache had a loop order that windows do not offer.
    windows = build("depthwise_conv2d_nhwc", N=1, H=12, W=11, C=40, K=3, pad=1).normalised()
    every_drawn_setting_is_legal(windows, this_machine(2, 256, SMALL_CACHES))


def test_a_tensor_read_at_unrelated_places_is_not_packed() -> None:
    gram = notation("C[i,j] += A[i,k] * A[j,k]", A="f32[17,7]")
    target = this_machine(1)
    for sketch in space_for(gram, target).sketches:
        assert check_pair(Pair("knobs", gram, sketch.trace(sketch.default()), 1))


def test_a_guard_stays_where_the_write_behind_it_is_another_elements() -> None:
    # Parts of an axis overlap beyond their guards: element 3 is part 0's fourth and part 1's first.
    summed = notation("C[i] += A[i//3,k] * B[i%3,k] + 1", {"i": 12}, A="f32[4,5]", B="f32[3,5]")
    parts = (Split("s0.d0", 3), Split("s0.d0i", 2))
    holds(summed, *parts, CacheWrite("s0", "", "w", False))
    copied = notation("C[i] = A[i]", A="f32[12]")
    inside_out = Reorder(("s0.d0io", "s0.d0ii", "s0.d0o"))
    holds(copied, *parts, inside_out, CacheWrite("s0", "", "w", False))


def test_parts_that_end_by_a_guard_may_run_in_parallel() -> None:
    copied = notation("C[i] = A[i]", A="f32[12]")
    holds(copied, Split("s0.d0", 3), Split("s0.d0i", 8), Vectorize("s0.d0ii"), Parallel("s0.d0o"),
          threads=2)  # fmt: skip
    nest = Trace((Split("s0.d0", 3), Split("s0.d0i", 8))).apply(plain_nest(copied))
    unguarded = replace(nest, body=transform(nest.body, _without_guards))
    with pytest.raises(ScheduleError, match="may write the same element"):
        Parallel("s0.d0o").apply(unguarded)


def _without_guards(stmt: Stmt) -> tuple[Stmt, ...] | None:
    return (replace(stmt, guards=()),) if isinstance(stmt, StoreElement) else None


def test_both_sides_of_a_choice_are_kept_inside_when_a_guard_is_dropped() -> None:
    chosen = notation("C[i,j] += where(i + i < 9, A[k,i,j], A[k,i,j] + 1)", A="f32[5,7,31]")
    holds(
        chosen, Split("s0.d1", 16), Split("s0.d1i", 8),
        Reorder(("s0.d1o", "s0.r0", "s0.d1io", "s0.d1ii")), Vectorize("s0.d1ii"),
        Unroll("s0.d1io"), CacheWrite("s0", "s0.d1o", "w"),
    )  # fmt: skip


def test_the_unused_end_of_a_layout_is_not_copied() -> None:
    nest = Trace((TransformLayout("s2", ((0, 3),), ((0, 1), (0, 2))),)).apply(
        plain_nest(softmax(7, 5))
    )
    with pytest.raises(ScheduleError, match="parts of 's2' may never be written"):
        CacheRead("s2", "s3.d0o", "q").apply(Split("s3.d0", 3).apply(nest))


@pytest.mark.parametrize("lanes", [3, 33, 40, 48])
def test_functions_of_vectors_that_are_no_whole_registers(lanes: int) -> None:
    # An odd number of registers had none to join the last one with.
    exp = notation("C[i,j] = exp(A[i,j])", A=f"f32[2,{lanes}]")
    holds(exp, Vectorize("s0.d1"), bits=512)


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_tiles_that_do_not_come_out_even_end_a_loop(threads: int) -> None:
    # Each read of the reduction asked whether its tile was one of those behind the end.
    steps: tuple[Primitive, ...] = (
        Split("s0.d0", 6), Split("s0.d0i", 2), Split("s0.d1", 8),
        Reorder(("s0.d0o", "s0.d0io", "s0.d1o", "s0.r0", "s0.d0ii", "s0.d1i")),
        Vectorize("s0.d1i"), Unroll("s0.d0ii"), CacheWrite("s0", "s0.d1o", "acc", register=True),
    )  # fmt: skip
    if threads > 1:
        steps = (*steps, Parallel("s0.d0o"))
    nest = clean(applied(matmul(8, 16, 5), *steps))
    text = to_text(nest)
    assert "for s0.d0io in range(3) while s0.d0io + 3*s0.d0o <= 3:" in text
    assert " if " not in text
    holds(matmul(8, 16, 5), *steps, threads=threads)


def test_what_is_computed_before_a_guard_divides_no_statement() -> None:
    # exp(Z[j]) goes before the guard of a copy that may not run, in the middle of its statement.
    shifted = notation("Y[i,j] = X[i,j] - exp(Z[j])", X="f32[8,33]", Z="f32[33]")
    copied = CacheRead("i1", "s0.d0o", "P")
    holds(shifted, Split("s0.d0", 7), copied, Unroll("s0.d0i"), Vectorize("s0.d1"))
    # The same before a loop inside of an unrolled one.
    again = notation("Y[i,j] = X[i,j] * exp(Z[i,0])", X="f32[4,24]", Z="f32[4,1]")
    inner = (Split("s0.d1", 8), Vectorize("s0.d1i"), Unroll("s0.d0"))
    holds(again, *inner)
