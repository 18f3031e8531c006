"""The common part of strategies without a model.

They begin with the prior's choice, report the prior's predictions, and continue in their own order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.costmodel.prior import Prior
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.target import Target

from .base import Observation, SearchGoal
from .ledger import Ledger
from .prior_ranking import rank_by_prior


class ModelFreeStrategy:
    """A `SearchStrategy` except for `name` and `extend`."""

    stop_reason = None
    prior_trust = None
    gain_over_prior = None

    def __init__(self, space: ScheduleSpace, goal: SearchGoal) -> None:
        self.space = space
        self.goal = goal
        self.ledger = Ledger()
        self._prior = Prior(space, goal.check, goal.correction)

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        return self.ledger.predictions

    def extend(self, found: list[Candidate], count: int) -> list[Candidate]:
        """Return `found` with further new candidates, at least `count` in total if there are as
        many."""
        raise NotImplementedError

    def ask(self, count: int) -> list[Candidate]:
        found: list[Candidate] = []
        if not self.ledger.proposed:
            found.append(rank_by_prior(self.space, self._prior, keep=1).default)
        chosen = self.extend(found, count)[:count]
        predicted = self._prior.log2_secs_of(chosen)
        for candidate in chosen:
            self.ledger.ask(candidate, predicted[candidate])
        return chosen

    def resume(self, observations: Sequence[Observation]) -> None:
        self.ledger.resume(observations)

    def tell(self, results: Sequence[Observation]) -> None:
        self.ledger.tell(results)

    def correct(self, target: Target) -> None:
        """Do nothing: the prior chooses only the first candidate."""
