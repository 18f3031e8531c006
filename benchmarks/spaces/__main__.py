"""Whether this version proposes the same schedules as the one that wrote the reference.

    python -m benchmarks.spaces                 compare all places; exit code 1 if one differs
    python -m benchmarks.spaces --every 20      about one place of twenty
    python -m benchmarks.spaces --write         write the reference again

A change that only moves things leaves every row as it is. One that changes a space writes the
reference again, and says in its message what changed and why.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.spaces.replay import differences, places, replayed
from benchmarks.spaces.workloads import stored

REFERENCE = Path(__file__).with_name("reference.jsonl.gz")
SHOWN = 40


def reference() -> dict[str, dict[str, Any]]:
    """The committed rows by place."""
    with gzip.open(REFERENCE, "rt") as file:
        rows = [json.loads(line) for line in file]
    return {row["place"]: row for row in rows}


def _rows(every: int, jobs: int) -> Iterator[dict[str, Any]]:
    chosen = list(places(stored(), every))
    with ProcessPoolExecutor(jobs) as pool:
        for n, row in enumerate(pool.map(replayed, chosen, chunksize=4)):
            print(f"\r{n + 1} of {len(chosen)} places", end="", file=sys.stderr, flush=True)
            yield row
    print(file=sys.stderr)


def write(jobs: int) -> None:
    """Write the reference, without a time in it: equal rows give an equal file."""
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in _rows(1, jobs))
    REFERENCE.write_bytes(gzip.compress(lines.encode(), mtime=0))


def compare(every: int, jobs: int) -> int:
    """Print what differs from the reference; how many places do."""
    expected, changed = reference(), 0
    kinds: Counter[str] = Counter()
    for row in _rows(every, jobs):
        found = differences(expected[row["place"]], row) if row["place"] in expected else ["new"]
        kinds.update({text.split(": ", 1)[-1] for text in found})
        changed += bool(found)
        if found and changed <= SHOWN:
            print(f"{row['place']}: {'; '.join(found)}")
    for kind, count in kinds.most_common():
        print(f"{count:5d} places: {kind}")
    print(f"{changed} places differ")
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="about one place of so many")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--write", action="store_true", help="write the reference again")
    asked = parser.parse_args()
    if asked.write:
        write(asked.jobs)
        return 0
    return 1 if compare(asked.every, asked.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
