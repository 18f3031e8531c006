"""The full check and the final race at the end of a session, and what is done beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from tests.support.tuner.scripted import Scripted, ok
from tests.support.tuner.sessions import by_trial, stored_in, tune, work
from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.trace import Trace
from tilewright.tuner.measure.mocked.simulated import uniform
from tilewright.tuner.measure.protocol import MeasureRequest, OnResult, measure_each
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget


def test_a_candidate_that_fails_the_full_check_is_not_best() -> None:
    wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="C[0, 0]: 1 instead of 2")
    refusals = iter([wrong, wrong])
    measurer = Scripted(by_trial, confirmed=lambda r: next(refusals, by_trial(r)))
    sink = MemorySink()
    report = tune(measurer, sink)
    assert len(measurer.confirmations) == 3
    third = canonical_bytes(measurer.confirmations[2].trace.to_json())
    assert canonical_bytes(report.best.trace) == third
    again = Scripted(by_trial)
    assert tune(again, sink).best == report.best
    assert not again.confirmations


def test_no_best_when_nothing_passes_the_full_check() -> None:
    wrong = MeasureResult(MeasureStatus.WRONG_RESULT)
    report = tune(Scripted(by_trial, confirmed=lambda r: wrong))
    assert report.best is None


def test_mostly_wrong_results_stop_the_run_loudly() -> None:
    wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="C[0, 0] differs")
    report = tune(Scripted(lambda r: wrong if r.trial % 3 else by_trial(r)))
    assert report.trials["total"] < 24
    assert "computed wrong results" in report.stopped_because
    assert "wrong_result: C[0, 0] differs" in report.stopped_because


def test_the_close_ones_and_the_default_race_again_and_the_luck_of_the_search_is_undone() -> None:
    @dataclass
    class Lucky(Scripted):
        """During the search the default looks slow; in the last race it is the fastest."""

        def measure(
            self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
        ) -> list[MeasureResult]:
            super().measure(requests, on_result)
            if on_result is not None:
                return [self.answer(r) for r in requests]
            return [ok(1e-3) if r.trial == 1 else ok(2e-3) for r in requests]

    measurer = Lucky(by_trial)
    report = tune(measurer)
    assert report.best.trial == 1
    again = [request.trial for request in measurer.raced]
    assert again[: len(again) // 2] == again[: len(again) // 2 - 1 : -1]
    assert 1 in again


@dataclass
class Noisy(Scripted):
    """Times that are nearly equal, each taken anew with noise of some percent, whoever asks."""

    seed: int = 0
    noise: float = 0.05
    taken: int = 0

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        return measure_each(requests, self._noisy, on_result)

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        return self._noisy(request)

    def _noisy(self, request: MeasureRequest) -> MeasureResult:
        self.taken += 1
        luck = uniform(f"{self.seed}/{self.taken}", "noise")
        return ok(1e-3 * (1 + 1e-3 * (request.trial % 5)) * (1 + self.noise * luck))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("trials", [2, 6, 24])
def test_no_report_shows_a_default_that_is_faster_than_the_best(seed: int, trials: int) -> None:
    sink = MemorySink()
    measurer = Noisy(by_trial, seed=seed)
    budget = Budget(trials=trials)
    ended = count()
    for report in (
        tune(measurer, sink, budget=budget, seed=seed % 3),
        tune(measurer, sink, budget=budget, seed=seed % 3),  # nothing new, nothing raced
        tune(measurer, sink, budget=Budget(trials=trials + 8), seed=seed % 3),
        tune(measurer, budget=budget, fresh=True, should_stop=lambda: next(ended) > trials // 2),
    ):
        assert report.default["run_secs"] >= report.best.run_secs
        if report.best.trial == 1:
            assert report.default["run_secs"] == report.best.run_secs


def test_default_and_best_stand_as_they_did_in_the_final_race() -> None:
    """The best is then timed once more, alone and for longer: that must not move the two apart."""

    @dataclass
    class Raced(Scripted):
        def measure(
            self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
        ) -> list[MeasureResult]:
            if on_result is not None:
                return super().measure(requests, on_result)
            return [ok(1.5e-3 if r.trial == 1 else 1e-3 + 1e-6 * r.trial) for r in requests]

    measurer = Raced(by_trial, confirmed=lambda r: ok(2e-3))
    report = tune(measurer)
    assert report.best.run_secs == 2e-3
    best_raced_secs = 1e-3 + 1e-6 * report.best.trial
    assert report.final_race[0] == {"trial": report.best.trial, "run_secs": best_raced_secs}
    assert report.final_race[-1] == {"trial": 1, "run_secs": 1.5e-3}
    assert report.default["run_secs"] == pytest.approx(2e-3 * 1.5e-3 / best_raced_secs)


@pytest.mark.parametrize(("disturbed", "rounds"), [(0, 2), (1, 3), (2, 4), (9, 4)])
def test_finalists_race_on_until_the_times_of_each_agree(disturbed: int, rounds: int) -> None:
    @dataclass
    class Disturbed(Scripted):
        """The fastest candidate looks slow in the first rounds of the final race."""

        def measure(
            self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
        ) -> list[MeasureResult]:
            results = super().measure(requests, on_result)
            number = len(self.raced) // len(requests)
            if on_result is not None or number > disturbed:
                return results
            return [ok(2e-3) if r.trial == 2 else self.answer(r) for r in requests]

    measurer = Disturbed(lambda r: ok(1e-3 if r.trial == 2 else 1.02e-3))
    best = tune(measurer).best
    assert len(measurer.raced) == rounds * len({r.trial for r in measurer.raced})
    assert (best.trial == 2) == (disturbed < rounds)


def test_a_default_that_fails_the_full_check_has_no_time() -> None:
    wrong = MeasureResult(MeasureStatus.WRONG_RESULT)
    fastest = Scripted(
        lambda r: ok(1e-3 if r.trial == 1 else 2e-3),
        confirmed=lambda r: wrong if r.trial == 1 else ok(2e-3),
    )
    report = tune(fastest)
    assert report.best.trial != 1
    assert report.default is None


def test_a_candidate_that_fails_the_full_check_is_told_with_what_was_wrong() -> None:
    """Also by the same command again, which checks nothing."""
    wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="O[3] is 4, not 5")
    sink = MemorySink()
    measurer = Scripted(by_trial, lambda r: wrong if r.trial % 2 == 0 else by_trial(r))
    first = tune(measurer, sink)
    again = tune(Scripted(by_trial), sink)
    assert first.rejected == again.rejected
    assert first.best is not None
    assert first.rejected
    for one in first.rejected:
        assert one.trial % 2 == 0
        assert (one.status, one.detail) == ("wrong_result", "O[3] is 4, not 5")
        (record,) = [r for r in sink.records(*work()) if r.key == one.record_key]
        assert (record.verified_level, record.trial) == ("full", one.trial)


def test_a_run_of_which_every_candidate_fails_the_full_check_says_so() -> None:
    lost = MeasureResult(MeasureStatus.LOST, detail="the process is gone")
    report = tune(Scripted(by_trial, lambda r: lost))
    assert report.best is None
    assert "every candidate failed the full check: lost: the process is" in report.stopped_because
    assert {r.status for r in report.rejected} == {"lost"}
    assert report.trials["ok"] == 24


@pytest.mark.parametrize(
    ("status", "is_clear"), [(MeasureStatus.WRONG_RESULT, False), (MeasureStatus.RUN_TIMEOUT, True)]
)
def test_a_fresh_run_does_not_clear_what_a_check_disproved(
    status: MeasureStatus, is_clear: bool
) -> None:
    fastest = tune(Scripted(by_trial), MemorySink()).best
    assert fastest is not None

    def confirmed(request: MeasureRequest) -> MeasureResult:
        failed = request.trace.to_json() == fastest.trace
        return MeasureResult(status, detail="element 3") if failed else by_trial(request)

    sink = MemorySink()
    tune(Scripted(by_trial, confirmed), sink)
    best = tune(Scripted(by_trial), sink, fresh=True).best
    assert best is not None
    assert (best.trace == fastest.trace) == is_clear


def test_a_stopped_run_whose_fastest_fail_the_full_check_ends_with_the_default() -> None:
    """It has no time for a race, in which the default would stand among the first."""

    def timed(request: MeasureRequest) -> MeasureResult:
        return ok(1.0 if request.trial == 1 else 1e-3 * request.trial)

    def confirmed(request: MeasureRequest) -> MeasureResult:
        wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 3")
        return timed(request) if request.trial == 1 else wrong

    sink = MemorySink()
    best = tune(Scripted(timed, confirmed), sink, should_stop=lambda: stored_in(sink) >= 16).best
    assert best is not None
    assert best.trial == 1


class Beside(Scripted):
    """A measurer whose full checks run beside other work, if they are `begun`."""

    begun: bool = True

    def begin_confirm(self, request: MeasureRequest) -> bool:
        return self.begun


@pytest.mark.parametrize("begun", [True, False])
def test_other_work_is_done_beside_a_full_check_of_the_fastest(begun: bool) -> None:
    measurer, seen = Beside(by_trial), list[Trace]()
    measurer.begun = begun
    report = tune(measurer, beside_check=seen.append)
    assert [trace.to_json() for trace in seen] == [report.best.trace] * begun
