"""The way down by one and two knobs: every change is looked at, and none that is worse is taken."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.synthetic_machine import bent_log2_secs
from tests.support.synthetic_sketch import synthetic_space
from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray
from tilewright.tuner.search import descent
from tilewright.tuner.search.descent import descend, neighbours
from tilewright.tuner.search.setting_grid import setting_grids

SPACE = synthetic_space()
GRID = setting_grids(SPACE)[0]


def score(rows: IntArray) -> FloatArray:
    return -bent_log2_secs(SPACE, 0, rows)


def test_neighbours_are_all_settings_one_or_two_knobs_away() -> None:
    rng = np.random.default_rng(0)
    here = GRID.sample(rng, 1)[0]
    near = neighbours(GRID, here, rng)
    changed = (near != here).sum(axis=1)
    assert set(changed.tolist()) == {1, 2}
    others = np.array(GRID.sizes) - 1
    pairs = (others.sum() ** 2 - (others**2).sum()) // 2
    assert len(np.unique(near, axis=0)) == len(near) == others.sum() + pairs


def test_some_of_too_many_neighbours_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent, "MAX_NEIGHBOURS", 30)
    rng = np.random.default_rng(0)
    assert len(neighbours(GRID, GRID.sample(rng, 1)[0], rng)) == 30


@pytest.mark.parametrize("seed", range(5))
def test_a_descent_ends_where_no_two_knobs_help(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = GRID.sample(rng, 1)[0]
    codes, scores = descend(GRID, score, start[None], rng)
    found = GRID.decode(codes)
    feasible: BoolArray = GRID.sketch.feasible(found)
    assert feasible.all()
    assert np.array_equal(score(found), scores)
    best = found[int(np.argmax(scores))]
    near = neighbours(GRID, best, rng)
    near = near[GRID.sketch.feasible(near)]
    assert scores.max() >= score(start[None])[0]
    assert score(near).max() <= scores.max()


def test_descents_together_find_what_each_finds_alone() -> None:
    rng = np.random.default_rng(7)
    starts = GRID.sample(rng, 4)
    together = dict(zip(*(x.tolist() for x in descend(GRID, score, starts, rng)), strict=True))
    alone: dict[int, float] = {}
    for start in starts:
        codes, scores = descend(GRID, score, start[None], rng)
        alone |= dict(zip(codes.tolist(), scores.tolist(), strict=True))
    assert together == alone
