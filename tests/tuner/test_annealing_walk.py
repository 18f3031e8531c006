"""Simulated annealing finds what the model thinks best; lattices count and step correctly."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.synthetic_machine import bent_log2_secs
from tests.support.synthetic_sketch import synthetic_space, tiny_space
from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray
from tilewright.tuner.search.annealing_walk import Cooling, anneal, propose
from tilewright.tuner.search.setting_grid import SettingGrid, keep_best, setting_grids

SPACE = synthetic_space()
GRID = setting_grids(SPACE)[0]


def test_annealing_reaches_the_argmax_of_the_model() -> None:
    """Within 0.5 % of the best of about 6e4 feasible points, in at least 95 % of 40 runs."""

    def score(rows: IntArray) -> FloatArray:
        return -bent_log2_secs(SPACE, 0, rows)

    best = max(float(score(GRID.decode(c)).max()) for c in GRID.feasible_codes() if len(c))
    reached = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = anneal(GRID, score, GRID.sample(rng, 256), rng, Cooling(steps=32))
        reached += 2.0 ** (best - found.scores[0]) <= 1.005
    assert reached >= 38


def test_annealing_returns_distinct_feasible_codes_best_first() -> None:
    def score(rows: IntArray) -> FloatArray:
        total: FloatArray = -rows.sum(axis=1).astype(np.float64)
        return total

    rng = np.random.default_rng(0)
    found = anneal(GRID, score, GRID.sample(rng, 64), rng, Cooling(steps=8, keep=50))
    assert len(found.codes) == len(np.unique(found.codes)) == 50
    assert (np.diff(found.scores) <= 0).all()
    assert GRID.sketch.feasible(GRID.decode(found.codes)).all()
    assert np.array_equal(score(GRID.decode(found.codes)), found.scores)


def test_moves_stay_inside_the_domains() -> None:
    rng = np.random.default_rng(1)
    chains = GRID.sample(rng, 512)
    for _ in range(20):
        chains = propose(GRID, chains, np.zeros(len(chains)), rng)
        assert (chains >= 0).all()
        assert (chains < np.array(GRID.sizes)).all()


@given(st.integers(0, 2**31), st.integers(1, 50))
@settings(deadline=None, derandomize=True, max_examples=25)
def test_codes_and_settings_are_two_names_of_one_point(seed: int, count: int) -> None:
    codes = np.random.default_rng(seed).integers(0, GRID.points, size=count)
    assert np.array_equal(GRID.encode(GRID.decode(codes)), codes)


def test_neighbours_differ_in_one_knob_by_at_most_two_places() -> None:
    start = GRID.sketch.default()
    near = GRID.neighbours(start)
    apart = np.abs(near - np.array(start))
    assert len(near)
    assert ((apart > 0).sum(axis=1) == 1).all()
    assert apart.max() <= 2
    assert GRID.sketch.feasible(near).all()


def test_neighbours_of_two_settings_follow_each_other() -> None:
    first, second = map(tuple, GRID.sample(np.random.default_rng(0), 2).tolist())
    each = [GRID.neighbours(first), GRID.neighbours(second)]
    assert np.array_equal(GRID.neighbours(first, second), np.concatenate(each))
    assert GRID.neighbours().shape == (0, len(GRID.sizes))


def test_sample_gives_distinct_feasible_points_and_all_of_a_tiny_space() -> None:
    grid = setting_grids(tiny_space())[0]
    every = np.concatenate(list(grid.feasible_codes()))
    drawn = grid.encode(grid.sample(np.random.default_rng(0), 2_000))
    assert set(drawn.tolist()) == set(every.tolist())
    assert len(drawn) == len(every)


def test_keep_best_breaks_ties_by_code() -> None:
    codes, scores = keep_best(np.array([5, 3, 9, 3]), np.array([1.0, 1.0, 2.0, 1.0]), 2)
    assert codes.tolist() == [9, 3]
    assert scores.tolist() == [2.0, 1.0]


def test_sketch_without_knobs_has_one_point() -> None:
    class Fixed:
        name = "fixed"
        knobs = ()

        def feasible(self, rows: IntArray) -> BoolArray:
            return np.ones(len(rows), bool)

        def default(self) -> tuple[int, ...]:
            return ()

    stand_in: Any = Fixed()
    grid = SettingGrid(0, stand_in, ())
    assert [c.tolist() for c in grid.feasible_codes()] == [[0]]
    assert grid.candidate(0).setting == ()
    rng = np.random.default_rng(0)
    found = anneal(grid, lambda x: np.zeros(len(x)), grid.sample(rng, 4), rng)
    assert found.codes.tolist() == [0]
