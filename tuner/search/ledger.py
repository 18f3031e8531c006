"""The record of a search: proposed candidates, their predictions and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.costmodel.base import Sample
from tilewright.schedules.record import MeasureResult
from tilewright.schedules.space import Candidate

from .base import Observation


class Ledger:
    """The candidates in the order in which they were proposed, with their predictions and
    results."""

    def __init__(self) -> None:
        self.proposed: dict[Candidate, int] = {}
        self.results: dict[Candidate, MeasureResult] = {}
        self.predictions: dict[Candidate, float] = {}

    def new(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates that were not proposed before, each once, in order."""
        return [c for c in dict.fromkeys(candidates) if c not in self.proposed]

    def ask(self, candidate: Candidate, predicted_log2_secs: float | None = None) -> None:
        self.proposed[candidate] = len(self.proposed)
        if predicted_log2_secs is not None:
            self.predictions[candidate] = predicted_log2_secs

    def resume(self, observations: Sequence[Observation]) -> None:
        """Add the candidates that an earlier process proposed and their results, without
        predictions."""
        for candidate, result in observations:
            self.ask(candidate)
            self.results[candidate] = result

    def tell(self, results: Sequence[Observation]) -> None:
        """Add results. Raise ValueError for a candidate that was never proposed: it belongs to
        another run."""
        for candidate, result in results:
            if candidate not in self.proposed:
                raise ValueError(f"tell: {candidate} was not asked by this strategy")
            self.results[candidate] = result

    @property
    def samples(self) -> list[Sample]:
        """All results as training data, in the order in which the candidates were proposed."""
        order = sorted(self.results, key=self.proposed.__getitem__)
        return [Sample(c, run_secs(self.results[c])) for c in order]

    def fastest(self, count: int) -> list[Candidate]:
        """Return the `count` fastest successful candidates, fastest first. Ties are in the order of
        proposal."""
        timed = [(s.run_secs, self.proposed[s.candidate], s.candidate) for s in self.samples
                 if s.run_secs is not None]  # fmt: skip
        return [candidate for _, _, candidate in sorted(timed, key=lambda t: t[:2])[:count]]

    @property
    def best_secs(self) -> float | None:
        times = [s.run_secs for s in self.samples if s.run_secs is not None]
        return min(times, default=None)


def run_secs(result: MeasureResult) -> float | None:
    """Return the time estimate of a successful result, or None for a failed one."""
    return result.run_secs_estimate if result.ok else None
