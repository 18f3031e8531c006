"""The learned model: boosted trees on what the prior gets wrong.

Trees learn the residual z = log2(measured seconds) - log2(prior's seconds), so before the first
measurement the prediction is the prior, and after a few it is the prior, corrected. Four small
models on resampled data disagree where little was measured: their spread is the doubt `sigma`.
Where each leaves out some of the samples, they say together how wrong they are (`left_out`).
Source: bagging (Breiman 1996) over XGBoost (Chen and Guestrin, KDD 2016); fast candidates weigh
more, as in Ansor (OSDI 2020).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schedules.arrays import FloatArray, IntArray
from schedules.space import ScheduleSpace

from .base import Description, Prediction, Sample
from .features import FEATURES, FeatureArray, Featuriser

PRIOR_SIGMA = 0.5
"""Doubt about the uncorrected prior, log2 units: it is within 1.4x for two thirds of candidates."""

FAILED_FACTOR = 2.0
"""A candidate that failed is learned as this much slower than the slowest that ran."""

MISSING_XGBOOST = "no learned cost model: xgboost is not installed (pip install 'tilewright[tune]')"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Size of the ensemble. `min_samples` successful samples are needed before trees are grown.
    With `leave_out` each member leaves out every `members`-th sample, see `left_out`."""

    members: int = 4
    trees: int = 40
    depth: int = 4
    eta: float = 0.2
    min_samples: int = 8
    seed: int = 0
    leave_out: bool = False


class ResidualModel:
    """`CostModel` for one space: prior, plus trees once there are enough samples.

    `note` is one line for people where the trees cannot be used, else "". `left_out` (n,) is how
    far each sample that ran is from what the trees that never saw it say, log2 units; None where
    there are no trees, or all saw it.
    """

    def __init__(self, space: ScheduleSpace, settings: ModelSettings | None = None) -> None:
        self.featurise = Featuriser(space)
        self.settings = settings or ModelSettings()
        self.note = ""
        self.left_out: FloatArray | None = None
        self._offset = 0.0
        self._boosters: list[Any] = []

    def fit(self, samples: Sequence[Sample]) -> None:
        self._boosters, self._offset, self.left_out = [], 0.0, None
        timed = [s.run_secs for s in samples if s.run_secs is not None]
        if not timed:
            return
        features, prior = self._table(samples)
        best, worst = min(timed), max(timed)
        secs = np.array([worst * FAILED_FACTOR if s.run_secs is None else s.run_secs
                         for s in samples])  # fmt: skip
        residual = np.log2(secs) - prior
        ran = np.array([s.run_secs is not None for s in samples])
        self._offset = float(np.median(residual[ran]))
        if len(timed) < self.settings.min_samples:
            return
        try:
            xgboost = importlib.import_module("xgboost")
        except ImportError:
            self.note = MISSING_XGBOOST
            return
        weights = np.clip(best / secs, 0.05, 1.0)
        self._boosters = [
            self._grow(xgboost, features, residual - self._offset, weights, member)
            for member in range(self.settings.members)
        ]
        if not self.settings.leave_out:
            return
        fold = np.arange(len(residual)) % self.settings.members
        missed = residual - self._offset
        for member, booster in enumerate(self._boosters):
            rows = fold == member
            missed[rows] -= booster.inplace_predict(features[rows])
        self.left_out = missed[ran]

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        return self.predict_from(self.describe(sketch, settings))

    def describe(self, sketch: int, settings: IntArray) -> Description:
        features, analysis = self.featurise(sketch, settings)
        return Description(sketch, settings, features, np.log2(analysis.secs))

    def predict_from(self, description: Description) -> Prediction:
        base = description.log2_prior + self._offset
        if not self._boosters:
            return Prediction(base, np.full(len(base), PRIOR_SIGMA))
        votes = np.stack(
            [booster.inplace_predict(description.features) for booster in self._boosters]
        ).astype(np.float64)
        return Prediction(base + votes.mean(axis=0), votes.std(axis=0, ddof=1))

    def _table(self, samples: Sequence[Sample]) -> tuple[FeatureArray, FloatArray]:
        """Features and prior of all samples, in their order."""
        by_sketch: dict[int, list[int]] = {}
        for row, sample in enumerate(samples):
            by_sketch.setdefault(sample.candidate.sketch, []).append(row)
        features = np.empty((len(samples), len(FEATURES)), np.float32)
        prior = np.empty(len(samples))
        for sketch, rows in by_sketch.items():
            settings = np.array([samples[r].candidate.setting for r in rows], np.int64)
            described = self.describe(sketch, settings)
            features[rows], prior[rows] = described.features, described.log2_prior
        return features, prior

    def _grow(
        self,
        xgboost: Any,
        features: FeatureArray,
        residual: FloatArray,
        weights: npt.NDArray[np.float64],
        member: int,
    ) -> Any:
        s = self.settings
        rng = np.random.default_rng([s.seed, member, len(residual)])
        # Bayesian bootstrap: every sample stays in, with a random weight; few samples need that.
        drawn = weights * rng.exponential(size=len(residual))
        if s.leave_out:
            drawn[member :: s.members] = 0.0
        data = xgboost.DMatrix(features, label=residual, weight=drawn, nthread=1)
        parameters = {
            "objective": "reg:squarederror",
            "base_score": 0.0,
            "tree_method": "hist",
            "max_bin": 32,
            "max_depth": s.depth,
            "eta": s.eta,
            "subsample": 0.9,
            "colsample_bytree": 0.5,
            "min_child_weight": 0.0,
            "lambda": 0.1,
            "nthread": 1,
            "seed": s.seed * 1000 + member,
            "verbosity": 0,
        }
        return xgboost.train(parameters, data, num_boost_round=s.trees)
