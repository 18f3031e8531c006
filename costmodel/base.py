"""The seam between search and cost models: settings in, log2 seconds with uncertainty out.

Every implementation is held to `tests/contracts/cost_model_contract.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import Candidate


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured candidate; `run_secs` is None where the measurement failed."""

    candidate: Candidate
    run_secs: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """For P settings: `log2_secs` (P,), and `sigma` (P,) its standard deviation."""

    log2_secs: FloatArray
    sigma: FloatArray

    @classmethod
    def from_prior(cls, log2_secs: FloatArray) -> Self:
        """A prediction without samples: wrong by a common factor of about two."""
        return cls(log2_secs, np.ones(len(log2_secs)))


@dataclass(frozen=True, slots=True)
class SettingFeatures:
    """What a model computes of P settings before it has learned anything: worth keeping for
    settings that will be predicted again. `features` (P, F) float32 if the model has any,
    `log2_prior` (P,) the prior's log2 seconds."""

    sketch: int
    settings: IntArray
    features: npt.NDArray[np.float32] | None
    log2_prior: FloatArray


class CostModel(Protocol):
    """Predicts run times for the candidates of one space.

    No clock and no global randomness: the same samples give the same predictions in any process.
    """

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learn from all samples so far (not only new ones); may be called with none."""
        ...

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        """What `predict_from` needs; does not depend on what was fitted."""
        ...

    def predict_from(self, description: SettingFeatures) -> Prediction:
        """The prediction for described settings; finite everywhere."""
        ...

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        """For `settings` (P, J) of sketch number `sketch`, described and predicted in one step."""
        return self.predict_from(self.describe(sketch, settings))
