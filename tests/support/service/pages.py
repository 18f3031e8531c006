"""Jobs and records for tests of pages, stored without running anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.service.records import HOST, MATMUL, event, make_record
from tilewright.db import Store
from tilewright.db.values.job_states import JobState
from tilewright.db.values.jobs import StoredJob
from tilewright.schedules.record import MeasureStatus, TuningRecord
from tilewright.schedules.target import Target
from tilewright.service.jobs.request import read_job
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings

HOSTILE = "\"><script>alert('x')</script><img src=x onerror=alert(1)>&amp;{{7*7}}"


def stored_job(
    store: Store,
    settings: Settings,
    *,
    name: str = "",
    trials: int = 8,
    seed: int = 0,
    workload: str = MATMUL,
) -> StoredJob:
    """A job that waits; `name` is what its workload is called instead."""
    document = {
        "workload": workload, "target": HOST.to_json(), "budget": {"trials": trials}, "seed": seed,
        "measurer": "simulated:fast.json",
    }  # fmt: skip
    request = read_job(document, settings)
    form = request.to_json()
    if name:
        form["workload_summary"]["name"] = name
    job, _ = store.create_job(
        form, body_hash="0" * 64, flight_key=f"{request.flight_key}{name}"[:80]
    )
    return job


def best_of(
    store: Store, *, name: str = "", workload: str = MATMUL, target: Target = HOST, **more: Any
) -> TuningRecord:
    """A record that is the best of its work; `name` is what the workload is called instead."""
    found = workloads.workload_of(workload)
    store.register(
        found.key,
        found.to_json(),
        name or found.name,
        int(found.flops),
        target.key,
        target.to_json(),
    )
    record = make_record(found, target, **more)
    store.add([record])
    assert store.promote(record)
    return record


def run_trials(
    store: Store, job: StoredJob, count: int, *, end: JobState | None = None, **told_at_end: Any
) -> StoredJob:
    """Lease the job and store `count` trials of it, every fourth a failure; end it if asked, with
    `told_at_end` in its report."""
    leased = store.lease_job("tests", 60.0)
    assert leased is not None
    assert leased.id == job.id
    found = workloads.workload_of(job.request["workload"])
    target = Target.from_json(job.request["target"])
    store.register(
        found.key,
        job.request["workload"],
        found.name,
        int(found.flops),
        target.key,
        target.to_json(),
    )
    best: TuningRecord | None = None
    for trial in range(1, count + 1):
        status = MeasureStatus.RUN_TIMEOUT if trial % 4 == 0 else MeasureStatus.OK
        record = make_record(
            found, target, secs=1e-3 / trial, trial=trial, status=status, level="quick"
        )
        store.add([record])
        store.report_job(job.id, leased.epoch, trials=[(trial, record.key)])
        told = event(record, count)
        told["result"]["detail"] = record.result.detail
        told |= {
            "predicted_secs": 2e-3,
            "sketch": "tile",
            "knobs": {"tile_rows": trial, "tile_vectors": 2},
        }
        store.report_job(job.id, leased.epoch, events=[("trial", told)])
        if record.result.ok:
            best = record
    if end is None or best is None:
        return leased
    full = replace(best, verified_level="full")
    store.add([full])
    store.promote(full)
    return store.finish_job(
        job.id,
        leased.epoch,
        end,
        result={**report(full, job), **told_at_end} if end is JobState.SUCCEEDED else None,
        error={"code": "why", "detail": "it was not to be"} if end is JobState.FAILED else None,
    )


def report(best: TuningRecord, job: StoredJob) -> dict[str, Any]:
    """What `tune --json` would have printed."""
    secs = best.result.run_secs_estimate
    assert secs is not None
    return {
        "workload": job.request["workload_summary"],
        "target": {**job.request["target_summary"], "peak_gflops": 100.0, "bandwidth_gbs": 10.0},
        "space_size": 1000,
        "stopped_because": "all trials of the budget are done",
        "wall_secs": 1.5,
        "wall_secs_by_phase": {"propose": 1.0, "measure": 0.5},
        "best": {
            "record_key": best.key, "run_secs": secs, "gflops": 1.0, "fraction_of_bound": 0.5,
            "bound": "compute", "trial": best.trial, "verified": True, "trace": best.trace,
        },
        "default": {"run_secs": 2e-3, "gflops": 0.5},
        "cost_model": {"rank_correlation": 0.9, "recall_at_16": 0.5},
        "bound": {"secs": secs / 2},
    }  # fmt: skip
