"""The cost model of the search: a weighted mean of a Gaussian process and boosted trees.

A Gaussian process needs few samples but learns from at most `MOST_SAMPLES`. With more samples,
boosted trees are fitted as well. Both models report their errors on samples left out of their fit;
the predictions are averaged with weights proportional to the inverse square of the mean squared
error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import ScheduleSpace

from .base import BorrowedSample, CostModel, Prediction, Sample, SettingFeatures
from .gaussian import MOST_SAMPLES, GaussianModel
from .model import ResidualModel
from .prior import Corrects


class BlendedModel(CostModel):
    """`CostModel` for one space. `prior_trust` is the prior trust of the Gaussian process. Both
    models start from the prior with the `correction`, if any."""

    def __init__(self, space: ScheduleSpace, correction: Corrects | None = None) -> None:
        self.process = GaussianModel(space, correction)
        self.trees = ResidualModel(space, correction)
        self._share = 0.0

    @property
    def prior_trust(self) -> float | None:
        return self.process.prior_trust

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        self.process.fit(samples, borrowed)
        self._share = 0.0
        if len(samples) <= MOST_SAMPLES:
            return
        self.trees.fit(samples)
        ours, theirs = self.process.left_out, self.trees.left_out
        if ours is not None and theirs is not None:
            good, other = _error(ours), _error(theirs)
            self._share = good**2 / (good**2 + other**2)

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        return self.process.describe(sketch, settings)

    def predict_from(self, description: SettingFeatures) -> Prediction:
        one = self.process.predict_from(description)
        if not self._share:
            return one
        other = self.trees.predict_from(description)
        mean = (1.0 - self._share) * one.log2_secs + self._share * other.log2_secs
        apart = self._share * (1.0 - self._share) * (one.log2_secs - other.log2_secs) ** 2
        # The spread among the trees underestimates the uncertainty far from all samples, so the
        # sigma of the Gaussian process is used.
        return Prediction(mean, np.sqrt(one.sigma**2 + apart))


def _error(left_out: FloatArray) -> float:
    """Return the mean squared error. Each squared error is clamped to 1, the value for a factor of
    two."""
    return float(np.mean(np.minimum(left_out**2, 1.0))) + 1e-6
