"""What the model of the database saves on a new workload, on machines unlike the prior.

    python -m benchmarks.database_model small_code wide        # minutes a machine
    python -m benchmarks.database_model small_code --common 0.7

Every workload of `benchmarks.search_comparison` is tuned on a simulated machine. Then each is
searched anew with a model that was trained on all others: without a model, with the model, and with
a model trained on errors that were shuffled within each workload. Trials of related workloads are
not used. The figure is the true time of what looked best after 0, 8 and 16 trials (0: the first
choice), over the best time found by any of these runs; geometric means over workloads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from benchmarks.search_comparison import (
    HELD_WORKLOADS,
    MACHINES,
    TUNED_WORKLOADS,
    Landscape,
    geomean,
    space_of,
)
from tilewright.costmodel.correction import Correction
from tilewright.costmodel.training import TrialGroup, train
from tilewright.schedules.named_setting import named_setting
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.space import Candidate
from tilewright.tuner.measure.mocked.simulated import read_simulated
from tilewright.tuner.search.base import SearchGoal
from tilewright.tuner.search.strategies.annealing import AnnealingStrategy
from tilewright.tuner.session.database_model import training_group

WORKLOADS = (*TUNED_WORKLOADS, *HELD_WORKLOADS)
TRAINING_TRIALS = 48
AFTER = (0, 8, 16)

Found: TypeAlias = list[tuple[float, Candidate]]


def search(landscape: Landscape, correction: Correction | None, trials: int) -> Found:
    """The measured seconds and the candidates of a search's successful trials, in order."""
    strategy = AnnealingStrategy(landscape.space, SearchGoal(correction=correction))
    found: Found = []
    asked = 0
    while asked < trials and (batch := strategy.ask(min(16, trials - asked))):
        results = [(candidate, landscape.measure(candidate)) for candidate in batch]
        strategy.tell(results)
        asked += len(batch)
        secs = [(result.run_secs_estimate, candidate) for candidate, result in results]
        found += [(s, candidate) for s, candidate in secs if s is not None]
    return found


def after_trials(landscape: Landscape, found: Found) -> list[float]:
    """True seconds of what looked best after each of AFTER."""
    chosen = [min(found[: max(count, 1)], key=lambda one: one[0])[1] for count in AFTER]
    return [landscape.true_secs(candidate) for candidate in chosen]


def group_of(landscape: Landscape, found: Found) -> TrialGroup:
    """The trials of a search as a session stores them, and as training reads them."""
    space, toolchain = landscape.space, landscape.measurer.toolchain
    records = [
        TuningRecord(
            space.workload.key,
            space.target.key,
            space.target.threads,
            [],
            landscape.measure(candidate),
            toolchain,
            seed=0,
            trial=number,
            setting=named_setting(space, candidate).to_json(),
        )
        for number, (_, candidate) in enumerate(found)
    ]
    group = training_group(space, records, 1.0)
    assert group is not None
    return group


def shuffled(group: TrialGroup, rng: np.random.Generator) -> TrialGroup:
    """The same candidates with each other's errors."""
    errors = (group.log2_secs - group.log2_prior)[rng.permutation(len(group.log2_secs))]
    return replace(group, log2_secs=group.log2_prior + errors)


def judge(machine_name: str, common: float) -> dict[str, list[float]]:
    """Geometric means after each of AFTER: without a model, with it, with shuffled errors."""
    machine = replace(read_simulated(MACHINES / f"{machine_name}.json"), common=common)
    spaces = [space_of(*workload) for workload in WORKLOADS]
    landscapes = [Landscape(space, machine, traces) for space, traces in spaces]
    tuned = [search(landscape, None, TRAINING_TRIALS) for landscape in landscapes]
    groups = [group_of(*pair) for pair in zip(landscapes, tuned, strict=True)]
    rng = np.random.default_rng(0)
    ratios: dict[str, list[list[float]]] = {}
    for number, landscape in enumerate(landscapes):
        others = groups[:number] + groups[number + 1 :]
        model, quality = train(others)
        noise, _ = train([shuffled(group, rng) for group in others])
        secs = {
            "no model": after_trials(landscape, search(landscape, None, AFTER[-1])),
            "model": after_trials(landscape, search(landscape, model, AFTER[-1])),
            "shuffled": after_trials(landscape, search(landscape, noise, AFTER[-1])),
        }
        best = min(*(s for row in secs.values() for s in row), *(s for s, _ in tuned[number]))
        for name, row in secs.items():
            ratios.setdefault(name, []).append([s / best for s in row])
        print(
            f"  {machine_name}: {WORKLOADS[number][0]}: "
            f"share {quality.share:.2f} (shuffled {noise.share:.2f})",
            file=sys.stderr,
        )
    return {
        name: [geomean(column) for column in zip(*rows, strict=True)]
        for name, rows in ratios.items()
    }


def table(found: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """A Markdown table: a row for each machine."""
    names = list(next(iter(found.values())))
    rows = [f"| machine | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for machine, parts in found.items():
        cells = [" / ".join(f"{value:.2f}" for value in parts[name]) for name in names]
        rows.append(f"| `{machine}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("machines", nargs="+", metavar="MACHINE")
    parser.add_argument("--common", type=float, default=0.0, help="share of hills in common, 0..1")
    given = parser.parse_args(arguments)
    print(table({name: judge(name, given.common) for name in given.machines}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
