"""A plan says which loops the lowered nest of a setting has, and trips follow from its steps."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from schedules.arrays import IntArray
from schedules.nest.finding import chain_to
from schedules.nest.loop_ir import Nest, Update, leaves
from schedules.plan import Axis, Level, Outline, Plan
from schedules.sketches import space_for
from schedules.space import Part
from tests.schedule_fuzz.cases import notation
from tests.schedules.test_rules_spaces import drawn, target

WHOLE = ("tails", "skip_padding", "pack_on_the_way")
"""Knobs whose first value cuts no loop at an edge."""

REDUCTIONS = {
    "product": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[36,64]", B="f32[64,96]"),
    "batched": notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[3,20,48]", B="f32[3,64,48]"),
    "window": notation(
        "Y[h,w,o] += X[h+r,w+s,c] * W[r,s,c,o]", X="f32[10,14,16]", W="f32[3,3,16,32]"
    ),
    "sums of products": notation("s[i] += A[i,k] * B[i,k]", A="f32[64,64]", B="f32[64,64]"),
    "weights by output": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[4,512]", B="f32[96,512]"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_plan_walks_as_far_as_the_nest(name: str) -> None:
    workload = REDUCTIONS[name].normalised()
    compared = 0
    for sketch in space_for(workload, target(threads=1)).sketches:
        (part,) = sketch.parts
        at = {knob.name: n for n, knob in enumerate(part.knobs)}
        settings = drawn(sketch, 4000)
        settings[:, [at[knob] for knob in WHOLE if knob in at]] = 0
        for setting in settings[sketch.feasible(settings)][:20]:
            check(part, setting, sketch.lowered(setting.tolist())[1])
            compared += 1
    assert compared


def check(part: Part, setting: IntArray, nest: Nest) -> None:
    """All levels together have as many iterations as all loops around the sum have; and those
    along each axis, where loops are called after the axes."""
    plan = part.plan(setting[None])
    (sum_of, *_) = (leaf for leaf in leaves(nest.body) if isinstance(leaf, Update))
    chain = chain_to(nest.body, sum_of)
    assert chain is not None
    planned, found = dict[str, int](), dict[str, int]()
    for level, trips in zip(plan.levels, plan.trips[0].tolist(), strict=True):
        axis = plan.outline.axes[level.axis].name
        planned[axis] = planned.get(axis, 1) * trips
    for loop in chain:
        axis = next((name for name in planned if name and loop.var.startswith(name)), "")
        found[axis] = found.get(axis, 1) * loop.extent
    assert prod(found.values()) == prod(planned.values()), (part.name, setting.tolist())
    for axis, trips in planned.items() if "" not in found else ():
        assert found.get(axis, 1) == trips, (part.name, axis, setting.tolist())


def test_trips_follow_from_steps() -> None:
    axes = (Axis("i", 37), Axis("j", 100))
    levels = (Level(0, np.array([10, 37])), Level(1, 32), Level(0, 1), Level(1, 1))
    plan = Plan(Outline(axes, ()), levels, 2)
    assert plan.trips.tolist() == [[4, 4, 10, 32], [1, 4, 37, 32]]


def test_a_level_as_wide_as_the_one_around_it_runs_once() -> None:
    plan = Plan(Outline((Axis("k", 9),), ()), (Level(0, 4), Level(0, 4), Level(0, 1)), 1)
    assert plan.trips.tolist() == [[3, 1, 4]]
