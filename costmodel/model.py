"""Cost model for many samples: boosted trees trained on the error of the prior.

The trees learn the residual z = log2(measured seconds) - log2(prior's seconds), so the prediction
is the prior before the first measurement and the corrected prior after it. `MEMBERS` models are
trained, each without a different `MEMBERS`-th of the samples. They disagree in regions with few
samples, so the standard deviation of their predictions is the uncertainty `sigma`. The error of
each model on its left-out samples estimates the accuracy. Source: cross-validated committees (Krogh
and Vedelsby, NIPS 1994) of XGBoost (Chen and Guestrin, KDD 2016) with its default parameters.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.space import ScheduleSpace

from .base import Prediction, SettingFeatures
from .features import FeatureArray, Measured
from .learned import LearnedModel
from .prior import Corrects

MEMBERS = 4
"""Number of models; each is trained without every `MEMBERS`-th sample."""

MISSING_XGBOOST = "no learned cost model: xgboost is not installed (pip install 'tilewright[tune]')"


class ResidualModel(LearnedModel):
    """`LearnedModel` that adds boosted trees to the prior. `note` is a one-line message for the
    user if the trees are unavailable, else ""."""

    def __init__(self, space: ScheduleSpace, correction: Corrects | None = None) -> None:
        super().__init__(space, correction)
        self.note = ""
        self._boosters: list[Any] = []

    def learn(self, known: Measured) -> FloatArray | None:
        try:
            xgboost = importlib.import_module("xgboost")
        except ImportError:
            self.note = MISSING_XGBOOST
            return None
        residual = known.log2_secs - known.prior - self._offset
        missed = residual.copy()
        fold = np.arange(len(missed)) % MEMBERS
        self._boosters = []
        for member in range(MEMBERS):
            shown, hidden = fold != member, fold == member
            booster = _grown(xgboost, known.features[shown], residual[shown])
            missed[hidden] -= booster.inplace_predict(known.features[hidden])
            self._boosters.append(booster)
        return missed[known.own]

    def predict_learned(self, description: SettingFeatures) -> Prediction:
        votes = np.stack(
            [booster.inplace_predict(description.features) for booster in self._boosters]
        ).astype(np.float64)
        base = description.log2_prior + self._offset
        return Prediction(base + votes.mean(axis=0), votes.std(axis=0, ddof=1))


def _grown(xgboost: Any, features: FeatureArray, residual: FloatArray) -> Any:
    data = xgboost.DMatrix(features, label=residual, nthread=1)
    return xgboost.train({"base_score": 0.0, "nthread": 1, "verbosity": 0}, data)
