"""Candidates with one choice undone: feasible, plain in this choice, and near the original."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.spaces import ODD, target, workload
from tilewright.costmodel.prior import Prior
from tilewright.schedules import operators
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, Knob, ScheduleSpace
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.search.undo import plain_place, slowest_first, undo_each, without_rewrites


def candidates(space: ScheduleSpace) -> list[Candidate]:
    """The default of each sketch, and settings drawn of it."""
    rng = np.random.default_rng(0)
    found = []
    for grid in setting_grids(space):
        settings = grid.sample(rng, 3)
        found += [Candidate(grid.index, tuple(row)) for row in settings.tolist()]
        found.append(Candidate(grid.index, grid.sketch.default()))
    return found


@pytest.mark.parametrize("name", list(ODD)[::3])
def test_a_choice_is_undone_and_everything_else_is_reported(name: str) -> None:
    space = space_for(workload(name), target(2))
    prior = Prior(space)
    for candidate in candidates(space):
        sketch = space.sketches[candidate.sketch]
        places = {knob.name: n for n, knob in enumerate(sketch.knobs)}
        choices = undo_each(space, candidate)
        undone = {choice.knob for choice in choices}
        for knob, place in zip(sketch.knobs, candidate.setting, strict=True):
            assert (knob.name in undone) is (place != plain_place(knob))
        for choice in choices:
            if choice.candidate is None:
                continue
            assert sketch.feasible(np.array([choice.candidate.setting]))[0]
            changed = {choice.knob: (choice.value, choice.plain), **choice.others}
            for knob in sketch.knobs:
                n = places[knob.name]
                before, after = candidate.setting[n], choice.candidate.setting[n]
                values = (knob.values[before], knob.values[after])
                assert changed.get(knob.name, (values[0], values[0])) == values
        ordered = slowest_first(prior, candidate, choices)
        assert sorted(c.knob for c in ordered) == sorted(c.knob for c in choices)
        known = [c.candidate is not None for c in ordered]
        assert known == sorted(known, reverse=True)


def test_the_plain_value_switches_off_or_is_the_smallest() -> None:
    assert plain_place(Knob("pack", (0, 1, 2))) == 0
    assert plain_place(Knob("rows", (8, 4, 1))) == 2
    assert plain_place(Knob("order", ("ij", "ji"))) == 0


def test_rewrites_are_undone_together() -> None:
    conv = operators.conv2d_nhwc(N=1, H=28, W=28, CI=32, CO=32, K=3, pad=1)
    space = space_for(conv.allowing(1e-2), target(1))
    rewritten = [n for n, one in enumerate(space.sketches) if one.workload != space.workload]
    original = next(n for n in range(len(space.sketches)) if n not in rewritten)
    found = without_rewrites(space, Candidate(rewritten[0], space.sketches[rewritten[0]].default()))
    assert found is not None
    assert found.sketch not in rewritten
    assert not space.trace(found).rewrites
    own = Candidate(original, space.sketches[original].default())
    assert without_rewrites(space, own) is None
