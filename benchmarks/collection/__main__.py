"""Races a collection of single operators, fused chains and other programs against PyTorch.

    python -m benchmarks.collection --out FILE.jsonl                # continues a stopped command
    python -m benchmarks.collection --out FILE.jsonl --only 'conv_transpose*' --threads 1
    python -m benchmarks.collection --out OTHER.jsonl --only programs
    python -m benchmarks.collection --report FILE.jsonl
    python -m benchmarks.collection --list

Each row is tuned from nothing, its kernel is compared with PyTorch's result in float64, and then
timed in alternation with PyTorch's fastest eager call and its fastest compiled one, each with plain
and with channels-last tensors. It needs an environment with PyTorch and a C++ compiler, and an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.collection.measuring import Processes, Settings, measured
from benchmarks.collection.summary import summary
from benchmarks.collection.table import PROGRAMS, SINGLE, chains, rows


def _options(arguments: list[str]) -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.collection", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help="appends a line per row")
    parser.add_argument("--report", type=Path, metavar="FILE.jsonl", help="prints the tables")
    parser.add_argument("--list", action="store_true", help="prints the names of all rows")
    parser.add_argument(
        "--only", default="single,chains", metavar="PATTERN,...",
        help="names with wildcards, or the words single, chains and programs",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=defaults.threads)
    parser.add_argument("--trials", type=int, default=defaults.trials)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--race-secs", type=float, default=defaults.race_secs, metavar="S")
    parser.add_argument(
        "--deadline", type=float, default=defaults.deadline_secs, metavar="S",
        help="limit of each step of a row",
    )  # fmt: skip
    parser.add_argument("--eager", action="store_true", help="leaves torch.compile out")
    parser.add_argument(
        "--folder", type=Path, default=defaults.folder, help="caches, which a later run reuses"
    )
    return parser.parse_args(arguments)


def chosen(patterns: str) -> list[str]:
    """Return the names of the rows that one of the patterns, separated by commas, matches."""
    wanted = patterns.split(",")
    groups = {"single": SINGLE, "chains": chains(), "programs": PROGRAMS}
    named = {row.name for word in groups.keys() & set(wanted) for row in groups[word]}
    return [
        name
        for name in rows()
        if name in named or any(fnmatchcase(name, pattern) for pattern in wanted)
    ]


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the results of all rows that the file does not have, each stored in it."""
    settings = Settings(
        given.threads, given.trials, given.seed, given.race_secs, given.deadline, not given.eager,
        given.folder,
    )  # fmt: skip
    given.folder.mkdir(parents=True, exist_ok=True)
    known = {r["name"] for r in _read(given.out) if r["threads"] == given.threads}
    with Processes(settings) as processes:
        for name in chosen(given.only):
            if name not in known:
                result = measured(name, processes, settings)
                with given.out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                yield result


def _shown(result: dict[str, Any]) -> str:
    if "ratio" in result:
        return (
            f"{result['ratio']:.2f}x of {result['best_way']}, tuned in {result['tune_secs']:.1f} s"
        )
    return next(
        f"{n}: {result[n]}" for n in ("cannot_be_expressed", "wrong", "failed") if n in result
    )


def main(arguments: list[str]) -> int:
    given = _options(arguments)
    if given.list:
        print("\n".join(chosen(given.only)))
    if given.out is not None:
        for result in _measure(given):
            print(f"{result['name']:60} {_shown(result)}", flush=True)
    if given.report is not None:
        print(summary(_read(given.report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
