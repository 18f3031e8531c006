"""The protocol of search strategies: `ask` for candidates, `tell` their results.

Every implementation is held to `tests/contracts/strategy_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tilewright.schedules.record import MeasureResult
from tilewright.schedules.space import Candidate
from tilewright.schedules.target import Target

Observation: TypeAlias = tuple[Candidate, MeasureResult]


@dataclass(slots=True)
class SearchGoal:
    """The information of a strategy besides the space.

    `seed` fixes every random choice. `bound_secs` is a time no candidate can beat, None if no
    reliable one is known; the session may correct it during the search. `check` is called
    repeatedly during long computations; an exception it raises ends the search.
    """

    seed: int = 0
    bound_secs: float | None = None
    check: Callable[[], None] = lambda: None


class SearchStrategy(Protocol):
    """Proposes candidates to measure and learns from the results.

    No clock, files, threads or global random state: the same space, seed and results give the same
    candidates in any process. Proposals do not depend on the number of trials still to come, so a
    longer run begins with exactly the trials of a shorter one.
    """

    @property
    def name(self) -> str: ...

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` candidates, >= 1, not proposed before; empty when nothing new is left.

        The first of the first batch is the schedule chosen with no measurement at all.
        """
        ...

    def tell(self, results: Sequence[Observation]) -> None:
        """Add results of proposed candidates, in any order and not necessarily all; the latest
        result of a candidate counts."""
        ...

    def resume(self, observations: Sequence[Observation]) -> None:
        """Continue the search of an earlier process, which proposed these candidates in this order.

        Called before the first `ask`. Later proposals are new and follow from these results, though
        an uninterrupted run may propose others."""
        ...

    def correct(self, target: Target) -> None:
        """Use the corrected probes of `target`, otherwise the space's own, for later proposals."""
        ...

    @property
    def stop_reason(self) -> str | None:
        """Why the search should stop, for people; None while more trials may pay."""
        ...

    @property
    def prior_trust(self) -> float | None:
        """Posterior probability, 0..1, that differences predicted by the analytic prior are real on
        this machine; None if too little was measured, or the strategy does not estimate it."""
        ...

    @property
    def gain_over_prior(self) -> float | None:
        """Time of the prior's fastest choice divided by the best time, >= 1; None if the prior
        chose nothing, or none of its choices could be measured."""
        ...

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        """log2 seconds predicted for each proposed candidate before it was measured."""
        ...
