"""Split, Fuse, Reorder, Partition and Extend: what they make of a nest, and when they refuse."""

from __future__ import annotations

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import applied, bias_relu, loop_names, matmul, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, plain_nest
from tilewright.schedules.nest.loop_ir import loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    CacheWrite,
    Extend,
    Fuse,
    Merge,
    Parallel,
    Partition,
    Reorder,
    RFactor,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace


def test_split_guards_where_the_factor_does_not_divide(golden: Golden) -> None:
    nest = applied(matmul(), Split("s0.d0", 4))
    assert to_text(nest) == golden
    assert loop_names(nest) == ["s0.d0o", "s0.d0i", "s0.d1", "s0.r0"]


def test_split_has_no_guard_where_the_factor_divides() -> None:
    assert "if" not in to_text(applied(matmul(), Split("s0.d1", 3)))


@pytest.mark.parametrize("factor", [1, 2, 5, 7, 100])
def test_any_factor_keeps_the_meaning_even_one_beyond_the_loop(factor: int) -> None:
    applied(matmul(), Split("s0.r0", factor), Split("s0.d0", factor))


def test_names_that_are_taken_get_a_number() -> None:
    nest = applied(
        matmul(), Split("s0.d0", 2), Split("s0.d0o", 2), Fuse("s0.d0oo", "s0.d0oi"),
        Split("s0.d0i", 1), Fuse("s0.d0io", "s0.d0ii"),
    )  # fmt: skip
    assert len(set(loop_names(nest))) == len(loop_names(nest))


def test_split_of_a_fused_loop_resolves_divisions_it_can(golden: Golden) -> None:
    nest = applied(matmul(), Fuse("s0.d0", "s0.d1"), Split("s0.d0f", 3))
    assert to_text(clean(nest)) == golden


def test_split_needs_a_loop_a_factor_and_a_serial_loop() -> None:
    nest = plain_nest(matmul())
    with pytest.raises(ScheduleError, match=r"no loop 'i'; the nest has s0\.d0, s0\.d1, s0\.r0"):
        Split("i", 2).apply(nest)
    with pytest.raises(ScheduleError, match=r"factor must be 1\.\.4096, the loop has 7"):
        Split("s0.d0", 0).apply(nest)
    with pytest.raises(ScheduleError, match="is parallel; this needs a serial loop"):
        Split("s0.d0", 2).apply(Parallel("s0.d0").apply(nest))


def test_fuse_makes_one_loop_of_two(golden: Golden) -> None:
    nest = applied(matmul(), Fuse("s0.d0", "s0.d1"))
    assert to_text(nest) == golden
    assert loop_names(nest) == ["s0.d0f", "s0.r0"]


def test_fuse_joins_reduction_loops_too() -> None:
    summed = notation("C[i] += A[i,j,k]", A="f32[3,4,5]")
    (_, fused) = loops(applied(summed, Fuse("s0.r0", "s0.r1")).body)
    assert fused.reduce
    assert fused.extent == 20


def test_fuse_needs_two_serial_loops_of_a_kind_one_right_inside_the_other() -> None:
    nest = plain_nest(matmul())
    with pytest.raises(ScheduleError, match=r"'s0\.r0' must be the whole body of 's0\.d0'"):
        Fuse("s0.d0", "s0.r0").apply(nest)
    with pytest.raises(ScheduleError, match="must be the whole body"):
        Fuse("s0.d1", "s0.d0").apply(nest)
    with pytest.raises(ScheduleError, match="one loop is spatial, the other a reduction loop"):
        Fuse("s0.d1", "s0.r0").apply(nest)
    with pytest.raises(ScheduleError, match="is unrolled; this needs a serial loop"):
        Fuse("s0.d0", "s0.d1").apply(Unroll("s0.d1").apply(nest))


def test_reorder_keeps_loops_that_are_not_named_in_place(golden: Golden) -> None:
    nest = applied(matmul(), Reorder(("s0.r0", "s0.d0")))
    assert loop_names(nest) == ["s0.r0", "s0.d1", "s0.d0"]
    assert to_text(nest) == golden


def test_the_first_update_stays_first_in_any_order() -> None:
    summed = notation("C[i] max= A[i,j] * B[j,k]", A="f32[3,4]", B="f32[4,2]")
    applied(summed, Split("s0.r0", 3), Reorder(("s0.r1", "s0.r0i", "s0.d0", "s0.r0o")))


def test_reorder_refuses_what_is_not_one_chain_of_serial_loops() -> None:
    nest = plain_nest(bias_relu())
    with pytest.raises(ScheduleError, match="name each loop once"):
        Reorder(("s0.d0", "s0.d0")).apply(nest)
    with pytest.raises(ScheduleError, match="name each loop once"):
        Reorder(()).apply(nest)
    with pytest.raises(ScheduleError, match=r"\['s1.d0'\] are not perfectly nested within"):
        Reorder(("s0.d0", "s1.d0")).apply(nest)
    with pytest.raises(ScheduleError, match="is unrolled"):
        Reorder(("s0.d0", "s0.d1")).apply(Unroll("s0.d1").apply(nest))


def test_reorder_refuses_where_the_order_of_writes_matters() -> None:
    # Each part of the outer reduction adds to what the part before it left.
    cached = Trace((Split("s0.r0", 2), CacheWrite("s0", "s0.d0", "w", False))).apply(
        plain_nest(matmul())
    )
    assert loop_names(Reorder(("s0.d1.out",)).apply(cached))
    with pytest.raises(ScheduleError, match="are not perfectly nested"):
        Reorder(("s0.r0o", "s0.d0")).apply(cached)


def test_partition_gives_the_rest_loops_of_its_own(golden: Golden) -> None:
    nest = applied(matmul(), Partition("s0.d0", 4))
    assert to_text(nest) == golden
    assert loop_names(nest)[3:] == ["s0.d0.t", "s0.d1.t", "s0.r0.t"]


def test_guards_vanish_from_the_part_where_they_hold() -> None:
    nest = applied(matmul(), Split("s0.d0", 4), Partition("s0.d0o", 1))
    text = to_text(clean(nest))
    assert "if" not in text
    assert "while" not in text
    assert "for s0.d0i.t in range(3):" in text


def test_the_rest_of_a_reduction_goes_on_with_the_sum() -> None:
    nest = applied(matmul(), Partition("s0.r0", 2))
    assert "first" not in to_text(clean(nest)).split("s0.r0.t")[1]


def test_buffers_in_the_rest_are_its_own() -> None:
    nest = applied(matmul(), CacheWrite("s0", "s0.d0", "w", False), Partition("s0.d0", 3))
    assert "alloc w.t:" in to_text(nest)


def test_partition_refuses_empty_parts_and_loops_that_do_not_run_in_order() -> None:
    nest = plain_nest(matmul())
    for at in (0, 7, -1):
        with pytest.raises(ScheduleError, match=r"at must be 1\.\.6"):
            Partition("s0.d0", at).apply(nest)
    with pytest.raises(ScheduleError, match="is parallel"):
        Partition("s0.d0", 2).apply(Parallel("s0.d0").apply(nest))
    with pytest.raises(ScheduleError, match=r"no loop 's0.d0.t'"):
        Partition("s0.d0.t", 2).apply(nest)


def test_a_vectorised_loop_is_not_cut() -> None:
    nest = Trace((Reorder(("s0.r0", "s0.d1")), Vectorize("s0.d1"))).apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match="is vectorized"):
        Partition("s0.d1", 2).apply(nest)


def test_factoring_comes_before_vectorising() -> None:
    steps = (Reorder(("s0.r0", "s0.d1")), Vectorize("s0.d1"))
    nest = Trace(steps).apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match="factor the reduction first, then vectorize"):
        RFactor("s0.r0", "p").apply(nest)


def test_further_iterations_of_a_loop_do_nothing() -> None:
    nest = applied(matmul(), Extend("s0.d0", 9), Extend("s0.r0", 8), Split("s0.d0", 4))
    assert [loop.extent for loop in loops(nest.body)] == [3, 4, 6, 8]


def test_extend_refuses_fewer_iterations_and_loops_that_do_not_run_in_order() -> None:
    nest = plain_nest(matmul())
    for extent in (6, 5000):
        with pytest.raises(ScheduleError, match=r"extent must be 7\.\.4096"):
            Extend("s0.d0", extent).apply(nest)
    with pytest.raises(ScheduleError, match="is parallel"):
        Extend("s0.d0", 8).apply(Parallel("s0.d0").apply(nest))


def test_a_shorter_loop_is_merged_with_a_longer_one() -> None:
    workload = notation("S[i] = X[i] * 2; Y[j] = X[j] + X[j+3]", {"j": 9}, X="f32[12]")
    first, second = (loop.var for loop in loops(plain_nest(workload).body))
    nest = applied(workload, Extend(second, 12), Merge(first, second))
    assert loop_names(nest) == [second]
