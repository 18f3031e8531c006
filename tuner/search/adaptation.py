"""Candidates of one space that correspond to measured settings of a related workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log2
from typing import Any, Self

import numpy as np

from tilewright.costmodel.base import BorrowedSample
from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.named_setting import NamedSetting
from tilewright.schedules.space import Candidate, Knob

from .descent import neighbours
from .setting_grid import SettingGrid

SIMILARITY_DISTANCE = 3.0
"""Distance between two workloads, in log2 units of their sizes, at which the correlation of the
prior's errors is half of its value at distance 0. It falls like a squared exponential, because
workloads of very different extents need different schedules: a product of 4 rows that learned from
one of 64 rows, at distance 4.3, began with a schedule 4.5 times slower than the best."""

MAX_SIMILARITY = 0.9

MOST_PROVEN = 3
"""Largest number of settings of this workload, fast on other machines or in other spellings, that
are among the first trials."""

REPAIR_ROUNDS = 3
"""Number of times that up to two knobs are changed to make an adapted setting feasible."""

OTHER_VALUE_COST = 1.0
"""Cost of another value of a knob without an order, in log2 units."""


@dataclass(frozen=True, slots=True)
class RelatedTrial:
    """A successful trial of a related task: of a workload of the same structure, on this machine or
    another one.

    `log2_error`: log2 of the measured seconds over the seconds that the prior predicted. `source`
    (1, 2, ...): number of the task. `distance`: the distance of its workload, see
    `schedules.workload.structure`. `work` and `machine`: numbers of its workload and of its
    machine, of which another code generator is a part; 0 for this one.
    """

    setting: NamedSetting
    log2_error: float
    source: int
    distance: float
    work: int = 1
    machine: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"setting": self.setting.to_json()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the trial of a document written by `to_json`."""
        return cls(**document | {"setting": NamedSetting.from_json(document["setting"])})


def borrowed_samples(
    grids: Sequence[SettingGrid], trials: Sequence[RelatedTrial]
) -> list[BorrowedSample]:
    """Return the candidates of this space that correspond to `trials`, each once, in their order.
    Trials of sketches that this space does not have are left out. Of several trials that correspond
    to one candidate, a trial of this workload counts, or else the first one."""
    found: dict[Candidate, BorrowedSample] = {}
    rng = np.random.default_rng(0)
    for trial in trials:
        candidate = adapted(grids, trial.setting, rng)
        if candidate is None:
            continue
        known = found.get(candidate)
        if known is None or (known.work and not trial.work):
            found[candidate] = _borrowed(candidate, trial)
    return list(found.values())


def _borrowed(candidate: Candidate, trial: RelatedTrial) -> BorrowedSample:
    similarity = 1.0
    if trial.work:
        similarity = MAX_SIMILARITY * 0.5 ** ((trial.distance / SIMILARITY_DISTANCE) ** 2)
    tasks = trial.source, similarity, trial.work, trial.machine
    return BorrowedSample(candidate, trial.log2_error, *tasks)


def proven_elsewhere(borrowed: Sequence[BorrowedSample]) -> list[BorrowedSample]:
    """Return up to `MOST_PROVEN` of the `borrowed` samples of this workload, which other machines
    or code generators measured, or of its other spellings: the fastest of each task first, in the
    order of the tasks."""
    turns: dict[int, int] = {}
    ranked = []
    for sample in (b for b in borrowed if not b.work):
        turns[sample.source] = turns.get(sample.source, 0) + 1
        ranked.append((turns[sample.source], sample))
    return [sample for _, sample in sorted(ranked, key=lambda one: one[0])[:MOST_PROVEN]]


def adapted(
    grids: Sequence[SettingGrid], named: NamedSetting, rng: np.random.Generator
) -> Candidate | None:
    """Return the feasible candidate whose knob values are near the `named` values, or None if no
    sketch has this name or no such candidate was found.

    Every knob gets the nearest of its values. If that setting is infeasible, up to two knobs at a
    time are changed, at the smallest cost in log2 units of their values.
    """
    for grid in grids:
        if grid.sketch.name == named.sketch:
            costs = [value_costs(knob, named.knobs.get(knob.name)) for knob in grid.sketch.knobs]
            setting = nearest_feasible(grid, costs, rng)
            if setting is not None:
                return Candidate(grid.index, tuple(setting.tolist()))
    return None


def nearest_feasible(
    grid: SettingGrid, costs: Sequence[FloatArray], rng: np.random.Generator
) -> IntArray | None:
    """Return a feasible setting (J,) of low total cost, or None if none was found.

    `costs` has the cost of each value of each knob; a value of infinite cost is excluded. The
    search starts at the setting of least cost and changes up to two knobs at a time.
    """
    setting = np.array([int(np.argmin(cost)) for cost in costs], np.int64)
    for _ in range(REPAIR_ROUNDS):
        if grid.sketch.feasible(setting[None])[0]:
            return setting
        near = neighbours(grid, setting, rng)
        near = near[np.isfinite(_total(costs, near))]
        if not len(near):
            return None
        ok = near[grid.sketch.feasible(near)]
        near = ok if len(ok) else near
        setting = near[int(np.argmin(_total(costs, near)))]
    return setting if grid.sketch.feasible(setting[None])[0] else None


def value_costs(knob: Knob, value: Any) -> FloatArray:
    """Return the cost of each value of a knob instead of `value`, shape (values,): the distance in
    log2 units between numbers."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return np.array([0.0 if v == value else OTHER_VALUE_COST for v in knob.values])
    return np.array(
        [
            abs(log2(1 + max(v, 0)) - log2(1 + max(value, 0)))
            if isinstance(v, int | float)
            else OTHER_VALUE_COST
            for v in knob.values
        ]
    )


def _total(costs: Sequence[FloatArray], settings: IntArray) -> FloatArray:
    """Return the total cost of each of `settings` (P, J), shape (P,)."""
    total = np.zeros(len(settings))
    for column, cost in zip(settings.T, costs, strict=True):
        total += cost[column]
    return total
