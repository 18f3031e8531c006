"""The figures of the search, and the committed ones that they are compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_comparison import geomean

from . import recorded, simulated
from .simulated import EMPTY_AFTER, FILLED_AFTER, MACHINE_NAMES, Settings

FILE = Path(__file__).with_name("figures.json")

SEEDS = (0, 1, 2, 3)
"""The committed figures are geometric means over these seeds, and their spread gives the tolerance.
The test measures the first seed only. It failed after a harmless change when the committed figures
were those of that seed alone, which had been lucky."""

SPREADS_ALLOWED = 2.5
"""Standard deviations by which a figure may be worse."""

LEAST_TOLERANCE = 0.03
"""Relative tolerance of a figure that does not vary with the seed: floating-point results differ by
machine."""

GAIN = "filled / shuffled database"
"""The figures of a filled database over those of one whose labels were shuffled, over all numbers
of trials."""

Figures = dict[str, float]

CORRELATION_TOLERANCE = 0.15
"""Relative tolerance of `recorded.CORRELATION`: a better prior leaves smaller errors, which are
harder to predict. With permuted errors, the figure is 0.9 to 1."""


@dataclass(frozen=True, slots=True)
class Committed:
    """`values`: the figures of the commit that wrote the file, means over SEEDS. `tolerances`:
    relative deviations that are allowed. `best`: the best known settings."""

    values: Figures
    tolerances: Figures
    best: Settings

    @classmethod
    def read(cls, file: Path = FILE) -> Committed:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return cls(document["values"], document["tolerances"], document["best"])

    def write(self, file: Path = FILE) -> None:
        document = {"values": self.values, "tolerances": self.tolerances, "best": self.best}
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def worse(self, measured: Mapping[str, float]) -> list[str]:
        """Return a line for each figure that is worse than its tolerance allows."""
        return [
            f"{name}: {measured[name]:.3f}, was {value:.3f}, allowed up to {allowed:.3f}"
            for name, value in self.values.items()
            if measured[name] > (allowed := value * (1.0 + self.tolerances[name]))
        ]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one measurement. `shuffled` has those of a filled database and of recorded
    timings whose labels were shuffled: a database from which nothing can be learned."""

    figures: Figures
    shuffled: Figures


def measure(best: Settings, seed: int = 0) -> Measured:
    """Measure all figures, in one to two minutes of processor time."""
    empty: list[list[float]] = []
    filled: list[list[float]] = []
    unrelated: list[list[float]] = []
    for name in MACHINE_NAMES:
        tasks = simulated.tasks_of(name, best)
        records = simulated.searched(tasks, seed)
        noise = [simulated.shuffled(own, number) for number, own in enumerate(records)]
        empty += [t.over_best(r, EMPTY_AFTER) for t, r in zip(tasks, records, strict=True)]
        filled += simulated.from_filled(tasks, records, seed)
        unrelated += simulated.from_filled(tasks, noise, seed)
    groups = recorded.groups()
    permuted = [recorded.shuffled(group, number) for number, group in enumerate(groups)]
    gain = geomean(chain.from_iterable(filled)) / geomean(chain.from_iterable(unrelated))
    return Measured(
        _named("empty database", EMPTY_AFTER, empty)
        | _named("filled database", FILLED_AFTER, filled)
        | {GAIN: gain}
        | recorded.figures(groups),
        _named("filled database", FILLED_AFTER, unrelated)
        | {GAIN: 1.0}
        | recorded.figures(permuted),
    )


def _named(title: str, after: Sequence[int], rows: Sequence[Sequence[float]]) -> Figures:
    columns = zip(*rows, strict=True)
    return {
        f"{title}, {trials} trials": geomean(column)
        for trials, column in zip(after, columns, strict=True)
    }


def means(measured: Sequence[Figures]) -> Figures:
    """Return the geometric mean of each figure over the seeds of `measured`."""
    return {name: geomean(m[name] for m in measured) for name in measured[0]}


def tolerances(measured: Sequence[Figures]) -> Figures:
    """Return the tolerance of each figure from its spread over the seeds of `measured`."""
    least = {recorded.CORRELATION: CORRELATION_TOLERANCE}
    return {
        name: round(
            max(
                SPREADS_ALLOWED * _spread([m[name] for m in measured]),
                least.get(name, LEAST_TOLERANCE),
            ),
            4,
        )
        for name in measured[0]
    }


def _spread(values: Sequence[float]) -> float:
    return float(np.std(np.log(values), ddof=1))
