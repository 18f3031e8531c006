"""The race: losers end early, drift and preemption do not decide, slow calls are few."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tuner.judge.timing_race import TimingRace

BURST_SECS = 50e-6


class Machine:
    """Calls of `call_secs` on a machine with a drifting clock and now and then a preemption."""

    def __init__(self, call_secs: float, seed: int, drift: float = 0.0, steal: float = 0.0) -> None:
        self.call_secs = call_secs
        self.rng = np.random.default_rng(seed)
        self.clock = 1.0 + drift * self.rng.random()
        self.steal = steal
        self.spent_secs = 0.0

    def run(self, race: TimingRace) -> TimingRace:
        while (plan := race.plan()) is not None:
            samples = [self._time(self.call_secs, plan.calls) for _ in range(plan.rounds)]
            bursts = [self._time(BURST_SECS, 1) for _ in range(plan.rounds + 1)]
            race = race.add(tuple(samples), tuple(bursts))
        return race

    def _time(self, secs: float, calls: int) -> float:
        total = secs * self.clock * calls * (1 + 0.002 * self.rng.random())
        if self.rng.random() < self.steal:
            total += 4e-3
        self.spent_secs += total
        return total / calls


def race(
    call_secs: float, seed: int = 0, incumbent: float | None = None, **noise: float
) -> TimingRace:
    return Machine(call_secs, seed, **noise).run(TimingRace(call_secs, BURST_SECS, incumbent))


@pytest.mark.parametrize("call_secs", [1e-6, 1e-4, 3e-3, 0.04, 1.0])
def test_the_estimate_is_the_call_time(call_secs: float) -> None:
    assert race(call_secs).estimate_secs == pytest.approx(call_secs, rel=0.005)


def test_clock_drift_is_divided_out() -> None:
    estimates = [race(1e-3, seed, drift=0.09).estimate_secs for seed in range(20)]
    assert max(estimates) / min(estimates) < 1.01


def test_preemption_does_not_count() -> None:
    estimates = [race(1e-3, seed, steal=0.2).estimate_secs for seed in range(50)]
    assert np.mean(np.abs(np.log(np.divide(estimates, 1e-3))) < 0.01) >= 0.95


@pytest.mark.parametrize(
    ("ratio", "most_secs"), [(1.5, 0.007), (1.15, 0.010), (5.0, 0.003), (100.0, 0.025)]
)
def test_a_loser_costs_milliseconds(ratio: float, most_secs: float) -> None:
    machine = Machine(1e-4 * ratio, seed=0)
    machine.run(TimingRace(1e-4 * ratio, BURST_SECS, incumbent_secs=1e-4))
    assert machine.spent_secs < most_secs


def test_two_preempted_samples_do_not_lose_the_race() -> None:
    started = TimingRace(1e-4, BURST_SECS, incumbent_secs=1e-4)
    disturbed = (11e-4, 11e-4)  # a time slice of 4 ms in each sample of four calls
    bursts = (BURST_SECS,) * 3
    assert started.add(disturbed, bursts).plan() is None
    in_race = started.add(disturbed, bursts, preemptions=2)
    assert Machine(1e-4, seed=0).run(in_race).estimate_secs == pytest.approx(1e-4, rel=0.005)


def test_one_preempted_sample_of_two_does_not_save_a_loser() -> None:
    started = TimingRace(3e-4, BURST_SECS, incumbent_secs=1e-4)
    assert started.add((3e-4, 23e-4), (BURST_SECS,) * 3, preemptions=1).plan() is None


def test_preempted_slow_calls_lose_the_race() -> None:
    started = TimingRace(2.0, BURST_SECS, incumbent_secs=0.1)
    assert started.add((2.0,), (BURST_SECS,) * 2, preemptions=30).plan() is None


def test_one_that_may_win_is_timed_longer_than_a_loser() -> None:
    finalist, loser = race(1e-4, incumbent=1e-4), race(1.2e-4, incumbent=1e-4)
    assert len(finalist.samples) >= 16 > len(loser.samples)


def test_a_noisy_finalist_ends_with_its_budget() -> None:
    found = Machine(1e-4, seed=3, steal=0.9).run(TimingRace(1e-4, BURST_SECS, final_secs=0.02))
    assert 0.02 <= found.spent_secs < 0.2


def test_a_machine_that_crawls_does_not_hold_a_candidate_for_ever() -> None:
    machine = Machine(20e-3, seed=3)  # a kernel that took 20 us when it was warmed up
    machine.run(TimingRace(20e-6, BURST_SECS))
    assert machine.spent_secs < 1.0


def test_one_slow_warm_run_does_not_lose_the_race() -> None:
    found = Machine(1e-3, seed=1).run(TimingRace(9e-3, BURST_SECS, incumbent_secs=1e-3))
    assert len(found.samples) > 5


@pytest.mark.parametrize(("call_secs", "samples"), [(0.03, 4), (2.0, 2)])
def test_slow_calls_are_few(call_secs: float, samples: int) -> None:
    assert len(race(call_secs, incumbent=call_secs).samples) <= samples


def test_twin_candidates_are_told_apart_by_less_than_half_a_percent() -> None:
    ratios = [
        race(2e-4, seed, drift=0.08, steal=0.05).estimate_secs
        / race(2e-4, seed + 1000, drift=0.08, steal=0.05).estimate_secs
        for seed in range(100)
    ]
    assert np.mean(np.abs(np.subtract(ratios, 1)) < 0.005) >= 0.95
