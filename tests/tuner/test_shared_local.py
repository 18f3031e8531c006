"""Local measurers of several workloads: one pool of compile workers, runners within a limit."""

from __future__ import annotations

import pytest

from tilewright.schedules.spelling import parse_workload
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.many.entries import ManyEntry
from tilewright.tuner.measure.shared_local import SharedLocal
from tilewright.tuner.session.report import Budget
from tilewright.tuner.tuning import tune_many

WORKLOADS = [parse_workload(f"matmul:M=8,N=16,K={k}") for k in (8, 9, 10)]
TARGET = native_target(probe=False)


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
    assert all(task.report and task.report.trials["total"] == 6 for task in report.tasks)
    assert not any(map(psutil.pid_exists, workers))
