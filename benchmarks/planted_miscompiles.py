"""Who checks the checker: plant mistakes blindly and see what verification makes of them.

    python benchmarks/planted_miscompiles.py [--seed 0] [--each 1] [--controls 200]
        [--tuned SETTINGS] [--unusual] [--only NAME,...] [--jsonl FILE] [--verbose]

`--tuned 2` plants in two generated kernels each of workloads of the sizes people tune, for this
machine, instead of in the small written-down ones; survivors are then run beside the right kernel
on other inputs (`tests/support/planting/examiner.py`).

`--unusual` plants what shows in unusual circumstances only (`tests/support/planting/unusual.py`):
what memory held before, where arrays lie, what other threads do, NaN, sizes far from one, numbers
of threads, calls before. With `--each 4` these are some 700 mistakes, other ones for each seed.

A table on standard output, then one line of JSON. Exit code 1 if a mistake got through that
`tests/support/planting/equivalents.py` does not explain, or a right kernel was rejected.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.suite.machine import commit_of  # noqa: E402
from tests.support.planting.bases import TARGET, Base, load_bases  # noqa: E402
from tests.support.planting.run import COMPILER, Judged, Mutant, Verdict, judge, plant  # noqa: E402
from tests.support.planting.run import right_kernel as kernel_of  # noqa: E402
from tests.support.planting.tuned import tuned_bases, tuned_workloads  # noqa: E402
from tests.support.planting.unusual import plant_unusual, unusual_bases  # noqa: E402
from tilewright.schedules import operators  # noqa: E402
from tilewright.schedules.errors import ScheduleError  # noqa: E402
from tilewright.schedules.sketches import space_for  # noqa: E402
from tilewright.schedules.space import Candidate, ScheduleSpace  # noqa: E402
from tilewright.schedules.target import Target  # noqa: E402
from tilewright.schedules.trace import Trace  # noqa: E402
from tilewright.schedules.workload.workload import Workload  # noqa: E402
from tilewright.tuner.compiling.pool import CompilePool  # noqa: E402
from tilewright.tuner.machine.native_target import detect  # noqa: E402

CAUGHT = (Verdict.QUICK, Verdict.FULL)
SURVIVED = (Verdict.EQUIVALENT, Verdict.MISSED)
COLUMNS = (*CAUGHT, Verdict.EQUIVALENT, Verdict.SAME, Verdict.REFUSED, Verdict.MISSED)
FULL_SHARE = 8  # one right kernel in so many is checked in full
CONTROLS: tuple[tuple[str, dict[str, int | str]], ...] = (
    ("matmul", {"M": 31, "N": 65, "K": 33}),
    ("matmul", {"M": 7, "N": 13, "K": 17, "dtype": "i8"}),
    ("matmul_tn", {"M": 17, "N": 31, "K": 65}),
    ("batch_matmul", {"B": 3, "M": 7, "N": 33, "K": 13}),
    ("conv2d_nhwc", {"H": 13, "W": 7, "CI": 3, "CO": 17, "K": 3, "pad": 1, "epilogue": "bias"}),
    ("depthwise_conv2d_nhwc", {"H": 13, "W": 17, "C": 31, "K": 3, "stride": 2, "pad": 1}),
    ("softmax_mn", {"M": 13, "N": 65}),
    ("layernorm_mn", {"M": 7, "N": 33}),
    ("norm_bmn", {"B": 3, "M": 13, "N": 17}),
    ("elementwise_add_relu", {"M": 17, "N": 31}),
    ("gemv", {"N": 33, "K": 65}),
    ("max_pool2d_nhwc", {"H": 13, "W": 13, "C": 7, "K": 3}),
)


def small_workloads() -> Iterator[tuple[str, Workload]]:
    """Those of `CONTROLS` by name, in normal form."""
    for name, parameters in CONTROLS:
        yield name, operators.build(name, parameters).normalised()


def traces(space: ScheduleSpace, count: int, rng: np.random.Generator) -> Iterator[Trace]:
    """`count` schedules at feasible points drawn by chance."""
    found = 0
    while found < count:
        sketch = int(rng.integers(len(space.sketches)))
        knobs = space.sketches[sketch].knobs
        setting = np.array([[rng.integers(len(k.values)) for k in knobs]], dtype=np.int64)
        if not space.sketches[sketch].feasible(setting)[0]:
            continue
        with suppress(ScheduleError):  # a sketch may find out late
            yield space.trace(Candidate(sketch, tuple(int(v) for v in setting[0])))
            found += 1


def alarms(
    workloads: Mapping[str, Workload], target: Target, count: int, seed: int, pool: CompilePool
) -> tuple[int, int, list[Judged]]:
    """`count` right candidates verified quickly, one in `FULL_SHARE` also in full: how many there
    were, how many in full, and those that were rejected."""
    rng = np.random.default_rng(seed)
    share = -(-count // (2 * max(len(workloads), 1)))
    checked, in_full, rejected = 0, 0, []
    for name, workload in workloads.items() if count else ():
        for threads in (1, 2):
            space = space_for(workload, target.with_threads(threads))
            bases = [
                Base(f"{name} {number}", workload, trace, space.target)
                for number, trace in enumerate(traces(space, share, rng))
            ]
            # Each is planted in the first as if it were a mutant of it: none must be caught.
            mutants = [kernel_of(base, level="right") for base in bases]
            first = len(mutants) // FULL_SHARE + 1
            for some, full in ((mutants[:first], True), (mutants[first:], False)):
                if not some:
                    continue
                checked += len(some)
                in_full += len(some) if full else 0
                judged = judge(bases[0], some, pool, seed, full=full)
                rejected += [j for j in judged if j.verdict in (*CAUGHT, Verdict.ALARM)]
    return checked, in_full, rejected


def planted(options: argparse.Namespace) -> Iterator[tuple[Base, list[Mutant]]]:
    """Kernels whose names were asked for, and what is planted in each."""
    if options.unusual:
        for base, what in unusual_bases(options.seed):
            if _asked(base.name, options):
                yield base, plant_unusual(base, what, options.seed, options.each)
        return
    tuned = options.tuned
    bases = tuned_bases(detect(), tuned, options.seed) if tuned else load_bases().values()
    for base in bases:
        if _asked(base.name, options):
            yield base, plant(base, options.seed, options.each)


def _asked(name: str, options: argparse.Namespace) -> bool:
    return any(part in name for part in options.only.split(","))


def table(rows: dict[str, Counter[Verdict]]) -> str:
    """Rows of counts, one a base, with their sum."""
    rows = {**rows, "all": sum(rows.values(), Counter())}
    width = max(20, *map(len, rows))
    lines = [f"{'planted in':<{width}}{'planted':>8}" + "".join(f"{c:>11}" for c in COLUMNS)]
    for name, counts in rows.items():
        planted = sum(counts[c] for c in COLUMNS)
        lines.append(f"{name:<{width}}{planted:>8}" + "".join(f"{counts[c]:>11}" for c in COLUMNS))
    return "\n".join(lines)


def line(
    name: str, options: argparse.Namespace, counts: Counter[Verdict], survivors: list[Judged]
) -> dict[str, Any]:
    """What became of the mistakes planted in one kernel, with each that was not caught."""
    return {
        "planted_in": name,
        "seed": options.seed,
        "each": options.each,
        "counts": {str(c): counts[c] for c in COLUMNS if counts[c]},
        "survivors": [
            {
                "verdict": str(j.verdict),
                "operator": j.mutant.operator,
                "edit": j.mutant.edit,
                "because": j.detail,
            }
            for j in survivors
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="where mistakes are planted")
    parser.add_argument("--each", type=int, default=1, help="mistakes of each kind in each kernel")
    parser.add_argument("--controls", type=int, default=200, help="right kernels to verify")
    parser.add_argument("--tuned", type=int, default=0, help="kernels a workload of tuning size")
    parser.add_argument("--unusual", action="store_true", help="mistakes that rarely show")
    parser.add_argument("--only", default="", help="only kernels with one of these in their names")
    parser.add_argument("--jsonl", type=Path, help="append what became of them, a line a kernel")
    parser.add_argument("--verbose", action="store_true", help="say what became of each")
    options = parser.parse_args()
    start = time.perf_counter()
    rows: dict[str, Counter[Verdict]] = {}
    statuses: Counter[str] = Counter()
    failed: list[Judged] = []
    with CompilePool(workers=2, compiler=COMPILER) as pool:
        for base, mutants in planted(options):
            name = base.name
            rows[name] = Counter()
            closer = bool(options.tuned)
            survivors = []
            for judged in judge(base, mutants, pool, options.seed, examined=closer):
                if judged.verdict is Verdict.ALARM:
                    failed.append(judged)
                if judged.mutant.level == "none":
                    continue
                rows[name][judged.verdict] += 1
                statuses[str(judged.status)] += judged.verdict in CAUGHT
                failed += [judged] if judged.verdict is Verdict.MISSED else []
                survivors += [judged] if judged.verdict in SURVIVED else []
                if options.verbose:
                    print(
                        f"{judged.verdict:<10} {judged.mutant.name} | {judged.detail}", flush=True
                    )
            if options.jsonl:
                with options.jsonl.open("a") as file:
                    print(json.dumps(line(name, options, rows[name], survivors)), file=file)
        controls = {
            name: workload
            for name, workload in (tuned_workloads() if options.tuned else small_workloads())
            if _asked(name, options)
        }
        target = detect() if options.tuned else TARGET
        checked, in_full, rejected = alarms(controls, target, options.controls, options.seed, pool)
    counts = sum(rows.values(), Counter())
    print(table(rows))
    for judged in [*failed, *rejected]:
        print(f"{judged.verdict}: {judged.mutant.name} | {judged.detail}")
    summary = {
        "planted": sum(counts[c] for c in COLUMNS if c is not Verdict.REFUSED),
        "miscompiles": sum(counts[c] for c in (*CAUGHT, Verdict.MISSED)),
        "caught": {str(c): counts[c] for c in CAUGHT},
        "caught_by_status": {k: v for k, v in sorted(statuses.items()) if v},
        "equivalent": {"same_object": counts[Verdict.SAME], "listed": counts[Verdict.EQUIVALENT]},
        "missed": counts[Verdict.MISSED],
        "right_kernels": checked,
        "of_them_checked_in_full": in_full,
        "false_alarms": len(rejected) + sum(j.verdict is Verdict.ALARM for j in failed),
        "seed": options.seed,
        "wall_secs": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(summary))
    if options.jsonl:
        with options.jsonl.open("a") as file:
            print(json.dumps({"summary": summary, "commit": commit_of(ROOT)}), file=file)
    return 1 if failed or rejected else 0


if __name__ == "__main__":
    sys.exit(main())
