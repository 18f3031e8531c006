"""Measure how a fleet scales, with simulated hosts: each is a Dask worker in a separate process.

    python benchmarks/fleet.py [--hosts 1,2,4,8] [--latency-secs 0.3] [--trials 64] [--json]
                               [--figures measure,tune,many,jobs] [--strategy random]

Each host waits `--latency-secs` per candidate instead of measuring it. (A real host needs 0.2 to
0.5 s for a candidate of a small matrix product.) For each number of hosts, the program reports
four figures, each the best of `--rounds`:

- `measure`: seconds for `--trials` candidates in batches of 16;
- `tune`: seconds for one run, with its search, final race and full check;
- `many`: seconds for one run of `--workloads` workloads (`tune_many`), each with `--trials`
  trials at most;
- `jobs`: seconds for the jobs of a service, divided by `--jobs`. At the start, `--jobs` jobs per
  host are queued. The worker runs as many jobs concurrently as there are hosts, and stores their
  trials in a database on disk.

`linear` is the parallel efficiency, relative to the smallest number of hosts. For `jobs` it
includes the start and the end, when there are fewer jobs than hosts. `busy` is the fraction of
the time in which hosts measured, counted from 5 s after the start for as long as jobs waited. The
coordinator and the searches compute on the cores of this machine; `cpu_secs` is their CPU time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.support.fleet.local_fleet import LocalFleet, local_fleet  # noqa: E402
from tests.support.fleet.simulated import SPACE, TARGET, candidates  # noqa: E402
from tilewright.db import open_store  # noqa: E402
from tilewright.db.values.job_states import JobState  # noqa: E402
from tilewright.schedules import operators  # noqa: E402
from tilewright.service.jobs.options import FLEET, TuneOptions  # noqa: E402
from tilewright.service.jobs.request import JobRequest  # noqa: E402
from tilewright.service.jobs.run import JobContext  # noqa: E402
from tilewright.service.jobs.worker import Worker  # noqa: E402
from tilewright.tuner.many.entries import ManyEntry  # noqa: E402
from tilewright.tuner.measure.fleet.machines import fleet_status  # noqa: E402
from tilewright.tuner.measure.fleet.measurer import Fleet  # noqa: E402
from tilewright.tuner.session.report import Budget  # noqa: E402
from tilewright.tuner.session.stopping_rule import MAX_BATCH  # noqa: E402
from tilewright.tuner.tuning import tune, tune_many  # noqa: E402

RAMP_SECS = 5.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The settings of a measurement. `jobs` is the number of jobs per host."""

    trials: int
    strategy: str
    jobs: int
    latency_secs: float
    workloads: int


Figures = dict[str, float]


def measure(fleet: LocalFleet, asked: Asked) -> Figures:
    """Return the seconds for all candidates in batches of `MAX_BATCH`."""
    batch = candidates(MAX_BATCH)
    with Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer:
        measurer.measure(batch[:1])  # opens the connection and the workload
        started = time.perf_counter()
        for _ in range(asked.trials // MAX_BATCH):
            results = measurer.measure(batch)
            assert all(result.ok for result in results)
        return {"secs": time.perf_counter() - started}


def tune_once(fleet: LocalFleet, asked: Asked) -> Figures:
    """Return the seconds for one tuning run, without other jobs."""
    started = time.perf_counter()
    report = tune(
        SPACE.workload,
        TARGET,
        budget=Budget(trials=asked.trials),
        strategy=asked.strategy,
        measurer=f"dask:{fleet.address}",
    )
    assert report.trials["ok"] == report.trials["total"], report.trials
    return {"secs": time.perf_counter() - started}


def tune_all(fleet: LocalFleet, asked: Asked) -> Figures:
    """Return the seconds for one run over many workloads, without other jobs."""
    entries = [
        ManyEntry(operators.build("matmul", M=64 + 8 * number, N=64, K=64))
        for number in range(asked.workloads)
    ]
    started = time.perf_counter()
    report = tune_many(
        entries,
        TARGET,
        budget=Budget(trials=asked.trials),
        strategy=asked.strategy,
        measurer=f"dask:{fleet.address}",
    )
    secs = time.perf_counter() - started
    assert report.complete
    trials = sum(task.trials for task in report.tasks)
    busy = trials * asked.latency_secs / secs / len(fleet.machines)
    return {"secs": secs, "trials": trials, "busy": busy}


@dataclass(slots=True)
class Window:
    """The measuring rate of the hosts under load: from `RAMP_SECS` on, until no job waits."""

    fleet: LocalFleet
    began: float = 0.0
    before: int = 0
    rate: float = 0.0

    def look(self, since_secs: float, waiting: int) -> None:
        """Update the rate, `since_secs` after the start, if there are jobs `waiting`."""
        if since_secs < RAMP_SECS or not waiting:
            return
        now = time.perf_counter()
        measured = sum(machine.measured for machine in fleet_status(self.fleet.address))
        if not self.began:
            self.began, self.before = now, measured
        elif now > self.began:
            self.rate = (measured - self.before) / (now - self.began)


def run_jobs(fleet: LocalFleet, asked: Asked) -> Figures:
    """Return the seconds for all jobs of a service, divided by the number of jobs per host."""
    window = Window(fleet)
    count = asked.jobs * len(fleet.machines)
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(f"sqlite:///{folder}/jobs.sqlite") as store,
    ):
        store.coordinate()
        options = TuneOptions(Budget(asked.trials), strategy=asked.strategy, measurer=FLEET)
        for number in range(count):
            size = 64 + 8 * number
            workload = operators.build("matmul", M=size, N=64, K=64).normalised()
            request = JobRequest(workload, TARGET, native=False, options=options)
            key = request.flight_key
            store.create_job(request.to_json(), body_hash=key, flight_key=key)
        worker = Worker(
            JobContext(store, 5.0, stop, fleet=fleet.address), "benchmark", poll_secs=0.1
        )
        started = time.perf_counter()
        thread = threading.Thread(target=worker.work)
        thread.start()
        try:
            while (ended := store.job_counts())[JobState.SUCCEEDED] < count:
                assert not ended[JobState.FAILED], "its log says why"
                window.look(time.perf_counter() - started, ended[JobState.QUEUED])
                time.sleep(1.0)
            secs = time.perf_counter() - started
        finally:
            stop.set()
            thread.join()
    at_once = len(fleet.machines) / asked.latency_secs
    return {"secs": secs / asked.jobs, "busy": window.rate / at_once}


FIGURES = {"measure": measure, "tune": tune_once, "many": tune_all, "jobs": run_jobs}
GROWS = {"jobs"}
"""Figures whose work grows with the number of hosts. With linear scaling, their time stays
constant."""


def scaling(
    hosts: list[int], rounds: int, figures: list[str], asked: Asked
) -> list[dict[str, Any]]:
    """A row for each number of hosts, which join one after the other."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, local_fleet(Path(folder)) as fleet:
        for count in sorted(hosts):
            while len(fleet.machines) < count:
                fleet.join(f"host{len(fleet.machines)}", latency_secs=asked.latency_secs)
            fleet.wait_for(count)
            row: dict[str, Any] = {
                "hosts": count,
                "latency_secs": asked.latency_secs,
                "trials": asked.trials,
                "strategy": asked.strategy,
            }
            for figure in figures:
                row |= _figure(figure, fleet, rounds, asked)
                if rows:
                    times = count / rows[0]["hosts"] if figure not in GROWS else 1
                    alone = rows[0][f"{figure}_secs"]
                    row[f"{figure}_linear"] = alone / (times * row[f"{figure}_secs"])
            rows.append(row)
    return rows


def _figure(figure: str, fleet: LocalFleet, rounds: int, asked: Asked) -> Figures:
    mark = time.process_time()
    best = min((FIGURES[figure](fleet, asked) for _ in range(rounds)), key=lambda f: f["secs"])
    best["cpu_secs"] = (time.process_time() - mark) / rounds
    return {f"{figure}_{name}": value for name, value in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="How a fleet scales.")
    parser.add_argument("--hosts", default="1,2,4,8")
    parser.add_argument("--latency-secs", type=float, default=0.3)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--figures", default=",".join(FIGURES))
    parser.add_argument("--strategy", default="random")
    parser.add_argument("--jobs", type=int, default=3, help="for each host")
    parser.add_argument("--workloads", type=int, default=6, help="of one run over many")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    hosts = [int(count) for count in asked.hosts.split(",")]
    figures = asked.figures.split(",")
    wanted = Asked(asked.trials, asked.strategy, asked.jobs, asked.latency_secs, asked.workloads)
    rows = scaling(hosts, asked.rounds, figures, wanted)
    if asked.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    for row in rows:
        told = [f"{row['hosts']} hosts"]
        for figure in figures:
            linear = row.get(f"{figure}_linear", 1.0)
            secs, cpu = row[f"{figure}_secs"], row[f"{figure}_cpu_secs"]
            told.append(f"{figure} {secs:.2f} s ({linear:.2f} of linear, {cpu:.1f} s of CPU)")
            if f"{figure}_busy" in row:
                told.append(f"hosts at work {row[f'{figure}_busy']:.2f} of the time under load")
        sys.stdout.write(", ".join(told) + "\n")


if __name__ == "__main__":
    main()
