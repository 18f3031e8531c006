"""Cost models to be better than: no knowledge, and the prior alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.costmodel.base import CostModel, Prediction, Sample, SettingFeatures
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import ScheduleSpace


class PriorModel(CostModel):
    """The analytic prior, never corrected: what is known before the first measurement."""

    def __init__(self, space: ScheduleSpace) -> None:
        self.prior = Prior(space)

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learns nothing, on purpose."""

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        return SettingFeatures(sketch, settings, None, self.prior.log2_secs(sketch, settings))

    def predict_from(self, description: SettingFeatures) -> Prediction:
        return Prediction.from_prior(description.log2_prior)


class RandomModel(CostModel):
    """A fixed random opinion about each candidate: the floor of every ranking measure."""

    def __init__(self, space: ScheduleSpace, seed: int = 0) -> None:
        knobs = max(len(s.knobs) for s in space.sketches)
        self._weights = np.random.default_rng(seed).standard_normal((len(space.sketches), knobs))

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learns nothing, on purpose."""

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        mixed = (settings + 1) @ self._weights[sketch, : settings.shape[1]]
        return SettingFeatures(sketch, settings, None, np.sin(mixed * 12.9898) - 10.0)

    def predict_from(self, description: SettingFeatures) -> Prediction:
        return Prediction.from_prior(description.log2_prior)
