"""Choosing a batch: good candidates that are not all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedules.space import Candidate, FloatArray, ScheduleSpace

from .lattice import Lattice


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate with the model's log2 seconds, its doubt, and `score` (higher is better)."""

    candidate: Candidate
    log2_secs: float
    sigma: float
    score: float


def scored(
    grid: Lattice, codes: Sequence[int], log2_secs: FloatArray, sigma: FloatArray, kappa: float
) -> list[Scored]:
    """`Scored` values of `codes`; the score is optimistic by `kappa` sigmas."""
    settings = grid.decode(np.asarray(codes, np.int64)).tolist()
    rows = zip(settings, log2_secs.tolist(), sigma.tolist(), strict=True)
    return [
        Scored(Candidate(grid.index, tuple(setting)), mu, doubt, kappa * doubt - mu)
        for setting, mu, doubt in rows
    ]


def diverse(pool: Sequence[Scored], count: int, novelty: float) -> list[Scored]:
    """Greedily `count` of `pool` by score + `novelty` * (share of knob values new to the batch).

    Prefixes agree: the first n of a batch of 2 n are the batch of n.
    Source: the submodular batch of Chen et al., NeurIPS 2018.
    """
    seen: set[tuple[int, int, int]] = set()
    left = list(pool)
    chosen: list[Scored] = []

    def value(item: Scored) -> float:
        setting = item.candidate.setting
        fresh = sum((item.candidate.sketch, j, v) not in seen for j, v in enumerate(setting))
        return item.score + novelty * fresh / max(len(setting), 1)

    while left and len(chosen) < count:
        best = max(range(len(left)), key=lambda i: (value(left[i]), -i))
        item = left.pop(best)
        chosen.append(item)
        sketch = item.candidate.sketch
        seen.update((sketch, j, v) for j, v in enumerate(item.candidate.setting))
    return chosen


def distinct_tiles(space: ScheduleSpace, pool: Sequence[Scored], count: int) -> list[Scored]:
    """The best `count` of `pool` (best first) of which no two have the same register tile.

    A register tile is told by its accumulators and live registers: what the prior is least sure
    of is how well the code of one tile schedules, so each early trial should try another one.
    Filled up with the best of the rest when there are too few tiles.
    """
    chosen: list[Scored] = []
    rest: list[Scored] = []
    seen: set[tuple[int, float, float]] = set()
    for item in pool:
        sketch = space.sketches[item.candidate.sketch]
        columns = sketch.columns(np.array([item.candidate.setting], np.int64))
        tile = (
            item.candidate.sketch,
            float(columns["accumulators"][0]),
            float(columns["live_registers"][0]),
        )
        (rest if tile in seen else chosen).append(item)
        seen.add(tile)
    return [*chosen, *rest][:count]
