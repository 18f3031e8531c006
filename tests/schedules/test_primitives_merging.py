"""Merge: two loops over one range become one, where no iteration meets another one's data."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import (
    applied,
    check_meaning,
    loop_names,
    matmul,
    notation,
    softmax,
)
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.loop_ir import Nest, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
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
from tilewright.schedules.workload.workload import Workload


def two_sums() -> Workload:
    return notation("S[i] += A[i,k]; T[i] += A[i,k] * A[i,k]; D[i] = T[i] - S[i] * S[i]",
                    A="f32[4,6]")  # fmt: skip


def chain(read: str) -> Workload:
    """A stage and one that reads it at `read`."""
    return notation(f"S[i] = A[i] + 1.0; C[i] = {read}", A="f32[8]")


def test_a_sum_is_taken_where_its_terms_are_computed(golden: Golden) -> None:
    nest = applied(
        softmax(4, 8), ComputeAt("s2", "s3.d0"), ComputeAt("s1", "s3.d0"),
        CacheWrite("s2", "s3.d0", "total"), Merge("s1.1", "s2.r0"),
    )  # fmt: skip
    assert to_text(nest) == golden
    assert "s1.1" not in loop_names(nest)


def test_vectors_and_what_is_unrolled_merge_as_well(golden: Golden) -> None:
    nest = applied(
        softmax(4, 8), RFactor("s2.r0", "wide"), ComputeAt("s2", "s3.d0"),
        ComputeAt("wide", "s3.d0"), ComputeAt("s1", "s3.d0"),
        Vectorize("s1.1"), Vectorize("wide.1"), Merge("s1.1", "wide.1"),
    )  # fmt: skip
    assert to_text(nest) == golden


def test_a_merged_loop_can_be_cut_in_parts() -> None:
    nest = applied(
        softmax(4, 7), ComputeAt("s2", "s3.d0"), ComputeAt("s1", "s3.d0"),
        CacheWrite("s2", "s3.d0", "total"), Split("s1.1", 2), Split("s2.r0", 2),
        Merge("s1.1o", "s2.r0o"), Merge("s1.1i", "s2.r0i"), Partition("s2.r0o", 3),
        Unroll("s2.r0i"), Parallel("s3.d0"),
    )  # fmt: skip
    assert "s2.r0o.t" in loop_names(nest)


def test_the_same_element_in_the_same_iteration_may_be_read() -> None:
    applied(chain("S[i]"), Merge("s0.d0", "s1.d0"))


@pytest.mark.parametrize("read", ["S[7-i]", "S[i//2] + A[i]", "S[i%4] + A[i]", "S[0] + A[i]"])
def test_what_another_iteration_leaves_is_not_there_yet(read: str) -> None:
    with pytest.raises(ScheduleError, match=r"an iteration of 's1.d0' may meet another one"):
        Merge("s0.d0", "s1.d0").apply(plain_nest(chain(read)))


def test_a_loop_goes_into_the_first_of_many_iterations(golden: Golden) -> None:
    """What stands in a loop of one iteration is as good as what stands outside of it."""
    steps = (
        Split("s0.d0", 2), Split("s0.d1", 4),
        Reorder(("s0.d1o", "s0.d0o", "s0.r0", "s0.d0i", "s0.d1i")),
        CacheRead("i1", "s0.d1o", "p"), CacheWrite("s0", "s0.d0o", "acc", register=True),
        Unroll("s0.d0i.init"), Unroll("s0.d1i.init"), Unroll("s0.d0i"), Unroll("s0.d1i"),
        Unroll("s0.d0i.out"), Unroll("s0.d1i.out"),
    )  # fmt: skip
    nest = Trace(steps).apply(plain_nest(matmul(6, 8, 5)))
    with pytest.raises(ScheduleError, match="in the same body"):
        Merge("p.0", "s0.r0").apply(nest)
    merged = applied(matmul(6, 8, 5), *steps, Partition("s0.d0o", 1), Merge("p.0", "s0.r0"))
    assert to_text(merged) == golden


def test_loops_in_allocations_of_one_body_merge() -> None:
    """Accumulators that are allocated one after the other are then allocated around both sums."""
    steps = (
        ComputeAt("s1", "s2.d0"), ComputeAt("s0", "s2.d0"),
        CacheWrite("s0", "s2.d0", "one"), CacheWrite("s1", "s2.d0", "other"),
    )  # fmt: skip
    nest = applied(two_sums(), *steps, Merge("s1.r0", "s0.r0"))
    assert [loop.var for loop in loops(nest.body) if loop.reduce] == ["s0.r0"]


def test_ranges_and_kinds_must_agree() -> None:
    nest = plain_nest(softmax(4, 8))
    with pytest.raises(ScheduleError, match=r"'s0.d0' has 4 iterations, 's1.d1' 8"):
        Merge("s0.d0", "s1.d1").apply(nest)
    with pytest.raises(ScheduleError, match=r"merged with itself"):
        Merge("s0.d0", "s0.d0").apply(nest)
    with pytest.raises(ScheduleError, match=r"'s0.d0' is unrolled and 's1.d0' serial"):
        Merge("s0.d0", "s1.d0").apply(Unroll("s0.d0").apply(nest))
    with pytest.raises(ScheduleError, match=r"'s0.d0' is parallel and 's1.d0' parallel"):
        Merge("s0.d0", "s1.d0").apply(Parallel("s1.d0").apply(Parallel("s0.d0").apply(nest)))


def test_the_second_comes_after_the_first_in_one_body() -> None:
    nest = plain_nest(softmax(4, 8))
    for first, second in (("s1.d0", "s0.d0"), ("s0.r0", "s1.d1")):
        with pytest.raises(ScheduleError, match=rf"'{second}' must follow '{first}'"):
            Merge(first, second).apply(nest)


def test_what_stands_between_must_not_need_the_first() -> None:
    with pytest.raises(ScheduleError, match=r"statement between the loops needs 's0'"):
        Merge("s0.d0", "s2.d0").apply(plain_nest(softmax(4, 8)))


def test_random_pairs_of_loops_keep_the_meaning() -> None:
    rng = random.Random(7)
    merged = 0
    for _ in range(300):
        workload = rng.choice([softmax(4, 8), softmax(3, 7), chain("S[i]"), chain("S[7-i]"),
                               chain("S[i//2] + A[i]"), two_sums()])  # fmt: skip
        nest = plain_nest(workload)
        for _ in range(rng.randint(1, 7)):
            step = random_step(rng, nest)
            try:
                nest = step.apply(nest)
            except ScheduleError:
                continue
            merged += isinstance(step, Merge)
        check_meaning(workload, nest)
    assert merged > 20


def random_step(rng: random.Random, nest: Nest) -> Any:
    names = [loop.var for loop in loops(nest.body)]
    one, other = rng.choice(names), rng.choice(names)
    stage = f"s{rng.randint(0, 2)}"
    merge = Merge(one, other)
    return rng.choice([Split(one, rng.randint(2, 4)), merge, merge, merge, ComputeAt(stage, one)])
