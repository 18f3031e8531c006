"""The random strategy: uniformly random candidates, the baseline that every other strategy must
beat."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.space import Candidate, ScheduleSpace

from ..base import SearchGoal
from ..model_free import ModelFreeStrategy
from ..setting_grid import setting_grids


class RandomStrategy(ModelFreeStrategy):
    """A `SearchStrategy` that draws a sketch uniformly, then one of its feasible settings
    uniformly.

    Only the very first candidate is the default schedule, as for every strategy.
    """

    name = "random"

    def __init__(self, space: ScheduleSpace, goal: SearchGoal) -> None:
        super().__init__(space, goal)
        self._grids = setting_grids(space)

    def extend(self, found: list[Candidate], count: int) -> list[Candidate]:
        rng = np.random.default_rng([self.goal.seed, 2, len(self.ledger.proposed)])
        # Small spaces are exhausted: after this number of fruitless draws, the rest is taken in
        # order.
        for _ in range(20 * count):
            if len(found) >= count:
                break
            grid = self._grids[int(rng.integers(len(self._grids)))]
            drawn = grid.sample(rng, 1)
            found = self.ledger.new(
                [*found, *(Candidate(grid.index, tuple(row)) for row in drawn.tolist())]
            )
        return found if len(found) >= count else self._fill(found, count)

    def _fill(self, found: list[Candidate], count: int) -> list[Candidate]:
        for grid in self._grids:
            for codes in grid.feasible_codes():
                rows = grid.decode(codes).tolist()
                found = self.ledger.new([*found, *(Candidate(grid.index, tuple(r)) for r in rows)])
                if len(found) >= count:
                    return found
        return found


STRATEGY = RandomStrategy
