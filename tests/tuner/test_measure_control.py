"""A measurement is reached from another thread: it ends when told, and says what it waits for."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tilewright.schedules import operators
from tilewright.schedules.sketches import space_for
from tilewright.schedules.trace import Trace
from tilewright.tuner.machine.machine_lock import machine_lock
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.measure.local import LocalMeasurer, MeasureSettings
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.process.control import Control, MeasurementAborted
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.options import SessionOptions
from tilewright.tuner.session.report import Budget
from tilewright.tuner.session.run import run_session

MATMUL = operators.build("matmul", M=8, N=8, K=8).normalised()
NEVER = "tests.support.tuner.compile_fakes:compile_never"


def aborted_by(measurer: LocalMeasurer, ask: Callable[[], object]) -> None:
    """`ask`, which would never end, ends with MeasurementAborted because it is told to."""
    control = Control()
    measurer.attach(control)
    over = threading.Event()

    def abort() -> None:
        while not over.wait(0.1):
            control.abort()

    caller = threading.Timer(0.5, abort)
    caller.start()
    with pytest.raises(MeasurementAborted):
        ask()
    over.set()
    caller.join()


@pytest.mark.parametrize("what", ["measure", "confirm"])
def test_native_work_is_killed_when_told(tmp_path: Path, what: str) -> None:
    settings = MeasureSettings(compiler=NEVER, lock_path=tmp_path / "lock")
    request = MeasureRequest(1, Trace())
    with LocalMeasurer(MATMUL, detect(), 0, settings=settings) as measurer:
        ask = (lambda: measurer.measure([request])) if what == "measure" else (
            lambda: measurer.confirm(request)
        )  # fmt: skip
        aborted_by(measurer, ask)
    for child in psutil.Process().children(recursive=True):  # but the helper of other tests
        assert "tilewright.tuner.measure" not in " ".join(child.cmdline()).replace(
            "tilewright.tuner.compiling.helper_process", ""
        )


def test_waiting_for_the_machine_is_told_and_ends_when_told(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    told: list[str] = []

    def on_wait(text: str) -> None:
        told.append(text)
        if text:
            raise MeasurementAborted("enough")

    with (
        machine_lock(path),
        pytest.raises(MeasurementAborted),
        machine_lock(path, on_wait=on_wait),
    ):
        raise AssertionError("it was held")
    assert "waiting for the machine: held by another job of this process" in told[-1]
    with machine_lock(path, on_wait=on_wait) as held:
        assert held, "who gave up does not keep it"


def test_who_waits_with_words_gets_the_lock_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    threading.Timer(0.2, os.close, [fd]).start()
    with machine_lock(path, on_wait=lambda text: None) as held:
        assert held


def test_the_lock_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MEASURE_LOCK", str(tmp_path / "mine"))
    with machine_lock():
        assert (tmp_path / "mine").exists()


def test_an_aborted_run_keeps_its_trials_and_the_best_that_was_checked() -> None:
    target = detect()
    sink = MemorySink()
    space = space_for(MATMUL, target)

    def run(trials: int, turns: int) -> object:
        left = [turns]

        def turn() -> None:
            left[0] -= 1
            if left[0] < 0:
                raise MeasurementAborted("stopped on request")

        with SimulatedMachine()(MATMUL, target, 0) as measurer:
            return run_session(
                MATMUL, space, measurer=measurer, sink=sink, strategy="random",
                budget=Budget(trials), options=SessionOptions(control=Control(turn=turn)),
            )  # fmt: skip

    nothing = run(64, 1)
    assert nothing.best is None  # type: ignore[attr-defined]
    assert nothing.trials["total"] == 16  # type: ignore[attr-defined]
    assert nothing.stopped_because == "stopped on request"  # type: ignore[attr-defined]
    done = run(16, 100)
    again = run(64, 2)
    assert again.best.record_key == done.best.record_key  # type: ignore[attr-defined]
    assert len(sink.records(MATMUL.key, target.key)) > 16


def test_time_in_which_others_work_is_not_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def turn() -> None:
        now[0] += 20.0

    control = Control(turn=turn)
    now[0] += 1.0
    before = control.clock()
    control.pause()
    assert control.clock() == before
