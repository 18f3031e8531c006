"""Lattices of programs with more settings than 64 bits can number."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.synthetic_sketch import SyntheticSketch, synthetic_target
from tilewright.costmodel.model import ResidualModel
from tilewright.costmodel.prior import Prior
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.sketches.knobs import PartSketch
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.tuner.search.base import SearchGoal
from tilewright.tuner.search.prior_ranking import rank_by_prior
from tilewright.tuner.search.setting_grid import (
    MAX_INT64_CODE,
    SettingGrid,
    keep_best,
    setting_grids,
)
from tilewright.tuner.search.strategies.annealing import AnnealingStrategy
from tilewright.tuner.search.strategies.evolution import EvolutionStrategy
from tilewright.tuner.search.strategies.grid import GridStrategy
from tilewright.tuner.search.strategies.random import RandomStrategy


def program_space(parts: int, small: bool = True) -> ScheduleSpace:
    """`parts` products one after the other, none of which limits another."""
    part = SyntheticSketch(64, 64, 64, small=small)
    program = ProgramSketch(part.workload, (), (cast(PartSketch, part),) * parts)
    return ScheduleSpace(part.workload, synthetic_target(), (program,))


SPACE = program_space(8, small=False)
GRID = setting_grids(SPACE)[0]


def test_the_space_has_more_points_than_a_code_of_64_bits() -> None:
    assert GRID.points == SPACE.size > 1 << 64
    assert GRID.dtype.kind == "V"


@given(st.integers(0, 2**31), st.integers(1, 50))
@settings(deadline=None, derandomize=True, max_examples=25)
def test_codes_and_settings_are_two_names_of_one_point(seed: int, count: int) -> None:
    rows = np.random.default_rng(seed).integers(0, GRID.sizes, size=(count, len(GRID.sizes)))
    codes = GRID.encode(rows)
    assert np.array_equal(GRID.decode(codes), rows)
    assert np.array_equal(GRID.encode(GRID.decode(codes)), codes)
    assert GRID.candidate(codes[0]).setting == tuple(rows[0].tolist())


@pytest.mark.parametrize("largest", [10, 300, 70_000])
def test_codes_sort_like_their_settings(largest: int) -> None:
    stand_in: Any = None
    grid = SettingGrid(0, stand_in, (largest, 5, largest, 3) * 8)
    assert grid.points >= MAX_INT64_CODE
    rows = np.random.default_rng(0).integers(0, grid.sizes, size=(200, len(grid.sizes)))
    in_order = grid.decode(np.sort(grid.encode(rows))).tolist()
    assert in_order == sorted(rows.tolist())


def test_more_knobs_than_numpy_has_dimensions() -> None:
    stand_in: Any = SyntheticSketch(64, 64, 64)
    grid = SettingGrid(0, stand_in, (1,) * 99 + (2,))
    rows = np.zeros((2, 100), np.int64)
    rows[:, -1] = [1, 0]
    assert grid.encode(rows).tolist() == [1, 0]
    assert np.array_equal(grid.decode(grid.encode(rows)), rows)


def test_best_codes_are_distinct_and_in_order() -> None:
    rows = np.zeros((4, len(GRID.sizes)), np.int64)
    rows[:, -1] = [1, 0, 2, 0]
    codes, scores = keep_best(GRID.encode(rows), np.array([1.0, 1.0, 2.0, 1.0]), 2)
    assert GRID.decode(codes)[:, -1].tolist() == [2, 0]
    assert scores.tolist() == [2.0, 1.0]


def test_sample_draws_parts_apart_and_finds_as_many_as_asked() -> None:
    """A tenth of the settings of one part is feasible, so next to none is feasible in all."""
    drawn = GRID.sample(np.random.default_rng(0), 300)
    assert len(np.unique(GRID.encode(drawn))) == 300
    assert SPACE.sketches[0].feasible(drawn).all()
    assert len(np.unique(drawn[:, 0])) > 4


def test_feasible_codes_come_in_order_and_without_an_end_to_wait_for() -> None:
    chunks = GRID.feasible_codes()
    codes = np.concatenate([next(chunks), next(chunks)])
    assert SPACE.sketches[0].feasible(GRID.decode(codes)).all()
    assert np.array_equal(np.unique(codes), codes)
    one = program_space(1, small=False)
    alone = np.concatenate(list(setting_grids(one)[0].feasible_codes()))
    first = GRID.decode(codes[: len(alone)])[:, -len(one.sketches[0].knobs) :]
    assert np.array_equal(first, setting_grids(one)[0].decode(alone)[: len(first)])


@pytest.mark.parametrize(
    "strategy", [AnnealingStrategy, EvolutionStrategy, GridStrategy, RandomStrategy]
)
def test_every_strategy_searches_a_space_without_numbers(strategy: Any) -> None:
    search = strategy(SPACE, SearchGoal(seed=1))
    asked: list[Candidate] = []
    for _ in range(12):  # a strategy may ask for fewer than it is offered
        batch = search.ask(6)
        search.tell([(c, MeasureResult(MeasureStatus.COMPILE_ERROR)) for c in batch])
        asked += batch
    assert len(set(asked)) == len(asked) >= 16
    assert all(SPACE.sketches[0].feasible(np.array([c.setting]))[0] for c in asked)


def test_the_grid_gives_every_part_settings_of_its_own() -> None:
    search = GridStrategy(SPACE, SearchGoal())
    rows = np.array([c.setting for c in search.ask(65)])[1:]
    width = len(SPACE.sketches[0].knobs) // 8
    for first in range(0, rows.shape[1], width):
        assert len(np.unique(rows[:, first : first + width], axis=0)) > 48


def test_the_first_look_finds_the_best_of_every_part() -> None:
    alone = program_space(1, small=False)
    best = rank_by_prior(alone, Prior(alone), 1).log2_secs[0][0]
    prior = Prior(SPACE)
    found = rank_by_prior(SPACE, prior, 64)
    assert 2.0 ** found.log2_secs[0][0] <= 1.01 * 8 * 2.0**best
    assert ResidualModel(SPACE).predict(0, GRID.decode(found.codes[0])).log2_secs.shape == (64,)
