"""Random (workload, legal trace) pairs: interpreter, compiled kernel and NumPy must agree.

    python benchmarks/fuzz_schedules.py --pairs 2000 --seed 0

Its workloads are operators of the library and expressions with constant inputs and allowed errors,
which the computations of `python -m tests.fuzz` have not.

Half of the traces are random primitives, half random settings of the sketches; some workloads have
constant inputs or an allowed error, and traces then pack ahead or begin with rewrites. Pairs run in
worker processes, so that a crash is one failure and not the end. Each failure is printed with
its workload and trace; `--only N` runs pair N of the seed alone, in this process. The last line
is a JSON summary; the exit code is 1 if any pair failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAX_POINTS = 1 << 16
BATCH = 20
BATCH_SECS = 240.0
"""Deadline of a batch; what is not finished by then is one failure."""


def run_pair(seed: int, number: int, most_steps: int) -> dict[str, Any]:
    """Check pair `number` of `seed`: counts, and under "failure" what went wrong, if anything."""
    from tests.support.schedule_fuzz.check import Pair, check_pair, random_pair, shrunk

    rng = random.Random(seed * 1_000_003 + number)
    pair: Pair | None = None
    try:
        pair, refused = random_pair(rng, MAX_POINTS, most_steps)
        interpreted = check_pair(pair)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the finding)
        found: dict[str, Any] = {"number": number, "failure": f"{type(error).__name__}: {error}"}
        if pair is not None:
            found["pair"] = (shrunk(pair) if pair.kind == "steps" else pair).to_json()
        return found
    return {"number": number, "kind": pair.kind, "interpreted": interpreted, "refused": refused}


@dataclass
class Progress:
    """What the workers have found, and which pairs are still to be given out."""

    seed: int
    pairs: int
    most_steps: int
    started: float = field(default_factory=time.monotonic)
    next_pair: int = 0
    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def take(self) -> range:
        """The next pairs; empty when there are none."""
        first = self.next_pair
        self.next_pair = min(first + BATCH, self.pairs)
        return range(first, self.next_pair)

    def add(self, found: dict[str, Any]) -> None:
        self.done += 1
        if "failure" in found:
            self.failures.append(found)
            print(f"\nFAILED pair {found['number']}: {json.dumps(found)}", flush=True)
            return
        self.counts[found["kind"]] += 1
        self.counts["interpreted"] += bool(found["interpreted"])
        self.counts["illegal_steps_refused"] += found["refused"]

    def show(self) -> None:
        secs = time.monotonic() - self.started
        text = f"{self.done}/{self.pairs} pairs, {len(self.failures)} failed, {secs:.0f} s"
        print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, Any]:
        return {
            "pairs": self.done,
            "seed": self.seed,
            "failed": len(self.failures),
            "failed_pairs": sorted(f["number"] for f in self.failures),
            **self.counts,
            "secs": round(time.monotonic() - self.started, 1),
        }


def work(progress: Progress) -> None:
    """Run batches in worker processes until none is left; a crash costs the pair it was at."""
    while batch := progress.take():
        first = batch.start
        while first < batch.stop:
            first = _run_batch(progress, first, batch.stop)
            progress.show()


def _run_batch(progress: Progress, first: int, stop: int) -> int:
    command = [
        sys.executable, __file__, "--seed", str(progress.seed),
        "--steps", str(progress.most_steps), "--worker", str(first), str(stop),
    ]  # fmt: skip
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=BATCH_SECS, check=False, cwd=ROOT
        )
        output, how = ended.stdout, f"exit code {ended.returncode}: {ended.stderr[-600:]}"
    except subprocess.TimeoutExpired as late:
        raw = late.stdout or b""
        output, how = raw.decode() if isinstance(raw, bytes) else raw, f"over {BATCH_SECS:.0f} s"
    for line in output.splitlines():
        progress.add(json.loads(line))
        first += 1
    if first < stop:
        progress.add({"number": first, "failure": f"the worker ended: {how}"})
        first += 1
    return first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=25, help="longest random trace")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, metavar="N", help="run one pair, in this process")
    parser.add_argument("--worker", type=int, nargs=2, metavar=("FIRST", "STOP"), help="internal")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if arguments.worker:
        for number in range(*arguments.worker):
            print(json.dumps(run_pair(arguments.seed, number, arguments.steps)), flush=True)
        return 0
    if arguments.only is not None:
        found = run_pair(arguments.seed, arguments.only, arguments.steps)
        print(json.dumps(found))
        return 1 if "failure" in found else 0
    progress = Progress(arguments.seed, arguments.pairs, arguments.steps)
    threads = [Thread(target=work, args=(progress,)) for _ in range(arguments.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"\n{json.dumps(progress.summary())}")
    return 1 if progress.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
