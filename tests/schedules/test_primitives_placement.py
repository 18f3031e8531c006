"""ComputeAt, Inline, RFactor and Prefetch: where stages are computed, and when that is refused."""

from __future__ import annotations

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import (
    applied,
    bias_relu,
    loop_names,
    matmul,
    notation,
    softmax,
)
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.loop_ir import Allocate, loops, walk
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    ComputeAt,
    Fuse,
    Inline,
    Parallel,
    Prefetch,
    Primitive,
    Reorder,
    RFactor,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace


def test_a_stage_is_computed_where_it_is_read(golden: Golden) -> None:
    nest = applied(bias_relu(), Split("s1.d1", 3), ComputeAt("s0", "s1.d1o"))
    assert to_text(nest) == golden
    assert loop_names(nest) == ["s1.d0", "s1.d1o", "s0.1", "s0.r0", "s1.d1i"]


def test_the_part_is_as_large_as_the_reads_need() -> None:
    blur = notation("T[i] = A[i] + 1; Y[i] = T[i-1] + T[i] + T[i+1]", A="f32[9]")
    nest = applied(blur, Split("s1.d0", 3), ComputeAt("s0", "s1.d0o"))
    (allocated,) = (s for s in walk(nest.body) if isinstance(s, Allocate))
    assert allocated.buffer.shape == (5,)


def test_a_chain_of_stages_moves_into_rows() -> None:
    applied(softmax(), *(ComputeAt(s, "s3.d0") for s in ("s2", "s1", "s0")))


def test_compute_at_says_why_not() -> None:
    nest = plain_nest(bias_relu())
    for buffer in ("s1", "i0"):
        with pytest.raises(ScheduleError, match=f"'{buffer}' is an argument of the kernel"):
            ComputeAt(buffer, "s1.d0").apply(nest)
    with pytest.raises(ScheduleError, match=r"there is no stage 'q'; there are \['s0', 's1'\]"):
        ComputeAt("q", "s1.d0").apply(nest)
    with pytest.raises(ScheduleError, match=r"'s0\.d0' does not read 's0'"):
        ComputeAt("s0", "s0.d0").apply(nest)
    scheduled = Unroll("s0.r0").apply(nest)
    with pytest.raises(ScheduleError, match="must be unscheduled"):
        ComputeAt("s0", "s1.d0").apply(scheduled)
    with pytest.raises(ScheduleError, match=r"'s1' is also read outside 's2\.d0'"):
        ComputeAt("s1", "s2.d0").apply(plain_nest(softmax()))


def test_a_stage_goes_into_its_readers(golden: Golden) -> None:
    nest = applied(notation("T[i,j] = A[i,j] * 2; C[i] += T[i,j]", A="f32[3,4]"), Inline("s0"))
    assert to_text(nest) == golden


def test_inline_is_for_plain_elementwise_stages() -> None:
    nest = plain_nest(bias_relu())
    with pytest.raises(ScheduleError, match="'s0' is not computed by one plain expression"):
        Inline("s0").apply(nest)
    with pytest.raises(ScheduleError, match="'s1' is an argument of the kernel"):
        Inline("s1").apply(nest)
    two = plain_nest(notation("T[i] = A[i] * 2; C[i] = T[i] + 1", A="f32[7]"))
    with pytest.raises(ScheduleError, match=r"must be unscheduled|not computed by one plain"):
        Inline("s0").apply(Split("s0.d0", 2).apply(two))


def test_partial_results_for_each_iteration(golden: Golden) -> None:
    summed = notation("C[i] += A[i,j]", A="f32[3,10]")
    nest = applied(summed, Split("s0.r0", 4), RFactor("s0.r0i", "p"))
    assert to_text(nest) == golden


@pytest.mark.parametrize("assign", ["+=", "*=", "max=", "min="])
def test_factored_reductions_leave_no_partial_result_without_a_value(assign: str) -> None:
    reduced = notation(f"C[i] {assign} A[i,j]", A="f32[3,5]")
    applied(reduced, Split("s0.r0", 8), RFactor("s0.r0i", "p"), Reorder(("s0.r0o", "s0.r0i")),
            Vectorize("s0.r0i"))  # fmt: skip


@pytest.mark.parametrize("assign", ["+=", "*=", "max=", "min="])
@pytest.mark.parametrize(
    "longer",
    [
        (Split("s0.d1", 8), Fuse("s0.d0", "s0.d1o")),
        (Split("s0.d1", 8), Fuse("s0.d0", "s0.d1o"), Split("s0.r0", 4)),
        (Split("s0.d1", 6), Fuse("s0.d0", "s0.d1o"), Reorder(("s0.r0", "s0.d0f", "s0.d1i"))),
    ],
)
def test_factored_reductions_keep_the_guards_of_loops_longer_than_their_axes(
    longer: tuple[Primitive, ...], assign: str
) -> None:
    reduced = notation(f"Y[i,j] {assign} X[i,j,k]", X="f32[3,5,6]")
    nest = Trace(longer).apply(plain_nest(reduced))
    loop = next(loop.var for loop in loops(nest.body) if loop.reduce)
    applied(reduced, *longer, RFactor(loop, "p"))


def test_rfactor_says_why_not() -> None:
    nest = plain_nest(matmul())
    with pytest.raises(ScheduleError, match=r"'s0\.d0' must be a serial loop of a reduction"):
        RFactor("s0.d0", "p").apply(nest)
    with pytest.raises(ScheduleError, match="the name 'i0' is in use"):
        RFactor("s0.r0", "i0").apply(nest)
    with pytest.raises(ScheduleError, match="split and reorder the spatial loops after RFactor"):
        RFactor("s0.r0", "p").apply(Split("s0.d0", 7).apply(nest))
    with pytest.raises(ScheduleError, match="must be a serial loop of a reduction"):
        RFactor("s0.r0", "p").apply(Unroll("s0.r0").apply(nest))


def test_prefetch_is_a_hint_for_a_later_iteration() -> None:
    nest = applied(matmul(), Prefetch("i1", "s0.r0", 2))
    assert "prefetch i1[s0.r0 + 2, s0.d1]" in to_text(nest)
    with pytest.raises(ScheduleError, match=r"must read 's0', ahead be 1\.\."):
        Prefetch("s0", "s0.r0", 1).apply(nest)
    with pytest.raises(ScheduleError, match=r"ahead be 1\.\."):
        Prefetch("i1", "s0.r0", 0).apply(nest)


def test_parallel_rows_with_stages_inside() -> None:
    applied(softmax(), *(ComputeAt(s, "s3.d0") for s in ("s2", "s1", "s0")), Parallel("s3.d0"))
    nest = Trace((Parallel("s3.d0"),)).apply(plain_nest(softmax()))
    assert ComputeAt("s2", "s3.d0").apply(nest)
