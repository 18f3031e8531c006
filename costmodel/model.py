"""The learned model of many samples: boosted trees on what the prior gets wrong.

Trees learn the residual z = log2(measured seconds) - log2(prior's seconds), so before the first
measurement the prediction is the prior, and after a few it is the prior, corrected. Four small
models, each of which leaves out another quarter of the samples, disagree where little was
measured: their spread is the doubt `sigma`. What each says of those it never saw tells how wrong
they are (`left_out`). Source: cross-validated committees (Krogh and Vedelsby, NIPS 1994) of XGBoost
(Chen and Guestrin, KDD 2016), with its own defaults.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.space import ScheduleSpace

from .base import CostModel, Description, Prediction, Sample
from .features import FeatureArray, Featuriser

MEMBERS = 4
"""Models, each of which leaves out every `MEMBERS`-th sample."""

MIN_SAMPLES = 8
"""Successful samples from which more than the level is learned."""

MISSING_XGBOOST = "no learned cost model: xgboost is not installed (pip install 'tilewright[tune]')"


class ResidualModel(CostModel):
    """`CostModel` for one space: prior, plus trees once there are enough samples.

    `note` is one line for people where the trees cannot be used, else "". `left_out` (n,) is how
    far each sample that ran is from what the trees that never saw it say, log2 units; None where
    there are no trees.
    """

    def __init__(self, space: ScheduleSpace) -> None:
        self.featurise = Featuriser(space)
        self.note = ""
        self.left_out: FloatArray | None = None
        self._offset = 0.0
        self._boosters: list[Any] = []

    def describe(self, sketch: int, settings: IntArray) -> Description:
        return self.featurise(sketch, settings)

    def fit(self, samples: Sequence[Sample]) -> None:
        self._boosters, self._offset, self.left_out = [], 0.0, None
        known = self.featurise.samples(samples)
        if known is None:
            return
        residual = known.log2_secs - known.prior
        self._offset = float(np.median(residual[known.ran]))
        if known.ran.sum() < MIN_SAMPLES:
            return
        try:
            xgboost = importlib.import_module("xgboost")
        except ImportError:
            self.note = MISSING_XGBOOST
            return
        missed = residual - self._offset
        fold = np.arange(len(missed)) % MEMBERS
        for member in range(MEMBERS):
            shown, hidden = fold != member, fold == member
            booster = _grown(xgboost, known.features[shown], (residual - self._offset)[shown])
            missed[hidden] -= booster.inplace_predict(known.features[hidden])
            self._boosters.append(booster)
        self.left_out = missed[known.ran]

    def predict_from(self, description: Description) -> Prediction:
        base = description.log2_prior + self._offset
        if not self._boosters:
            return Prediction.unlearned(base)
        votes = np.stack(
            [booster.inplace_predict(description.features) for booster in self._boosters]
        ).astype(np.float64)
        return Prediction(base + votes.mean(axis=0), votes.std(axis=0, ddof=1))


def _grown(xgboost: Any, features: FeatureArray, residual: FloatArray) -> Any:
    data = xgboost.DMatrix(features, label=residual, nthread=1)
    return xgboost.train({"base_score": 0.0, "nthread": 1, "verbosity": 0}, data)
