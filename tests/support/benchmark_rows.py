"""Rows of the operator suite as a benchmark stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.suite.results import Result, ResultsFile


def row_data(
    case: str, family: str, threads: int, speedup: float, of_bound: float
) -> dict[str, Any]:
    interval = {"median": speedup, "low": speedup, "high": speedup}
    return {
        "case": case, "family": family, "threads": threads, "gflops": 100.0,
        "of_bound": of_bound / 2, "of_bound_beside": of_bound, "bound": {"binds": "compute"},
        "prepack": None, "tvm": None,
        "race": {"kernel": {"run_secs": 2e-5, "median_sample_secs": 2.5e-5},
                 "numpy": {"ratio": interval},
                 "torch": {"missing": "25 times slower than the other peer"}},
        "against_best_peer": {"peer": "numpy", **interval},
        "tune": {"workload": {"flops": 2e6, "min_bytes": 1e5}, "trials": {"total": 32}},
    }  # fmt: skip


def results_of(tmp_path: Path, *rows: dict[str, Any]) -> ResultsFile:
    results = ResultsFile(tmp_path / "results.jsonl")
    for data in rows:
        key = f"suite/{data['family']}/{data['case']}/{data['threads']}t"
        results.add(Result(key, "now", "session", 0.0, data))
    return results
