"""Base class of the learned models. Until enough samples are measured, a learned model predicts the
prior plus the median offset of the measured samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import ScheduleSpace

from .base import BorrowedSample, CostModel, Prediction, Sample, SettingFeatures
from .features import Featuriser, Measured
from .prior import Corrects

MIN_SAMPLES = 8
"""Number of successful samples from which on more than the offset is learned."""


class LearnedModel(CostModel):
    """`CostModel` for one space that corrects the prior.

    `left_out` (n,) holds, for each sample that ran, the error in log2 units of a prediction from
    the other samples. It is None if only the offset was learned.
    """

    def __init__(self, space: ScheduleSpace, correction: Corrects | None = None) -> None:
        self.featurise = Featuriser(space, correction)
        self.left_out: FloatArray | None = None
        self._offset = 0.0

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        return self.featurise(sketch, settings)

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        self.left_out, self._offset = None, 0.0
        known = self.featurise.samples(samples, borrowed)
        if known is None:
            return
        shown = known.own if known.own.any() else known.ran
        self._offset = float(np.median((known.log2_secs - known.prior)[shown]))
        if known.ran.sum() >= MIN_SAMPLES:
            self.left_out = self.learn(known)

    def predict_from(self, description: SettingFeatures) -> Prediction:
        if self.left_out is None:
            return Prediction.from_prior(description.log2_prior + self._offset)
        return self.predict_learned(description)

    @abstractmethod
    def learn(self, known: Measured) -> FloatArray | None:
        """Learn from `known` and return `left_out`, or None if learning is impossible."""

    @abstractmethod
    def predict_learned(self, description: SettingFeatures) -> Prediction:
        """Return the prediction for described settings after `learn`."""
