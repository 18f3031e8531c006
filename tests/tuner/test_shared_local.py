"""Local measurers of several workloads: one pool of compile workers, runners within a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Probes
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.compiling.requests import compile_document
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.many.entries import ManyEntry
from tilewright.tuner.many.report import ManyReport
from tilewright.tuner.measure.checking.processes import Processes
from tilewright.tuner.measure.checking.running_check import RunningCheck
from tilewright.tuner.measure.local import MeasureSettings
from tilewright.tuner.measure.shared_local import SharedLocal
from tilewright.tuner.process.control import Control
from tilewright.tuner.session.report import Budget
from tilewright.tuner.tuning import tune, tune_many

WORKLOADS = [parse_workload(f"matmul:M=8,N=16,K={k}") for k in (8, 9, 10)]
TARGET = replace(native_target(probe=False), probes=Probes())  # no bound ends a search


@pytest.mark.parametrize("runner_bytes", [0, 1 << 30])
def test_runners_end_and_start_again_and_nothing_is_left(runner_bytes: int) -> None:
    import psutil

    opened = []
    with SharedLocal(runner_bytes=runner_bytes) as shared:

        def factory(workload: object, target: object, seed: int) -> object:
            opened.append(shared(workload, target, seed))  # type: ignore[arg-type]
            return opened[-1]

        report = tune_many(
            [ManyEntry(workload) for workload in WORKLOADS],
            TARGET,
            measurer=factory,  # type: ignore[arg-type]
            budget=Budget(trials=6),
        )
        pools = {id(measurer._pool) for measurer in opened}
        workers = opened[0]._pool.process_ids
        assert len(pools) == 1
        assert workers
        assert not any(measurer.runner_bytes for measurer in opened)
    assert report.complete
    # the search of a task may end at its bound after the opening
    assert all(task.report and task.report.trials["total"] >= 4 for task in report.tasks)
    assert not any(map(psutil.pid_exists, workers))


LARGER = [parse_workload(f"matmul:M=256,N={n},K=256") for n in (256, 288, 320)]


def refuse_some(document: dict[str, Any]) -> Any:
    """Compile a request for all but one of the workloads, for compile workers."""
    if Workload.from_json(document["workload"]).key == LARGER[1].key:
        raise RuntimeError("no such instruction")
    return compile_document(document)


def tuned(shared: SharedLocal, workloads: list[Workload], **more: Any) -> ManyReport:
    entries = [ManyEntry(workload) for workload in workloads]
    return tune_many(entries, TARGET, measurer=shared, budget=Budget(trials=2), **more)


def test_checks_run_beside_other_tasks_but_never_while_something_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[bool] = []
    disturbed: list[bool] = []
    leave, machine = RunningCheck.leave, Processes.machine

    def leaving(check: RunningCheck) -> bool:
        left.append(leave(check))
        return left[-1]

    @contextmanager
    def alone(processes: Processes) -> Iterator[None]:
        with machine(processes):
            others = [one for one in shared._running if one._processes is not processes]
            disturbed.append(any(one.checks for one in others))
            yield

    monkeypatch.setattr(RunningCheck, "leave", leaving)
    monkeypatch.setattr(Processes, "machine", alone)
    with SharedLocal() as shared:
        report = tuned(shared, LARGER)
    assert report.complete
    assert any(left)
    assert len(disturbed) >= 2 * len(LARGER)
    assert not any(disturbed)


def test_the_evidence_of_a_check_beside_others_is_that_of_a_check_alone() -> None:
    alone = tune(LARGER[0], TARGET, budget=Budget(trials=2)).best
    with SharedLocal() as shared:
        report = tuned(shared, LARGER)
    beside = next(t.best for t in report.tasks if t.workload_key == LARGER[0].key)
    assert alone is not None
    assert beside is not None
    assert beside.evidence == alone.evidence


def test_a_runner_that_dies_beside_another_task_is_an_error_of_its_own_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave, killed = RunningCheck.leave, list[str]()

    def killing(check: RunningCheck) -> bool:
        runs = leave(check)
        if runs and not killed:
            killed.append(check.what)
            check.runner.kill()
        return runs

    monkeypatch.setattr(RunningCheck, "leave", killing)
    with SharedLocal() as shared:
        report = tuned(shared, LARGER)
    assert killed
    assert [task.trials for task in report.tasks] == [2, 2, 2]
    assert sum(task.error is None for task in report.tasks) >= 2


def test_an_abort_during_a_check_beside_others_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    control, leave = Control(), RunningCheck.leave

    def aborting(check: RunningCheck) -> bool:
        runs = leave(check)
        control.abort()
        return runs

    monkeypatch.setattr(RunningCheck, "leave", aborting)
    with SharedLocal() as shared:
        report = tuned(shared, LARGER, control=control)
        assert not any(one.runner_bytes for one in shared._running)
    assert report.stopped_because == "stopped on request"
    assert not report.complete


def test_a_task_that_cannot_be_compiled_does_not_stop_the_others() -> None:
    settings = MeasureSettings(compiler=f"{__name__}:refuse_some")
    with SharedLocal(settings) as shared:
        report = tuned(shared, LARGER)
    errors = {t.workload_key: t.error and t.error.code for t in report.tasks}
    assert errors == {LARGER[0].key: None, LARGER[1].key: "no_best", LARGER[2].key: None}
