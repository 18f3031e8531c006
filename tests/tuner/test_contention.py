"""What others took of our CPUs, read from a /proc/stat of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.tuner.process.contention import (
    MIN_CONTENTION_SECS,
    ContentionMonitor,
    CpuTimes,
    cpu_times,
)

STAT = """cpu  900 0 0 900 0 0 0 0 0 0
cpu0 100 20 30 1000 5 1 2 40 10 0
cpu1 300 0 0 1000 0 0 0 0 0 0
cpu2 500 0 0 1000 0 0 0 0 0 0
intr 5 6
"""


def test_times_are_those_of_the_cpus_asked_for(tmp_path: Path) -> None:
    assert cpu_times([0], tmp_path, 100) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    assert cpu_times([0], tmp_path, 100) == CpuTimes(1.53, 0.4)
    assert cpu_times([0, 1], tmp_path, 100) == CpuTimes(4.53, 0.4)
    assert cpu_times([7], tmp_path, 100) is None
    (tmp_path / "proc/stat").write_text("cpu0 1 2\n")
    assert cpu_times([0], tmp_path, 100) is None


@pytest.mark.parametrize(
    ("used", "stolen", "own", "wall", "worked"),
    [
        (2.0, 0.0, 2.0, 1.0, False),
        (2.0, 0.0, 1.0, 1.0, True),  # another process had a core
        (2.05, 0.0, 2.0, 1.0, False),  # a daemon
        (0.22, 0.0, 0.2, 0.1, False),  # two CPUs' ticks do not fall on our edges
        (1.5, 0.5, 2.0, 1.0, True),  # a hypervisor gave a core away, and our clock went on
        (1.5, 0.5, 1.5, 1.0, True),
        (1.9, 0.0, 2.0, 1.0, False),
    ],
)
def test_others_worked(used: float, stolen: float, own: float, wall: float, worked: bool) -> None:
    times = iter([CpuTimes(5.0, 1.0), CpuTimes(5.0 + used, 1.0 + stolen), CpuTimes(9.0, 2.0)])
    owns, clocks = iter([3.0, 3.0 + own, 9.0]), iter([7.0, 7.0 + wall, 9.0])
    others = ContentionMonitor(lambda: next(times), lambda: next(owns), lambda: next(clocks))
    assert others.contended() is worked


def test_each_question_is_about_the_time_since_the_last() -> None:
    times = iter([CpuTimes(0.0, 0.0), CpuTimes(1.0, 0.0), CpuTimes(1.0, 0.0)])
    others = ContentionMonitor(lambda: next(times), lambda: 0.0, lambda: 0.0)
    assert [others.contended(), others.contended()] == [True, False]


def test_a_system_that_does_not_tell_is_taken_for_quiet() -> None:
    assert not ContentionMonitor(lambda: None, lambda: 0.0, lambda: 0.0).contended()


def test_a_tick_of_each_cpu_is_less_than_what_counts() -> None:
    assert MIN_CONTENTION_SECS > 2 * 0.01
