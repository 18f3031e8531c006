"""How good is what a search has found after 16, 32 and 64 trials, on machines unlike the prior?

    python -m benchmarks.search_comparison --jobs 2            # all of it: half an hour
    python -m benchmarks.search_comparison --seeds 4 --part tuned
    python -m benchmarks.search_comparison --table-only

Every machine of `benchmarks/machines` is a simulated one (`docs/mocked_timings.md`) of another
character; none shares a formula with the cost model. Five strategies search the same landscapes:
the default one, random, evolution, and the default one with its model cut off in two ways, a
model that never corrects the prior and one that learns from permuted times. The figure is the true
time of what looked best after n trials, over the best known of that landscape: the best of all
runs on it, improved by walking downhill on true times.

Machines and workloads of the part "held back" were never looked at while the strategy's constants
were chosen. A run that was stopped goes on where it was. The same seeds give the same results
whenever they are run. One JSON line a landscape and strategy goes to
`benchmarks/search_comparison.jsonl`, which the tables in the docs are made of.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.baselines import PriorModel
from tilewright.costmodel.base import BorrowedSample, CostModel, Prediction, Sample, SettingFeatures
from tilewright.costmodel.blend import BlendedModel
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.trace import Trace
from tilewright.tuner.measure.mocked.simulated import (
    SimulatedMachine,
    SimulatedMeasurer,
    read_simulated,
)
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.search.base import SearchGoal, SearchStrategy
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.search.strategies.annealing import AnnealingStrategy
from tilewright.tuner.search.strategies.evolution import EvolutionStrategy
from tilewright.tuner.search.strategies.random import RandomStrategy
from tilewright.tuner.testing import mocked_target

HERE = Path(__file__).parent
MACHINES = HERE / "machines"
RESULTS = HERE / "search_comparison.jsonl"

AFTER = (16, 32, 64)
BATCH = 16
STRIDE = 10
"""All pairs would take hours; each workload has one machine, and each machine a workload."""

LANDSCAPES = 4
"""Seeds of a machine: runs with seeds equal modulo this search the same landscape."""

TUNED_MACHINES = ("plain", "small_cache", "scalar", "small_code", "slow_threads", "rugged")
HELD_MACHINES = ("entangled", "memory_bound", "noisy", "wide")

TUNED_WORKLOADS = (
    ("matmul:M=128,N=128,K=128", 4),
    ("matmul:M=127,N=131,K=137", 1),
    ("conv2d_nhwc:N=1,H=28,W=28,CI=32,CO=32,K=3,pad=1", 4),
    ("depthwise_conv2d_nhwc:H=56,W=56,C=64,K=3,pad=1", 1),
    ("max_pool2d_nhwc:H=56,W=56,C=64,K=3,stride=2,pad=1", 4),
    ("transpose_batch_matmul_softmax:seq=64,heads=4,dim=32", 1),
    ("softmax_mn:M=64,N=1000", 4),
)
"""Workloads as on the command line, and threads."""

HELD_WORKLOADS = (
    ("batch_matmul:B=12,M=64,N=64,K=32", 4),
    ("conv2d_transpose_nhwc:H=8,W=8,CI=32,CO=16,K=4,stride=2,pad=1", 1),
    ("conv2d_nhwc:N=1,H=29,W=29,CI=24,CO=40,K=5,stride=2,pad=2", 1),
    ("conv1d_nlc:L=256,CI=64,CO=48,K=3,pad=1", 4),
    ("transpose_mn:M=300,N=500", 4),
    ("layernorm_mn:M=64,N=768", 4),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One machine and one workload, and whether the strategy's constants were chosen on both."""

    machine: str
    workload: str
    threads: int
    held_back: bool


def cases() -> list[Case]:
    """Each machine with one workload in `STRIDE`, and the other way round."""
    machines = [*TUNED_MACHINES, *HELD_MACHINES]
    workloads = [*TUNED_WORKLOADS, *HELD_WORKLOADS]
    return [
        Case(
            machine,
            workload,
            threads,
            machine in HELD_MACHINES or (workload, threads) in HELD_WORKLOADS,
        )
        for w, (workload, threads) in enumerate(workloads)
        for m, machine in enumerate(machines)
        if (w + m) % STRIDE == 0
    ]


# -- the strategies


class ShuffledModel:
    """The learned model with the measured times handed to the wrong candidates."""

    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self.model, self.seed = BlendedModel(space), seed

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        order = np.random.default_rng([self.seed, len(samples)]).permutation(len(samples))
        pairs = zip(samples, order, strict=True)
        self.model.fit([Sample(s.candidate, samples[i].run_secs) for s, i in pairs])

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        return self.model.describe(sketch, settings)

    def predict_from(self, description: SettingFeatures) -> Prediction:
        return self.model.predict_from(description)

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        return self.model.predict(sketch, settings)


Make = Callable[[ScheduleSpace, SearchGoal], SearchStrategy]


def _with_model(make: Callable[[ScheduleSpace, int], CostModel]) -> Make:
    return lambda space, goal: AnnealingStrategy(space, goal, make(space, goal.seed))


STRATEGIES: dict[str, Make] = {
    "annealing": AnnealingStrategy,
    "random": RandomStrategy,
    "evolution": EvolutionStrategy,
    "prior only": _with_model(lambda space, seed: PriorModel(space)),
    "labels shuffled": _with_model(ShuffledModel),
}


# -- landscapes


class Landscape:
    """True and measured times of the candidates of one space on one simulated machine.

    `traces` is shared by the machines of a space: a trace costs more than its price.
    """

    def __init__(
        self,
        space: ScheduleSpace,
        machine: SimulatedMachine,
        traces: dict[Candidate, Trace | None],
    ) -> None:
        self.space, self.traces = space, traces
        self.measurer: SimulatedMeasurer = machine(space.workload, space.target, 0)
        self._true: dict[Candidate, float] = {}

    def trace(self, candidate: Candidate) -> Trace | None:
        if candidate not in self.traces:
            try:
                self.traces[candidate] = self.space.trace(candidate)
            except ScheduleError:
                self.traces[candidate] = None
        return self.traces[candidate]

    def measure(self, candidate: Candidate) -> MeasureResult:
        trace = self.trace(candidate)
        if trace is None:
            return MeasureResult(MeasureStatus.NOT_LEGAL)
        return self.measurer.measure([MeasureRequest(1, trace)])[0]

    def true_secs(self, candidate: Candidate) -> float:
        """Without noise; infinite for a candidate that cannot be measured."""
        if candidate not in self._true:
            secs = float("inf")
            if self.measure(candidate).ok:
                trace = self.trace(candidate)
                assert trace is not None
                secs = self.measurer.true_secs(MeasureRequest(1, trace))
            self._true[candidate] = secs
        return self._true[candidate]

    def downhill(self, start: Candidate) -> float:
        """The true time at the end of the way down from `start`, one knob at a time."""
        return self.true_secs(self.lowest_from(start))

    def lowest_from(self, start: Candidate, steps: int = 12) -> Candidate:
        """The candidate at the end of that way."""
        grid = setting_grids(self.space)[start.sketch]
        here, best = start, self.true_secs(start)
        for _ in range(steps):
            near = [Candidate(grid.index, tuple(r)) for r in every_value(grid.sizes, here.setting)]
            near = [c for c in near if self._feasible(c)]
            found = min(near, key=self.true_secs, default=here)
            if self.true_secs(found) >= best:
                break
            here, best = found, self.true_secs(found)
        return here

    def _feasible(self, candidate: Candidate) -> bool:
        setting = np.array([candidate.setting], np.int64)
        return bool(self.space.sketches[candidate.sketch].feasible(setting)[0])


def every_value(sizes: Sequence[int], setting: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All settings that differ from `setting` in one knob."""
    for j, size in enumerate(sizes):
        for value in range(size):
            if value != setting[j]:
                yield (*setting[:j], value, *setting[j + 1 :])


def run(landscape: Landscape, make: Make, seed: int) -> tuple[list[float], Candidate, int]:
    """True seconds of what looked best after each of AFTER, that candidate, and trials done.

    As a session does it: batches of 16, and an end where the strategy sees no sense in going on.
    """
    strategy = make(landscape.space, SearchGoal(seed))
    looked: list[tuple[float, Candidate]] = []
    found: list[float] = []
    asked = 0
    seen: set[bytes] = set()
    trials = 0
    while trials < AFTER[-1] and strategy.stop_reason is None:
        batch = strategy.ask(min(BATCH, AFTER[-1] - trials))
        if not batch:
            break
        told = [(candidate, landscape.measure(candidate)) for candidate in batch]
        for candidate, result in told:
            trace = landscape.trace(candidate)
            key = b"" if trace is None else canonical_bytes(trace.to_json())
            trials += key not in seen
            seen.add(key)
            asked += 1
            if result.ok and result.run_secs_estimate is not None:
                looked.append((result.run_secs_estimate, candidate))
            while len(found) < len(AFTER) and trials == AFTER[len(found)] and looked:
                found.append(landscape.true_secs(min(looked, key=lambda t: t[0])[1]))
        strategy.tell(told)
    best = min(looked, key=lambda t: t[0])[1]
    found += [landscape.true_secs(best)] * (len(AFTER) - len(found))
    return found, best, trials


@cache
def space_of(workload: str, threads: int) -> tuple[ScheduleSpace, dict[Candidate, Trace | None]]:
    """A space, and the traces that a process has made of its candidates."""
    return space_for(parse_workload(workload), mocked_target(threads)), {}


def compare(case: Case, number: int, names: Sequence[str], seeds: int) -> list[dict[str, Any]]:
    """One line a strategy: landscape `number` of a case, searched with every `LANDSCAPES`-th of
    `seeds` seeds."""
    machine = replace(read_simulated(MACHINES / f"{case.machine}.json"), seed=number)
    space, traces = space_of(case.workload, case.threads)
    landscape = Landscape(space, machine, traces)
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    trials: dict[str, list[int]] = {name: [] for name in names}
    ends: dict[Candidate, float] = {}
    own = range(number, seeds, LANDSCAPES)
    for name in names:
        for seed in own:
            secs, best, count = run(landscape, STRATEGIES[name], seed)
            found[name].append(secs)
            trials[name].append(count)
            ends[best] = landscape.true_secs(best)
    start = min(ends, key=lambda c: (ends[c], c.sketch, c.setting))
    known = min(*ends.values(), landscape.downhill(start))
    return [
        {
            **asdict(case),
            "landscape": number,
            "strategy": name,
            "seeds": list(own),
            "best_known_secs": float(f"{known:.5g}"),
            "over_best_known": [[round(secs / known, 3) for secs in row] for row in found[name]],
            "trials": trials[name],
        }
        for name in names
    ]


# -- the tables


def geomean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def means(lines: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Geometric means over landscapes and seeds after each of AFTER, by strategy."""
    found: dict[str, list[list[float]]] = {}
    for line in lines:
        found.setdefault(line["strategy"], []).extend(line["over_best_known"])
    return {
        name: [geomean(column) for column in zip(*runs, strict=True)]
        for name, runs in found.items()
    }


def tables(lines: Sequence[dict[str, Any]]) -> str:
    """A Markdown table: a row for all, for both parts and for each machine, a column for each
    strategy; a cell has the mean after each of AFTER."""
    parts = [("all", lines)]
    for held, title in ((False, "used to choose constants"), (True, "held back")):
        parts.append((title, [line for line in lines if line["held_back"] is held]))
    machines = dict.fromkeys(line["machine"] for line in lines)
    parts += [(f"`{m}`", [line for line in lines if line["machine"] == m]) for m in machines]
    names = list(means(lines))
    rows = [f"| machine | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for title, part in parts:
        found = means(part)
        cells = [" / ".join(f"{value:.2f}" for value in found[name]) for name in found]
        rows += [f"| {title} | {' | '.join(cells)} |"] if part else []
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--part", choices=("all", "tuned", "held-back"), default="all")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines to write")
    parser.add_argument("--fresh", action="store_true", help="keep nothing of an earlier run")
    parser.add_argument("--table-only", action="store_true", help="tables of what is written")
    given = parser.parse_args(arguments)
    if not given.table_only:
        _measure(given)
    lines = [json.loads(line) for line in given.results.read_text("utf-8").splitlines()]
    print(tables(lines))
    return 0


def _measure(given: argparse.Namespace) -> None:
    """Search what the file of results lacks; every landscape is written when it is done."""
    lines = []
    if given.results.exists() and not given.fresh:
        lines = [json.loads(line) for line in given.results.read_text("utf-8").splitlines()]
    done = {(line["machine"], line["workload"], line["landscape"]) for line in lines}
    chosen = [
        case
        for case in cases()
        if given.part == "all" or case.held_back is (given.part == "held-back")
    ]
    left = [
        (case, number)
        for case in chosen
        for number in range(min(LANDSCAPES, given.seeds))
        if (case.machine, case.workload, number) not in done
    ]
    names = given.strategies.split(",")
    with ProcessPoolExecutor(given.jobs) as pool:
        futures = [pool.submit(compare, case, n, names, given.seeds) for case, n in left]
        for future in as_completed(futures):
            lines += future.result()
            lines.sort(key=lambda line: _order(line, names))
            given.results.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def _order(line: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The order of cases, landscapes and strategies, however the processes were scheduled."""
    places = {(case.machine, case.workload): place for place, case in enumerate(cases())}
    strategy = names.index(line["strategy"]) if line["strategy"] in names else len(names)
    return places[line["machine"], line["workload"]], line["landscape"], strategy


if __name__ == "__main__":
    sys.exit(main())
