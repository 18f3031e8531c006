"""Machines and schedulers die in the middle of jobs: nothing told is lost, nothing stored is
measured again. The long form is `python -m tests.support.fleet.chaos`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fleet.chaos import job_under_fire, kill
from tests.support.fleet.local_fleet import LocalFleet, free_port
from tests.support.fleet.simulated import SPACE, TARGET, another_target, candidates
from tilewright.schedules.record import MeasureStatus
from tilewright.tuner import timeouts
from tilewright.tuner.measure.fleet.address import FleetError
from tilewright.tuner.measure.fleet.measurer import Fleet
from tilewright.tuner.process.control import Control, MeasurementAborted


def test_a_job_under_fire_loses_nothing_and_repeats_nothing(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    one, two = fleet.machines["one"], fleet.machines["two"]
    outcome = job_under_fire(
        fleet, tmp_path, trials=32, victims=[one, fleet.scheduler, two], seed=1
    )
    assert outcome.kills == 3
    assert outcome.statuses == {"ok": 32}
    assert outcome.sound, outcome


def test_a_full_check_survives_the_death_of_its_machine(fleet: LocalFleet) -> None:
    fleet.wait_for(2)
    with Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer:
        assert measurer.confirm(candidates(1)[0]).ok
        home = next(m for m in fleet.wait_for(2) if m.address == measurer.home)
        keeper = fleet.machines[home.name]
        assert keeper.pid is not None
        os.kill(keeper.pid, signal.SIGSTOP)  # it takes the order and does not answer
        killer = threading.Timer(0.3, kill, args=(keeper,))
        killer.start()
        assert measurer.confirm(candidates(1)[0]).ok
        assert measurer.home != home.address
        killer.join()


@contextmanager
def frozen(fleet: LocalFleet, *names: str) -> Iterator[None]:
    """Machines that keep their lines open and say nothing, as if their power were cut."""
    pids = [pid for name in names if (pid := fleet.machines[name].pid) is not None]
    assert len(pids) == len(names)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_machine_that_says_nothing_is_given_up_and_back_when_it_speaks(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.wait_for(2)
    monkeypatch.setattr(timeouts, "SILENT_SECS", 1.5)
    with Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer:
        assert measurer.measure(candidates(1))[0].ok
        with frozen(fleet, "one"):
            assert all(result.ok for result in measurer.measure(candidates(8)))
            alone = measurer.measure(candidates(2))  # not asked again while it is silent
            assert all(result.ok for result in alone)
        found = measurer._machines()
        end = time.monotonic() + 60
        while len(found) < 2 and time.monotonic() < end:
            time.sleep(0.1)
            found = measurer._machines()
        assert [m.name for m in found] == ["one", "two"]


def test_a_job_that_is_ended_waits_for_no_machine(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.wait_for(2)
    monkeypatch.setattr(timeouts, "SILENT_SECS", 3600.0)  # it would give them up then
    control = Control()
    with (
        frozen(fleet, "one", "two"),
        Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer,
    ):
        measurer.attach(control)
        threading.Timer(0.3, control.abort).start()
        with pytest.raises(MeasurementAborted):
            measurer.measure(candidates(4))


def test_without_a_machine_of_the_kind_a_job_waits_and_then_says_for_what(
    fleet: LocalFleet,
) -> None:
    impatient = Fleet(fleet.address, patience_secs=0.5)
    with (
        impatient(SPACE.workload, another_target(threads=2), 0) as measurer,
        pytest.raises(FleetError, match=r"none of kind x86-64-v2 .* with 2 threads has joined"),
    ):
        measurer.measure(candidates(1))


@pytest.mark.usefixtures("needs_dask")
def test_without_a_scheduler_as_well() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    impatient = Fleet(address, patience_secs=0.3)
    with (
        impatient(SPACE.workload, TARGET, 0) as measurer,
        pytest.raises(FleetError, match=rf"no scheduler answers at {address}.*worker --join"),
    ):
        measurer.measure(candidates(1))


@pytest.mark.usefixtures("needs_dask")
def test_who_only_waits_can_be_stopped() -> None:
    nowhere = Fleet(f"tcp://127.0.0.1:{free_port()}", should_stop=lambda: True)
    with nowhere(SPACE.workload, TARGET, 0) as measurer:
        results = measurer.measure(candidates(2))
    assert [r.status for r in results] == [MeasureStatus.LOST] * 2
