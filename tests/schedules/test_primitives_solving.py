"""Solve: what a nest is without a loop that a condition decides, and when that is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.interpreter.interpret import interpret
from tests.support.schedules.workloads import applied, loop_names, matmul, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, plain_nest
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.operators import build
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Inline,
    Partition,
    Primitive,
    Reorder,
    RFactor,
    Solve,
    Split,
    Unroll,
)
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload


def line(k: int = 4, stride: int = 2, pad: int = 1, size: int = 5, out: int = 10) -> Workload:
    """A transposed convolution along one axis."""
    at = f"(x + {pad} - r)"
    return notation(
        f"Y[x,o] += where({at} % {stride} == 0, X[{at}//{stride}, c], 0) * W[r,c,o]",
        {"x": out}, X=f"f32[{size},2]", W=f"f32[{k},2,3]",
    )  # fmt: skip


def image(k: int = 3) -> Workload:
    sizes = {"H": 3, "W": 4, "CI": 2, "CO": 3, "K": k, "stride": 2, "pad": 1}
    return build("conv2d_transpose_nhwc", sizes)


PHASES: tuple[Primitive, ...] = (Split("s0.d0", 2), Split("s0.r0", 2), Solve("s0.r0i"))


def test_taps_of_other_phases_go(golden: Golden) -> None:
    nest = applied(line(), *PHASES)
    assert to_text(nest) == golden
    assert loop_names(nest) == ["s0.d0o", "s0.d0i", "s0.d1", "s0.r0o", "s0.r1"]


def test_two_axes_one_after_the_other(golden: Golden) -> None:
    steps: list[Primitive] = []
    for n in (0, 1):
        steps += [Split(f"s0.d{n + 1}", 2), Split(f"s0.r{n}", 2), Solve(f"s0.r{n}i")]
    assert to_text(clean(applied(image(), *steps))) == golden


def test_a_ragged_last_tap_ends_its_loop() -> None:
    text = to_text(clean(applied(line(k=3), *PHASES)))
    assert "for s0.r0o in range(2) while 2*s0.r0o + (s0.d0i + 1)%2 <= 2:" in text


def test_outputs_that_no_tap_reaches_are_zero() -> None:
    few = line(k=2, stride=3, pad=0, out=14)
    nest = applied(few, Split("s0.d0", 3), Solve("s0.r0"))
    assert "if s0.d0i <= 1 else 0.0" in to_text(nest)
    applied(few, Solve("s0.r0"))
    only = notation(
        "Y[x] += where((x - r) % 4 == 0, X[(x - r)//4], 0) * W[r]",
        {"x": 9}, X="f32[3]", W="f32[3]",
    )  # fmt: skip
    text = to_text(clean(applied(only, Solve("s0.r0"))))
    assert "+=" not in text  # nothing is left to add up


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7])
def test_any_stride_and_kernel(stride: int, k: int) -> None:
    for pad in range(min(k, 3)):
        work = line(k, stride, pad, size=4, out=11)
        if stride == 1:
            assert "where" not in to_text(plain_nest(work))
            continue
        taps: tuple[Primitive, ...] = (
            (Split("s0.r0", stride), Solve("s0.r0i")) if k > stride else (Solve("s0.r0"),)
        )
        applied(work, *taps)
        applied(work, Split("s0.d0", stride), *taps)
        applied(work, *taps, Split("s0.d0", stride))


def test_the_output_may_be_split_before_or_after() -> None:
    (split, *taps) = PHASES
    for k in (3, 4):
        assert applied(line(k), split, *taps) == applied(line(k), *taps, split)


def test_a_step_of_the_tap_that_is_prime_to_the_stride() -> None:
    for step, sign in ((2, "+"), (2, "-"), (4, "-"), (5, "+")):
        at = f"(x + 1 {sign} {step}*r)"
        dilated = notation(
            f"Y[x] += where({at} % 3 == 0, X[{at}//3], 0) * W[r]",
            {"x": 10}, X="f32[7]", W="f32[5]",
        )  # fmt: skip
        applied(dilated, Split("s0.d0", 3), Split("s0.r0", 3), Solve("s0.r0i"))


def test_maxima_and_sums_of_terms_under_one_condition() -> None:
    at = "(x - r + 1)"
    greatest = notation(
        f"Y[x] += where({at} % 2 == 0, X[{at}//2], 0) * W[r] - where({at} % 2 == 0, W[r], 0)",
        {"x": 8}, X="f32[5]", W="f32[4]",
    )  # fmt: skip
    applied(greatest, Split("s0.d0", 2), Split("s0.r0", 2), Solve("s0.r0i"))
    integers = notation(
        f"Y[x] max= where({at} % 2 == 0, X[{at}//2], -128)", {"x": 8, "r": 4}, X="i8[5]"
    )
    applied(integers, Split("s0.d0", 2), Split("s0.r0", 2), Solve("s0.r0i"))
    times = notation(f"Y[x] *= where({at} % 2 == 0, X[{at}//2], 1)", {"x": 8, "r": 4}, X="i32[5]")
    applied(times, Split("s0.d0", 2), Split("s0.r0", 2), Solve("s0.r0i"))


def test_an_equation_leaves_a_condition_where_it_may_have_no_solution(golden: Golden) -> None:
    scattered = notation(
        "Y[x] += where(2*i + r == x + 1, X[i], 0) * W[r]", {"x": 8}, X="f32[4]", W="f32[4]"
    )
    nest = applied(scattered, Solve("s0.r1"))
    assert to_text(nest) == golden
    applied(scattered, Solve("s0.r1"), Split("s0.r0", 2), Solve("s0.r0i"))
    applied(scattered, Solve("s0.r0"))
    diagonal = notation("Y[x] += where(k == x, X[k], 0)", {"x": 9}, X="f32[5]")
    applied(diagonal, Solve("s0.r0"))


def test_solved_after_other_steps() -> None:
    (split, *taps) = PHASES
    applied(line(), split, Split("s0.r0", 2), Reorder(("s0.r0i", "s0.r0o", "s0.d1")), taps[-1])
    applied(line(), split, CacheWrite("s0", "s0.d0i", "acc", False), *taps)
    applied(line(), *taps, RFactor("s0.r0o", "p"))
    applied(line(3), *taps, RFactor("s0.r0o", "p"))
    applied(line(), split, Split("s0.r0", 2), Unroll("s0.r0o"), taps[-1])


def test_a_copy_of_padded_rows_needs_no_condition() -> None:
    nest = applied(line(), *PHASES, Reorder(("s0.d0i", "s0.d0o")), CacheRead("i0", "s0.d0i", "p"))
    (reduction,) = [text for text in to_text(nest).split("\n") if "+=" in text]
    assert "p[" in to_text(nest)
    assert "if" not in to_text(nest).split(reduction)[1]


def test_within_the_loops_of_what_uses_it() -> None:
    at = "(x + 1 - r)"
    fused = notation(
        f"T[x] += where({at} % 2 == 0, X[{at}//2], 0) * W[r]; Y[x] = max(T[x], 0)",
        {"x": 9}, X="f32[5]", W="f32[3]",
    )  # fmt: skip
    taps = (Split("s0.r0", 2), Solve("s0.r0i"))
    applied(fused, *taps, Split("s1.d0", 2), ComputeAt("s0", "s1.d0o"))
    applied(fused, Split("s1.d0", 2), ComputeAt("s0", "s1.d0i"), *taps)


def test_zeros_put_in_by_a_stage_of_their_own() -> None:
    upsampled = notation(
        "U[x] = where(x % 2 == 0, X[x//2], 0); Y[x] += U[x + r - 1] * W[r]",
        {"x": 9}, X="f32[5]", W="f32[3]",
    )  # fmt: skip
    applied(upsampled, Inline("s0"), Split("s1.d0", 2), Split("s1.r0", 2), Solve("s1.r0i"))


def test_products_with_inserted_zeros_are_left_out_even_if_the_weight_is_not_finite() -> None:
    work = line(k=2, stride=2, pad=0, size=2, out=4)
    x = np.ones((2, 2), np.float32)
    w = np.ones((2, 2, 3), np.float32)
    w[1] = np.inf
    (found,) = interpret(Trace((Solve("s0.r0"),)).apply(plain_nest(work)), [x, w])
    assert (found[0::2] == 2).all()
    assert (found[1::2] == np.inf).all()


def test_solve_says_why_not() -> None:
    plain = plain_nest(line())
    with pytest.raises(ScheduleError, match=r"there is no loop 'q'; the nest has s0\.d0"):
        Solve("q").apply(plain)
    with pytest.raises(ScheduleError, match=r"loop 's0\.d0' is not a reduction loop"):
        Solve("s0.d0").apply(plain)
    undecided = r"no equation that guards every term determines 's0\.r0'"
    with pytest.raises(ScheduleError, match=undecided):
        Solve("s0.r0").apply(plain)  # two taps a phase
    with pytest.raises(ScheduleError, match=undecided):
        Solve("s0.r0").apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match="is unrolled; this needs a serial loop"):
        Solve("s0.r0").apply(Unroll("s0.r0").apply(plain))
    at_least_zero = notation(
        "Y[x] += where((x - r) % 2 == 0, X[r], 1) * W[r]", {"x": 8}, X="f32[2]", W="f32[2]"
    )
    with pytest.raises(ScheduleError, match=undecided):
        Solve("s0.r0").apply(plain_nest(at_least_zero))
    one_of_two = notation(
        "Y[x] += where((x - r) % 2 == 0, X[r], 0) + W[r]", {"x": 8}, X="f32[2]", W="f32[2]"
    )
    with pytest.raises(ScheduleError, match=undecided):
        Solve("s0.r0").apply(plain_nest(one_of_two))
    greatest = notation("Y[x] max= where((x - r) % 2 == 0, X[r], 0)", {"x": 8}, X="f32[2]")
    with pytest.raises(ScheduleError, match=undecided):
        Solve("s0.r0").apply(plain_nest(greatest))
    even = notation("Y[x] += where((x + 2*r) % 4 == 0, X[r], 0)", {"x": 8}, X="f32[2]")
    with pytest.raises(ScheduleError, match=undecided):
        Solve("s0.r0").apply(plain_nest(even))


def test_solve_needs_one_reduction_inside() -> None:
    cached = Trace((Split("s0.r0", 2), CacheRead("i1", "s0.r0i", "p"))).apply(plain_nest(line()))
    with pytest.raises(ScheduleError, match="must contain a single reduction"):
        Solve("s0.r0i").apply(cached)


@pytest.mark.parametrize(
    "steps",
    [
        (Partition("s0.r0", 1), Solve("s0.r0.t")),
        (Partition("s0.r0", 1), Split("s0.r0.t", 2), Solve("s0.r0.ti")),
    ],
)
def test_what_a_partition_left_is_never_the_first_update(steps: tuple[Primitive, ...]) -> None:
    apart = notation(
        "Y[x] += where((x-r) % 2 == 0, X[(x-r)//2 + 1], 0) * W[r]",
        {"x": 6}, X="f32[8]", W="f32[3]",
    )  # fmt: skip
    applied(apart, *steps)
