"""What a fleet measures: the same as one machine, for several jobs at once, never mixed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.fleet.local_fleet import LocalFleet
from tests.support.fleet.simulated import SPACE, TARGET, candidates
from tilewright.schedules import operators
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.many.entries import ManyEntry
from tilewright.tuner.measure.fleet import measurer as measurer_module
from tilewright.tuner.measure.fleet.connection import Line
from tilewright.tuner.measure.fleet.machines import FleetMachine
from tilewright.tuner.measure.fleet.measurer import Fleet, FleetMeasurer
from tilewright.tuner.measure.fleet.messages import FleetRequest, Note
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.measure.protocol import PredictsCheck
from tilewright.tuner.process.control import Control
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget
from tilewright.tuner.tuning import tune_many

ASKED = candidates(8)


@contextmanager
def orders() -> Iterator[list[tuple[str, FleetRequest]]]:
    """The machines' addresses and orders, as they are given out."""
    given: list[tuple[str, FleetRequest]] = []
    real = Line.submit

    def submit(line: Line, task: str, machine: FleetMachine, payload: bytes) -> None:
        given.append((machine.address, FleetRequest.from_bytes(payload)))
        real(line, task, machine, payload)

    with patch.object(Line, "submit", submit):
        yield given


def test_results_are_those_of_the_machine_and_come_from_all_of_them(fleet: LocalFleet) -> None:
    machine = SimulatedMachine(latency_secs=0.02)
    expected = machine(SPACE.workload, TARGET, 0).measure(ASKED)
    there = {m.address for m in fleet.wait_for(2)}
    with Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer, orders() as given:
        assert measurer.measure(ASKED) == expected
        assert measurer.toolchain == machine.toolchain
    assert {address for address, _ in given} == there


def test_the_time_of_a_full_check_is_the_prediction_of_the_machine(fleet: LocalFleet) -> None:
    received = measurer_module._notes

    def with_predictions(line: Line, control: Control) -> Iterator[Note]:
        for note in received(line, control):
            secs = 0.0 if note.result is None else 1e3 * note.result.run_secs[0]
            yield replace(note, check_secs=secs)

    with (
        patch.object(measurer_module, "_notes", with_predictions),
        Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer,
    ):
        assert isinstance(measurer, PredictsCheck)
        assert measurer.confirm_secs(MeasureResult(MeasureStatus.OK)) == 0.0
        results = [result for result in measurer.measure(ASKED) if result.ok]
        secs = [measurer.confirm_secs(result) for result in results]
        assert secs == [1e3 * result.run_secs[0] for result in results]
        assert measurer.confirm_secs(MeasureResult(MeasureStatus.OK)) == max(secs)


def test_compared_times_and_the_full_check_come_from_one_machine(fleet: LocalFleet) -> None:
    fleet.wait_for(2)
    compared = [replace(request, compared=True) for request in ASKED[:4]]
    with Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer, orders() as given:
        told: list[int] = []
        for _ in range(2):
            assert all(r.ok for r in measurer.measure(compared, lambda i, r: told.append(i)))
        assert measurer.confirm(ASKED[0]).ok
    assert told == [0, 1, 2, 3] * 2
    assert len(given) == 3
    assert {address for address, _ in given} == {measurer.home}


def test_two_jobs_share_the_machines(fleet: LocalFleet) -> None:
    fleet.wait_for(2)
    found: dict[int, list[MeasureResult]] = {}

    def job(seed: int, workload: Workload) -> None:
        with Fleet(fleet.address)(workload, TARGET, seed) as measurer:
            found[seed] = measurer.measure(ASKED)

    works = [SPACE.workload, operators.build("matmul", M=64, N=64, K=32).normalised()]
    jobs = [threading.Thread(target=job, args=pair) for pair in enumerate(works)]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join(30)
    for seed, workload in enumerate(works):
        assert found[seed] == SimulatedMachine(latency_secs=0.02)(workload, TARGET, 0).measure(
            ASKED
        )


def test_several_tasks_of_a_run_share_the_machines(fleet: LocalFleet) -> None:
    fleet.wait_for(2)
    entries = [ManyEntry(operators.build("matmul", M=m, N=64, K=64)) for m in (64, 72, 80, 88)]
    sink, at_work, most = MemorySink(), 0, 0
    real = FleetMeasurer._work

    def work(measurer: FleetMeasurer, run: Any) -> list[MeasureResult]:
        nonlocal at_work, most
        assert measurer.machines in (0, 2)
        at_work += 1
        most = max(most, at_work)
        try:
            return real(measurer, run)
        finally:
            at_work -= 1

    with patch.object(FleetMeasurer, "_work", work):
        report = tune_many(
            entries,
            TARGET,
            budget=Budget(20),
            strategy="random",
            measurer=f"dask:{fleet.address}",
            sink=sink,
        )
    assert report.complete, report.to_json()
    assert most > 1
    for task in report.tasks:
        stored = sink.records(task.workload_key, TARGET.key)
        measured = [r.trial for r in stored if r.verified_level == "quick"]
        assert sorted(measured) == list(range(1, 21))


def test_work_that_every_machine_refuses_ends_with_what_the_last_one_said(
    fleet: LocalFleet,
) -> None:
    fleet.wait_for(2)
    with Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer, orders() as given:
        measurer._workload = {"no": "workload"}
        with pytest.raises(WorkloadError, match="unknown field 'no'"):
            measurer.measure(ASKED[:2])
    assert len({address for address, _ in given}) == 2
