"""This commit against another one, in alternation in one run.

    python -m benchmarks.commits --against REF --out FILE            everything that FILE lacks
    python -m benchmarks.commits --against REF --out FILE --secs 80  a piece of it
    python -m benchmarks.commits --against REF --out FILE --slow --seed 1 2
                                                                     was it luck of the search?
    python -m benchmarks.commits --summarise FILE                    the tables

Each commit tunes each row in processes of its own; then the kernels race in one process.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from benchmarks.commits.comparison import PARTS, Comparison, Plan
from benchmarks.commits.rows import Row, rows, spread_out
from benchmarks.commits.summary import final_bests, summary, too_slow
from benchmarks.commits.trees import ROOT, TreeError, commit_key, has_changes
from benchmarks.suite.machine import wait_until_quiet
from benchmarks.suite.results import ResultsFile

OUT = ROOT / "benchmarks" / "results" / "commits.jsonl"
TRIALS, ROUNDS, PAIRS = 12, 10, 11
PATIENCE_SECS, LOOK_EVERY = 10.0, 8


def measure(plan: Plan, against: str, commit: str, out: Path, secs: float) -> None:
    """Everything that is asked for and not there, beginning nothing after `secs`."""
    end = time.monotonic() + secs
    if commit == "HEAD" and has_changes():
        _say("files differ from HEAD: what is compared is HEAD, without them")
    commits = {"old": commit_key(against), "new": commit_key(commit)}
    with Comparison(plan, commits, out) as comparison:
        steps = comparison.missing()
        _say(f"{len(steps)} steps are missing in {out}")
        for number, step in enumerate(steps):
            if time.monotonic() > end:
                _say(f"{len(steps) - number} steps are left: the same command goes on")
                return
            if number % LOOK_EVERY == 0:
                comparison.busy_share = wait_until_quiet(PATIENCE_SECS, _say)
            start = time.monotonic()
            said = step.run(number)
            took_secs = time.monotonic() - start
            _say(f"[{number + 1}/{len(steps)}] {step.key}: {said} ({took_secs:.1f} s)")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.commits", description=(__doc__ or "").partition("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", metavar="REF", help="the old commit")
    what.add_argument("--summarise", type=Path, metavar="FILE", help="print the tables of a file")
    parser.add_argument("--commit", default="HEAD", metavar="REF", help="the new one (HEAD)")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, metavar="N", help="only N rows, spread over all")
    parser.add_argument("--only", metavar="TEXT,...", help="rows with one of these in their name")
    parser.add_argument(
        "--slow", action="store_true",
        help="rows that are too slow in --out so far: with other seeds, was it luck?",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"a tuning ({TRIALS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"a race, at most ({ROUNDS})")
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="tune with each of these")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"of processes ({PAIRS})")
    parser.add_argument(
        "--secs", type=float, default=math.inf, help="begin nothing after so many seconds"
    )
    parser.add_argument("--every-row", action="store_true", help="print each row's ratio too")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="raw results")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[Row]:
    found = spread_out(rows(), options.rows)
    if options.only is not None:
        texts = options.only.split(",")
        found = [row for row in found if any(text in row.name for text in texts)]
    if options.slow:
        slow = {each.row for each in too_slow(final_bests(ResultsFile(options.out)))}
        found = [row for row in found if row.name in slow]
    return found


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.summarise is None:
        plan = Plan(
            parts=tuple(options.part),
            rows=tuple(_chosen(options)),
            threads=tuple(options.threads),
            seeds=tuple(options.seed),
            trials=options.trials,
            rounds=options.rounds,
            pairs=options.pairs,
        )
        try:
            measure(plan, options.against, options.commit, options.out, options.secs)
        except TreeError as error:
            _say(str(error))
            return 2
    results = ResultsFile(options.summarise or options.out)
    print(summary(results, every_row=options.every_row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
