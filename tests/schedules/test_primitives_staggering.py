"""Stagger: steps of a loop's body for different iterations at once, where nothing is in the way."""

from __future__ import annotations

import random

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import applied, check_meaning, loop_names, notation, softmax
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
    Primitive,
    Split,
    Stagger,
    TransformLayout,
    Unroll,
)
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

ROWS: tuple[Primitive, ...] = (
    ComputeAt("s2", "s3.d0"), ComputeAt("s1", "s3.d0"), ComputeAt("s0", "s3.d0"),
    CacheWrite("s2", "s3.d0", "total"), CacheWrite("s0", "s3.d0", "top"), Merge("s1.1", "s2.r0"),
)  # fmt: skip


def rows(m: int, n: int, *steps: Primitive) -> Nest:
    return Trace((*ROWS, *steps)).apply(plain_nest(softmax(m, n)))


def chain(last: str) -> Workload:
    """Three sums, and what is made of them."""
    return notation(
        f"A[i] += X[i,j]; B[i] += X[i,j]*A[i]; C[i] += X[i,j]*B[i]; D[i,j] = {last}", X="f32[6,5]"
    )


def test_three_rows_are_at_work_at_once(golden: Golden) -> None:
    assert to_text(applied(softmax(6, 8), *ROWS, Stagger("s3.d0", ("s2.r0", "s3.d1")))) == golden


def test_walks_of_staggered_rows_merge(golden: Golden) -> None:
    nest = applied(
        softmax(6, 7), *ROWS, Stagger("s3.d0", ("s2.r0", "s3.d1")),
        Merge("s3.d1", "s2.r0"), Merge("s2.r0", "s0.r0"), Partition("s0.r0", 4),
    )  # fmt: skip
    assert to_text(nest) == golden


@pytest.mark.parametrize("m", [2, 3, 4, 9])
@pytest.mark.parametrize("starts", [("s2.r0",), ("s3.d1",), ("s2.r0", "s3.d1")])
def test_every_row_is_computed_once(m: int, starts: tuple[str, ...]) -> None:
    if m <= len(starts):
        with pytest.raises(ScheduleError, match=rf"must have more than {len(starts)} iterations"):
            Stagger("s3.d0", starts).apply(rows(m, 5))
        return
    nest = applied(softmax(m, 5), *ROWS, Stagger("s3.d0", starts))
    assert len(set(loop_names(nest))) == len(loop_names(nest))


def test_blocks_of_rows_shared_by_threads() -> None:
    applied(
        softmax(24, 5), Split("s3.d0", 12), Split("s3.d0i", 2), ComputeAt("s2", "s3.d0io"),
        ComputeAt("s1", "s3.d0io"), ComputeAt("s0", "s3.d0io"), CacheWrite("s2", "s2.0", "total"),
        CacheWrite("s0", "s0.0", "top"), Merge("s1.0", "s2.0"), Merge("s1.1", "s2.r0"),
        Stagger("s3.d0io", ("s2.0", "s3.d0ii")), Merge("s3.d0ii", "s2.0"), Merge("s2.0", "s0.0"),
        Merge("s3.d1", "s2.r0"), Merge("s2.r0", "s0.r0"), Parallel("s3.d0o"),
    )  # fmt: skip


def test_stagger_says_why_not() -> None:
    def refused(step: Primitive, match: str, *before: Primitive) -> None:
        nest = rows(6, 8, *before)
        with pytest.raises(ScheduleError, match=match):
            step.apply(nest)

    refused(Stagger("s3.d0", ()), "at least one loop")
    refused(Stagger("s3.d0", ("s3.d1", "s2.r0")), "'s2.r0' must be in 's3.d0', after")
    refused(Stagger("s3.d0", ("x",)), "'x' must be in 's3.d0'")
    refused(Stagger("s3.d0", ("s3.d1",)), "is unrolled", Unroll("s3.d0"))


@pytest.mark.parametrize("last", ["X[i,j] * A[i] + C[i]", "X[i,j] * B[i] + C[i]"])
def test_steps_that_are_no_neighbours_may_not_need_each_other(last: str) -> None:
    places = [ComputeAt(f"s{n}", "s3.d0") for n in (2, 1, 0)]
    nest = Trace(tuple(places)).apply(plain_nest(chain(last)))
    wanted = "s0" if "A[i]" in last else "s1"
    with pytest.raises(ScheduleError, match=f"both need '{wanted}', and one of them writes it"):
        Stagger("s3.d0", ("s1.r0", "s2.r0", "s3.d1")).apply(nest)
    check_meaning(chain(last), Stagger("s3.d0", ("s3.d1",)).apply(nest))


def test_random_cuts_keep_the_meaning() -> None:
    rng = random.Random(5)
    staggered = merged = 0
    for _ in range(150):
        workload = rng.choice([softmax(6, 4), softmax(5, 3), chain("X[i,j]*C[i]"),
                               chain("X[i,4-j]*C[i] + A[i]")])  # fmt: skip
        nest = plain_nest(workload)
        for n in (2, 1, 0)[: rng.choice((2, 3, 3, 3))]:
            nest = ComputeAt(f"s{n}", "s3.d0").apply(nest)
        for _ in range(6):
            names = [loop.var for loop in loops(nest.body)]
            cuts = tuple(rng.sample(names, min(rng.randint(1, 3), len(names))))
            step: Primitive = Stagger("s3.d0", cuts if rng.random() < 0.5 else cuts[:1])
            if rng.random() < 0.5:
                step = Merge(rng.choice(names), rng.choice(names))
            try:
                nest = step.apply(nest)
            except ScheduleError:
                continue
            staggered += isinstance(step, Stagger)
            merged += isinstance(step, Merge)
        check_meaning(workload, nest)
    assert staggered > 30
    assert merged > 5


SPREAD: tuple[Primitive, ...] = (
    ComputeAt("s0", "s1.d0"),
    TransformLayout("s0", ((1, 4),), ((0, 0), (1, 1), (1, 2))),
)


@pytest.mark.parametrize("staggered", [False, True])
def test_parts_that_are_never_written_are_not_copied(staggered: bool) -> None:
    """s0 has 8 elements in this layout, 7 are written, by both copies the same."""
    workload = notation(
        "T[i,r] = A[i,r] + 1.0; Y[i,j] += T[i,r] * B[r,j]", A="f32[3,7]", B="f32[7,5]"
    )
    steps = (*SPREAD, Stagger("s1.d0", ("s1.d1",))) if staggered else SPREAD
    nest = Trace(steps).apply(plain_nest(workload))
    check_meaning(workload, nest)
    with pytest.raises(ScheduleError, match="may never be written"):
        CacheRead("s0", "s1.d1", "p").apply(nest)
