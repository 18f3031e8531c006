"""The model for many samples: boosted trees on the residuals of the prior.

Trees learn the residual z = log2(measured seconds) - log2(prior's seconds): before the first
measurement the prediction is the prior, and after a few it is the prior, corrected. An ensemble of
four small models, each of which leaves out another quarter of the samples: their spread is the
uncertainty `sigma`, and their held-out errors tell how wrong they are. Source: cross-validated
committees (Krogh and Vedelsby, NIPS 1994) of XGBoost (Chen and Guestrin, KDD 2016), with its own
defaults.
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

MEMBERS = 4
"""Models, each of which leaves out every `MEMBERS`-th sample."""

MISSING_XGBOOST = "no learned cost model: xgboost is not installed (pip install 'tilewright[tune]')"


class ResidualModel(LearnedModel):
    """`LearnedModel`: the prior, plus trees. `note` is one line for people if trees cannot be used,
    else ""."""

    def __init__(self, space: ScheduleSpace) -> None:
        super().__init__(space)
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
        return missed[known.ran]

    def predict_learned(self, description: SettingFeatures) -> Prediction:
        votes = np.stack(
            [booster.inplace_predict(description.features) for booster in self._boosters]
        ).astype(np.float64)
        base = description.log2_prior + self._offset
        return Prediction(base + votes.mean(axis=0), votes.std(axis=0, ddof=1))


def _grown(xgboost: Any, features: FeatureArray, residual: FloatArray) -> Any:
    data = xgboost.DMatrix(features, label=residual, nthread=1)
    return xgboost.train({"base_score": 0.0, "nthread": 1, "verbosity": 0}, data)
