"""The session: stores before it tells, resumes, stops for a reason, and reports what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from tests.support.synthetic_sketch import synthetic_space
from tests.support.tuner.scripted import Scripted, ok
from tests.support.tuner.sessions import OK, by_trial, simulated, space, stored_in, tune
from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.target import Probes
from tilewright.schedules.trace import Trace
from tilewright.tuner.machine.roofline import bound_for
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine, SimulatedMeasurer
from tilewright.tuner.measure.protocol import MeasureRequest, OnResult
from tilewright.tuner.search.prior_ranking import rank_for_default
from tilewright.tuner.search.strategies.annealing import AnnealingStrategy
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget, PreviousTrial, TrialEvent


def test_finds_verifies_and_promotes_the_best() -> None:
    sink, measurer = MemorySink(), Scripted(by_trial)
    report = tune(measurer, sink)
    stored = sink.records(space().workload.key, space().target.key)
    quick = [r for r in stored if r.verified_level == "quick"]
    fastest = min(quick, key=lambda r: r.result.run_secs_estimate or 1.0)
    assert len(quick) == 24
    assert report.best is not None
    assert report.best.verified
    assert report.best.trace == fastest.trace
    assert [canonical_bytes(r.trace.to_json()) for r in measurer.confirmations] == [
        canonical_bytes(fastest.trace)
    ]
    best = sink.best(space().workload.key, space().target.key)
    assert best is not None
    assert best.key == report.best.record_key
    assert best.verified_level == "full"


def test_every_trial_is_durable_before_it_is_told() -> None:
    sink = MemorySink()

    def listen(event: TrialEvent) -> None:
        keys = {r.key for r in sink.records(space().workload.key, space().target.key)}
        assert event.record_key in keys
        seen.append(event.trial)

    seen: list[int] = []
    tune(Scripted(by_trial), sink, on_event=listen)
    assert seen == list(range(1, 25))


def test_the_same_command_again_measures_nothing() -> None:
    sink = MemorySink()
    first = tune(simulated(), sink)
    again = Scripted(by_trial, toolchain=simulated().toolchain)
    second = tune(again, sink)
    assert not again.requests
    assert not again.confirmations
    assert second.best == first.best
    assert second.trials["total"] == first.trials["total"]
    assert second.trials["measured_now"] == 0


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_run_goes_on_where_it_was(after: int) -> None:
    """Ctrl-C in batch `after`: all earlier batches are kept, and the end is the same."""
    whole = tune(simulated())
    sink, batches = MemorySink(), count()

    class Interrupted(SimulatedMeasurer):
        def measure(
            self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
        ) -> list[MeasureResult]:
            if next(batches) == after:
                raise KeyboardInterrupt
            return SimulatedMeasurer.measure(self, requests, on_result)

    broken = Interrupted(SimulatedMachine(), space().workload)
    with pytest.raises(KeyboardInterrupt):
        tune(broken, sink)
    kept = len(sink.records(space().workload.key, space().target.key))
    assert bool(kept) == bool(after)
    report = tune(simulated(), sink)
    assert report.trials["measured_now"] == 24 - kept
    assert report.best == whole.best


def begun_by(events: list[TrialEvent]) -> tuple[PreviousTrial, ...]:
    """What a job keeps of its trials."""
    return tuple(
        PreviousTrial(e.candidate, e.record_key) for e in events if e.candidate is not None
    )


@pytest.mark.parametrize("kept", [1, 5, 10])
def test_a_run_goes_on_behind_the_trials_it_told_without_asking_for_them_again(kept: int) -> None:
    sink, first = MemorySink(), list[TrialEvent]()
    tune(simulated(), sink, budget=Budget(trials=10), on_event=first.append)
    asked: list[int] = []

    class Counting(AnnealingStrategy):
        def ask(self, count: int) -> list[Candidate]:
            found = super().ask(count)
            asked.extend([len(self.ledger.proposed)] * len(found))
            return found

    told: list[TrialEvent] = []
    again = Scripted(by_trial, toolchain=simulated().toolchain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tilewright.tuner.session.run.make_strategy",
            lambda name, space, goal: Counting(space, goal),
        )
        report = tune(again, sink, on_event=told.append, begun=begun_by(first[:kept]))
    assert [event.trial for event in told] == list(range(1, 25))
    assert [event.record_key for event in told[:kept]] == [e.record_key for e in first[:kept]]
    assert all(event.reused for event in told[:kept])
    assert len(asked) == 24 - kept
    assert len({event.record_key for event in told}) == 24
    assert report.best is not None


def test_trials_of_another_space_are_not_taken_up() -> None:
    sink, first = MemorySink(), list[TrialEvent]()
    whole = tune(simulated(), sink, on_event=first.append)
    begun = begun_by(first)
    places = [one.candidate for one in begun]
    for wrong in (
        [*places[1:], places[0]],
        [Candidate(99, c.setting) for c in places],
        [Candidate(c.sketch, c.setting[:-1]) for c in places],
        [Candidate(c.sketch, tuple(n + 1000 for n in c.setting)) for c in places],
    ):
        moved = [PreviousTrial(c, one.record_key) for c, one in zip(wrong, begun, strict=True)]
        told: list[TrialEvent] = []
        again = tune(simulated(), sink, on_event=told.append, begun=moved)
        assert [event.record_key for event in told] == [event.record_key for event in first]
        assert again.best == whole.best


def test_a_finished_run_that_is_taken_up_confirms_its_best_alone() -> None:
    sink, first = MemorySink(), list[TrialEvent]()
    whole = tune(simulated(), sink, on_event=first.append)
    again = Scripted(by_trial, toolchain=simulated().toolchain)
    second = tune(again, sink, begun=begun_by(first))
    assert not again.requests
    assert not again.confirmations
    assert second.best == whole.best


def test_what_is_begun_ends_where_a_record_is_not_stored() -> None:
    sink, first = MemorySink(), list[TrialEvent]()
    tune(simulated(), sink, budget=Budget(trials=10), on_event=first.append)
    begun = begun_by(first)
    begun = (*begun[:4], replace(begun[4], record_key="record:never"), *begun[5:])
    told: list[TrialEvent] = []
    tune(simulated(), sink, on_event=told.append, begun=begun)
    assert [event.trial for event in told] == list(range(1, 25))
    assert all(event.reused for event in told[:4])


def test_a_listener_that_raises_loses_nothing() -> None:
    sink = MemorySink()

    def listen(event: TrialEvent) -> None:
        if event.trial == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(simulated(), sink, on_event=listen)
    assert len(sink.records(space().workload.key, space().target.key)) == 6


def test_a_larger_budget_continues_a_finished_run() -> None:
    sink = MemorySink()
    tune(simulated(), sink, budget=Budget(trials=10))
    report = tune(simulated(), sink, budget=Budget(trials=24))
    assert report.trials["measured_now"] == 14
    assert report.best == tune(simulated(), budget=Budget(trials=24)).best


def test_fresh_measures_again() -> None:
    sink = MemorySink()
    tune(simulated(), sink)
    report = tune(simulated(), sink, fresh=True)
    assert report.trials["measured_now"] == 24


def test_results_of_another_toolchain_are_not_reused() -> None:
    sink = MemorySink()
    tune(Scripted(by_trial), sink)
    newer = Scripted(by_trial, toolchain=Toolchain(2, "0.50", "22"))
    tune(newer, sink)
    assert len(newer.requests) == 24


def test_claims_of_an_import_are_not_believed() -> None:
    sink, measurer = MemorySink(), Scripted(by_trial)
    tune(measurer, sink)
    (any_record, *_) = sink.records(space().workload.key, space().target.key)
    document = any_record.to_json()
    document |= {"verified_level": "imported", "trace": []}
    document["result"] |= {"run_secs": (1e-9,), "run_secs_estimate": 1e-9}
    sink.add([TuningRecord.from_json(document)])
    report = tune(measurer, sink)
    assert report.best.run_secs > 1e-6


def test_a_faster_stored_result_of_another_seed_is_the_best() -> None:
    sink = MemorySink()
    fast = tune(Scripted(lambda r: ok(1e-5 + 1e-9 * r.trial)), sink, seed=1)
    slow = tune(Scripted(lambda r: ok(1e-3 + 1e-9 * r.trial)), sink, seed=2, strategy="random")
    assert slow.best.trace == fast.best.trace


def test_nothing_but_failures_stops_with_the_top_reasons() -> None:
    kinds = [MeasureStatus.RUN_CRASH, MeasureStatus.RUN_CRASH, MeasureStatus.COMPILE_ERROR]
    measurer = Scripted(lambda r: MeasureResult(kinds[r.trial % 3], detail="why"))
    report = tune(measurer, budget=Budget(trials=64))
    assert report.best is None
    assert report.default is None
    assert report.trials["total"] == 16
    assert "none of 16 candidates could be measured" in report.stopped_because
    assert "run_crash: why" in report.stopped_because


def test_lost_measurements_are_taken_again() -> None:
    sink = MemorySink()
    lost = MeasureResult(MeasureStatus.LOST)
    tune(Scripted(lambda r: lost if r.trial <= 4 else by_trial(r)), sink)
    again = Scripted(by_trial)
    tune(again, sink)
    assert [r.trial for r in again.requests[:4]] == [1, 2, 3, 4]


def test_time_budget_is_kept_to_a_batch() -> None:
    """Each trial takes 10 s, and nothing else takes time, however often the clock is looked at."""
    measurer = Scripted(by_trial)
    report = tune(measurer, clock=lambda: 10.0 * len(measurer.requests), budget=Budget(64, 500.0))
    assert 42 <= report.trials["total"] <= 50  # a batch of 8 is not begun without time for it
    assert "time budget of 500 s" in report.stopped_because


@pytest.mark.parametrize("wanted", [1, 5, 24])
def test_stops_on_request_after_the_trial_and_has_its_best(wanted: int) -> None:
    sink, measurer = MemorySink(), Scripted(by_trial)
    told: list[TrialEvent] = []
    report = tune(measurer, sink, on_event=told.append, should_stop=lambda: len(told) >= wanted)
    assert report.stopped_because == "stopped on request"
    assert report.trials["measured_now"] == len(told) == wanted
    fastest = min(told, key=lambda e: e.result.run_secs_estimate or 1.0)
    assert report.best.trial == fastest.trial
    assert report.best.verified
    assert sink.best(space().workload.key, space().target.key) is not None


@pytest.mark.parametrize("strategy", ["annealing", "evolution", "random", "grid"])
def test_a_request_to_stop_is_heard_while_candidates_are_chosen(strategy: str) -> None:
    """The first look at a large space takes seconds."""
    measurer = Scripted(by_trial)
    report = tune(measurer, strategy=strategy, should_stop=lambda: True)
    assert report.stopped_because == "stopped on request"
    assert report.trials["total"] == len(measurer.requests) == 0
    assert report.best is None


class Unordered(Scripted):
    """Answers a batch from its end, as processes that work side by side may."""

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        if on_result is None:
            return super().measure(requests)
        for position in reversed(range(len(requests))):
            on_result(position, self.answer(requests[position]))
        return [self.answer(request) for request in requests]


def test_trials_are_stored_as_they_come_and_told_in_order() -> None:
    told: list[TrialEvent] = []
    report = tune(Unordered(by_trial), on_event=told.append)
    assert [event.trial for event in told] == list(range(1, 25))
    assert all(event.result == by_trial(MeasureRequest(event.trial, Trace())) for event in told)
    in_order = tune(Scripted(by_trial))
    assert (report.best, report.curve) == (in_order.best, in_order.curve)


def test_a_trial_that_came_before_its_turn_counts_when_the_run_is_stopped() -> None:
    sink = MemorySink()
    report = tune(Unordered(by_trial), sink, should_stop=lambda: stored_in(sink) >= 2)
    stored = sink.records(space().workload.key, space().target.key)
    assert report.trials["total"] == 2
    assert [r.verified_level for r in stored] == ["quick", "quick", "full"]
    assert report.best is not None


def test_a_resumed_run_has_the_numbers_of_a_whole_one() -> None:
    whole, sink = tune(Scripted(by_trial)), MemorySink()
    tune(Unordered(by_trial), sink, should_stop=lambda: stored_in(sink) >= 3)
    told: list[TrialEvent] = []
    resumed = tune(Scripted(by_trial), sink, on_event=told.append)
    assert [event.trial for event in told] == list(range(1, 25))
    assert sum(event.reused for event in told) == 3
    assert not told[0].reused, "the last of a batch came first"
    assert (resumed.best, resumed.default) == (whole.best, whole.default)


def test_reused_trials_are_told_as_such() -> None:
    sink = MemorySink()
    tune(simulated(), sink, budget=Budget(trials=10))
    told: list[TrialEvent] = []
    tune(simulated(), sink, on_event=told.append)
    assert [event.trial for event in told] == list(range(1, 25))
    assert [event.reused for event in told] == [True] * 10 + [False] * 14
    assert [event.eta_secs is None for event in told] == [event.reused for event in told]
    stored = {r.key for r in sink.records(space().workload.key, space().target.key)}
    assert {event.record_key for event in told} <= stored


def test_a_measured_bound_ends_the_search_an_assumed_one_does_not() -> None:
    at_the_bound = Scripted(lambda r: ok(1.01 * bound_for(space().workload, space().target).secs))
    assert "of the bound" in tune(at_the_bound).stopped_because
    unprobed = _with_probes(space(), Probes())
    assumed_secs = bound_for(unprobed.workload, unprobed.target).secs
    report = tune(Scripted(lambda r: ok(1.01 * assumed_secs)), space=unprobed)
    assert "of the bound" not in report.stopped_because


def test_report_is_the_documented_one() -> None:
    report = tune(simulated(), budget=Budget(trials=40))
    document = report.to_json()
    assert set(document) == {
        "workload", "target", "strategy", "seed", "space_size", "trials", "wall_secs",
        "wall_secs_by_phase", "stopped_because", "best", "default", "curve", "cost_model", "bound",
        "out_of_time", "dropped_sketches", "rejected", "final_race", "database_model", "related",
    }  # fmt: skip
    assert set(document["workload"]) == {"key", "name", "flops", "min_bytes"}
    assert set(document["target"]) >= {"key", "cpu", "threads", "peak_gflops", "bandwidth_gbs"}
    assert document["trials"]["by_status"]["ok"] == document["trials"]["ok"]
    best, default = document["best"], document["default"]
    assert best["gflops"] == pytest.approx(space().workload.flops / best["run_secs"] / 1e9)
    assert default["run_secs"] >= best["run_secs"]
    curve = document["curve"]
    assert curve[0]["trial"] == 1
    assert [c["best_run_secs"] for c in curve] == sorted(
        (c["best_run_secs"] for c in curve), reverse=True
    )
    assert -1 <= document["cost_model"]["rank_correlation"] <= 1
    assert 0 <= document["cost_model"]["recall_at_16"] <= 1
    assert 0 <= document["cost_model"]["prior_trust"] <= 1
    assert document["cost_model"]["gain_over_prior"] >= 1


def test_first_trial_is_the_default_schedule() -> None:
    measurer = Scripted(by_trial)
    tune(measurer, strategy="random")
    expected = space().trace(rank_for_default(space()).default)
    assert measurer.requests[0].trace == expected


def test_phases_share_out_the_wall_time() -> None:
    ticks = count()
    result = MeasureResult(OK, (1e-3,), 1e-3, compile_secs=3.0, measure_secs=1.0)
    report = tune(Scripted(lambda r: result), clock=lambda: float(next(ticks)))
    phases = report.wall_secs_by_phase
    assert phases["compile"] == pytest.approx(3 * phases["measure"])
    assert 0 < sum(phases.values()) <= report.wall_secs


def test_two_settings_with_one_trace_are_one_trial() -> None:
    same = synthetic_space(64, 64, 64, small=True)
    doubled = ScheduleSpace(same.workload, same.target, (same.sketches[0], same.sketches[0]))
    measurer = Scripted(by_trial)
    tune(measurer, space=doubled, budget=Budget(trials=30))
    traces = [canonical_bytes(r.trace.to_json()) for r in measurer.requests]
    assert len(traces) == len(set(traces))


def _with_probes(known: ScheduleSpace, probes: Probes) -> ScheduleSpace:
    return ScheduleSpace(known.workload, replace(known.target, probes=probes), known.sketches)


def test_events_tell_the_settings_and_what_was_predicted_of_them() -> None:
    events: list[TrialEvent] = []
    tune(simulated(), on_event=events.append, budget=Budget(trials=32))
    first = {sketch.name: sketch.knobs for sketch in space().sketches}
    for event in events:
        choices = {knob.name: knob.values for knob in first[event.sketch] if len(knob.values) > 1}
        assert event.knobs.keys() == choices.keys()
        assert all(value in choices[name] for name, value in event.knobs.items())
    predicted = [event.predicted_secs for event in events if event.predicted_secs is not None]
    assert len(predicted) > 16
    assert all(1e-9 < secs < 10 for secs in predicted)
