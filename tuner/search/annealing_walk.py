"""Simulated annealing over knob indices, for all chains concurrently.

Source: Kirkpatrick, Gelatt and Vecchi, Science 220 (1983), 671-680; as a proposer guided by a cost
model, Chen et al., "Learning to optimize tensor programs" (NeurIPS 2018). P is a number of
settings, J the number of knobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray

from .setting_grid import SettingGrid, keep_best

Score: TypeAlias = Callable[[IntArray], FloatArray]
"""A function from settings (P, J) to scores (P,). Higher is better; in this package a score is
minus log2 seconds."""


@dataclass(frozen=True, slots=True)
class Cooling:
    """The cooling schedule: `steps` rounds of moves with a geometrically falling temperature, and
    the number of codes to `keep`. Scores are in log2 units."""

    steps: int = 64
    start: float = 0.5
    end: float = 0.02
    keep: int = 512


@dataclass(frozen=True, slots=True)
class Annealed:
    """The best codes that were scored, best first, with their `scores`, and the last settings of
    the chains, shape (P, J)."""

    codes: IntArray
    scores: FloatArray
    chains: IntArray


def anneal(
    grid: SettingGrid,
    score: Score,
    start: IntArray,
    rng: np.random.Generator,
    cooling: Cooling = Cooling(),
) -> Annealed:
    """Anneal from the feasible settings `start` (P, J) towards high scores. Infeasible moves are
    rejected."""
    chains = start.copy()
    scores = score(chains)
    codes, best = keep_best(grid.encode(chains), scores, cooling.keep)
    if grid.points == 1:
        return Annealed(codes, best, chains)
    pending: list[tuple[IntArray, FloatArray]] = []
    for step in range(cooling.steps):
        share = step / max(cooling.steps - 1, 1)
        temperature = cooling.start * (cooling.end / cooling.start) ** share
        moved = propose(grid, chains, scores, rng)
        chance = rng.random(len(chains))
        legal = np.flatnonzero(grid.sketch.feasible(moved) & (moved != chains).any(axis=1))
        if not len(legal):
            continue
        new = score(moved[legal])
        accept = chance[legal] < np.exp(np.minimum((new - scores[legal]) / temperature, 0.0))
        taken = legal[accept]
        chains[taken], scores[taken] = moved[taken], new[accept]
        pending.append((grid.encode(moved[legal]), new))
    codes, best = keep_best(
        np.concatenate([codes, *(c for c, _ in pending)]),
        np.concatenate([best, *(s for _, s in pending)]),
        cooling.keep,
    )
    return Annealed(codes, best, chains)


def propose(
    grid: SettingGrid, chains: IntArray, scores: FloatArray, rng: np.random.Generator
) -> IntArray:
    """Return one proposed move per chain.

    Of the moves, 60 % are a small step of one knob, 25 % any value of one knob, 10 % a step of two
    knobs in opposite directions (a factor changes levels), and 5 % copy some knobs of a better
    chain.
    """
    count, knobs = chains.shape
    rows = np.arange(count)
    sizes = np.array(grid.sizes, np.int64)
    moved = chains.copy()
    first, second = rng.integers(knobs, size=(2, count))
    kind = rng.random(count)
    step = rng.choice(np.array([-2, -1, 1, 2]), size=count, p=[0.15, 0.35, 0.35, 0.15])
    jump = rng.integers(0, sizes[first])
    stepped = np.clip(chains[rows, first] + step, 0, sizes[first] - 1)
    moved[rows, first] = np.where((kind >= 0.60) & (kind < 0.85), jump, stepped)
    transfer = np.flatnonzero((kind >= 0.85) & (kind < 0.95) & (first != second))
    other = second[transfer]
    moved[transfer, other] = np.clip(chains[transfer, other] - step[transfer], 0, sizes[other] - 1)
    cross = np.flatnonzero(kind >= 0.95)
    if len(cross):
        better = np.argsort(-scores, kind="stable")[: max(count // 8, 1)]
        parents = chains[better[rng.integers(len(better), size=len(cross))]]
        taken = rng.random((len(cross), knobs)) < 0.5
        moved[cross] = np.where(taken, parents, chains[cross])
    return moved
