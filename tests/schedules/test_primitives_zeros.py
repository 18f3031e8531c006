"""SkipZeros: padding left out instead of computed, and when that is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import applied, check_meaning, convolution, matmul, notation
from tilewright.costmodel.counts.counting import program_counts
from tilewright.schedules.algebra.scalar import Select
from tilewright.schedules.algebra.scalar import walk as walk_scalar
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, lower
from tilewright.schedules.nest.loop_ir import Update, leaves, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    Partition,
    Reorder,
    SkipZeros,
    Unroll,
    Vectorize,
)
from tilewright.schedules.sketches.program import space_for
from tilewright.schedules.target import Target
from tilewright.tuner.machine.native_target import detect

CACHED = (
    Reorder(("s0.r0", "s0.r1", "s0.r2", "s0.d2")),
    CacheWrite("s0", "s0.d1", "acc", register=False),
)


def selects(nest: object) -> int:
    return sum(
        isinstance(node, Select)
        for leaf in leaves(nest.body)  # type: ignore[attr-defined]
        if isinstance(leaf, Update)
        for node in walk_scalar(leaf.value)
    )


def test_conditions_of_padding_become_guards(golden: Golden) -> None:
    workload = convolution()
    before = applied(workload, *CACHED)
    nest = applied(workload, *CACHED, SkipZeros("acc"))
    assert selects(before)
    assert not selects(nest)
    assert to_text(clean(nest)) == golden


def test_a_guard_of_outer_loops_is_tested_before_the_loop_starts() -> None:
    nest = clean(applied(convolution(), *CACHED, SkipZeros("acc")))
    bounded = {loop.var for loop in loops(nest.body) if loop.bounds}
    assert {"s0.r2", "s0.r1"} & bounded
    assert not any(leaf.guards for leaf in leaves(nest.body) if isinstance(leaf, Update))


def test_parts_of_a_loop_that_decide_the_padding_have_no_guard_left() -> None:
    row = notation("Y[w,o] += X[w+s-1,c] * W[s,c,o]", X="f32[12,3]", W="f32[3,3,4]")
    steps = (
        Reorder(("s0.r0", "s0.r1", "s0.d1")), CacheWrite("s0", "s0.d0", "acc", register=False),
        SkipZeros("acc"),
        Partition("s0.d0", 1), Partition("s0.d0.t", 10), Unroll("s0.r0.t"),
    )  # fmt: skip
    nest = clean(applied(row, *steps))
    inner = [leaf for leaf in leaves(nest.body) if isinstance(leaf, Update)]
    assert len(inner) == 3
    assert not inner[1].guards
    assert not selects(nest)


def test_the_identity_of_a_maximum_is_skipped_as_well() -> None:
    from tilewright.schedules import operators

    pool = operators.build("max_pool2d_nhwc", H=5, W=5, C=3, K=3, stride=2, pad=1).normalised()
    cached = (
        Reorder(("s0.r0", "s0.r1", "s0.d3")),
        CacheWrite("s0", "s0.d2", "acc", register=False),
    )
    nest = applied(pool, *cached, SkipZeros("acc"))
    assert not selects(nest)


def test_what_outer_loops_decide_is_skipped_and_the_copy_holds_the_other_zeros(
    golden: Golden,
) -> None:
    workload = convolution()
    steps = (
        Reorder(("s0.r0", "s0.r1", "s0.r2", "s0.d2")),
        CacheWrite("s0", "s0.d0", "acc", register=False),
        SkipZeros("acc", "s0.r1"),
        CacheRead("i0", "s0.d0", "rows"),
    )
    nest = applied(workload, *steps)
    inner = next(leaf for leaf in leaves(nest.body) if isinstance(leaf, Update) and leaf.guards)
    assert {name for cond in inner.guards for name in cond.index.vars()} == {"s0.d0", "s0.r0"}
    assert not selects(nest), "the copy has taken the choice with it"
    check_meaning(workload, nest)
    assert to_text(clean(nest)) == golden


def test_it_refuses_what_loops_around_do_not_decide() -> None:
    cached = (
        Reorder(("s0.r0", "s0.r1", "s0.r2", "s0.d2")),
        CacheWrite("s0", "s0.d0", "acc", register=False),
    )
    with pytest.raises(
        ScheduleError, match=r"no condition of padding depends only on loops around 's0\.r0'"
    ):
        applied(convolution(), *cached, SkipZeros("acc", "s0.r0"))
    with pytest.raises(ScheduleError, match="there is no loop 'q'"):
        applied(convolution(), *cached, SkipZeros("acc", "q"))
    with pytest.raises(ScheduleError, match="there is no buffer 'q'"):
        applied(convolution(), *cached, SkipZeros("q", "s0.r1"))
    with pytest.raises(ScheduleError, match="an update initialises 's0'; CacheWrite it first"):
        applied(convolution(), SkipZeros("s0", "s0.r1"))
    with pytest.raises(ScheduleError, match="no update writes 'i0'"):
        applied(convolution(), *cached, SkipZeros("i0", "s0.r1"))


def test_it_refuses_what_is_not_neutral() -> None:
    with pytest.raises(ScheduleError, match="there is no buffer 'q'"):
        applied(convolution(), SkipZeros("q"))
    with pytest.raises(ScheduleError, match="an update initialises 's0'; CacheWrite it first"):
        applied(convolution(), SkipZeros("s0"))
    tile = (Reorder(("s0.r0", "s0.d1")), CacheWrite("s0", "s0.d0", "acc", register=False))
    with pytest.raises(ScheduleError, match="no update of 'acc' has padding to skip"):
        applied(matmul(), *tile, SkipZeros("acc"))
    ones = notation("Y[i] += where(i+r >= 1, X[i+r-1], 1) * W[r]", {"i": 6}, X="f32[8]", W="f32[3]")
    cached = CacheWrite("s0", "s0.d0", "acc", register=False)
    with pytest.raises(ScheduleError, match="no update of 'acc' has padding to skip"):
        applied(ones, cached, SkipZeros("acc"))


def test_a_term_is_left_out_where_every_addend_is_padding() -> None:
    both = notation(
        "Y[i] += (where(i+r >= 1, X[i+r-1], 0) - where(i+r >= 1, Z[i+r-1] * V[r], 0)) * W[r]",
        {"i": 6}, X="f32[8]", Z="f32[8]", V="f32[3]", W="f32[3]",
    )  # fmt: skip
    cached = CacheWrite("s0", "s0.d0", "acc", register=False)
    nest = applied(both, cached, SkipZeros("acc"))
    assert not selects(nest)
    check_meaning(both, nest)
    text = "Y[i] += (where(i+r >= 1, X[i+r-1], 0) + Z[i]) * W[r]"
    one = notation(text, {"i": 6}, X="f32[8]", Z="f32[6]", W="f32[3]")
    with pytest.raises(ScheduleError, match="has padding to skip"):
        applied(one, cached, SkipZeros("acc"))


def test_lanes_that_padding_reaches_are_masked() -> None:
    row = notation("Y[w] += X[w+s-1] * W[s]", X="f32[16]", W="f32[3]")
    steps = (
        Reorder(("s0.r0", "s0.d0")),
        CacheWrite("s0", "", "acc", register=False),
        SkipZeros("acc"),
    )
    check_meaning(row, applied(row, *steps, Vectorize("s0.d0")))


@pytest.fixture(scope="module")
def target() -> Target:
    return detect()


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d_nhwc:N=1,H=7,W=9,CI=3,CO=17,K=3,pad=1",
        "conv2d_nhwc:N=2,H=8,W=11,CI=4,CO=8,K=5,stride=2,pad=2",
        "conv2d_nhwc:N=1,H=9,W=13,CI=4,CO=8,K=3,pad=2,dilation=2",
        "conv2d_nhwc:N=1,H=5,W=18,CI=3,CO=12,K=7,stride=2,pad=3",
        "conv3d_ndhwc:N=1,D=4,H=5,W=9,CI=2,CO=16,K=3,stride=2,pad=1,epilogue=bias+relu",
        "conv1d_nlc:N=1,L=12,CI=4,CO=8,K=3,stride=3,pad=2",
        "depthwise_conv2d_nhwc:N=1,H=6,W=10,C=20,K=3,pad=1",
        "conv2d_nhwc:N=1,H=6,W=9,CI=3,CO=9,K=3,pad=1,epilogue=bias+relu",
        "conv2d_nhwc:N=1,H=3,W=5,CI=4,CO=9,K=3,pad=1,dtype=i8",
        "conv2d_nhwc:N=1,H=3,W=5,CI=2,CO=8,K=3,pad=1,dtype=bf16",
    ],
)
def test_every_setting_that_skips_padding_means_the_same(spec: str, target: Target) -> None:
    from tilewright.schedules.spelling import parse_workload

    workload = parse_workload(spec).normalised()
    space = space_for(workload, target)
    sketch = space.sketches[0]
    at = [knob.name for knob in sketch.knobs].index("skip_padding")
    rng = np.random.default_rng(0)
    sizes = [len(knob.values) for knob in sketch.knobs]
    settings = rng.integers(0, sizes, (60000, len(sizes)))
    settings[:, at] = 1
    good = settings[sketch.feasible(settings)]
    assert len(good), "no feasible setting skips padding"
    copied = good[:, [knob.name for knob in sketch.knobs].index("copy_rows")] == 1
    for setting in (*good[~copied][:5], *good[copied][:5]):
        check_meaning(workload, lower(workload, sketch.trace(tuple(int(i) for i in setting))))


def test_an_integer_next_to_the_identity_is_not_neutral() -> None:
    """As floats they are the same number."""
    near = notation(
        "Y[i] max= where(i+r >= 1, X[i+r-1], -9223372036854775807)", {"i": 3, "r": 1}, X="i64[8]"
    )
    cached = CacheWrite("s0", "s0.d0", "acc", register=False)
    with pytest.raises(ScheduleError, match=r"has padding to skip|no update writes"):
        applied(near, cached, SkipZeros("acc"))


def test_packed_operands_take_their_padding_with_them(target: Target) -> None:
    shifted = notation("C[i,j] += A[i,k] * B[k-1,j]", A="f32[40,33]", B="f32[32,64]")
    sketch = space_for(shifted.normalised(), target).sketches[0]
    names = [knob.name for knob in sketch.knobs]
    rng = np.random.default_rng(0)
    settings = rng.integers(0, [len(knob.values) for knob in sketch.knobs], (20000, len(names)))
    if len(sketch.knobs[names.index("skip_padding")].values) > 1:
        settings[:, names.index("skip_padding")] = 1
    for setting in settings[sketch.feasible(settings)][:8]:
        sketch.trace(tuple(int(i) for i in setting))


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_no_vector_divides_have_tiles_under_an_epilogue(groups: int, target: Target) -> None:
    from tilewright.schedules import operators

    sizes = {"H": 9, "W": 9, "CI": 20 * groups, "CO": 20 * groups, "K": 3, "pad": 1}
    workload = operators.build("conv2d_nhwc", {**sizes, "groups": groups, "epilogue": "bias+relu"})
    assert "tile" in space_for(workload.normalised(), target).sketches[0].name


def test_copied_rows_are_skipped_where_outer_loops_decide(target: Target) -> None:
    """By the prior's columns, too: fewer steps, by the share of taps that meet the image."""
    from tilewright.schedules import operators

    workload = operators.build("conv2d_nhwc", H=9, W=40, CI=3, CO=16, K=5, pad=2).normalised()
    sketch = space_for(workload, target).sketches[0]
    names = [knob.name for knob in sketch.knobs]
    rng = np.random.default_rng(0)
    settings = rng.integers(0, [len(knob.values) for knob in sketch.knobs], (60000, len(names)))
    settings[:, names.index("copy_rows")] = 1
    settings[:, names.index("tile_rows2")] = 0
    settings[:, names.index("unroll_window")] = 0
    settings[:, names.index("skip_padding")] = 1
    skipping = settings[sketch.feasible(settings)]
    plain = skipping.copy()
    plain[:, names.index("skip_padding")] = 0
    assert len(skipping)
    assert sketch.feasible(plain).all()
    ops = [program_counts(sketch, settings)["vector_ops"] for settings in (skipping, plain)]
    fewer = ops[0] / ops[1]
    assert np.allclose(fewer, (9 * 5 - 6) / (9 * 5))
