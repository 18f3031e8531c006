"""A plan says which loops the lowered nest of a setting has, and trips follow from its steps."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.support.schedules.public_chains import public_chains
from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import notation
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.nest.finding import chain_to
from tilewright.schedules.nest.loop_ir import LoopKind, Nest, Update, leaves
from tilewright.schedules.plan import Level, LoopAxis, Outline, Plan
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.fused.rows import RowSketch
from tilewright.schedules.space import SpacePart

WHOLE = ("peel_remainders", "skip_padding", "fuse_packing")
"""Knobs whose first value cuts no loop at an edge."""

REDUCTIONS = {
    "product": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[36,64]", B="f32[64,96]"),
    "batched": notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[3,20,48]", B="f32[3,64,48]"),
    "window": notation(
        "Y[h,w,o] += X[h+r,w+s,c] * W[r,s,c,o]", X="f32[10,14,16]", W="f32[3,3,16,32]"
    ),
    "sums of products": notation("s[i] += A[i,k] * B[i,k]", A="f32[64,64]", B="f32[64,64]"),
    "norms of columns": notation("n[j] += X[i,j] * X[i,j]; Y[i,j] = X[i,j] / n[j]", X="f32[9,96]"),
    "weights by output": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[4,512]", B="f32[96,512]"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_plan_walks_as_far_as_the_nest(name: str) -> None:
    workload = REDUCTIONS[name].normalised()
    compared = 0
    for sketch in space_for(workload, target(threads=1)).sketches:
        part, *others = sketch.parts
        if others:  # a nest for each
            continue
        at = {knob.name: n for n, knob in enumerate(part.knobs)}
        settings = drawn(sketch, 4000)
        settings[:, [at[knob] for knob in WHOLE if knob in at]] = 0
        for setting in settings[sketch.feasible(settings)][:20]:
            check(part, setting, sketch.lowered(setting.tolist())[1])
            compared += 1
    assert compared


@pytest.mark.parametrize("limit", ["k <= i", "k >= i"])
def test_skipped_steps_are_in_the_loops_of_the_plan(limit: str) -> None:
    text = f"C[i,j] += where({limit}, A[i,k], 0) * B[k,j]"
    workload = notation(text, A="f32[48,48]", B="f32[48,96]").normalised()
    sketch = space_for(workload, target(threads=1)).sketches[0]
    (part,) = sketch.parts
    at = {knob.name: n for n, knob in enumerate(part.knobs)}
    settings = drawn(sketch, 20000)
    settings[:, [at[knob] for knob in WHOLE]] = 0
    settings[:, at["skip_padding"]] = 1
    good = settings[sketch.feasible(settings)][:20]
    assert len(good) == 20
    for setting in good:
        check(part, setting, sketch.lowered(setting.tolist())[1])


def check(part: SpacePart, setting: IntArray, nest: Nest) -> None:
    """The levels are the loops around the sum, in their order and of their kinds. Of rows, which
    say no kinds yet, all levels together have as many iterations as all loops."""
    plan = part.plan(setting[None])
    (sum_of, *_) = (leaf for leaf in leaves(nest.body) if isinstance(leaf, Update))
    chain = chain_to(nest.body, sum_of)
    assert chain is not None
    levels = zip(plan.trips[0].tolist(), plan.levels, strict=True)
    planned = [(trips, level.kind) for trips, level in levels if trips > 1]
    found = [(loop.extent, loop.kind) for loop in chain if loop.extent > 1]
    says_kinds = any(kind is not LoopKind.SERIAL for _, kind in planned)
    assert prod(n for n, _ in found) == prod(n for n, _ in planned), (part.name, setting.tolist())
    assert found == planned or not says_kinds, (part.name, setting.tolist())


def test_trips_follow_from_steps() -> None:
    axes = (LoopAxis("i", 37), LoopAxis("j", 100))
    levels = (Level(0, np.array([10, 37])), Level(1, 32), Level(0, 1), Level(1, 1))
    plan = Plan(Outline(axes, ()), levels, 2)
    assert plan.trips.tolist() == [[4, 4, 10, 32], [1, 4, 37, 32]]


def test_a_longer_step_inside_of_a_shorter_one_is_gone_over() -> None:
    """Steps of one, eight apart, inside of which eight neighbours follow each other."""
    levels = (Level(0, 32), Level(0, 1), Level(0, 8))
    plan = Plan(Outline((LoopAxis("k", 100),), ()), levels, 1)
    assert plan.trips.tolist() == [[4, 8, 4]]


def test_a_level_that_is_not_there_runs_once_and_makes_no_loop() -> None:
    there = np.array([True, False])
    levels = (Level(0, 4, present=there), Level(0, 2, present=~there), Level(0, 1))
    plan = Plan(Outline((LoopAxis("i", 8),), ()), levels, 2)
    assert plan.trips.tolist() == [[2, 1, 4], [1, 4, 2]]
    assert [level.step for level in plan.loops(1)] == [2, 1]


def test_a_level_as_wide_as_the_one_around_it_runs_once() -> None:
    plan = Plan(Outline((LoopAxis("k", 9),), ()), (Level(0, 4), Level(0, 4), Level(0, 1)), 1)
    assert plan.trips.tolist() == [[3, 1, 4]]


@pytest.mark.parametrize("name", public_chains())
def test_a_plan_of_rows_iterates_no_longer_than_its_passes(name: str) -> None:
    """Loops of several passes over the same data are one axis. A window of 2x2x2 elements may add
    its loops to those of the pass that computes them."""
    for sketch in space_for(from_notation(*public_chains()[name]), target(threads=1)).sketches:
        for part in sketch.parts:
            if isinstance(part, RowSketch):
                axes = part.plan(np.array([part.default()])).outline.axes
                longest = max(view.points for view in part.group.stages)
                assert prod(axis.extent for axis in axes) <= 8 * longest
