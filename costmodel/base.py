"""Interface between the search and the cost models: settings in, predicted log2 seconds and their
uncertainty out.

P is the number of settings and J the number of knobs of their sketch.
`tests/contracts/cost_model_contract.py` tests every implementation.
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
    """One measured candidate. `run_secs` is None if the measurement failed."""

    candidate: Candidate
    run_secs: float | None


@dataclass(frozen=True, slots=True)
class BorrowedSample:
    """A measured candidate of a related task, converted to a candidate of this space. A task is a
    workload on a machine.

    `log2_error` is the error of the prior there: log2 of the measured over the predicted seconds.
    `source` (1, 2, ...) numbers the related tasks, `work` their workloads and `machine` their
    machines; 0 is this workload, and this machine. `similarity`, in 0..1, is the expected
    correlation between the errors of the prior for that workload and for this one; 1 for this one.
    """

    candidate: Candidate
    log2_error: float
    source: int
    similarity: float
    work: int = 1
    machine: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted run times of P settings: `log2_secs` (P,) is the mean in log2 seconds, `sigma` (P,)
    its standard deviation in the same unit."""

    log2_secs: FloatArray
    sigma: FloatArray

    @classmethod
    def from_prior(cls, log2_secs: FloatArray) -> Self:
        """Prediction from the prior alone: `sigma` is 1 in log2 (a factor of two) for every
        setting."""
        return cls(log2_secs, np.ones(len(log2_secs)))


@dataclass(frozen=True, slots=True)
class SettingFeatures:
    """Inputs of a prediction that depend on P settings but not on the measurements. The search
    caches this object for settings that it predicts repeatedly. `features` (P, F) float32 is None
    for a model without features; `log2_prior` (P,) is the prior's prediction in log2 seconds."""

    sketch: int
    settings: IntArray
    features: npt.NDArray[np.float32] | None
    log2_prior: FloatArray


class CostModel(Protocol):
    """Predicts run times of the candidates of one space.

    Predictions depend neither on a clock nor on global random state: the same samples give the same
    predictions in any process.
    """

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        """Fit the model to all samples measured so far, not only the new ones, and to samples of
        related workloads. Both may be empty."""
        ...

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        """Return the inputs that `predict_from` needs. They do not depend on earlier calls of
        `fit`."""
        ...

    def predict_from(self, description: SettingFeatures) -> Prediction:
        """Return the prediction for described settings. All values are finite."""
        ...

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        """Describe and predict `settings` (P, J) of sketch number `sketch`."""
        return self.predict_from(self.describe(sketch, settings))
