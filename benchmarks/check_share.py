"""How much of tuning are checks? Tunes operators and chains in PyTorch's layouts as new processes.

    python benchmarks/check_share.py --out benchmarks/published/check_share.jsonl
    python benchmarks/check_share.py --summarise benchmarks/published/check_share.jsonl

A line a workload: wall time of `tilewright tune` and its phases (`wall_secs_by_phase`), from an
empty database, with known probes of the machine. The share is that of `verify`: the quick check of
every candidate, the reference, and the full check of the best. A command that was stopped goes on
where it was. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.schedules.public_chains import Chain, public_chains

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "import sys; from tilewright.service.cli import main; main(sys.argv[1:])"


def words(chain: Chain) -> list[str]:
    """A chain as a command takes it."""
    text, tensors, ranges = chain
    found = ["--expr", text]
    for name, (dtype, shape) in tensors.items():
        found += ["--tensor", f"{name}={dtype}[{','.join(map(str, shape))}]"]
    for name, extent in ranges.items():
        found += ["--range", f"{name}={extent}"]
    return found


def tuned(chain: Chain, trials: int, threads: int) -> dict[str, Any]:
    """What `tune --json` says of `chain`, or the error it ended with."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, "tune", *words(chain), "--json",
             "--trials", str(trials), "--threads", str(threads), "--db", f"{folder}/t.sqlite"],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
        )  # fmt: skip
    document: dict[str, Any] = json.loads(done.stdout or b"{}")
    return document


def measure(out: Path, every: int, trials: int, threads: int) -> None:
    known = {json.loads(line)["name"] for line in _lines(out)}
    chains = [pair for pair in list(public_chains().items())[::every] if pair[0] not in known]
    for name, chain in chains:
        report = tuned(chain, trials, threads)
        row = {"name": name, "trials": trials, "threads": threads}
        row |= {k: report.get(k) for k in ("wall_secs", "wall_secs_by_phase", "stopped_because")}
        row["best"] = report.get("best") is not None
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{name:40} {row['wall_secs']} s, verify {_share(row):.0%}", flush=True)


def summarise(out: Path) -> str:
    rows = [row for row in map(json.loads, _lines(out)) if row["wall_secs_by_phase"]]
    shares = sorted(_share(row) for row in rows)
    slowest = max(rows, key=lambda row: row["wall_secs_by_phase"]["verify"])
    return (
        f"{len(rows)} workloads, {sum(row['best'] for row in rows)} with a best: checks are"
        f" {statistics.median(shares):.0%} of tuning (median; quartiles"
        f" {shares[len(shares) // 4]:.0%} and {shares[3 * len(shares) // 4]:.0%}); the longest took"
        f" {slowest['wall_secs_by_phase']['verify']:.1f} s ({slowest['name']})"
    )


def _share(row: dict[str, Any]) -> float:
    if not row["wall_secs_by_phase"]:
        return float("nan")
    return float(row["wall_secs_by_phase"]["verify"] / row["wall_secs"])


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summarise", type=Path)
    parser.add_argument("--every", type=int, default=1, help="one of so many workloads")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args(arguments)
    if asked.out is not None:
        measure(asked.out, asked.every, asked.trials, asked.threads)
    print(summarise(asked.summarise or asked.out))


if __name__ == "__main__":
    main(sys.argv[1:])
