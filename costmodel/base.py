"""The seam between search and cost models: settings in, log2 seconds with their doubt out.

Every implementation is held to `tests/contracts/cost_model_contract.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schedules.space import Candidate, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured candidate; `run_secs` is None where the measurement failed."""

    candidate: Candidate
    run_secs: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """For P settings: `log2_secs` (P,), and `sigma` (P,) the doubt about it, in the same unit."""

    log2_secs: FloatArray
    sigma: FloatArray


class CostModel(Protocol):
    """Predicts run times for the candidates of one space.

    No clock and no global randomness: the same samples give the same predictions in any process.
    """

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learn from all samples so far (not only new ones); may be called with none."""
        ...

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        """For `settings` (P, J) of sketch number `sketch`; finite everywhere."""
        ...
