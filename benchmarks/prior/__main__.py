"""Is a change of the prior for the better? Measured settings are kept; predictions are made anew.

    python -m benchmarks.prior measure --machine xeon --secs 85       # goes on where it was
    python -m benchmarks.prior judge [--machine zen5] [--rows]
    python -m benchmarks.prior constants               # what each constant buys
    python -m benchmarks.prior count                   # numbers that somebody chose, and all others

`measure` times settings on this machine (it has to be quiet) and appends them to the file of
`--machine` (`dataset.FILES`), which has to be of this machine. `judge` needs no machine: it holds
the prior of this commit against the times.
`constants` sets each number that the prior reads to a value that says
nothing (0 or 1), and to half and double of itself, and prints what that changes.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.commits.rows import rows as read_rows

from .constants import table
from .counting import listing
from .dataset import FILES, append, measure, read
from .judging import judge, known, summary
from .machines import target_of


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.prior")
    parser.add_argument("part", choices=("measure", "judge", "constants", "count"))
    parser.add_argument("--secs", type=float, default=1e9, help="stop measuring after so long")
    parser.add_argument("--settings", type=int, default=36)
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--every", type=int, default=1, help="measure each Nth row only")
    parser.add_argument("--machine", choices=[*FILES], default="zen5")
    asked = parser.parse_args()
    if asked.part == "measure":
        _measure(asked.machine, asked.settings, asked.secs, asked.every)
        return
    if asked.part == "count":
        print(listing())
        return
    file = FILES[asked.machine]
    if not file.exists():
        parser.error(f"{file.name} is not there: `measure` makes it, on a quiet machine")
    found = known(read(file))
    if asked.part == "constants":
        for line in table(found):
            print(line, flush=True)
        return
    judged = [judge(one) for one in found]
    for one in sorted(judged, key=lambda j: -j.first) if asked.rows else ():
        print(f"{one.first:7.3f} {one.of_16:7.3f} {one.order:6.3f}  {one.row}")
    for threads in (1, 2):
        print(f"{threads} threads: {summary([j for j in judged if j.threads == threads])}")
    print(summary(judged))


def _measure(machine: str, settings: int, secs: float, every: int) -> None:
    end = time.monotonic() + secs
    file = FILES[machine]
    done = {(one.row, one.threads) for one in read(file)} if file.exists() else set()
    target = target_of(machine)
    for row in read_rows()[::every]:
        for threads in (1, 2):
            if (row.name, threads) in done:
                continue
            if time.monotonic() > end:
                return
            began = time.monotonic()
            found = measure(row, target.with_threads(threads), settings, seed=0)
            append(found, file)
            print(f"{row.name} {threads}t: {len(found.timed)} in {time.monotonic() - began:.1f} s",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
