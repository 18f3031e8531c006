"""The seam every search strategy stands behind: `ask` for candidates, `tell` what they took.

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
    """What a strategy may know besides the space.

    `seed` fixes every random choice. `bound_secs` is a time no candidate can beat, or None where
    nobody knows one well enough to stop at it; whoever runs the search may correct it meanwhile.
    `check` is called again and again where a choice takes long; what it raises ends the search.
    """

    seed: int = 0
    bound_secs: float | None = None
    check: Callable[[], None] = lambda: None


class SearchStrategy(Protocol):
    """Proposes candidates to measure and learns from the results.

    No clock, files, threads or global random state: the same space, seed and results give the same
    candidates in any process. What is asked does not depend on how many trials are still to come,
    so a longer run begins with exactly the trials of a shorter one.
    """

    @property
    def name(self) -> str: ...

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` candidates, >= 1, not proposed before; empty when nothing new is left.

        The first of the first batch is the schedule chosen with no measurement at all.
        """
        ...

    def tell(self, results: Sequence[Observation]) -> None:
        """Take in results of asked candidates, in any order and in part; of a candidate told before
        the later one counts."""
        ...

    def resume(self, told: Sequence[Observation]) -> None:
        """Go on where an earlier process ended: it asked for these candidates, in this order.

        Called before anything is asked. What follows is new and follows from them, though a run
        that was never interrupted may ask for something else."""
        ...

    def correct(self, target: Target) -> None:
        """`target` is the space's own with probes that were too low corrected: what is asked from
        here on should not go by the old ones."""
        ...

    @property
    def stop_reason(self) -> str | None:
        """Why going on costs more than it can bring, for people; None while it may."""
        ...

    @property
    def prior_trust(self) -> float | None:
        """Probability, 0..1, by what was measured, that the differences the analytic prior sees
        are real on this machine; None where too little was measured, or nobody asks."""
        ...

    @property
    def gain_over_prior(self) -> float | None:
        """How many times as fast the best is as the best of what the analytic prior chose, >= 1;
        None where nothing was chosen by it, or none of that could be measured."""
        ...

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        """log2 seconds that were predicted for each asked candidate before it was measured."""
        ...
