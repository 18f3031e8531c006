"""The cost model to be better than: the prior alone."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.costmodel.base import BorrowedSample, CostModel, Prediction, Sample, SettingFeatures
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import ScheduleSpace


class PriorModel(CostModel):
    """The analytic prior, never corrected: what is known before the first measurement."""

    def __init__(self, space: ScheduleSpace) -> None:
        self.prior = Prior(space)

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        """Learns nothing, on purpose."""

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        return SettingFeatures(sketch, settings, None, self.prior.log2_secs(sketch, settings))

    def predict_from(self, description: SettingFeatures) -> Prediction:
        return Prediction.from_prior(description.log2_prior)
