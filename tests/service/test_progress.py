"""What a command says while it runs: to logs in lines, to terminals in one that changes."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from tests.support.service.records import HOST, MATMUL, fake_run
from tilewright.db import Store
from tilewright.service.answers.publish import Published
from tilewright.service.cli.output import Output
from tilewright.service.cli.progress import LineReporter, trial_reporter
from tilewright.service.cli.run_tune import interrupt_events
from tilewright.service.jobs import tuning
from tilewright.service.jobs.options import TuneOptions
from tilewright.service.resolve import workloads
from tilewright.tuner.process.control import Activity, Control, MeasurementAborted, OutOfTime

PATIENCE_SECS = 60.0


class Log:
    """Lines by a clock that a test moves."""

    def __init__(self) -> None:
        self.secs = 0.0
        self.said: list[str] = []
        self.lines = LineReporter(1e9, write=self.said.append, now=lambda: self.secs)

    def after(self, secs: float) -> list[str]:
        """What is said in the next seconds, looked at four times in each."""
        before = len(self.said)
        for _ in range(int(secs * 4)):
            self.secs += 0.25
            self.lines.look()
        return self.said[before:]


def told(trial: int, *, of_trials: int = 9, is_best: bool = False) -> dict[str, Any]:
    return {
        "trial": trial,
        "of_trials": of_trials,
        "reused": False,
        "is_best": is_best,
        "result": {"status": "ok", "run_secs_estimate": 1e-3, "detail": ""},
        "best_run_secs": 1e-3,
        "fraction_of_bound": 0.5,
        "eta_secs": 9.0,
    }


def test_a_log_hears_of_the_first_thing_soon_and_of_what_lasts() -> None:
    log = Log()
    log.lines.on_activity(Activity("starting", "starting"))
    assert log.after(0.5) == ["starting ..."]
    log.lines.on_activity(Activity("reference", "computing the reference"))
    assert log.after(0.75) == []
    assert log.after(5.0) == ["computing the reference ..."], "once"


def test_a_log_hears_of_counted_work_now_and_then() -> None:
    log = Log()
    for case in range(8):
        log.lines.on_activity(Activity("full check", "the full check of trial 3", case, 8))
        log.after(1.0)
    assert log.said == [
        f"the full check of trial 3 ({case} of 8 done) ..." for case in (0, 2, 4, 6)
    ]


def test_a_log_whose_trials_are_told_is_not_told_what_takes_no_time() -> None:
    log = Log()
    log.lines.on_activity(Activity("starting", "starting"))
    log.after(0.5)
    for trial in range(1, 9):
        log.lines.on_activity(Activity("measuring", f"measuring trial {trial}"))
        log.after(0.5)
        log.lines.on_event(told(trial, is_best=trial == 1))
    assert [line.split("  ")[0] for line in log.said] == [
        "starting ...", "trial 1/9", "trial 5/9",
    ]  # fmt: skip


def test_who_is_told_nothing_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with trial_reporter(Output(as_json=True), 1e9, 9) as reporter:
        reporter.on_activity(Activity("starting", "starting"))
        reporter.on_event(told(1))
        time.sleep(0.6)
    assert capsys.readouterr() == ("", "")


def test_the_rest_of_counted_work_is_known() -> None:
    assert Activity("full check", "it", 0, 4, 8.0).left_secs == 8.0
    assert Activity("full check", "it", 3, 4, 8.0).left_secs == 2.0
    assert Activity("full check", "it", 3, 4).left_secs is None


@pytest.mark.parametrize("phase", ["starting", "reference", "full check"])
def test_an_interrupt_ends_what_it_finds_under_way(phase: str) -> None:
    control = Control()
    control.doing(Activity(phase, "it"))
    end = time.monotonic() + PATIENCE_SECS

    def interrupted() -> None:
        with interrupt_events(control) as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.is_set()
            while time.monotonic() < end:
                time.sleep(0.02)
                control.check()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert control.aborted


def test_an_interrupt_lets_what_follows_a_trial_be_checked() -> None:
    control = Control()
    control.doing(Activity("measuring", "measuring trial 3"))
    with interrupt_events(control) as stop:
        signal.raise_signal(signal.SIGINT)
        control.doing(Activity("full check", "the full check of trial 2"))
        time.sleep(1.2)
        assert not control.aborted
    assert stop.is_set()


def test_a_run_that_is_out_of_time_was_not_interrupted() -> None:
    late, aborted = Control(), Control()
    late.allow(-10.0)
    aborted.abort()

    def checked(control: Control) -> None:
        with interrupt_events(control):
            control.check()

    with pytest.raises(OutOfTime, match="stopped: "):
        checked(late)
    with pytest.raises(MeasurementAborted, match="on request"):
        checked(aborted)


def test_wall_time_includes_building_files(store: Store) -> None:
    workload = workloads.workload_of(MATMUL)
    report = fake_run()(store, workload, HOST, TuneOptions(), lambda event: None)
    now = [50.0]
    control = Control(now=lambda: now[0])
    now[0] += 0.1

    def publish(*_: Any) -> Published:
        now[0] += 3.0
        return Published()

    document = tuning.whole_document(store, workload, HOST, report, control, publish)
    assert document["wall_secs"] == pytest.approx(3.1)
    assert sum(document["wall_secs_by_phase"].values()) == pytest.approx(3.1)
    assert document["wall_secs_by_phase"]["publish"] == pytest.approx(3.0)
    control.allow(1.0)
    late = tuning.whole_document(store, workload, HOST, report, control, publish)
    assert "built on demand" in late["warning"]
    assert now == [53.1], "nothing is built"


def test_lines_are_looked_at_while_a_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with trial_reporter(Output(), 1e9, 9):
        end = time.monotonic() + PATIENCE_SECS
        said = ""
        while "starting ..." not in said and time.monotonic() < end:
            time.sleep(0.05)
            said += capsys.readouterr().err
    assert said == "starting ...\n"
    assert not [t for t in threading.enumerate() if "look" in t.name]
