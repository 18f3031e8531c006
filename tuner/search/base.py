"""The protocol of search strategies: `ask` returns candidates, `tell` takes their results.

All implementations must pass `tests/contracts/strategy_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from tilewright.costmodel.base import BorrowedSample
from tilewright.costmodel.correction import Correction
from tilewright.schedules.record import MeasureResult
from tilewright.schedules.space import Candidate
from tilewright.schedules.target import Target

from .adaptation import RelatedTrial

Observation: TypeAlias = tuple[Candidate, MeasureResult]


@dataclass(slots=True)
class SearchGoal:
    """The information that a strategy may use besides the space.

    `seed` determines every random choice. `bound_secs` is a time that no candidate can beat, or
    None if no reliable one is known; the session may correct it during the search. `check` is
    called repeatedly during long computations; an exception that it raises ends the search.
    `related` are trials of workloads of the same structure, the nearest workload first.
    `spelled` are trials of other spellings of this computation: candidates with the same loops, of
    each spelling the fastest one first. `spelled_trials` is the number of trials of the one with
    the most of them, whether or not they are among `spelled`.
    `correction` is what the database taught about the prior's errors, or None.
    """

    seed: int = 0
    bound_secs: float | None = None
    check: Callable[[], None] = lambda: None
    related: Sequence[RelatedTrial] = ()
    correction: Correction | None = None
    spelled: Sequence[BorrowedSample] = ()
    spelled_trials: int = 0


class SearchStrategy(Protocol):
    """Proposes candidates to measure and learns from the results.

    No clock, files, threads or global random state: the same space, seed and results give the same
    candidates in any process. Proposals do not depend on the number of trials still to come, so a
    longer run begins with exactly the trials of a shorter one.
    """

    @property
    def name(self) -> str: ...

    def ask(self, count: int) -> list[Candidate]:
        """Return up to `count` (at least 1) candidates that were not proposed before, or an empty
        list if there are none.

        The first candidate of the first batch is the default schedule, chosen without any
        measurement.
        """
        ...

    def tell(self, results: Sequence[Observation]) -> None:
        """Add results of proposed candidates, in any order and not necessarily all. The latest
        result of a candidate counts."""
        ...

    def resume(self, observations: Sequence[Observation]) -> None:
        """Continue the search of an earlier process, which proposed these candidates in this order.

        Called before the first `ask`. Later proposals are new and are based on these results, but
        may differ from the proposals of an uninterrupted run.
        """
        ...

    def correct(self, target: Target) -> None:
        """Use the probes of `target` for later proposals. It is the target of the space with
        corrected probes."""
        ...

    @property
    def stop_reason(self) -> str | None:
        """The reason why the search should stop, as text for users, or None while more trials may
        pay."""
        ...

    @property
    def prior_trust(self) -> float | None:
        """Posterior probability, 0..1, that differences predicted by the analytic prior are real on
        this machine. None if too little was measured, or if the strategy does not estimate it."""
        ...

    @property
    def gain_over_prior(self) -> float | None:
        """Time of the prior's fastest choice divided by the best time, at least 1. None if the
        prior chose nothing, or if none of its choices could be measured."""
        ...

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        """The log2 seconds predicted for each proposed candidate before it was measured."""
        ...


@runtime_checkable
class PromisesTime(Protocol):
    """A strategy that predicts the time of the candidates which it has not proposed yet."""

    @property
    def promised_secs(self) -> float | None:
        """The shortest time, predicted minus one sigma, of the candidates that the model chose the
        latest batch from. None before a model chose a batch."""
        ...
