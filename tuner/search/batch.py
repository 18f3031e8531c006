"""Selection of a batch of good and diverse candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tilewright.costmodel.counts.counting import program_counts
from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace

from .setting_grid import Codes, SettingGrid


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate with its predicted log2 seconds, the standard deviation `sigma` of that
    prediction, and its `score` (higher is better)."""

    candidate: Candidate
    log2_secs: float
    sigma: float
    score: float


def scored(
    grid: SettingGrid, codes: Codes, log2_secs: FloatArray, sigma: FloatArray, kappa: float
) -> list[Scored]:
    """Return the `Scored` values of `codes`. The score is optimistic by `kappa` sigmas."""
    settings = grid.decode(codes).tolist()
    rows = zip(settings, log2_secs.tolist(), sigma.tolist(), strict=True)
    return [
        Scored(Candidate(grid.index, tuple(setting)), mu, doubt, kappa * doubt - mu)
        for setting, mu, doubt in rows
    ]


def diverse(pool: Sequence[Scored], count: int, novelty: float) -> list[Scored]:
    """Return `count` candidates of `pool`, selected greedily by score + `novelty` * (fraction of
    knob values new to the batch).

    Prefixes agree: the first n of a batch of 2 n are the batch of n. Source: the submodular batch
    of Chen et al., NeurIPS 2018.
    """
    scores = np.array([item.score for item in pool])
    facts = _facts(pool)
    unseen = np.ones(facts.max(initial=0) + 1, np.bool_)
    unseen[0] = False
    knobs = np.maximum((facts > 0).sum(axis=1), 1)
    chosen: list[Scored] = []
    while len(chosen) < min(count, len(pool)):
        best = int(np.argmax(scores + novelty * unseen[facts].sum(axis=1) / knobs))
        chosen.append(pool[best])
        scores[best] = -np.inf
        unseen[facts[best]] = False
    return chosen


def _facts(pool: Sequence[Scored]) -> IntArray:
    """Return an array of shape (candidates, knobs) with a number > 0 for each (sketch, knob,
    value), and 0 beyond the last knob of a candidate."""
    settings = [item.candidate.setting for item in pool]
    sketch = np.array([item.candidate.sketch for item in pool], np.int64)
    knobs = np.array([len(setting) for setting in settings], np.int64)
    width = knobs.max(initial=0)
    table = np.zeros((len(pool), width), np.int64)
    is_knob = np.arange(width) < knobs[:, None]
    table[is_knob] = np.fromiter(chain.from_iterable(settings), np.int64, int(knobs.sum()))
    values = 1 + table.max(initial=0)
    facts = 1 + (sketch[:, None] * width + np.arange(width)) * values + table
    return np.where(is_knob, facts, 0)


def distinct_tiles(space: ScheduleSpace, pool: Sequence[Scored], count: int) -> list[Scored]:
    """Return the best `count` of `pool` (sorted best first), no two of them with the same register
    tile.

    A register tile is identified by its accumulators and live registers. The prior is least certain
    about the instruction scheduling of a tile, so early trials should have different tiles. If
    there are too few tiles, the best of the other candidates follow.
    """
    chosen: list[Scored] = []
    rest: list[Scored] = []
    seen: set[tuple[int, float, float]] = set()
    for item, tile in zip(pool, _register_tiles(space, pool), strict=True):
        (rest if tile in seen else chosen).append(item)
        seen.add(tile)
    return [*chosen, *rest][:count]


def _register_tiles(space: ScheduleSpace, pool: Sequence[Scored]) -> list[tuple[int, float, float]]:
    tiles = [(0, 0.0, 0.0)] * len(pool)
    for index, sketch in enumerate(space.sketches):
        places = [i for i, item in enumerate(pool) if item.candidate.sketch == index]
        if not places:
            continue
        columns = program_counts(
            sketch, np.array([pool[i].candidate.setting for i in places], np.int64)
        )
        counts = zip(columns["accumulators"], columns["live_registers"], strict=True)
        for i, (accumulators, live) in zip(places, counts, strict=True):
            tiles[i] = (index, float(accumulators), float(live))
    return tiles
