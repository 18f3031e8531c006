"""Random computations against the product, hours of them if asked for.

    python -m tests.fuzz --kind fronts --cases 5000 --seed 1

Kinds: `documents` (default and sampled schedules, compiled), `spaces` (made and priced, not
compiled), `traces` (random legal primitives), `fronts` (three spellings, one key), `mutations`
(typed errors only). All values are compared with `evaluate`, which shares no code with the product.
Cases run in worker processes, each with a
deadline; a failure is printed with its number and made small; `--only N` runs one case here. The
last line is JSON; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from threading import Lock, Thread
from typing import Any

from .cases import DEADLINE_SECS, KINDS, SHRINK_SECS, run_case

BATCH = 25
BATCH_SECS = BATCH * 4.0 + DEADLINE_SECS + 2 * SHRINK_SECS
"""Deadline of a batch: code of LLVM cannot be interrupted by that of one case."""


class Campaign:
    """What workers have found, and the numbers still to be given out."""

    def __init__(self, kind: str, seed: int, cases: int) -> None:
        self.kind, self.seed, self.cases = kind, seed, cases
        self._next = 0
        self._lock = Lock()
        self._started = time.monotonic()
        self.outcomes: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []

    def work(self) -> None:
        while True:
            with self._lock:
                first, self._next = self._next, min(self._next + BATCH, self.cases)
                stop = self._next
            if first >= stop:
                return
            while first < stop:
                first = self._batch(first, stop)

    def _batch(self, first: int, stop: int) -> int:
        """Run cases from `first` in a process; the first number that is still to be run."""
        command = [
            sys.executable, "-m", "tests.fuzz", "--kind", self.kind, "--seed", str(self.seed),
            "--worker", str(first), str(stop),
        ]  # fmt: skip
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=BATCH_SECS, check=False
            )
            output, how = ended.stdout, f"exit code {ended.returncode}: {ended.stderr[-600:]}"
        except subprocess.TimeoutExpired as late:
            raw = late.stdout or b""
            output = raw.decode() if isinstance(raw, bytes) else raw
            how = f"over {BATCH_SECS:.0f} s for {BATCH} cases"
        with self._lock:
            for line in output.splitlines():
                self._add(json.loads(line))
                first += 1
            if first < stop:  # the process is gone, and the case it was at is why
                self._add({"number": first, "failure": f"the worker ended: {how}"})
                first += 1
            done = sum(self.outcomes.values()) + len(self.failures)
            secs = time.monotonic() - self._started
            print(f"\r{done}/{self.cases}, {len(self.failures)} failed, {secs:.0f} s", end="",
                  file=sys.stderr, flush=True)  # fmt: skip
        return first

    def _add(self, found: dict[str, Any]) -> None:
        if "failure" in found:
            self.failures.append(found)
            print(f"\nFAILED {self.kind} {self.seed}:{found['number']} {json.dumps(found)}")
        else:
            self.outcomes[found["outcome"]] += 1

    def summary(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "seed": self.seed,
            "cases": self.cases,
            "failed": len(self.failures),
            "failed_cases": sorted(f["number"] for f in self.failures),
            "outcomes": dict(self.outcomes),
            "secs": round(time.monotonic() - self._started, 1),
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kind", choices=list(KINDS), default="documents")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, metavar="N", help="run one case, in this process")
    parser.add_argument("--worker", type=int, nargs=2, metavar=("FIRST", "STOP"), help="internal")
    arguments = parser.parse_args()
    if arguments.worker or arguments.only is not None:
        only = arguments.only
        numbers = range(*arguments.worker) if arguments.worker else range(only, only + 1)
        failed = False
        for number in numbers:
            found = run_case(arguments.kind, arguments.seed, number)
            failed = failed or "failure" in found
            print(json.dumps(found), flush=True)
        return int(failed and not arguments.worker)
    campaign = Campaign(arguments.kind, arguments.seed, arguments.cases)
    threads = [Thread(target=campaign.work) for _ in range(arguments.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"\n{json.dumps(campaign.summary())}")
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
