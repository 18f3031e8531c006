"""Cost models to be better than: no knowledge, and the prior alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedules.space import IntArray, ScheduleSpace

from .base import Prediction, Sample
from .model import PRIOR_SIGMA
from .prior import Prior


class PriorModel:
    """The analytic prior, never corrected: what is known before the first measurement."""

    def __init__(self, space: ScheduleSpace) -> None:
        self.prior = Prior(space)

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learns nothing, on purpose."""

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        log2_secs = self.prior.log2_secs(sketch, settings)
        return Prediction(log2_secs, np.full(len(log2_secs), PRIOR_SIGMA))


class RandomModel:
    """A fixed random opinion about each candidate: the floor of every ranking measure."""

    def __init__(self, space: ScheduleSpace, seed: int = 0) -> None:
        knobs = max(len(s.knobs) for s in space.sketches)
        self._weights = np.random.default_rng(seed).standard_normal((len(space.sketches), knobs))

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learns nothing, on purpose."""

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        mixed = (settings + 1) @ self._weights[sketch, : settings.shape[1]]
        return Prediction(np.sin(mixed * 12.9898) - 10.0, np.ones(len(settings)))
