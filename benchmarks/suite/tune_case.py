"""Tune cases and emit what was found, all in one process: `python -m benchmarks.suite.tune_case`.

Does what `tilewright tune` and `tilewright emit` do, by the same functions, without starting a
process for each. Reads one JSON request a line (the arguments of `run`, or of `again`) and answers
with one.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.contestant import reference
from benchmarks.suite.registry import every_case, workload_of
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.process.linux import die_with_parent


def tuned(
    workload: Workload, target: Target, trials: int, seed: int, database_file: Path
) -> dict[str, Any]:
    """The document of `tune --json`, with `compile_secs`: the compile times of the trials."""
    from tilewright.service import database
    from tilewright.service.jobs import tuning
    from tilewright.service.jobs.options import TuneOptions
    from tilewright.tuner.session.report import Budget

    compile_secs: list[float] = []

    def on_event(event: dict[str, Any]) -> None:
        secs = event["result"]["compile_secs"]
        if secs > 0:
            compile_secs.append(secs)

    with database.session(f"sqlite:///{database_file}") as store:
        options = TuneOptions(Budget(trials), seed=seed)
        report = tuning.tune_into(store, workload, target, options, on_event).to_json()
    times: dict[str, float] | None = None
    if compile_secs:
        times = {"median": statistics.median(compile_secs), "trials": len(compile_secs)}
    return {**report, "compile_secs": times}


def found_before(database_file: Path, record_key: str) -> Trace:
    """The trace of a record that an earlier run stored. LookupError if it is not there."""
    from tilewright.service import database

    with database.session(f"sqlite:///{database_file}") as store:
        record = store.record(record_key)
    if record is None:
        raise LookupError(f"{database_file} has no record {record_key}")
    return Trace.from_json(record.trace)


def emit(workload: Workload, trace: Trace, target: Target, file: Path) -> None:
    """The object file of `emit --name kernel`."""
    from tilewright.tuner.emit.kernel import compile_kernel

    file.write_bytes(compile_kernel(workload, trace, target, "kernel").object_bytes)


def bound_of(workload: Workload, target: Target) -> dict[str, Any]:
    """What no schedule can be faster than on this target, by its probes."""
    from tilewright.tuner.machine.roofline import bound_for

    found = bound_for(workload, target)
    return {
        "secs": found.secs,
        "binds": found.binds,
        "threads": found.threads,
        "peak_gflops": found.peak_gflops,
    }


def run(
    case: str, threads: int, trials: int, seed: int, folder: str, input_seed: int, default: bool
) -> dict[str, Any]:
    """The report and the bound. The folder gets the database, `kernel.o` and `reference.npy`, the
    float64 result for inputs of `input_seed`; and `default.o`, the schedule chosen without
    measuring, if asked for."""
    from tilewright.tuner.machine.native_target import native_target
    from tilewright.tuner.search.default import default_trace

    start = time.perf_counter()
    chosen, to = every_case()[case], Path(folder)
    workload, target = workload_of(chosen), native_target(threads)
    report = tuned(workload, target, trials, seed, to / "tune.sqlite")
    process_secs = time.perf_counter() - start
    if report["best"] is not None:
        emit(workload, Trace.from_json(report["best"]["trace"]), target, to / "kernel.o")
        np.save(to / "reference.npy", reference(chosen, input_seed))
    if default:
        emit(workload, default_trace(workload, target), target, to / "default.o")
    return {"report": report, "bound": bound_of(workload, target), "process_secs": process_secs}


def again(case: str, threads: int, record_key: str, folder: str, input_seed: int) -> dict[str, Any]:
    """`run` for a kernel that was found before: nothing is tuned, the bound is today's."""
    from tilewright.tuner.machine.native_target import native_target

    chosen, to = every_case()[case], Path(folder)
    workload, target = workload_of(chosen), native_target(threads)
    emit(workload, found_before(to / "tune.sqlite", record_key), target, to / "kernel.o")
    np.save(to / "reference.npy", reference(chosen, input_seed))
    return {"bound": bound_of(workload, target)}


def main() -> None:
    """Serve until stdin ends."""
    die_with_parent(os.getppid())  # it may be stopped when the benchmark is killed
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answer = again(**request) if "record_key" in request else run(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
