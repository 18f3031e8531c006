"""What learned models have in common: with few samples they predict the prior, at the measured
level."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import ScheduleSpace

from .base import CostModel, Prediction, Sample, SettingFeatures
from .features import Featuriser, Measured

MIN_SAMPLES = 8
"""Successful samples from which more than the level is learned."""


class LearnedModel(CostModel):
    """`CostModel` for one space.

    `left_out` (n,) are the held-out errors of the samples that ran, log2 units; None if only the
    level was learned.
    """

    def __init__(self, space: ScheduleSpace) -> None:
        self.featurise = Featuriser(space)
        self.left_out: FloatArray | None = None
        self._offset = 0.0

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        return self.featurise(sketch, settings)

    def fit(self, samples: Sequence[Sample]) -> None:
        self.left_out, self._offset = None, 0.0
        known = self.featurise.samples(samples)
        if known is None:
            return
        self._offset = float(np.median((known.log2_secs - known.prior)[known.ran]))
        if known.ran.sum() >= MIN_SAMPLES:
            self.left_out = self.learn(known)

    def predict_from(self, description: SettingFeatures) -> Prediction:
        if self.left_out is None:
            return Prediction.from_prior(description.log2_prior + self._offset)
        return self.predict_learned(description)

    @abstractmethod
    def learn(self, known: Measured) -> FloatArray | None:
        """Learn from `known`, and give `left_out`; None where that cannot be done."""

    @abstractmethod
    def predict_learned(self, description: SettingFeatures) -> Prediction:
        """`predict_from` after `learn`."""
