"""Every strategy keeps the contract; the default one is worth its trouble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sin

import numpy as np
import pytest

from benchmarks.baselines import PriorModel
from tests.contracts.strategy_contract import StrategyContract
from tests.support.synthetic_machine import bent_log2_secs, optimum_secs, result_of
from tests.support.synthetic_sketch import synthetic_space
from tilewright.costmodel.base import BorrowedSample, Prediction, Sample, SettingFeatures
from tilewright.costmodel.blend import BlendedModel
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine, SimulatedMeasurer
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.search import prior_ranking
from tilewright.tuner.search.base import SearchGoal, SearchStrategy
from tilewright.tuner.search.strategies import StrategyError, make_strategy
from tilewright.tuner.search.strategies.annealing import AnnealingStrategy
from tilewright.tuner.search.strategies.random import RandomStrategy


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


UNLIKE_THE_PRIOR = (
    SimulatedMachine(seed=1, ruggedness=0.35, interaction=0.1),
    SimulatedMachine(seed=2, vector_gain=0.3, lanes=2, ruggedness=0.35),
    SimulatedMachine(seed=3, code_limit=4, code_cost=1.2, copy_cost=0.4, cache_lines=8),
)
"""Of another character each; none shares a formula with the prior (`benchmarks/machines`)."""


@dataclass(frozen=True)
class Permuted:
    """The search's model with its labels in another order: cut off from what was measured."""

    model: BlendedModel

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        order = np.random.default_rng(len(samples)).permutation(len(samples))
        times = [samples[i].run_secs for i in order]
        self.model.fit([Sample(s.candidate, t) for s, t in zip(samples, times, strict=True)])

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        return self.model.describe(sketch, settings)

    def predict_from(self, description: SettingFeatures) -> Prediction:
        return self.model.predict_from(description)

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        return self.model.predict(sketch, settings)


SPACE = synthetic_space(128, 128, 128, small=True)
MAKERS: dict[str, Callable[[int], SearchStrategy]] = {
    "annealing": lambda seed: AnnealingStrategy(SPACE, SearchGoal(seed)),
    "random": lambda seed: RandomStrategy(SPACE, SearchGoal(seed)),
    "prior": lambda seed: AnnealingStrategy(SPACE, SearchGoal(seed), PriorModel(SPACE)),
    "permuted": lambda seed: AnnealingStrategy(
        SPACE, SearchGoal(seed), Permuted(BlendedModel(SPACE))
    ),
}


def mean_log2_found(name: str, seeds: range, trials: int) -> float:
    """Mean of log2 seconds of the best of `trials`, over machines and seeds."""
    found = []
    for machine in UNLIKE_THE_PRIOR:
        measurer = SimulatedMeasurer(machine, SPACE.workload)
        for seed in seeds:
            strategy = MAKERS[name](seed)
            best, done = np.inf, 0
            while done < trials:
                batch = strategy.ask(trials - done)
                requests = [MeasureRequest(1, SPACE.trace(c)) for c in batch]
                results = measurer.measure(requests)
                strategy.tell(list(zip(batch, results, strict=True)))
                done += len(batch)
                best = min(best, *(measurer.true_secs(r) for r in requests))
            found.append(np.log2(best))
    return float(np.mean(found))


def test_learning_leads_on_machines_unlike_the_prior() -> None:
    """24 trials each. Following the prior blindly, or a model that learns from the wrong times,
    is no better than chance there; learning from what was measured is."""
    found = {name: mean_log2_found(name, range(1), 24) for name in MAKERS}
    lead = {name: value - found["annealing"] for name, value in found.items()}
    assert lead["random"] > 0.15
    assert lead["prior"] > 0.15
    assert lead["permuted"] > 0.15


def trust_after(log2_secs: Callable[[Candidate], float], trials: int = 24) -> float:
    strategy = AnnealingStrategy(SPACE, SearchGoal(0))
    done = 0
    while done < trials:
        batch = strategy.ask(trials - done)
        secs = [2.0 ** log2_secs(c) for c in batch]
        strategy.tell(
            [
                (c, MeasureResult(MeasureStatus.OK, (t,), t))
                for c, t in zip(batch, secs, strict=True)
            ]
        )
        done += len(batch)
    assert strategy.prior_trust is not None
    return strategy.prior_trust


def prior_of(candidate: Candidate) -> float:
    settings = np.array([candidate.setting], np.int64)
    return float(Prior(SPACE).log2_secs(candidate.sketch, settings)[0])


def test_a_wrong_prior_is_noticed_and_a_right_one_is_trusted() -> None:
    def off_by_little(c: Candidate) -> float:
        return prior_of(c) + 0.05 * sin(sum(c.setting))

    assert trust_after(off_by_little) > 0.6
    assert trust_after(lambda c: -20.0 - prior_of(c)) < 0.05


def test_large_spaces_are_walked_and_still_beat_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior_ranking, "MAX_LISTED_POINTS", 100)
    annealed = mean_log2_found("annealing", range(1), 24)
    monkeypatch.undo()
    assert mean_log2_found("random", range(1), 24) > annealed + 0.05


def test_on_a_landscape_like_the_prior_the_optimum_is_near() -> None:
    optimum = optimum_secs(SPACE)
    found = [best_of_run("annealing", seed, 32) for seed in range(2)]
    assert np.median(found) <= 1.2 * optimum


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


def prior_is_right(space: ScheduleSpace, candidate: Candidate) -> MeasureResult:
    settings = np.array([candidate.setting], np.int64)
    secs = float(2.0 ** Prior(space).log2_secs(candidate.sketch, settings)[0])
    return MeasureResult(MeasureStatus.OK, (secs,), secs)


def trials_until_it_stops(strategy: SearchStrategy, space: ScheduleSpace, most: int = 80) -> int:
    done = 0
    while strategy.stop_reason is None and done < most:
        batch = strategy.ask(16)
        strategy.tell([(c, prior_is_right(space, c)) for c in batch])
        done += len(batch)
    return done


@pytest.mark.parametrize("near", [True, False], ids=["near the bound", "far from it"])
def test_a_search_ends_soon_where_the_prior_is_right(near: bool) -> None:
    """What it chose stands; the model's promises, the best of thousands, say nothing of that."""
    space = synthetic_space(128, 128, 128, small=True)
    look = prior_ranking.rank_for_default(space)
    best_secs = 2.0 ** float(min(found[0] for found in look.log2_secs if len(found)))
    strategy = make_strategy("annealing", space, SearchGoal(0, best_secs / (1.05 if near else 2)))
    done = trials_until_it_stops(strategy, space)
    assert done == (16 if near else 32)
    assert "the prior's choice" in (strategy.stop_reason or "")
    assert strategy.gain_over_prior is not None
    assert strategy.gain_over_prior < 1.01


def test_a_search_whose_prior_is_wrong_does_not_end_as_if_it_were_right() -> None:
    space = synthetic_space(128, 128, 128, small=True)
    strategy = make_strategy("annealing", space, SearchGoal(0))
    done = 0
    while strategy.stop_reason is None and done < 100:
        batch = strategy.ask(16)
        strategy.tell([(c, result_of(space, c)) for c in batch])
        done += len(batch)
    assert "the prior's choice" not in (strategy.stop_reason or "")
    assert strategy.gain_over_prior is not None
    assert strategy.gain_over_prior > 1.1


@pytest.mark.parametrize("after", [4, 16])
def test_a_corrected_target_is_searched_by_its_own_prior(after: int) -> None:
    """Both targets are one machine: the first with a region so dear that nothing is parallel."""
    made = synthetic_space(64, 64, 64, small=True)
    right = made.target
    dear = replace(right, probes=replace(right.probes, parallel_region_secs=1e-3))
    space = replace(made, target=dear)
    choice = prior_ranking.rank_for_default(made).default
    strategy = make_strategy("annealing", space, SearchGoal(0))
    asked: list[Candidate] = []
    while len(asked) < after:
        batch = strategy.ask(min(16, after - len(asked)))
        strategy.tell([(c, prior_is_right(made, c)) for c in batch])
        asked += batch
    strategy.correct(right)
    again = strategy.ask(16)
    assert choice in [*asked, *again[:1]]
    assert 1 <= len(again) <= 4
    assert not set(asked) & set(again)
    strategy.tell([(c, prior_is_right(made, c)) for c in again])
    assert strategy.gain_over_prior == 1.0
    assert len(asked) + len(again) + trials_until_it_stops(strategy, made) >= after + 24


def test_invented_times_leave_something_to_learn() -> None:
    """The landscape is not the prior in disguise: its optimum is elsewhere."""
    space = synthetic_space(128, 128, 128, small=True)
    default = prior_ranking.rank_for_default(space).default
    setting = np.array([default.setting], np.int64)
    secs = 2.0 ** float(bent_log2_secs(space, default.sketch, setting)[0])
    assert secs > 1.3 * optimum_secs(space)
