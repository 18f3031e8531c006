"""Cold processes of `tilewright tune` over workloads that no data set of the prior contains.

    python -m benchmarks.cold_runs measure --out FILE.jsonl                  # continues
    python -m benchmarks.cold_runs measure --out FILE.jsonl --machine avx2 --threads 2 --every 4
    python -m benchmarks.cold_runs measure --out FILE.jsonl --against numpy torch
    python -m benchmarks.cold_runs measure --out FILE.jsonl --database shared -- --trials 16
    python -m benchmarks.cold_runs report FILE.jsonl

`workloads.jsonl` has the workloads; none of them is in `commits/rows.jsonl` or in the operator
suite. The machine is probed before the first command, so that no command contains the probes. With
`--against`, each best kernel is raced against the libraries when its command has ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.cold_runs.libraries import Race
from benchmarks.cold_runs.measuring import Plan, measure
from benchmarks.cold_runs.summary import summary
from benchmarks.commits.rows import rows
from tilewright.schedules.workload.structure import structure_of

FILE = Path(__file__).with_name("workloads.jsonl")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cold_runs", description=(__doc__ or "").partition("\n")[0]
    )
    parts = parser.add_subparsers(dest="part", required=True)
    measuring = parts.add_parser("measure", help="tune all workloads that the file lacks")
    measuring.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    measuring.add_argument("--machine", choices=("native", "avx2"), default="native")
    measuring.add_argument("--database", choices=("empty", "shared"), default="empty")
    measuring.add_argument("--threads", type=int, default=1)
    measuring.add_argument("--every", type=int, default=1, metavar="N", help="one of N workloads")
    measuring.add_argument(
        "--only", default="", metavar="TEXT,...", help="names or families with one of these"
    )
    measuring.add_argument(
        "--against", nargs="+", choices=("numpy", "torch"), default=[], help="libraries to race"
    )
    measuring.add_argument("--race-secs", type=float, default=2.0, metavar="S")
    measuring.add_argument(
        "--compile-secs", type=float, default=0.0, metavar="S",
        help="limit of torch.compile; by default eager PyTorch alone",
    )  # fmt: skip
    measuring.add_argument("more", nargs="*", help="further words of `tune`, after --")
    reporting = parts.add_parser("report", help="print the tables of files")
    reporting.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    given = _options(arguments)
    if given.part == "report":
        for file in given.files:
            results = [json.loads(line) for line in file.read_text().splitlines()]
            print(summary(results, structures()))
        return 0
    texts = given.only.split(",")
    chosen = [
        row for row in rows(FILE)[:: given.every] if any(t in row.name + row.family for t in texts)
    ]
    race = Race(tuple(given.against), given.race_secs, given.compile_secs)
    plan = Plan(
        chosen, given.threads, given.machine, given.database, given.out, tuple(given.more),
        race if race.peers else None,
    )  # fmt: skip
    measure(plan)
    return 0


def structures() -> dict[str, str]:
    """Return the keys of the structures of all workloads by name; related workloads have the same
    key."""
    return {row.name: structure_of(row.workload).key for row in rows(FILE)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
