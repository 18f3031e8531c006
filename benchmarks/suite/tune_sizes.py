"""Tune matrix products in one process: `python -m benchmarks.suite.tune_sizes TRIALS M,N,K ...`.

On one thread, into memory. Prints a JSON list: each size, and what its best reached.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def best_of(size: tuple[int, ...], trials: int) -> dict[str, Any]:
    """The verified best of `trials`, the default included."""
    from tilewright.schedules.spelling import parse_workload
    from tilewright.tuner import tune
    from tilewright.tuner.machine.native_target import native_target
    from tilewright.tuner.session.report import Budget

    workload = parse_workload("matmul:M={},N={},K={}".format(*size))
    report = tune(workload, native_target(1), budget=Budget(trials=trials))
    if report.best is None:
        raise SystemExit(f"nothing works for {size}: {report.trials['by_status']}")
    default = report.default["run_secs"] if report.default else None
    return {
        "size": size,
        "gflops": report.best.gflops,
        "run_secs": report.best.run_secs,
        "default_run_secs": default,
    }


def main() -> None:
    trials, *sizes = sys.argv[1:]
    found = []
    for text in sizes:
        found.append(best_of(tuple(map(int, text.split(","))), int(trials)))
        sys.stderr.write(f"{text}: {found[-1]['gflops']:.1f} GFLOP/s\n")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
