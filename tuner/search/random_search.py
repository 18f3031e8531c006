"""Uniformly random candidates: the baseline every other strategy has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.prior import Prior
from schedules.space import Candidate, ScheduleSpace
from schedules.target import Target

from .base import SearchGoal, Told
from .first_look import first_look
from .lattice import lattices
from .ledger import Ledger


class RandomStrategy:
    """`SearchStrategy`: a sketch uniformly, then one of its feasible settings uniformly.

    Only the very first candidate is the default schedule, as for every strategy.
    """

    name = "random"
    stop_reason = None
    prior_trust = None
    gain_over_prior = None

    def __init__(self, space: ScheduleSpace, goal: SearchGoal) -> None:
        self.space = space
        self.goal = goal
        self.ledger = Ledger()
        self._grids = lattices(space)
        self._prior = Prior(space, check=goal.check)

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        return self.ledger.predictions

    def ask(self, count: int) -> list[Candidate]:
        found: list[Candidate] = []
        if not self.ledger.asked:
            found.append(first_look(self.space, self._prior, keep=1).default)
        rng = np.random.default_rng([self.goal.seed, 2, len(self.ledger.asked)])
        # Small spaces run out: after this many fruitless draws, the rest is taken in order.
        for _ in range(20 * count):
            if len(found) >= count:
                break
            grid = self._grids[int(rng.integers(len(self._grids)))]
            drawn = grid.sample(rng, 1)
            found = self.ledger.new(
                [*found, *(Candidate(grid.index, tuple(row)) for row in drawn.tolist())]
            )
        if len(found) < count:
            found = self._fill(found, count)
        return predict_and_ask(self.ledger, self._prior, found[:count])

    def resume(self, told: Sequence[Told]) -> None:
        self.ledger.resume(told)

    def tell(self, results: Sequence[Told]) -> None:
        self.ledger.tell(results)

    def correct(self, target: Target) -> None:
        """Nothing is chosen by the prior but the first candidate."""

    def _fill(self, found: list[Candidate], count: int) -> list[Candidate]:
        for grid in self._grids:
            for codes in grid.feasible_codes():
                rows = grid.decode(codes).tolist()
                found = self.ledger.new([*found, *(Candidate(grid.index, tuple(r)) for r in rows)])
                if len(found) >= count:
                    return found
        return found


def predict_and_ask(ledger: Ledger, prior: Prior, candidates: list[Candidate]) -> list[Candidate]:
    """Enter `candidates` in the ledger with the prior's prediction, and return them."""
    for candidate in candidates:
        settings = np.array([candidate.setting], np.int64)
        ledger.ask(candidate, float(prior.log2_secs(candidate.sketch, settings)[0]))
    return candidates
