"""The model that the search uses: a Gaussian process and boosted trees, weighted by their
precision.

A Gaussian process makes the most of few samples; once there are more than it learns from, trees are
used as well. Both estimate their error on held-out samples, and their predictions are averaged with
inverse-variance weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import ScheduleSpace

from .base import CostModel, Prediction, Sample, SettingFeatures
from .gaussian import MOST_SAMPLES, GaussianModel
from .model import ResidualModel


class BlendedModel(CostModel):
    """`CostModel` for one space. `prior_trust` is that of the process."""

    def __init__(self, space: ScheduleSpace) -> None:
        self.process = GaussianModel(space)
        self.trees = ResidualModel(space)
        self._share = 0.0

    @property
    def prior_trust(self) -> float | None:
        return self.process.prior_trust

    def fit(self, samples: Sequence[Sample]) -> None:
        self.process.fit(samples)
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
        # The trees' own spread is no measure of their doubt far from any sample: the process's is.
        return Prediction(mean, np.sqrt(one.sigma**2 + apart))


def _error(left_out: FloatArray) -> float:
    """Mean squared error, with outliers clipped at a factor of two."""
    return float(np.mean(np.minimum(left_out**2, 1.0))) + 1e-6
