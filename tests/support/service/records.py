"""Small machines, records and jobs for tests of the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.db import Store
from tilewright.schedules.record import (
    Evidence,
    MeasureResult,
    MeasureStatus,
    Toolchain,
    TuningRecord,
)
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.jobs import tuning
from tilewright.service.jobs.options import TuneOptions
from tilewright.service.resolve import targets, toolchains, workloads
from tilewright.tuner.session.report import BestFound, TuneReport

MATMUL = "matmul:M=8,N=8,K=8"
HOST = Target(
    triple="x86_64-unknown-linux-gnu",
    cpu="znver3",
    features=("avx", "avx2", "fma"),
    vector_bits=256,
    vector_registers=16,
    caches=(Cache(32768, 8), Cache(524288, 8)),
    cores=4,
)
TOOLCHAIN = toolchains.toolchain()


def make_record(
    workload: Workload,
    target: Target = HOST,
    *,
    secs: float = 1e-3,
    trial: int = 1,
    status: MeasureStatus = MeasureStatus.OK,
    toolchain: Toolchain = TOOLCHAIN,
    level: str = "full",
    trace: Sequence[Any] = (),
    evidence: Evidence | None = None,
) -> TuningRecord:
    """A record of a schedule, or of the expression as it stands."""
    ok = status is MeasureStatus.OK
    result = MeasureResult(
        status,
        (secs, secs * 1.1) if ok else (),
        secs if ok else None,
        detail="" if ok else "why",
        evidence=evidence,
    )
    return TuningRecord(
        workload_key=workload.key,
        target_key=target.key,
        threads=target.threads,
        trace=list(trace),
        result=result,
        toolchain=replace(toolchain, llvm=toolchain.llvm or "22.1.0"),
        seed=0,
        trial=trial,
        verified_level=level,
        created_at="2026-11-21T00:00:00Z",
    )


def keep_best(store: Store, workload: Workload, target: Target = HOST, **more: Any) -> TuningRecord:
    """Store a record and make it the best."""
    tuning.register(store, workload, target)
    record = make_record(workload, target, **more)
    store.add([record])
    assert store.promote(record)
    return record


def fake_run(
    trials: int = 3, best: bool = True, before: Callable[[int], None] | None = None, reused: int = 0
) -> Callable[..., TuneReport]:
    """Stands in for `tune_into`: stores `trials` records and reports each; no machine needed."""

    def run(
        store: Store,
        workload: Workload,
        target: Target,
        options: TuneOptions,
        on_event: Callable[[dict[str, Any]], None],
        should_stop: Callable[[], bool] | None = None,
        **_steering: Any,
    ) -> TuneReport:
        tuning.register(store, workload, target)
        records = []
        for trial in range(1, trials + 1):
            if before is not None:
                before(trial)
            record = make_record(workload, target, secs=1e-3 / trial, trial=trial)
            store.add([record])
            records.append(record)
            on_event(event(record, trials, reused=trial <= reused))
            if should_stop is not None and should_stop():
                break
        winner = records[-1]
        store.promote(winner)
        found = BestFound(winner.key, 1e-3 / trials, 1.0, 0.5, "compute", trials, True, [])
        return TuneReport(
            workload=workloads.workload_summary(workload),
            target={**targets.target_summary(target), "peak_gflops": 1.0, "bandwidth_gbs": 1.0},
            strategy=options.strategy,
            seed=options.seed,
            space_size=10,
            trials={"total": len(records), "ok": len(records), "by_status": {"ok": len(records)}},
            wall_secs=0.1,
            wall_secs_by_phase={"propose": 0.1},
            stopped_because="all trials of the budget are done",
            best=found if best else None,
            default={"run_secs": 2e-3, "gflops": 0.5},
        )

    return run


def event(record: TuningRecord, of_trials: int, *, reused: bool = False) -> dict[str, Any]:
    """The event of a stored trial, as JSON data."""
    return {
        "trial": record.trial,
        "of_trials": of_trials,
        "result": {
            "status": str(record.result.status),
            "run_secs": list(record.result.run_secs),
            "run_secs_estimate": record.result.run_secs_estimate,
            "detail": "",
        },
        "is_best": True,
        "best_run_secs": record.result.run_secs_estimate,
        "fraction_of_bound": 0.5,
        "wall_secs": float(record.trial),
        "eta_secs": 1.0,
        "record_key": record.key,
        "reused": reused,
    }
