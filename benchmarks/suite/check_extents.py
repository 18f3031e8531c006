"""Check one case at every extent: `python -m benchmarks.suite.check_extents NAME THREADS TRIALS`.

With one thread every free size is the same extent; with two they differ, so that each extent
meets others. `tune` measures the default and random candidates, each verified before it is timed,
and rebuilds and verifies its best in full. Prints one JSON document.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from benchmarks.suite.cases import EXTENTS, Case
from benchmarks.suite.registry import every_case, workload_of


def sizes_at(case: Case, position: int, mixed: bool) -> dict[str, int]:
    """The case's sizes with its axes set to extents, those around `position` if `mixed`.

    Windows are never larger than the data: 3 taps with padding fit any extent.
    """
    sizes = dict(case.sizes)
    for number, axis in enumerate(case.axes):
        step = 2 * number if mixed else 0
        sizes[axis] = EXTENTS[(position + step) % len(EXTENTS)]
    for taps, pad in (("K", "pad"), ("KH", "pad_h"), ("KW", "pad_w")):
        if taps not in case.axes and sizes.get(taps, 1) > 1:
            sizes[taps], sizes[pad] = 3, max(sizes.get(pad, 0), sizes.get("dilation", 1))
    if "groups" in sizes:  # must divide both
        sizes["groups"] = next(
            g for g in (4, 3, 2, 1) if sizes["CI"] % g == 0 and sizes["CO"] % g == 0
        )
    return sizes


def check(case: Case, threads: int, trials: int, extents: int = len(EXTENTS)) -> dict[str, Any]:
    """Statuses of all candidates at all extents, and what was wrong."""
    from tilewright.tuner import tune
    from tilewright.tuner.machine.native_target import native_target
    from tilewright.tuner.session.report import Budget

    target = native_target(threads)
    statuses: Counter[str] = Counter()
    problems: list[str] = []
    for position in range(extents):
        sizes = sizes_at(case, position, mixed=threads > 1)
        details: list[str] = []
        report = tune(
            workload_of(case, sizes),
            target,
            budget=Budget(trials=trials),
            strategy="random",
            seed=position,
            on_event=lambda event, seen=details: (  # type: ignore[misc]  # bound at once
                None
                if event.result.ok
                else seen.append(f"{event.result.status}: {event.result.detail}")
            ),
        )
        statuses.update({k: v for k, v in report.trials["by_status"].items() if v})
        where = ", ".join(f"{k}={v}" for k, v in sizes.items())
        problems += [f"{where}: {detail}" for detail in details]
        if report.best is None or not report.best.verified:
            problems.append(f"{where}: no verified best ({report.stopped_because})")
        sys.stderr.write(f"{case.name}: {where}: {report.trials['ok']} ok\n")
    return {
        "case": case.name,
        "threads": threads,
        "workloads": extents,
        "by_status": dict(statuses),
        "problems": problems,
    }


def main() -> None:
    name, threads, trials, extents = sys.argv[1:]
    result = check(every_case()[name], int(threads), int(trials), int(extents))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
