"""Every strategy keeps the contract; the default one is worth its trouble."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.strategy_contract import StrategyContract
from tests.synthetic_machine import bent_log2_secs, optimum_secs, result_of
from tests.synthetic_sketch import synthetic_space
from tuner.search import first_look
from tuner.search.base import SearchGoal
from tuner.search.strategies import StrategyError, make_strategy


class TestAnnealing(StrategyContract):
    strategy_name = "annealing"


class TestEvolution(StrategyContract):
    strategy_name = "evolution"


class TestRandom(StrategyContract):
    strategy_name = "random"


class TestGrid(StrategyContract):
    strategy_name = "grid"
    uses_the_seed = False


def best_of_run(name: str, seed: int, trials: int) -> float:
    space = synthetic_space(128, 128, 128, small=True)
    strategy = make_strategy(name, space, SearchGoal(seed))
    best, done = np.inf, 0
    while done < trials:
        batch = strategy.ask(min(16, trials - done))
        results = [(c, result_of(space, c)) for c in batch]
        strategy.tell(results)
        done += len(batch)
        best = min(best, *(r.run_secs_estimate or np.inf for _, r in results))
    return float(best)


def test_unknown_strategy_is_named_with_the_choices() -> None:
    with pytest.raises(StrategyError, match="annealing, evolution, grid, random; got 'magic'"):
        make_strategy("magic", synthetic_space(64, 64, 64, small=True), SearchGoal())


def test_annealing_beats_random_over_twenty_seeds() -> None:
    """32 trials each: 15 % faster in the median, and never more than 5 % slower."""
    optimum = optimum_secs(synthetic_space(128, 128, 128, small=True))
    annealed = np.array([best_of_run("annealing", s, 32) for s in range(20)])
    drawn = np.array([best_of_run("random", s, 32) for s in range(20)])
    assert np.median(drawn / annealed) > 1.15
    assert (annealed <= 1.05 * drawn).all()
    assert np.median(annealed) <= 1.2 * optimum


def test_large_spaces_are_walked_and_still_beat_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "MOST_LISTED", 100)
    annealed = [best_of_run("annealing", s, 32) for s in range(3)]
    monkeypatch.undo()
    drawn = [best_of_run("random", s, 32) for s in range(3)]
    assert np.median(drawn) > 1.08 * np.median(annealed)


def test_annealing_stops_at_the_bound_and_says_so() -> None:
    space = synthetic_space(128, 128, 128, small=True)
    strategy = make_strategy("annealing", space, SearchGoal(0, bound_secs=1.0))
    strategy.tell([(c, result_of(space, c)) for c in strategy.ask(4)])
    assert strategy.stop_reason is not None
    assert "of the bound" in strategy.stop_reason


def test_annealing_stops_when_the_model_promises_nothing_more() -> None:
    space = synthetic_space(128, 128, 128, small=True)
    strategy = make_strategy("annealing", space, SearchGoal(0))
    done = 0
    while strategy.stop_reason is None and done < 400:
        batch = strategy.ask(16)
        strategy.tell([(c, result_of(space, c)) for c in batch])
        done += len(batch)
    assert 32 <= done < 400
    assert "predicted gain" in (strategy.stop_reason or "")


def test_invented_times_leave_something_to_learn() -> None:
    """The landscape is not the prior in disguise: its optimum is elsewhere."""
    space = synthetic_space(128, 128, 128, small=True)
    default = first_look.default_candidate(space)
    setting = np.array([default.setting], np.int64)
    secs = 2.0 ** float(bent_log2_secs(space, default.sketch, setting)[0])
    assert secs > 1.3 * optimum_secs(space)
