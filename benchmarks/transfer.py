"""What trials of related workloads are worth to a search, on simulated machines.

    python -m benchmarks.transfer --jobs 2        # all of it: about ten minutes on two cores
    python -m benchmarks.transfer --table-only

For each machine of `benchmarks/machines` and each family of workloads of one structure, every
workload is searched without any records. Then each is searched again with the records of other
tasks:

- `related`: of the other workloads of its family on this machine.
- `elsewhere`: of the whole family, itself included, on the next machine of the folder.
- `shuffled`: as `related`, with the errors of the prior permuted among the records, from which
  nothing can be learned.
- `halved` and `noisy`: as `related`, if half of the records are of a broken machine, which reports
  half the time, or a time that is wrong by a random factor (normal, one log2 unit).

The figure is the noise-free time of the incumbent after n trials over the best known time of that
machine and workload; 1 is optimal.

`--common` is the share of a machine's deviations that all workloads have in common. With 0, only
the machine's regular properties (cache size, cost of copies, of code, of threads) are the same for
two workloads. One JSON line per search goes to `benchmarks/transfer.jsonl`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.search_comparison import MACHINES, Landscape, geomean
from tilewright.costmodel.prior import Prior
from tilewright.schedules.named_setting import named_setting
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.spelling import parse_operator
from tilewright.schedules.workload.structure import distance, structure_of
from tilewright.tuner.measure.mocked.simulated import read_simulated
from tilewright.tuner.search.adaptation import RelatedTrial
from tilewright.tuner.search.base import SearchGoal
from tilewright.tuner.search.related import FASTEST, OTHERS
from tilewright.tuner.search.strategies.annealing import AnnealingStrategy
from tilewright.tuner.testing import mocked_target

RESULTS = Path(__file__).with_name("transfer.jsonl")
AFTER = (1, 4, 8, 16, 32)
BATCH = 4
THREADS = 4
KINDS = ("none", "related", "elsewhere", "shuffled", "halved", "noisy")

Trials: TypeAlias = list[tuple[float, Candidate]]
"""Measured seconds and candidates."""

Breaks: TypeAlias = Callable[[Trials], Trials]
"""Changes the times of a list of trials."""

FAMILIES = {
    "matmul": (
        "matmul:M=128,N=128,K=128",
        "matmul:M=127,N=131,K=137",
        "matmul:M=64,N=256,K=64",
        "matmul:M=256,N=96,K=192",
    ),
    "conv2d": (
        "conv2d_nhwc:N=1,H=28,W=28,CI=32,CO=32,K=3,pad=1",
        "conv2d_nhwc:N=1,H=14,W=14,CI=64,CO=64,K=3,pad=1",
        "conv2d_nhwc:N=1,H=29,W=29,CI=24,CO=40,K=5,stride=2,pad=2",
        "conv2d_nhwc:N=1,H=56,W=56,CI=16,CO=16,K=3,pad=1",
    ),
    "depthwise": (
        "depthwise_conv2d_nhwc:H=56,W=56,C=64,K=3,pad=1",
        "depthwise_conv2d_nhwc:H=28,W=28,C=96,K=3,pad=1",
        "depthwise_conv2d_nhwc:H=14,W=14,C=192,K=5,pad=2",
    ),
    "softmax": ("softmax_mn:M=64,N=1000", "softmax_mn:M=200,N=384", "softmax_mn:M=16,N=5000"),
}


@dataclass(frozen=True, slots=True)
class Searched:
    """A search: seconds of each measured candidate in order, and the noise-free seconds of the
    incumbent after each of AFTER trials."""

    measured: Trials
    incumbents: list[float]


Family: TypeAlias = dict[str, tuple[Landscape, Searched]]
"""The searches of a family, by the spelling of the workload."""


def search(landscape: Landscape, related: Sequence[RelatedTrial] = ()) -> Searched:
    """Search the landscape with the default strategy, for the last of AFTER trials."""
    strategy = AnnealingStrategy(landscape.space, SearchGoal(0, related=related))
    measured: Trials = []
    incumbents: list[float] = []
    trials = 0
    while trials < AFTER[-1] and strategy.stop_reason is None:
        batch = strategy.ask(min(BATCH, AFTER[-1] - trials))
        told = [(candidate, landscape.measure(candidate)) for candidate in batch]
        for candidate, result in told:
            trials += 1
            if result.run_secs_estimate is not None:
                measured.append((result.run_secs_estimate, candidate))
            if trials in AFTER:
                incumbents.append(_incumbent(landscape, measured))
        strategy.tell(told)
        if not batch:
            break
    missing = len(AFTER) - len(incumbents)
    return Searched(measured, incumbents + [_incumbent(landscape, measured)] * missing)


def _incumbent(landscape: Landscape, measured: Sequence[tuple[float, Candidate]]) -> float:
    best = min(measured, key=lambda pair: pair[0], default=None)
    return float("inf") if best is None else landscape.true_secs(best[1])


def related(
    space: ScheduleSpace,
    others: Iterable[tuple[ScheduleSpace, Searched]],
    *,
    machine: int = 0,
    breaks: Breaks = lambda trials: trials,
) -> list[RelatedTrial]:
    """Return the trials of the searches of `others` as a search of `space` borrows them. `machine`
    is the number of their machine."""
    own = structure_of(space.workload)
    near = sorted(
        ((distance(own, structure_of(o.workload)), o, found) for o, found in others),
        key=lambda item: item[0],
    )
    trials = []
    for source, (gap, other, found) in enumerate(near, start=1):
        prior, ranked = Prior(other), sorted(breaks(found.measured), key=lambda pair: pair[0])
        work = 0 if other.workload.key == space.workload.key else source
        rest = ranked[FASTEST:]
        chosen = ranked[:FASTEST] + rest[:: max(-(-len(rest) // OTHERS), 1)]
        for secs, candidate in chosen:
            row = np.array([candidate.setting], np.int64)
            error = float(np.log2(secs) - prior.log2_secs(candidate.sketch, row)[0])
            named = named_setting(other, candidate)
            trials.append(RelatedTrial(named, error, source, gap, work, machine))
    return trials


def halved(trials: Trials) -> Trials:
    """Return `trials`, every second of them with half its time."""
    return [(secs * 0.5 ** (number % 2), one) for number, (secs, one) in enumerate(trials)]


def noisy(trials: Trials) -> Trials:
    """Return `trials`, every second of them with its time wrong by a random factor."""
    factors = 2.0 ** np.random.default_rng(1).normal(size=len(trials))
    wrong = zip(trials, factors.tolist(), strict=True)
    return [(s * f if n % 2 else s, one) for n, ((s, one), f) in enumerate(wrong)]


def shuffled(trials: Sequence[RelatedTrial]) -> list[RelatedTrial]:
    """Return `trials` with their errors permuted."""
    order = np.random.default_rng(0).permutation(len(trials))
    return [replace(t, log2_error=trials[i].log2_error) for t, i in zip(trials, order, strict=True)]


def compare(machine_name: str, family: str, common: float) -> list[dict[str, Any]]:
    """Search every workload of a family on a machine: one line per workload and kind."""
    names = sorted(path.stem for path in MACHINES.glob("*.json"))
    next_name = names[(names.index(machine_name) + 1) % len(names)]
    here, there = (_family(name, family, common) for name in (machine_name, next_name))
    return [line for text in here for line in _lines(machine_name, common, text, here, there)]


def _family(machine_name: str, family: str, common: float) -> Family:
    """Search the workloads of a family on a machine without any records."""
    machine = replace(read_simulated(MACHINES / f"{machine_name}.json"), common=common)
    found: Family = {}
    for text in FAMILIES[family]:
        space = space_for(parse_operator(text), mocked_target(THREADS))
        landscape = Landscape(space, machine, {})
        found[text] = landscape, search(landscape)
    return found


def _lines(
    machine: str, common: float, text: str, here: Family, there: Family
) -> Iterator[dict[str, Any]]:
    landscape, alone = here[text]
    space = landscape.space
    others = [(land.space, one) for name, (land, one) in here.items() if name != text]
    elsewhere = [(land.space, one) for land, one in there.values()]
    trials = related(space, others)
    lent = {
        "related": trials,
        "elsewhere": related(space, elsewhere, machine=1),
        "shuffled": shuffled(trials),
        "halved": related(space, others, breaks=halved),
        "noisy": related(space, others, breaks=noisy),
    }
    runs = {"none": alone} | {kind: search(landscape, own) for kind, own in lent.items()}
    best = min(
        (pair for one in runs.values() for pair in one.measured),
        key=lambda pair: landscape.true_secs(pair[1]),
    )
    known = landscape.downhill(best[1])
    for kind, one in runs.items():
        ratios = [round(secs / known, 3) for secs in one.incumbents]
        yield {
            "machine": machine, "family": _family_of(text), "common": common, "workload": text,
            "records": kind, "over_best_known": ratios,
        }  # fmt: skip


def _family_of(text: str) -> str:
    return next(family for family, texts in FAMILIES.items() if text in texts)


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of geometric means: a row per share in common, a column per kind."""
    kinds = [kind for kind in KINDS if any(line["records"] == kind for line in lines)]
    rows = ["| in common | " + " | ".join(kinds) + " |", "|---" * (1 + len(kinds)) + "|"]
    for common in sorted({line["common"] for line in lines}):
        cells = []
        for kind in kinds:
            own = [
                line["over_best_known"]
                for line in lines
                if line["common"] == common and line["records"] == kind
            ]
            means = (geomean(column) for column in zip(*own, strict=True))
            cells.append(" / ".join(f"{mean:.2f}" for mean in means))
        rows.append(f"| {common:g} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.transfer")
    machines = sorted(path.stem for path in MACHINES.glob("*.json"))
    parser.add_argument("--machines", nargs="+", default=machines, choices=machines)
    parser.add_argument("--common", nargs="+", type=float, default=[0.0, 0.5, 0.9])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if not asked.table_only:
        _measure(asked.machines, asked.common, asked.jobs, asked.out)
    print(table([json.loads(line) for line in asked.out.read_text().splitlines()]))


def _measure(machines: Sequence[str], shares: Sequence[float], jobs: int, out: Path) -> None:
    """Append a line for each search that `out` lacks."""
    lines = out.read_text().splitlines() if out.exists() else []
    done = {tuple(json.loads(line)[k] for k in ("machine", "family", "common")) for line in lines}
    missing = [case for case in product(machines, FAMILIES, shares) if case not in done]
    with ProcessPoolExecutor(jobs) as pool, out.open("a", encoding="utf-8") as file:
        for found in pool.map(compare, *zip(*missing, strict=True)) if missing else ():
            file.writelines(json.dumps(line) + "\n" for line in found)
            file.flush()


if __name__ == "__main__":
    main()
