"""The workloads of the replay, as documents that no later change of an operator alters.

    python -m benchmarks.spaces.workloads

writes `workloads.jsonl` again: the operator suite with its constant weights, expressions in no
library, and random computations at awkward extents. Done once; a workload is added, not changed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.schedules.workload.workload import Workload

FILE = Path(__file__).with_name("workloads.jsonl")

RANDOM = 120
SEED = 20261123


def stored() -> list[tuple[str, dict[str, Any]]]:
    """(name, document) of each workload, in the order of the file."""
    rows = (json.loads(line) for line in FILE.read_text().splitlines())
    return [(row["name"], row["workload"]) for row in rows]


def collected() -> Iterator[tuple[str, Workload]]:
    """Every workload by name, from where it is defined."""
    from benchmarks.suite.cases import EXPRESSIONS
    from benchmarks.suite.operator_suite import constant_cases, suite_cases
    from benchmarks.suite.registry import workload_of
    from tests.support.schedule_fuzz.workloads import random_workload
    from tests.support.schedules.spaces import ODD, workload

    for case in (*suite_cases(), *constant_cases(), *EXPRESSIONS):
        yield case.name, workload_of(case)
    for name in ODD:
        yield f"odd: {name}", workload(name)
    rng = random.Random(SEED)
    for number in range(RANDOM):
        yield f"random {number}", random_workload(rng)


def main() -> None:
    """Write the file."""
    seen: set[str] = set()
    with FILE.open("w") as file:
        for name, found in collected():
            normal = found.normalised()
            if normal.key not in seen:
                seen.add(normal.key)
                row = {"name": name, "workload": normal.to_json()}
                file.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
