"""Candidates in which one choice of another candidate is undone.

A choice is the value of a knob. It is undone if the knob has its plain value: the value that
switches the transformation off, or the smallest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.space import Candidate, Knob, ScheduleSpace

from .adaptation import nearest_feasible, value_costs
from .prior_ranking import rank_for_default
from .setting_grid import SettingGrid, setting_grid_of


@dataclass(frozen=True, slots=True)
class UndoneChoice:
    """The knob `knob` with `plain` instead of `value`.

    `candidate` is the feasible setting nearest to the original one, or None if none was found.
    `others` has the values (before, after) of the other knobs that had to change, by name.
    """

    knob: str
    value: Any
    plain: Any
    candidate: Candidate | None
    others: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


def undo_each(space: ScheduleSpace, candidate: Candidate) -> list[UndoneChoice]:
    """Return one undone choice for each knob that does not have its plain value."""
    grid = setting_grid_of(candidate.sketch, space.sketches[candidate.sketch])
    rng = np.random.default_rng(0)
    return [
        _undone(grid, candidate.setting, number, rng)
        for number, knob in enumerate(grid.sketch.knobs)
        if candidate.setting[number] != plain_place(knob)
    ]


def plain_place(knob: Knob) -> int:
    """Return the index of the plain value: 0 or the smallest number, else the first value."""
    numbers = [value for value in knob.values if isinstance(value, int | float)]
    return knob.values.index(min(numbers)) if len(numbers) == len(knob.values) else 0


def _undone(
    grid: SettingGrid, setting: tuple[int, ...], number: int, rng: np.random.Generator
) -> UndoneChoice:
    knobs = grid.sketch.knobs
    values = [knob.values[place] for knob, place in zip(knobs, setting, strict=True)]
    costs = [value_costs(knob, value) for knob, value in zip(knobs, values, strict=True)]
    plain = plain_place(knobs[number])
    costs[number] = _only(plain, len(knobs[number].values))
    found = nearest_feasible(grid, costs, rng)
    choice = UndoneChoice(knobs[number].name, values[number], knobs[number].values[plain], None)
    if found is None:
        return choice
    others = {
        knob.name: (value, knob.values[place])
        for n, (knob, value, place) in enumerate(zip(knobs, values, found.tolist(), strict=True))
        if n != number and knob.values[place] != value
    }
    return replace(choice, candidate=Candidate(grid.index, tuple(found.tolist())), others=others)


def _only(place: int, size: int) -> FloatArray:
    """Return costs that exclude every value but one."""
    costs = np.full(size, np.inf)
    costs[place] = 0.0
    return costs


def without_rewrites(space: ScheduleSpace, candidate: Candidate) -> Candidate | None:
    """Return the candidate that the prior prefers among the sketches of the original expression, or
    None if the sketch of `candidate` has no rewrite or no such sketch exists."""
    plain = space.workload.stored()
    original = [n for n, one in enumerate(space.sketches) if one.workload == plain]
    if candidate.sketch in original or not original:
        return None
    rest = replace(space, sketches=tuple(space.sketches[n] for n in original))
    found = rank_for_default(rest).default
    return Candidate(original[found.sketch], found.setting)


def slowest_first(
    prior: Prior, original: Candidate, choices: list[UndoneChoice]
) -> list[UndoneChoice]:
    """Return the choices in decreasing order of the seconds that the prior predicts; choices
    without a candidate are last. All candidates are of the sketch of `original`."""
    settings = [(c.candidate or original).setting for c in choices]
    if not settings:
        return []
    secs = prior.log2_secs(original.sketch, np.array(settings, np.int64))
    known = [choice.candidate is not None for choice in choices]
    order = sorted(range(len(choices)), key=lambda n: (not known[n], -float(secs[n])))
    return [choices[n] for n in order]
