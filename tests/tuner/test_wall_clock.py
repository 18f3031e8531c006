"""The seconds of a run bound all of it: references, candidates, checks, whoever is at work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.synthetic_sketch import synthetic_space
from tests.support.tuner.scripted import Scripted, ok
from tilewright.schedules import operators
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Probes, Target
from tilewright.tuner import timeouts
from tilewright.tuner.machine.machine_lock import machine_lock
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.machine.probe_merging import ProbingLateError
from tilewright.tuner.measure import measurer_spec
from tilewright.tuner.measure.checking import batch
from tilewright.tuner.measure.local import LocalMeasurer, MeasureSettings
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.process.control import (
    MAX_RESERVED_SHARE,
    PHASES,
    RESERVE_MARGIN,
    Activity,
    Control,
    MeasurementAborted,
    OutOfTime,
    rounded_up,
)
from tilewright.tuner.process.linux import process_age_secs
from tilewright.tuner.search.prior_ranking import rank_for_default
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.options import SessionOptions
from tilewright.tuner.session.report import Budget, TrialEvent, TuneReport
from tilewright.tuner.session.run import run_session

MATMUL = operators.build("matmul", M=16, N=16, K=16).normalised()
NEVER = "tests.support.tuner.slow_cases:open_never"
STOPS = "tests.support.tuner.slow_cases:open_that_stops"
LONG_SECS = 60.0
"""Much longer than any of these tests should take, much shorter than what it ends."""


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.secs = 100.0

    def __call__(self) -> float:
        return self.secs

    def pass_secs(self, secs: float) -> None:
        self.secs += secs


# -- the line into a run


def test_a_control_knows_what_is_left_and_when_nothing_more_is_begun() -> None:
    clock = Clock()
    control = Control(now=clock, started=98.0)
    assert control.left_secs == float("inf")
    control.allow(10.0)
    assert control.left_secs == 8.0
    control.reserve_secs = 3.0
    clock.pass_secs(4.9)
    assert control.may_begin()
    clock.pass_secs(0.2)
    assert not control.may_begin()
    control.check()
    clock.pass_secs(2.9 + timeouts.RUN_GRACE_SECS)
    with pytest.raises(OutOfTime, match="stopped: 10 s ended during starting"):
        control.check()


def test_time_of_others_is_not_the_runs_but_is_on_the_wall() -> None:
    clock = Clock()
    control = Control(turn=lambda: clock.pass_secs(20.0), now=clock)
    control.allow(5.0)
    control.pause()
    with control.locked_out():
        clock.pass_secs(1.0)
    assert control.left_secs == 4.0
    assert control.waited_secs == 21.0
    assert (control.used_secs, control.wall_secs) == (1.0, 21.0)


@pytest.mark.parametrize(
    ("done", "says", "would_do"),
    [(0, "the full check of trial 3; `--seconds 15` should suffice", 15.0),
     (2, r"the full check of trial 3 \(2 of 4 done\); `--seconds 15`", 15.0)],
)  # fmt: skip
def test_who_is_out_of_time_is_told_what_would_do(done: int, says: str, would_do: float) -> None:
    clock = Clock()
    control = Control(now=clock)
    control.allow(5.0)
    clock.pass_secs(5.0)
    total = 4 if done else 0
    control.doing(Activity("full check", "the full check of trial 3", done, total))
    over = control.out_of_time()
    with pytest.raises(OutOfTime, match=says):
        raise over
    assert over.would_do_secs == would_do


def test_seconds_are_rounded_up_as_one_would_type_them() -> None:
    assert [rounded_up(secs) for secs in (0.2, 7.0, 12.1, 99.5, 123.0, 1001.0)] == [
        1.0, 7.0, 13.0, 100.0, 130.0, 1100.0,
    ]  # fmt: skip


def test_a_process_knows_how_old_it_is() -> None:
    age_secs = process_age_secs()
    assert 0.0 < age_secs < 86400.0
    time.sleep(0.05)
    assert process_age_secs() > age_secs


# -- sessions


@dataclass
class Timed(Scripted):
    """A scripted measurer that takes its time by a clock: seconds of a candidate, of a check."""

    clock: Clock | None = None
    run_secs: float = 1.0
    check_secs: float = 3.0
    predicted_secs: float = 3.0
    control: Control | None = None

    def attach(self, control: Control) -> None:
        self.control = control

    def measure(self, requests: Any, on_result: Any = None) -> list[MeasureResult]:
        told = on_result or (lambda position, result: None)

        def slowly(position: int, result: MeasureResult) -> None:
            assert self.clock is not None
            self.clock.pass_secs(self.run_secs)
            told(position, result)

        return Scripted.measure(self, requests, slowly if on_result else None)

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        assert self.clock is not None
        assert self.control is not None
        for case in range(4):
            self.control.doing(Activity("full check", "the full check", case, 4))
            self.control.check()
            self.clock.pass_secs(self.check_secs / 4)
        self.control.check()
        return super().confirm(request)

    def confirm_secs(self, result: MeasureResult) -> float:
        return self.predicted_secs


def run_timed(
    seconds: float | None,
    sink: MemorySink | None = None,
    on_event: Callable[[TrialEvent], None] = lambda event: None,
    trials: int = 64,
    turn: Callable[[Clock], None] = lambda clock: None,
    run_secs: float = 1.0,
    check_secs: float = 3.0,
    predicted_secs: float = 3.0,
) -> tuple[TuneReport, float, list[str]]:
    """A run by a clock of its own; its report, what it took by that, and the phases told."""
    clock, phases = Clock(), list[str]()
    control = Control(
        now=clock,
        on_activity=lambda activity: phases.append(activity.phase),
        turn=lambda: turn(clock),
    )
    measurer = Timed(
        lambda request: ok(1e-3 / (1 + request.trial % 7)),
        clock=clock,
        run_secs=run_secs,
        check_secs=check_secs,
        predicted_secs=predicted_secs,
    )
    measurer.attach(control)
    clock.pass_secs(0.5)  # what is done before there is a session
    space = synthetic_space(64, 64, 64, small=True)
    start = clock.secs - 0.5
    report = run_session(
        space.workload,
        space,
        measurer=measurer,
        sink=MemorySink() if sink is None else sink,
        budget=Budget(trials, seconds),
        on_event=on_event,
        options=SessionOptions(control=control),
    )
    return report, clock.secs - start, phases


def test_time_is_kept_for_the_full_check() -> None:
    report, took_secs, _ = run_timed(20.0)
    assert report.best is not None
    assert 4 < report.trials["total"] < 20
    assert "time budget of 20 s" in report.stopped_because
    assert took_secs <= 20.0
    assert report.out_of_time is None


def test_no_more_than_a_share_is_kept_for_a_check_that_will_not_fit() -> None:
    report, took_secs, _ = run_timed(10.0, predicted_secs=1000.0, check_secs=1000.0)
    assert report.trials["total"] >= 3, "the search has its time"
    assert (
        took_secs <= 10.0 + timeouts.RUN_GRACE_SECS + 250.0
    )  # one case of the check, which looks at nothing
    assert report.best is None
    assert report.out_of_time is not None
    assert report.out_of_time["during"] == "full check"
    assert report.stopped_because.startswith("stopped: 10 s ended during the full check (")


def test_what_was_confirmed_before_stays_where_time_ends_a_later_check() -> None:
    sink = MemorySink()
    first, *_ = run_timed(None, sink, trials=3)
    assert first.best is not None
    later, *_ = run_timed(8.0, sink, check_secs=1000.0, predicted_secs=1.0)
    assert later.trials["total"] > 3
    assert later.best is not None
    assert later.best.record_key == first.best.record_key
    assert "ended during the full check" in later.stopped_because


def test_a_run_that_was_out_of_time_is_resumed() -> None:
    sink = MemorySink()
    first, *_ = run_timed(8.0, sink, check_secs=1000.0)
    again, took_secs, _ = run_timed(8.0, sink, trials=first.trials["total"])
    assert again.trials["measured_now"] == 0
    assert again.best is not None
    assert took_secs <= 8.0


def test_wall_time_is_from_the_start_with_what_was_waited_and_phases_are_all_of_it() -> None:
    report, took_secs, _ = run_timed(None, trials=20, turn=lambda clock: clock.pass_secs(7.0))
    assert report.wall_secs == pytest.approx(took_secs)
    assert sum(report.wall_secs_by_phase.values()) == pytest.approx(report.wall_secs)
    assert report.wall_secs_by_phase["start"] == pytest.approx(0.5)
    assert report.wall_secs_by_phase["wait"] % 7.0 == pytest.approx(0.0)
    assert report.wall_secs_by_phase["wait"] >= 14.0
    assert report.wall_secs_by_phase["verify"] == pytest.approx(3.0)


def test_time_in_which_others_work_is_none_of_the_budget() -> None:
    with_others, *_ = run_timed(20.0, turn=lambda clock: clock.pass_secs(50.0))
    alone, *_ = run_timed(20.0)
    assert with_others.trials == alone.trials
    assert with_others.best is not None


def test_the_time_left_includes_what_follows_the_trials() -> None:
    etas: list[float | None] = []
    run_timed(None, on_event=lambda event: etas.append(event.eta_secs), trials=4)
    assert etas[-1] == pytest.approx(3.0), "the full check, after the last trial"
    assert etas[0] is not None
    assert etas[0] > 5.0, "three trials and the check"


def test_what_a_run_does_is_told_in_words_that_are_known() -> None:
    _, _, phases = run_timed(None, trials=4)
    assert phases[0] == "proposing"
    assert phases[-1] == "full check"
    assert set(phases) <= set(PHASES)


def test_choosing_candidates_ends_with_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    control = Control(now=clock)
    space = synthetic_space(64, 64, 64, small=True)
    measurer = Timed(lambda request: ok(1e-3), clock=clock)

    class Slow:
        """A strategy that would choose for ever, looking up now and then."""

        name, stop_reason = "slow", None
        prior_trust = gain_over_prior = None

        def __init__(self, goal: Any) -> None:
            self.goal = goal
            self.predictions: dict[Any, float] = {}

        def ask(self, count: int) -> list[Any]:
            while True:
                clock.pass_secs(0.5)
                self.goal.check()

    monkeypatch.setattr(
        "tilewright.tuner.session.run.make_strategy", lambda name, space, goal: Slow(goal)
    )
    report = run_session(
        space.workload, space, measurer=measurer, sink=MemorySink(), budget=Budget(64, 5.0),
        options=SessionOptions(control=control),
    )  # fmt: skip
    assert control.used_secs <= 5.5
    assert report.best is None
    assert "5 s ended during choosing candidates" in report.stopped_because
    assert report.out_of_time is not None


def test_a_long_trace_is_written_in_steps_that_look_at_the_clock() -> None:
    stages = "; ".join(
        f"M{n}[i] += T{n - 1}[i,k]; T{n}[i,j] = T{n - 1}[i,j]*0.9+M{n}[i]*0.001"
        for n in range(1, 8)
    )
    workload = from_notation(stages, {"T0": ("f32", (32, 32))})
    looks: list[None] = []
    space = space_for(workload, detect(), lambda: looks.append(None))
    steps = len(space.sketches[0].trace(space.sketches[0].default()).steps)
    assert steps > 50
    assert len(looks) > steps, "the default was written already"

    def over() -> None:
        raise OutOfTime("enough")

    with pytest.raises(OutOfTime, match="enough"):
        replace(space.sketches[0], check=over).trace(space.sketches[0].default())  # type: ignore[type-var]


def test_a_space_is_not_built_for_longer_than_there_is_time() -> None:
    control = Control(now=Clock())
    control.allow(-timeouts.RUN_GRACE_SECS)
    with pytest.raises(OutOfTime, match="ended during starting"):
        space_for(MATMUL, detect(), control.check)


def test_the_reserve_is_never_most_of_a_budget() -> None:
    assert MAX_RESERVED_SHARE < 1.0
    assert RESERVE_MARGIN > 1.0


# -- this machine


@contextmanager
def opened(tmp_path: Path, control: Control, **settings: Any) -> Iterator[LocalMeasurer]:
    settings.setdefault("lock_path", tmp_path / "lock")
    made = LocalMeasurer(MATMUL, detect(), 0, settings=MeasureSettings(**settings))
    made.attach(control)
    with made as measurer:
        yield measurer


def default_request() -> MeasureRequest:
    space = space_for(MATMUL, detect())
    return MeasureRequest(1, space.trace(rank_for_default(space).default))


def ends(ask: Callable[[], object], error: type[Exception], says: str) -> float:
    """How long `ask`, which would never end, takes to end with `error`."""
    start = time.monotonic()
    with pytest.raises(error, match=says):
        ask()
    took_secs = time.monotonic() - start
    assert took_secs < LONG_SECS
    return took_secs


def test_a_reference_is_not_computed_for_longer_than_a_run_may_take(tmp_path: Path) -> None:
    told: list[Activity] = []
    control = Control(on_activity=told.append)
    control.allow(1.0)
    with opened(tmp_path, control, cases=NEVER) as measurer:
        runner = psutil.Process(measurer.process_ids[-1])
        request = default_request()
        ends(lambda: measurer.measure([request]), OutOfTime, "1 s ended during")
    assert not runner.is_running()


def test_a_reference_that_is_never_there_ends_a_run_without_seconds_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "MAX_REFERENCE_SECS", 0.5)
    told: list[Activity] = []
    with opened(tmp_path, Control(on_activity=told.append), cases=NEVER) as measurer:
        request = default_request()
        says = "the reference took longer than 0.5 s; allow more time with `tune --seconds 3`"
        ends(lambda: measurer.measure([request]), OutOfTime, says)
    assert "computing the reference" in [activity.text for activity in told]


def test_a_full_check_ends_with_the_seconds_and_says_how_far_it_was(tmp_path: Path) -> None:
    control = Control()
    with opened(tmp_path, control, cases=STOPS) as measurer:
        request = default_request()
        (result,) = measurer.measure([request])
        assert result.ok, result
        assert measurer.confirm_secs(result) > 0
        told: list[Activity] = []
        control = Control(on_activity=told.append)
        measurer.attach(control)

        def confirm() -> None:
            timer = threading.Timer(0.0, when_two_are_done)
            timer.start()
            measurer.confirm(request)

        def when_two_are_done() -> None:
            end = time.monotonic() + LONG_SECS
            while control.activity.done < 1 and time.monotonic() < end:
                time.sleep(0.02)
            control.allow(control.used_secs)

        ends(confirm, OutOfTime, r"ended during the full check of trial 1 \(1 of \d+ done\)")
    assert [a.done for a in told if a.total] == [0, 1]
    assert len({a.total for a in told if a.total}) == 1


def test_a_full_check_of_a_run_without_seconds_has_an_end_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "MAX_FULL_CHECK_SECS", 1.0)
    with opened(tmp_path, Control(), cases=STOPS) as measurer:
        request = default_request()
        ends(lambda: measurer.confirm(request), OutOfTime, "the full check of trial 1.* longer")


@pytest.mark.parametrize(("cases", "what"), [(NEVER, "measure"), (STOPS, "confirm")])
def test_a_reference_and_a_full_check_end_when_told(tmp_path: Path, cases: str, what: str) -> None:
    control = Control()
    with opened(tmp_path, control, cases=cases) as measurer:
        request = default_request()
        threading.Timer(1.0, control.abort).start()
        ask = (lambda: measurer.measure([request])) if what == "measure" else (
            lambda: measurer.confirm(request)
        )  # fmt: skip
        ends(ask, MeasurementAborted, "stopped on request")


def test_a_candidate_that_time_cuts_off_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not slow: nobody knows."""
    control, told = Control(), list[MeasureStatus]()
    with opened(tmp_path, control, run_deadline_secs=LONG_SECS) as measurer:
        request = default_request()
        assert measurer.measure([request])[0].ok
        control.allow(control.used_secs + 3600.0)
        monkeypatch.setattr(batch, "run_limit_secs", lambda control: 1e-4)
        says = "3.*s ended during measuring trial 1"
        ends(
            lambda: measurer.measure([request], lambda at, result: told.append(result.status)),
            OutOfTime,
            says,
        )
        assert told == []
        monkeypatch.undo()
        pid = measurer.process_ids[-1]
        assert measurer.measure([request])[0].ok
        assert measurer.process_ids[-1] == pid, "the reference is not computed again"


def test_no_candidate_is_begun_in_the_time_that_is_kept(tmp_path: Path) -> None:
    control = Control()
    with opened(tmp_path, control) as measurer:
        request = default_request()
        assert measurer.measure([request])[0].ok
        pid = measurer.process_ids[-1]
        control.allow(control.used_secs + 3600.0)
        control.reserve_secs = 7200.0
        ends(lambda: measurer.measure([request]), OutOfTime, "the time budget of .* is used up")
        control.reserve_secs = 0.0
        assert measurer.confirm(request).ok
        assert measurer.process_ids[-1] == pid, "the reference is not computed again"


def test_others_have_the_machine_between_two_children_of_a_check(tmp_path: Path) -> None:
    free: list[bool] = []

    def turn() -> None:
        with machine_lock(tmp_path / "lock", patience_secs=0.0) as held:
            free.append(held)

    control = Control(is_wanted=lambda: control.activity.phase == "full check", turn=turn)
    with opened(tmp_path, control) as measurer:
        request = default_request()
        assert measurer.confirm(request).ok
    assert len(free) == 2, "before the first case, and before those that share a child"
    assert all(free)


def test_others_have_the_machine_while_a_reference_is_computed(tmp_path: Path) -> None:
    free: list[bool] = []
    policies: list[int] = []

    def turn() -> None:
        policies.append(os.sched_getscheduler(measurer.process_ids[-1]))
        with machine_lock(tmp_path / "lock", patience_secs=0.0) as held:
            free.append(held)

    control = Control(is_wanted=lambda: len(free) < 3, turn=turn)
    control.allow(LONG_SECS / 2)
    with opened(tmp_path, control, cases=NEVER) as measurer:
        request = default_request()
        threading.Timer(1.5, control.abort).start()
        ends(lambda: measurer.measure([request]), MeasurementAborted, "stopped on request")
    assert free == [True] * 3
    assert policies == [os.SCHED_IDLE] * 3, "and nothing of it disturbs what they measure"


def test_a_reference_gets_a_share_of_few_seconds(tmp_path: Path) -> None:
    asked: list[float | None] = []
    for seconds in (2.0, 1000.0, None):
        control = Control()
        control.allow(seconds)
        with opened(tmp_path, control) as measurer:
            asked.append(measurer._runner.document.get("check_secs"))
    assert asked == [0.5, 4.0, 4.0]


# -- probes


@pytest.mark.parametrize(
    ("seconds", "known", "late", "probed"),
    [(None, True, False, True), (60.0, True, False, True), (60.0, False, True, False),
     (6.0, True, False, False), (6.0, False, False, True), (1.0, False, False, False)],
)  # fmt: skip
def test_a_run_of_few_seconds_does_not_spend_them_on_probing(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float | None,
    known: bool,
    late: bool,
    probed: bool,
) -> None:
    plain = detect()
    found = Target.from_json({**plain.to_json(), "probes": {"peak_gflops": {"f32": [100.0]}}})
    asked: list[float] = []

    def load(spec: str, threads: int | None, **more: Any) -> Target:
        if more.get("probe") is False:
            return found if known else plain
        asked.append(more["within_secs"])
        if late:
            raise ProbingLateError("probing took longer than that")
        return found

    monkeypatch.setattr(measurer_spec, "load_target", load)
    clock = Clock()
    control = Control(now=clock)
    control.allow(seconds)
    target = measurer_spec.measured_target("local", "native", None, control)
    assert (target.probes != Probes()) == (probed or known)
    assert bool(asked) == (probed or late)
    assert all(secs == 0.5 * control.left_secs for secs in asked)
