"""How a fleet scales: simulated hosts, each a Dask worker in a process of its own.

    python benchmarks/fleet.py [--hosts 1,2,4,8] [--latency-secs 0.3] [--trials 64] [--json]

Each host really waits `--latency-secs` a candidate, as if it measured; a candidate of a small
matrix product takes 0.2 to 0.5 s on a real one. Two figures a number of hosts, best of `--rounds`:
`measure`, candidates in batches of 16 as a search asks for them, and `tune`, a whole run with its
search, its store in memory, final race and full check, which take their turn alone whatever the
fleet. `linear` is the time of one host over the number of hosts, divided by the time it took.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.fleet.local_fleet import LocalFleet, local_fleet  # noqa: E402
from tests.fleet.simulated import SPACE, TARGET, candidates  # noqa: E402
from tuner.measure.fleet.measurer import Fleet  # noqa: E402
from tuner.report import Budget  # noqa: E402
from tuner.session import MAX_BATCH  # noqa: E402
from tuner.tuning import tune  # noqa: E402


def measure(fleet: LocalFleet, trials: int) -> float:
    """Seconds for `trials` candidates in a search's batches."""
    asked = candidates(MAX_BATCH)
    with Fleet(fleet.address)(SPACE.workload, TARGET, 0) as measurer:
        measurer.measure(asked[:1])  # the line is open
        started = time.perf_counter()
        for _ in range(trials // MAX_BATCH):
            results = measurer.measure(asked)
            assert all(result.ok for result in results)
        return time.perf_counter() - started


def tune_once(fleet: LocalFleet, trials: int) -> float:
    """Seconds for a run of `trials` trials."""
    started = time.perf_counter()
    report = tune(
        SPACE.workload,
        TARGET,
        budget=Budget(trials=trials),
        strategy="random",
        measurer=f"dask:{fleet.address}",
    )
    assert report.trials["ok"] == trials, report.trials
    return time.perf_counter() - started


FIGURES: dict[str, Callable[[LocalFleet, int], float]] = {"measure": measure, "tune": tune_once}


def scaling(
    hosts: list[int], latency_secs: float, trials: int, rounds: int, figures: list[str]
) -> list[dict[str, Any]]:
    """A row for each number of hosts, which join one after the other."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, local_fleet(Path(folder)) as fleet:
        for count in sorted(hosts):
            while len(fleet.machines) < count:
                fleet.join(f"host{len(fleet.machines)}", latency_secs=latency_secs)
            fleet.wait_for(count)
            row: dict[str, Any] = {"hosts": count, "latency_secs": latency_secs, "trials": trials}
            for figure in figures:
                secs = min(FIGURES[figure](fleet, trials) for _ in range(rounds))
                row[f"{figure}_secs"] = secs
                if rows:
                    alone = rows[0][f"{figure}_secs"] * rows[0]["hosts"]
                    row[f"{figure}_linear"] = alone / (count * secs)
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="How a fleet scales.")
    parser.add_argument("--hosts", default="1,2,4,8")
    parser.add_argument("--latency-secs", type=float, default=0.3)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--figures", default=",".join(FIGURES))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    hosts = [int(count) for count in asked.hosts.split(",")]
    figures = asked.figures.split(",")
    rows = scaling(hosts, asked.latency_secs, asked.trials, asked.rounds, figures)
    if asked.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    for row in rows:
        told = [f"{row['hosts']} hosts"]
        for figure in figures:
            linear = row.get(f"{figure}_linear", 1.0)
            told.append(f"{figure} {row[f'{figure}_secs']:.2f} s ({linear:.2f} of linear)")
        sys.stdout.write(", ".join(told) + "\n")


if __name__ == "__main__":
    main()
