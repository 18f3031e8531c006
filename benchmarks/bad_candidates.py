"""Candidates that crash, hang, eat memory or write where they must not, in a tuning session.

    python benchmarks/bad_candidates.py [--threads 1]

A table on standard output, then one line of JSON. Exit code 1 if a failure was recorded as
something else, the session found no best, or a process was left behind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.support.planting.bad_kernels import EXPECTED, run_sabotaged  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of the right candidates")
    options = parser.parse_args()
    start = time.perf_counter()
    report, found = run_sabotaged(tuple(EXPECTED), options.threads)
    left = psutil.Process().children(recursive=True)
    print(f"{'candidate':<24}{'recorded as':<18}{'what it says'}")
    for kind in EXPECTED:
        print(f"{kind:<24}{found[kind].status:<18}{found[kind].detail}")
    wrong = [kind for kind, expected in EXPECTED.items() if found[kind].status is not expected]
    summary = {
        "bad_candidates": len(EXPECTED),
        "typed_as_expected": len(EXPECTED) - len(wrong),
        "wrong": wrong,
        "trials": report.trials["total"],
        "ok": report.trials["ok"],
        "best_verified": report.best is not None and report.best.verified,
        "processes_left": len(left),
        "wall_secs": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(summary))
    return 1 if wrong or left or not summary["best_verified"] else 0


if __name__ == "__main__":
    sys.exit(main())
