"""A pool of promising candidates of one sketch, with their features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.costmodel.base import CostModel, Prediction, SettingFeatures
from tilewright.schedules.arrays import FloatArray, IntArray

from .setting_grid import Codes, SettingGrid

_NOTHING = Prediction(np.empty(0), np.empty(0))


class CandidatePool:
    """Settings of one grid with their features. The pool grows until `keep` drops the least
    promising ones.

    Features cost more than a prediction, so the good candidates of one round are scored again in
    the next round at little cost. Predictions are kept until `refitted` is called.
    """

    def __init__(self, grid: SettingGrid, model: CostModel) -> None:
        self.grid, self.model = grid, model
        self.codes: Codes = np.empty(0, grid.dtype)
        self._places: dict[Any, int] = {}
        self._parts: list[SettingFeatures] = []
        self._waiting: list[SettingFeatures] = []
        self._prediction = _NOTHING

    def __len__(self) -> int:
        return len(self.codes)

    def add(self, settings: IntArray) -> None:
        """Add the feasible `settings`, shape (P, J), that are not in the pool yet."""
        self._add(settings, self.grid.encode(settings))

    def score(self, settings: IntArray, kappa: float) -> FloatArray:
        """Return minus the predicted log2 seconds, optimistic by `kappa` sigmas, shape (P,). New
        settings are added."""
        codes = self.grid.encode(settings)
        self._add(settings, codes)
        places = np.array([self._places[code] for code in codes.tolist()], np.int64)
        prediction = self.predict()
        return kappa * prediction.sigma[places] - prediction.log2_secs[places]

    def predict(self) -> Prediction:
        """Return the prediction for all `codes`, in their order."""
        if self._waiting:
            each = [self._prediction, *map(self.model.predict_from, self._waiting)]
            self._prediction = Prediction(
                np.concatenate([one.log2_secs for one in each]),
                np.concatenate([one.sigma for one in each]),
            )
            self._waiting = []
        return self._prediction

    def refitted(self) -> None:
        """Forget the predictions, because the model has learned from other samples."""
        self._prediction = _NOTHING
        self._waiting = [self._description()] if self._parts else []

    def keep(self, places: IntArray) -> None:
        """Keep the rows `places`, in that order, and drop the others."""
        known = self.predict()
        self._prediction = Prediction(known.log2_secs[places], known.sigma[places])
        self._parts = [rows_of(self._description(), places)]
        self.codes = self.codes[places]
        self._places = {code: place for place, code in enumerate(self.codes.tolist())}

    def _add(self, settings: IntArray, codes: Codes) -> None:
        new: dict[Any, int] = {}
        for row, code in enumerate(codes.tolist()):
            if code not in self._places:
                new.setdefault(code, row)
        if not new:
            return
        rows = list(new.values())
        described = self.model.describe(self.grid.index, settings[rows])
        self._parts.append(described)
        self._waiting.append(described)
        self._places |= {code: len(self) + n for n, code in enumerate(new)}
        self.codes = np.concatenate([self.codes, codes[rows]])

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
