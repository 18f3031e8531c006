"""Evolution: offspring of the fastest measured candidates, selected by the cost model.

Source: the evolutionary search of Ansor (OSDI 2020), over knob indices: mutation moves one knob,
crossover takes every knob from one of two parents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.costmodel.base import CostModel
from tilewright.costmodel.model import ResidualModel
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.target import Target

from ..base import Observation, SearchGoal
from ..batch import Scored, diverse, scored
from ..ledger import Ledger
from ..prior_ranking import PriorRanking, rank_by_prior
from ..setting_grid import SettingGrid, setting_grids

POPULATION = 256
GENERATIONS = 6
PARENTS = 16
MUTATION = 0.85
FIRST_BATCH = 8
BLOCK = 8


class EvolutionStrategy:
    """The evolution strategy, a `SearchStrategy`: the prior's best candidates first, then one
    generation after another."""

    name = "evolution"
    stop_reason = None
    prior_trust = None
    gain_over_prior = None

    def __init__(
        self, space: ScheduleSpace, goal: SearchGoal, model: CostModel | None = None
    ) -> None:
        self.space = space
        self.goal = goal
        self.model: CostModel = (
            model if model is not None else ResidualModel(space, goal.correction)
        )
        self.ledger = Ledger()
        self._grids = setting_grids(space)
        self._look: PriorRanking | None = None

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        return self.ledger.predictions

    def ask(self, count: int) -> list[Candidate]:
        number = len(self.ledger.proposed)
        if self._look is None:
            self._look = rank_by_prior(
                self.space, Prior(self.space, self.goal.check, self.goal.correction), 4096
            )
        rng = np.random.default_rng([self.goal.seed, 3, number])
        self.model.fit(self.ledger.samples)
        pool = [
            item
            for grid in self._grids
            for item in self._evolve(grid, self._look.codes[grid.index], rng)
            if item.candidate not in self.ledger.proposed
        ]
        pool.sort(key=lambda item: -item.score)
        size = FIRST_BATCH if number < FIRST_BATCH else BLOCK
        batch = diverse(pool[:512], size - 1, 0.1)
        # One candidate of a batch is a random survivor: the model learns nothing about candidates
        # that it never proposes.
        taken = {item.candidate for item in batch}
        others = [item for item in pool if item.candidate not in taken]
        batch += [others[int(rng.integers(len(others)))]] if others else []
        if not number:
            first = [i for i in pool if i.candidate == self._look.default]
            default = first[:1] or [Scored(self._look.default, 0.0, 0.0, 0.0)]
            batch = [*default, *(i for i in batch if i.candidate != self._look.default)]
        batch = batch[: min(count, size)]
        for item in batch:
            self.ledger.ask(item.candidate, item.log2_secs)
        return [item.candidate for item in batch]

    def resume(self, observations: Sequence[Observation]) -> None:
        self.ledger.resume(observations)

    def tell(self, results: Sequence[Observation]) -> None:
        self.ledger.tell(results)

    def correct(self, target: Target) -> None:
        """Rank by the corrected prior; the model keeps the prior that it was fitted to."""
        self.space = replace(self.space, target=target)
        self._look = None

    def _evolve(self, grid: SettingGrid, known: IntArray, rng: np.random.Generator) -> list[Scored]:
        """Return all members of all generations of this sketch, scored."""
        measured = [c.setting for c in self.ledger.fastest(PARENTS) if c.sketch == grid.index]
        parts = [grid.decode(known[:POPULATION]), grid.sample(rng, POPULATION // 4)]
        if measured:
            parts.insert(0, np.array(measured, np.int64))
        population = np.concatenate(parts)[:POPULATION]
        lived: dict[int, Scored] = {}
        for _ in range(GENERATIONS):
            if not len(population):
                break
            codes = np.unique(grid.encode(population))
            prediction = self.model.predict(grid.index, grid.decode(codes))
            items = scored(grid, codes, prediction.log2_secs, prediction.sigma, 0.5)
            lived.update(zip(codes.tolist(), items, strict=True))
            order = np.lexsort((codes, np.array([-item.score for item in items])))
            parents = grid.decode(codes[order[: POPULATION // 4]])
            children = self._children(grid, parents, rng)
            population = np.concatenate([parents, children[grid.sketch.feasible(children)]])
        return list(lived.values())

    def _children(self, grid: SettingGrid, parents: IntArray, rng: np.random.Generator) -> IntArray:
        count = POPULATION - len(parents)
        # Squaring prefers the front of the list, which is sorted best first.
        mothers, fathers = (rng.random((2, count)) ** 2 * len(parents)).astype(np.int64)
        shape = (count, len(grid.sizes))
        children: IntArray = np.where(rng.random(shape) < 0.5, parents[mothers], parents[fathers])
        if not grid.sizes:
            return children
        mutated = np.flatnonzero(rng.random(count) < MUTATION)
        knob = rng.integers(len(grid.sizes), size=len(mutated))
        children[mutated, knob] = rng.integers(0, np.array(grid.sizes, np.int64)[knob])
        return children


STRATEGY = EvolutionStrategy
