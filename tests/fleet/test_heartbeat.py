"""Which machines have fallen silent, and waits that end when they are told to."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tilewright.tuner import timeouts
from tilewright.tuner.measure.fleet.heartbeat import HeartbeatMonitor
from tilewright.tuner.measure.fleet.waiting import interruptible
from tilewright.tuner.process.control import Control, MeasurementAborted


def seen(**machines: float) -> dict[str, Any]:
    return {"workers": {name: {"last_seen": told} for name, told in machines.items()}}


def test_a_machine_is_silent_once_nothing_was_heard_for_long_whatever_its_clock_says() -> None:
    silence = HeartbeatMonitor()
    looks = int(timeouts.SILENT_SECS) * 2
    for look in range(looks):
        assert silence.of(seen(a=9e9 + look, b=-5.0), 100 + look / 2) == set()
    assert silence.of(seen(a=9e9 + looks, b=-5.0), 100 + timeouts.SILENT_SECS) == {"b"}
    assert silence.of(seen(a=9e9 + looks, b=-4.0), 100 + timeouts.SILENT_SECS + 0.5) == set()


def test_time_in_which_nobody_looked_does_not_count_but_the_silent_stay_silent() -> None:
    silence = HeartbeatMonitor()
    assert silence.of(seen(a=1.0), 0.0) == set()
    assert silence.of(seen(a=1.0), 1000.0) == set()
    for look in range(int(timeouts.SILENT_SECS) + 1):
        found = silence.of(seen(a=1.0), 1000.0 + look)
    assert found == {"a"}
    assert silence.of(seen(a=1.0), 5000.0) == {"a"}
    assert silence.of(seen(a=2.0), 9000.0) == set()


def test_a_wait_ends_when_it_is_told_to_and_what_comes_late_is_undone() -> None:
    control, go_on, undone = Control(), threading.Event(), threading.Event()
    threading.Timer(0.05, control.abort).start()
    with pytest.raises(MeasurementAborted):
        interruptible(lambda: go_on.wait(60), control, undo=lambda made: undone.set())
    go_on.set()
    assert undone.wait(60)


def test_a_wait_gives_what_the_call_gives() -> None:
    assert interruptible(lambda: 7, Control()) == 7
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0, Control())
