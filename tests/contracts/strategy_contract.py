"""What every `SearchStrategy` promises; a test class per strategy subclasses this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from math import isfinite

import numpy as np
import pytest

from tests.support.paths import ROOT
from tests.support.synthetic_machine import invented_result
from tests.support.synthetic_sketch import synthetic_space, tiny_space
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.tuner.search.base import SearchGoal, SearchStrategy
from tilewright.tuner.search.prior_ranking import rank_for_default
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.search.strategies import make_strategy

ASKED_ELSEWHERE = """
import json
from tests.contracts.strategy_contract import asked
print(json.dumps([[c.sketch, *c.setting] for c in asked({name!r}, {seed}, 40)]))
"""


def asked(name: str, seed: int, trials: int, batch: int = 16) -> list[Candidate]:
    """The first `trials` candidates of a run against invented times."""
    strategy = make_strategy(name, synthetic_space(64, 64, 64, small=True), SearchGoal(seed))
    found: list[Candidate] = []
    while len(found) < trials:
        candidates = strategy.ask(min(batch, trials - len(found)))
        strategy.tell([(c, invented_result(c)) for c in candidates])
        found += candidates
    return found


@cache
def a_run(name: str) -> tuple[Candidate, ...]:
    """The first 60 candidates of a run with seed 1, which several tests compare with others."""
    return tuple(asked(name, 1, 60))


class StrategyContract:
    """Set `strategy_name`."""

    strategy_name: str
    uses_the_seed = True

    def make(self, seed: int = 0) -> SearchStrategy:
        space = synthetic_space(64, 64, 64, small=True)
        return make_strategy(self.strategy_name, space, SearchGoal(seed))

    def test_carries_the_name_it_is_chosen_by(self) -> None:
        assert self.make().name == self.strategy_name

    def test_begins_with_the_schedule_chosen_without_measurement(self) -> None:
        space = synthetic_space(64, 64, 64, small=True)
        assert self.make(seed=3).ask(4)[0] == rank_for_default(space).default

    def test_never_asks_for_more_than_it_may(self) -> None:
        strategy = self.make()
        for count in (1, 3, 16):
            batch = strategy.ask(count)
            strategy.tell([(c, invented_result(c)) for c in batch])
            assert 1 <= len(batch) <= count

    def test_never_repeats_and_asks_only_feasible_candidates(self) -> None:
        space = synthetic_space(64, 64, 64, small=True)
        candidates = a_run(self.strategy_name)
        assert len(set(candidates)) == 60
        for c in candidates:
            setting = np.array([c.setting], np.int64)
            assert space.sketches[c.sketch].feasible(setting).all()

    def test_same_seed_and_results_give_the_same_run(self) -> None:
        assert tuple(asked(self.strategy_name, 1, 60)) == a_run(self.strategy_name)

    def test_another_seed_gives_another_run(self) -> None:
        same = tuple(asked(self.strategy_name, 6, 40)) == a_run(self.strategy_name)[:40]
        assert same != self.uses_the_seed

    def test_a_longer_run_begins_with_the_shorter_one(self) -> None:
        assert tuple(asked(self.strategy_name, 1, 21)) == a_run(self.strategy_name)[:21]

    def test_same_run_in_another_process_whatever_its_hash_seed(self) -> None:
        code = ASKED_ELSEWHERE.format(name=self.strategy_name, seed=1)
        here = [[c.sketch, *c.setting] for c in a_run(self.strategy_name)[:40]]
        environment = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout) == here

    def test_goes_on_when_everything_fails(self) -> None:
        strategy = self.make()
        failed = MeasureResult(MeasureStatus.RUN_CRASH)
        total = 0
        for _ in range(16):
            batch = strategy.ask(8)
            strategy.tell([(c, failed) for c in batch])
            total += len(batch)
        assert total >= 40

    def test_goes_on_behind_the_trials_of_an_earlier_process(self) -> None:
        space = synthetic_space(64, 64, 64, small=True)
        for done in (1, 6, 21, 40):
            before = a_run(self.strategy_name)[:done]
            runs = []
            for _ in range(2):
                strategy = self.make(1)
                strategy.resume([(c, invented_result(c)) for c in before])
                found: list[Candidate] = []
                while len(found) < 24:
                    batch = strategy.ask(8)
                    assert batch
                    assert all(isfinite(strategy.predictions[c]) for c in batch)
                    strategy.tell([(c, invented_result(c)) for c in batch])
                    found += batch
                runs.append(found)
            assert runs[0] == runs[1]
            assert len({*before, *runs[0]}) == done + len(runs[0])
            for c in runs[0]:
                setting = np.array([c.setting], np.int64)
                assert space.sketches[c.sketch].feasible(setting).all()

    def test_takes_partial_results(self) -> None:
        strategy = self.make()
        for _ in range(4):
            batch = strategy.ask(8)
            strategy.tell([(c, invented_result(c)) for c in batch[::2]])
        assert strategy.ask(8)

    def test_predicts_before_it_measures(self) -> None:
        strategy = self.make()
        for _ in range(4):
            batch = strategy.ask(16)
            assert all(isfinite(strategy.predictions[c]) for c in batch)
            strategy.tell([(c, invented_result(c)) for c in batch])

    def test_refuses_results_it_never_asked_for(self) -> None:
        strategy = self.make()
        strategy.ask(4)
        infeasible = Candidate(0, (7, 3, 3, 3, 1, 2, 1))
        stranger = (infeasible, MeasureResult(MeasureStatus.LOST))
        with pytest.raises(ValueError, match="was not asked by this strategy"):
            strategy.tell([stranger])

    def test_ends_when_the_space_does(self) -> None:
        space = tiny_space()
        strategy = make_strategy(self.strategy_name, space, SearchGoal(0))
        found: list[Candidate] = []
        for _ in range(40):
            batch = strategy.ask(16)
            if not batch:
                break
            strategy.tell([(c, invented_result(c)) for c in batch])
            found += batch
        assert len(found) == len(set(found)) == feasible_points(space)


def feasible_points(space: ScheduleSpace) -> int:
    return sum(len(codes) for grid in setting_grids(space) for codes in grid.feasible_codes())
