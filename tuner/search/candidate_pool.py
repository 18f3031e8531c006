"""A pool of promising candidates of one sketch, with their features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.costmodel.base import CostModel, Prediction, SettingFeatures
from tilewright.schedules.arrays import FloatArray, IntArray

from .setting_grid import Codes, SettingGrid


class CandidatePool:
    """Settings of one grid with their features. The pool grows until `keep` drops the least
    promising ones.

    Features cost more than a prediction, so the good candidates of one round are scored again in
    the next round at little cost.
    """

    def __init__(self, grid: SettingGrid, model: CostModel) -> None:
        self.grid, self.model = grid, model
        self.codes: Codes = np.empty(0, grid.dtype)
        self._parts: list[SettingFeatures] = []

    def __len__(self) -> int:
        return len(self.codes)

    def add(self, settings: IntArray) -> None:
        """Add the feasible `settings`, shape (P, J), that are not in the pool yet."""
        codes = self.grid.encode(settings)
        _, first = np.unique(codes, return_index=True)
        first = np.sort(first)
        new = first[~np.isin(codes[first], self.codes)]
        if len(new):
            self._parts.append(self.model.describe(self.grid.index, settings[new]))
            self.codes = np.concatenate([self.codes, codes[new]])

    def score(self, settings: IntArray, kappa: float) -> FloatArray:
        """Return minus the predicted log2 seconds, optimistic by `kappa` sigmas, shape (P,). New
        settings are added."""
        self.add(settings)
        codes = np.concatenate([self.codes, self.grid.encode(settings)])
        _, first, number = np.unique(codes, return_index=True, return_inverse=True)
        places = first[number[len(self.codes) :]]
        prediction = self.model.predict_from(rows_of(self._description(), places))
        return kappa * prediction.sigma - prediction.log2_secs

    def predict(self) -> Prediction:
        """Return the prediction for all `codes`, in their order."""
        return self.model.predict_from(self._description())

    def keep(self, places: IntArray) -> None:
        """Keep the rows `places`, in that order, and drop the others."""
        self._parts = [rows_of(self._description(), places)]
        self.codes = self.codes[places]

    def _description(self) -> SettingFeatures:
        if len(self._parts) != 1:
            parts = self._parts
            features = [p.features for p in parts if p.features is not None]
            joined = SettingFeatures(
                self.grid.index,
                np.concatenate([p.settings for p in parts]),
                np.concatenate(features) if features else None,
                np.concatenate([p.log2_prior for p in parts]),
            )
            self._parts = [joined]
        return self._parts[0]


def rows_of(description: SettingFeatures, places: IntArray) -> SettingFeatures:
    """Return the rows `places` of a description."""
    features = description.features
    return replace(
        description,
        settings=description.settings[places],
        features=None if features is None else features[places],
        log2_prior=description.log2_prior[places],
    )
