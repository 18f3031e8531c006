"""Many workloads under one budget: tasks, the next batch, failures, ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tuner.scripted import Scripted, ok
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.machine.native_target import unprobed_target
from tilewright.tuner.many.entries import MAX_ENTRIES, ManyEntry, ManyError, distinct_tasks
from tilewright.tuner.many.gain import BatchHistory, expected_gain, left_to_gain
from tilewright.tuner.many.report import DONE, FAILED, ManyEvent, ManyReport
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.process.control import Control
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget
from tilewright.tuner.tuning import tune, tune_many

SMALL = parse_workload("matmul:M=8,N=16,K=8")
OTHER = parse_workload("matmul:M=16,N=16,K=8")
THIRD = parse_workload("matmul:M=8,N=32,K=8")
TARGET = unprobed_target(1)

Answer = Callable[[MeasureRequest], MeasureResult]


@dataclass
class Machine:
    """A factory of scripted measurers on a clock that measuring moves: a second per candidate."""

    answers: dict[str, Answer] = field(default_factory=dict)
    secs: float = 0.0
    opened: dict[str, Scripted] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def now(self) -> float:
        return self.secs

    def __call__(self, workload: Workload, target: Target, seed: int) -> Scripted:
        answer = self.answers.get(workload.key, constant)

        def timed(request: MeasureRequest) -> MeasureResult:
            self.secs += 1.0
            self.order.append(workload.key)
            return answer(request)

        self.opened[workload.key] = Scripted(timed)
        return self.opened[workload.key]


def constant(request: MeasureRequest) -> MeasureResult:
    return ok(1e-3)


def falling(request: MeasureRequest) -> MeasureResult:
    return ok(1e-3 * (1.0 - 0.004 * request.trial))


def run(machine: Machine, entries: Sequence[ManyEntry], **more: Any) -> ManyReport:
    more.setdefault("budget", Budget(trials=12))
    more.setdefault("control", Control(now=machine.now))
    more.setdefault("strategy", "random")
    return tune_many(entries, TARGET, measurer=machine, **more)


# -- the list


def test_equal_workloads_are_one_task_whose_weight_is_their_sum() -> None:
    again = parse_workload(expr="C[i,j] += A[i,k] * B[k,j]", tensors=["A=f32[8,8]", "B=f32[8,16]"])
    found = distinct_tasks([ManyEntry(SMALL), ManyEntry(OTHER, 2.0), ManyEntry(again, 3.5, "fc")])
    assert [(t.name, t.weight, t.entries) for t in found] == [
        ("fc", 4.5, (0, 2)),
        (OTHER.name, 2.0, (1,)),
    ]


@pytest.mark.parametrize("weight", [0.0, -1.0, nan, inf, -inf, True, "2", None, 10**400])
def test_a_weight_that_is_none_is_refused_and_named(weight: Any) -> None:
    with pytest.raises(ManyError, match=r"entry 2 \(b\): weight must be a number above 0") as error:
        distinct_tasks([ManyEntry(SMALL), ManyEntry(OTHER, weight, "b")])
    assert error.value.pointer == "/1/weight"


def test_an_empty_a_long_and_an_ambiguous_list_are_refused() -> None:
    with pytest.raises(ManyError, match="empty"):
        distinct_tasks([])
    with pytest.raises(ManyError, match=f"2000 workloads; at most {MAX_ENTRIES}"):
        distinct_tasks([ManyEntry(SMALL)] * 2000)
    with pytest.raises(ManyError, match=r"entry 2 \(a\): an earlier entry has this name"):
        distinct_tasks([ManyEntry(SMALL, 1.0, "a"), ManyEntry(OTHER, 1.0, "a")])


# -- the expected gain

SECS = st.floats(1e-7, 1.0)


@given(SECS, st.none() | SECS, st.none() | SECS)
def test_what_is_left_is_between_nothing_and_the_time(
    best: float, bound: float | None, promised: float | None
) -> None:
    left = left_to_gain(best, bound, promised)
    assert 0.0 <= left <= best
    if bound is not None:
        assert left_to_gain(best, bound, promised) <= left_to_gain(best, bound, None)
        assert best - left >= min(bound, best) * 0.999


@given(st.lists(st.tuples(st.floats(0.0, 10.0), SECS), min_size=1, max_size=9), SECS, SECS)
def test_the_gain_grows_with_the_weight_and_with_what_is_left(
    batches: list[tuple[float, float]], weight: float, left: float
) -> None:
    history = BatchHistory()
    best = inf
    for cost, secs in batches:
        best = min(best, secs)
        history.add(cost, best)
    gain = expected_gain(history, weight, left)
    assert 0.0 <= gain < inf
    assert expected_gain(history, 2 * weight, left) == pytest.approx(2 * gain)
    assert expected_gain(history, weight, 2 * left) >= gain


def test_a_task_without_a_time_comes_first() -> None:
    history = BatchHistory()
    assert expected_gain(history, 1.0, 0.0) == inf
    history.add(1.0, None)
    assert expected_gain(history, 1.0, 0.0) == inf


# -- runs


def test_every_task_gets_its_report_and_the_sum_is_weighted() -> None:
    machine = Machine({OTHER.key: falling})
    report = run(machine, [ManyEntry(SMALL, 3.0), ManyEntry(OTHER, 2.0, "b"), ManyEntry(SMALL)])
    assert report.complete
    first, second = report.tasks
    assert (first.weight, second.name, second.entries) == (4.0, "b", (1,))
    assert first.best is not None
    assert second.best is not None
    assert report.weighted_secs == 4.0 * first.best.run_secs + 2.0 * second.best.run_secs
    document = report.to_json()
    assert document["tasks"][1]["best"]["run_secs"] == second.best.run_secs
    assert document["tasks"][1]["error"] is None
    assert document["weighted_secs"] == report.weighted_secs


def test_a_task_of_many_finds_what_it_finds_alone() -> None:
    alone = Machine({SMALL.key: falling})
    single = tune(SMALL, TARGET, measurer=alone, budget=Budget(12), strategy="random")
    machine = Machine({SMALL.key: falling, OTHER.key: constant})
    many = run(machine, [ManyEntry(OTHER), ManyEntry(SMALL)])
    report = many.tasks[1].report
    assert report is not None
    assert (report.best, report.trials) == (single.best, single.trials)
    assert [r.trace for r in machine.opened[SMALL.key].requests] == [
        r.trace for r in alone.opened[SMALL.key].requests
    ]


def test_seconds_go_to_the_task_that_gains() -> None:
    machine = Machine({SMALL.key: falling, OTHER.key: constant})
    entries = [ManyEntry(OTHER), ManyEntry(SMALL)]
    run(machine, entries, budget=Budget(trials=200, seconds=150.0))
    assert machine.order.count(SMALL.key) > 2 * machine.order.count(OTHER.key)


def test_seconds_go_to_the_heavy_task() -> None:
    machine = Machine({SMALL.key: falling, OTHER.key: falling})
    entries = [ManyEntry(OTHER, 1.0), ManyEntry(SMALL, 100.0)]
    run(machine, entries, budget=Budget(trials=200, seconds=100.0))
    assert machine.order.count(SMALL.key) > 2 * machine.order.count(OTHER.key)


def test_the_whole_ends_when_the_rest_is_not_worth_its_cost() -> None:
    machine = Machine()
    # A batch costs seconds and gains nothing; hundreds of trials would be allowed.
    report = run(machine, [ManyEntry(SMALL), ManyEntry(OTHER)], budget=Budget(trials=10_000))
    assert report.complete
    ends = {task.stopped_because for task in report.tasks}
    assert all("expected gain is below" in end or "every candidate" in end for end in ends)
    assert report.stopped_because == "every task has ended"


def refuse(request: MeasureRequest) -> MeasureResult:
    return MeasureResult(MeasureStatus.COMPILE_ERROR, detail="no such instruction")


def bug(request: MeasureRequest) -> MeasureResult:
    if request.trial < 3:
        return ok(1e-3)
    raise KeyError("lost")


def no_memory(request: MeasureRequest) -> MeasureResult:
    raise MemoryError


def test_the_best_of_a_task_that_fails_later_is_confirmed() -> None:
    machine = Machine({OTHER.key: bug})
    report = run(machine, [ManyEntry(SMALL), ManyEntry(OTHER)], sink=MemorySink())
    failed = report.tasks[1]
    assert failed.best is not None
    assert failed.trials == 2
    assert failed.to_json()["error"]["code"] == "bug"


def test_a_task_whose_check_fails_is_checked_once() -> None:
    machine = Machine()

    def factory(workload: Workload, target: Target, seed: int) -> Scripted:
        measurer = machine(workload, target, seed)
        if workload.key == OTHER.key:
            measurer.confirmed = no_memory
        return measurer

    report = tune_many(
        [ManyEntry(SMALL), ManyEntry(OTHER)],
        TARGET,
        measurer=factory,
        budget=Budget(6),
        strategy="random",
        control=Control(now=machine.now),
    )
    failed = report.tasks[1]
    assert failed.error is not None
    assert failed.error.code == "out_of_memory"
    assert len(machine.opened[OTHER.key].confirmations) == 1
    assert (failed.trials, failed.to_json()["trials"]) == (6, {"total": 6})
    assert report.tasks[0].best is not None


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (refuse, "no_best", "no such instruction"),
        (no_memory, "out_of_memory", "not enough memory"),
        (bug, "bug", "KeyError: 'lost'"),
    ],
)
def test_a_failing_task_never_ends_the_others(answer: Answer, code: str, says: str) -> None:
    machine = Machine({OTHER.key: answer})
    report = run(machine, [ManyEntry(SMALL), ManyEntry(OTHER), ManyEntry(THIRD)])
    failed = report.tasks[1]
    assert failed.error is not None
    assert failed.error.code == code
    assert says in failed.error.message
    assert [report.tasks[i].best is not None for i in (0, 2)] == [True, True]
    assert [report.tasks[i].error for i in (0, 2)] == [None, None]


def test_a_workload_that_cannot_be_measured_never_ends_the_others() -> None:
    machine = Machine()

    def factory(workload: Workload, target: Target, seed: int) -> Scripted:
        if workload.key == OTHER.key:
            raise WorkloadError("needs 900 GiB", code="too_large")
        return machine(workload, target, seed)

    report = tune_many(
        [ManyEntry(OTHER), ManyEntry(SMALL)],
        TARGET,
        measurer=factory,
        budget=Budget(8),
        control=Control(now=machine.now),
    )
    failed, done = report.tasks
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("too_large", "needs 900 GiB")
    assert failed.to_json()["best"] is None
    assert done.best is not None
    assert not report.complete


class Full(MemorySink):
    """A store that fails after some records."""

    def add(self, records: Any) -> None:
        if sum(map(len, [self._records])) >= 6:
            raise OSError("no space left")
        super().add(records)


def test_an_error_of_the_store_or_the_listener_ends_the_run() -> None:
    entries = [ManyEntry(SMALL), ManyEntry(OTHER)]
    with pytest.raises(OSError, match="no space left"):
        run(Machine(), entries, sink=Full())

    def listen(event: ManyEvent) -> None:
        raise ValueError("listener")

    with pytest.raises(ValueError, match="listener"):
        run(Machine(), entries, on_event=listen)


def test_an_interrupted_run_keeps_its_trials_and_goes_on() -> None:
    sink, machine = MemorySink(), Machine()
    entries = [ManyEntry(SMALL), ManyEntry(OTHER)]
    whole = run(Machine({SMALL.key: falling}), entries)

    def interrupt(request: MeasureRequest) -> MeasureResult:
        if request.trial > 6:
            raise KeyboardInterrupt
        return falling(request)

    machine.answers[SMALL.key] = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(machine, entries, sink=sink)
    assert len(sink.records(SMALL.key, TARGET.key)) == 6
    again = run(Machine({SMALL.key: falling}), entries, sink=sink)
    reports = [task.report for task in again.tasks if task.report is not None]
    assert [report.trials["measured_now"] for report in reports] == [6, 0]
    assert again.tasks[0].best == whole.tasks[0].best


def test_a_stopped_run_confirms_what_it_has() -> None:
    machine = Machine()
    entries = [ManyEntry(SMALL), ManyEntry(OTHER), ManyEntry(THIRD)]
    report = run(machine, entries, should_stop=lambda: len(set(machine.order)) == 2)
    assert report.stopped_because == "stopped on request"
    assert sum(task.best is not None for task in report.tasks) == 2
    (unbegun,) = [task for task in report.tasks if task.report is None]
    assert unbegun.error is not None
    assert unbegun.error.code == "not_begun"


def test_an_aborted_run_returns() -> None:
    machine = Machine()
    control = Control(now=machine.now)
    entries = [ManyEntry(SMALL), ManyEntry(OTHER)]

    def abort(request: MeasureRequest) -> MeasureResult:
        control.abort()
        return ok(1e-3)

    machine.answers = dict.fromkeys((SMALL.key, OTHER.key), abort)
    report = run(machine, entries, control=control)
    assert report.stopped_because == "stopped on request"
    assert not report.complete


def test_seconds_bound_the_whole_and_bests_are_confirmed() -> None:
    machine = Machine({w.key: falling for w in (SMALL, OTHER, THIRD)})
    entries = [ManyEntry(w) for w in (SMALL, OTHER, THIRD)]
    report = run(machine, entries, budget=Budget(trials=500, seconds=40.0))
    assert report.complete
    assert "the time budget of 40 s is used up" in report.stopped_because
    assert all(m.confirmations for m in machine.opened.values())


def test_events_tell_each_task_and_the_trials_of_each() -> None:
    events: list[ManyEvent] = []
    machine = Machine({OTHER.key: refuse})
    report = run(machine, [ManyEntry(SMALL, 2.0), ManyEntry(OTHER)], on_event=events.append)
    for task in report.tasks:
        own = [e for e in events if e.task.name == task.name]
        numbers = [e.trial.trial for e in own if e.trial is not None]
        assert numbers == list(range(1, len(numbers) + 1))
        assert own[-1].trial is None
        assert own[-1].task.state == (DONE if task.best else FAILED)
        assert own[-1].task.reason == task.stopped_because
    timed = [e.task for e in events if e.task.weight == 2.0 and e.task.best_run_secs]
    assert all(t.weighted_secs == 2.0 * (t.best_run_secs or 0.0) for t in timed)


def test_the_clock_of_a_task_stands_while_others_run() -> None:
    machine = Machine({w.key: falling for w in (SMALL, OTHER)})
    report = run(machine, [ManyEntry(SMALL), ManyEntry(OTHER)])
    own = [task.report.wall_secs for task in report.tasks if task.report is not None]
    assert sum(own) == pytest.approx(report.wall_secs)


# -- a time budget that is short for its tasks

LAYERS = [parse_workload(f"matmul:M={8 * n},N=16,K=8") for n in range(1, 17)]


@dataclass
class Slow(Machine):
    """A machine on which the beginning and the end of a task cost more than a trial. `predicted` is
    the predicted time of a full check over its time."""

    begin_secs: float = 0.7
    trial_secs: float = 0.1
    check_secs: float = 1.5
    predicted: float = 2.0
    confirmed: list[str] = field(default_factory=list)

    def __call__(self, workload: Workload, target: Target, seed: int) -> Scripted:
        self.secs += self.begin_secs
        answer = self.answers.get(workload.key, falling)

        def timed(request: MeasureRequest) -> MeasureResult:
            self.secs += self.trial_secs
            if not request.compared:
                self.order.append(workload.key)
            return replace(answer(request), measure_secs=self.trial_secs)

        def checked(request: MeasureRequest) -> MeasureResult:
            self.secs += self.check_secs
            self.confirmed.append(workload.key)
            return answer(request)

        self.opened[workload.key] = Predicting(timed, checked, check_secs=self.predicted_secs)
        return self.opened[workload.key]

    @property
    def predicted_secs(self) -> float:
        return self.predicted * self.check_secs


@dataclass
class Predicting(Scripted):
    """A scripted measurer that predicts the time of its full check."""

    check_secs: float = 0.0

    def confirm_secs(self, result: MeasureResult) -> float:
        return self.check_secs


def slow_run(machine: Slow, seconds: float | None, count: int = 16) -> ManyReport:
    entries = [ManyEntry(w, weight=20.0 - n) for n, w in enumerate(LAYERS[:count])]
    return run(machine, entries, budget=Budget(trials=64, seconds=seconds))


@pytest.mark.parametrize("predicted", [0.4, 1.0, 2.0])
def test_every_task_gets_a_best_although_checks_are_badly_predicted(predicted: float) -> None:
    machine = Slow(predicted=predicted)
    report = slow_run(machine, 60.0)
    assert report.complete
    assert 50.0 < machine.secs < 61.0
    assert len({key for key, _ in islice(groupby(machine.order), 16)}) == len(LAYERS)


def test_no_task_has_a_second_block_before_all_have_a_first_choice() -> None:
    machine = Slow()
    assert slow_run(machine, 39.0).complete
    assert len({key for key, _ in islice(groupby(machine.order), 16)}) == len(LAYERS)


@pytest.mark.parametrize("seconds", [5.0, 8.0, 14.0, 25.0])
def test_a_budget_for_some_serves_the_most_work_and_says_so_of_the_rest(seconds: float) -> None:
    machine = Slow()
    report = slow_run(machine, seconds)
    by_work = sorted(
        report.tasks,
        key=lambda t: t.weight * next(w.flops for w in LAYERS if w.key == t.workload_key),
        reverse=True,
    )
    served = [task.best is not None for task in by_work]
    assert served == sorted(served, reverse=True)
    assert served.count(True) >= (seconds - 1.5) // 2.5
    assert machine.secs <= seconds + 0.5
    for task in by_work[served.count(True) :]:
        assert task.trials == 0
        assert task.error is not None
        assert task.error.code == "not_begun"
        assert f"{seconds:g} s" in task.error.message


def test_a_task_that_needs_most_of_the_budget_does_not_take_it_all() -> None:
    machine = Slow(answers={LAYERS[-1].key: refuse})
    report = slow_run(machine, 20.0, count=4)
    assert report.complete
    machine = Slow()
    assert slow_run(machine, 20.0, count=1).complete


def test_with_seconds_a_light_task_goes_on_and_without_it_ends() -> None:
    def light_trials(seconds: float | None) -> int:
        machine = Slow(answers={SMALL.key: constant, OTHER.key: falling})
        entries = [ManyEntry(SMALL, 1e6), ManyEntry(OTHER, 1e-3)]
        run(machine, entries, budget=Budget(trials=48, seconds=seconds))
        return machine.order.count(OTHER.key)

    assert light_trials(500.0) == 48
    assert light_trials(None) < 48


def test_a_race_that_is_not_worth_its_time_is_not_run() -> None:
    machine = Slow(trial_secs=1.0, answers=dict.fromkeys((w.key for w in LAYERS), constant))
    slow_run(machine, None)
    raced = [key for key, one in machine.opened.items() if one.raced]
    assert len(raced) < len(LAYERS)


def test_of_hundreds_of_tasks_a_short_budget_serves_some() -> None:
    machine = Slow()
    entries = [ManyEntry(parse_workload(f"matmul:M={8 + n},N=16,K=8")) for n in range(300)]
    report = run(machine, entries, budget=Budget(trials=64, seconds=12.0))
    assert machine.secs <= 12.5
    codes = [task.error and task.error.code for task in report.tasks]
    assert set(codes) == {None, "not_begun"}
    assert codes.count(None) >= 3
