"""The model of few samples: a Gaussian process that finds out how far the prior can be trusted.

log2 seconds are taken for a level, plus `slope` times the prior, plus a random function that is a
sum of three: one of each knob alone, one of all knobs together and one of what the prior sees in a
candidate (its features). How much each counts, over which distances it varies and whether the
prior's slope is near one or anything are hypotheses, `HYPOTHESES`. Each predicts with the weight
that its evidence gives it, so that a prior that ranks the first samples well is followed, and one
that does not is left for what was measured.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2 and 5;
sums over single inputs: Duvenaud, Nickisch and Rasmussen, "Additive Gaussian processes" (NeurIPS
2011); averaging over hypotheses: Hoeting et al., Statistical Science 14 (1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import log, log2

import numpy as np

from schedules.space import FloatArray, IntArray, Knob, ScheduleSpace

from .base import Description, Prediction, Sample
from .features import FEATURES, Featuriser

FAILED_FACTOR = 2.0
PRIOR_SIGMA = 0.5
MIN_SAMPLES = 4
MOST_SAMPLES = 192
FAR = 2.0
"""Beyond this many log2 units above the fastest, only the logarithm of the distance counts."""

NUGGET = 0.02
"""Variance of a measurement, as a share of the random function's."""

FIRST_KNOB = next(i for i, f in enumerate(FEATURES) if f.name == "knob_0")


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """`slope` of the prior and its standard deviation; shares of the three functions; over which
    share of its range a knob alone and, per knob, all together must change to matter; and how
    likely it is before anything was measured (not normalised)."""

    slope: float
    slope_sigma: float
    alone: float
    together: float
    seen: float
    length: float
    belief: float


_TRUST = ((1.0, 0.15, 2.0), (0.4, 0.5, 1.0))
_SHARES = ((0.8, 0.2, 0.0), (0.4, 0.4, 0.2), (0.2, 0.2, 0.6), (0.0, 0.8, 0.2))
_LENGTHS = (0.2, 0.4, 0.8)

HYPOTHESES = tuple(
    Hypothesis(slope, spread, *shares, length, belief)
    for (slope, spread, belief), shares, length in product(_TRUST, _SHARES, _LENGTHS)
)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """One hypothesis after the samples: its weight, and what predicting needs."""

    hypothesis: Hypothesis
    weight: float
    level: float
    alpha: FloatArray
    factor: FloatArray
    scale: float


class GaussianModel:
    """`CostModel` for one space."""

    def __init__(self, space: ScheduleSpace) -> None:
        self.space = space
        self.featurise = Featuriser(space)
        self._places = [_places(sketch.knobs) for sketch in space.sketches]
        self._offset = 0.0
        self._fitted: list[_Fitted] = []

    def describe(self, sketch: int, settings: IntArray) -> Description:
        features, analysis = self.featurise(sketch, settings)
        return Description(sketch, settings, features, np.log2(analysis.secs))

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        return self.predict_from(self.describe(sketch, settings))

    # -- learning

    def fit(self, samples: Sequence[Sample]) -> None:
        self._fitted, self._offset = [], 0.0
        timed = [s.run_secs for s in samples if s.run_secs is not None]
        if not timed:
            return
        samples = _kept(samples)
        worst = max(timed)
        secs = [FAILED_FACTOR * worst if s.run_secs is None else s.run_secs for s in samples]
        y = np.log2(secs)
        self._take_in(samples)
        ran = np.array([s.run_secs is not None for s in samples])
        self._offset = float(np.median((y - self._prior)[ran]))
        if len(timed) < MIN_SAMPLES:
            return
        self._best = float(y.min())
        self._best_prior = float(self._prior.min())
        y, p = _near(y - self._best), _near(self._prior - self._best_prior)
        self._p_mean = float(p.mean())
        q = p - self._p_mean
        parts: dict[float, tuple[FloatArray, ...]] = {}
        for length in _LENGTHS:
            parts[length] = self._own_parts(length)
        found = []
        for h in HYPOTHESES:
            alone, together, seen = parts[h.length]
            kernel = h.alone * alone + h.together * together + h.seen * seen
            kernel += h.slope_sigma**2 * np.outer(q, q)
            kernel[np.diag_indices(len(y))] += NUGGET
            # The level is unknown: a constant of large variance.
            kernel += 4.0
            factor = np.linalg.cholesky(kernel)
            centre = float(np.median(y - h.slope * q))
            rest = y - h.slope * q - centre
            half = np.linalg.solve(factor, rest)
            n = len(y)
            # Scale of the function: inverse gamma around 0.5 log2 units, worth 3 samples.
            a0, b0 = 1.5, 1.5 * 0.25
            a, b = a0 + n / 2, b0 + 0.5 * float(half @ half)
            evidence = log(h.belief) - float(np.log(np.diag(factor)).sum()) - a * log(b)
            alpha = np.linalg.solve(factor.T, half)
            found.append((evidence, h, centre, alpha, factor, b / (a - 1)))
        top = max(e for e, *_ in found)
        weights = [np.exp(e - top) for e, *_ in found]
        order = np.argsort(-np.array(weights), kind="stable")[:4]
        total = sum(weights[i] for i in order if weights[i] > 0.05)
        self._fitted = [
            _Fitted(found[i][1], weights[i] / total, found[i][2], found[i][3], found[i][4], found[i][5])
            for i in order
            if weights[i] > 0.05
        ]
        whole = sum(weights)
        self.trust = sum(w for w, (_, h, *_) in zip(weights, found) if h.slope == 1.0) / whole

    def _take_in(self, samples: Sequence[Sample]) -> None:
        """Descriptions of the samples, in their order."""
        count = len(samples)
        self._sketch = np.array([s.candidate.sketch for s in samples])
        self._settings = [np.array(s.candidate.setting, np.int64) for s in samples]
        self._prior = np.empty(count)
        seen = np.empty((count, FIRST_KNOB), np.float32)
        for sketch in np.unique(self._sketch):
            rows = np.flatnonzero(self._sketch == sketch)
            described = self.describe(int(sketch), np.stack([self._settings[r] for r in rows]))
            assert described.features is not None
            seen[rows] = described.features[:, :FIRST_KNOB]
            self._prior[rows] = described.log2_prior
        spread = seen.std(axis=0)
        self._use = np.flatnonzero(spread > 1e-4)
        self._scale = 1.0 / (spread[self._use] * np.sqrt(max(len(self._use), 1)))
        self._seen = seen[:, self._use] * self._scale

    def _own_parts(self, length: float) -> tuple[FloatArray, ...]:
        count = len(self._sketch)
        alone, together = np.zeros((count, count)), np.zeros((count, count))
        for sketch in np.unique(self._sketch):
            rows = np.flatnonzero(self._sketch == sketch)
            settings = np.stack([self._settings[r] for r in rows])
            a, t = self._knob_parts(int(sketch), settings, length)
            alone[np.ix_(rows, rows)], together[np.ix_(rows, rows)] = a, t
        return alone, together, self._seen_part(self._seen, length)

    def _knob_parts(
        self, sketch: int, settings: IntArray, length: float
    ) -> tuple[FloatArray, FloatArray]:
        """(P, N of that sketch) the two kernels of knobs."""
        rows = np.flatnonzero(self._sketch == sketch)
        own = np.stack([self._settings[r] for r in rows])
        places = self._places[sketch]
        free = [j for j, p in enumerate(places) if len(p) > 1]
        alone = np.zeros((len(settings), len(rows)), np.float32)
        apart = np.zeros((len(settings), len(rows)), np.float32)
        for j in free:
            gap = (places[j][:, None] - places[j][own[:, j]][None, :]) ** 2
            alone += np.exp(-0.5 * gap / length**2).astype(np.float32)[settings[:, j]]
            apart += gap.astype(np.float32)[settings[:, j]]
        count = max(len(free), 1)
        alone /= count
        together = np.exp(apart * np.float32(-0.5 / (length**2 * count)))
        return alone, together

    def _seen_part(self, seen: FloatArray, length: float) -> FloatArray:
        """(P, N) the kernel of standardised features."""
        apart = (
            (seen**2).sum(axis=1)[:, None]
            + (self._seen**2).sum(axis=1)[None, :]
            - 2.0 * seen @ self._seen.T
        )
        return np.exp(-0.5 * np.maximum(apart, 0.0) / (2.0 * length) ** 2)

    # -- predicting

    def predict_from(self, description: Description) -> Prediction:
        prior = description.log2_prior
        if not self._fitted:
            return Prediction(prior + self._offset, np.full(len(prior), PRIOR_SIGMA))
        assert description.features is not None
        q = _near(prior - self._best_prior) - self._p_mean
        own_q = _near(self._prior - self._best_prior) - self._p_mean
        seen = description.features[:, self._use] * self._scale
        rows = np.flatnonzero(self._sketch == description.sketch)
        parts: dict[float, tuple[FloatArray, ...]] = {}
        mean, square = np.zeros(len(prior)), np.zeros(len(prior))
        for f in self._fitted:
            h = f.hypothesis
            if h.length not in parts:
                knobs = (
                    self._knob_parts(description.sketch, description.settings, h.length)
                    if len(rows)
                    else (np.zeros((len(prior), 0)),) * 2
                )
                parts[h.length] = (*knobs, self._seen_part(seen, h.length))
            alone, together, by_features = parts[h.length]
            kernel = h.seen * by_features + 4.0 + h.slope_sigma**2 * np.outer(q, own_q)
            kernel[:, rows] += h.alone * alone + h.together * together
            mu = f.level + h.slope * q + kernel @ f.alpha
            half = np.linalg.solve(f.factor, kernel.T)
            own = h.alone + h.together + h.seen + 4.0 + h.slope_sigma**2 * q**2
            variance = f.scale * np.maximum(own - (half**2).sum(axis=0), 1e-6)
            mean += f.weight * mu
            square += f.weight * (variance + mu**2)
        sigma = np.sqrt(np.maximum(square - mean**2, 1e-12))
        return Prediction(self._best + mean, sigma)


def _near(distance: FloatArray) -> FloatArray:
    """Distances above the fastest, far ones pulled in."""
    over = np.maximum(distance - FAR, 0.0)
    near: FloatArray = np.minimum(distance, FAR) + np.log2(1.0 + over)
    return near


def _kept(samples: Sequence[Sample]) -> list[Sample]:
    """All samples; of very many the fastest half of `MOST_SAMPLES` and the newest others."""
    if len(samples) <= MOST_SAMPLES:
        return list(samples)
    order = sorted(range(len(samples)), key=lambda i: samples[i].run_secs or float("inf"))
    fastest = set(order[: MOST_SAMPLES // 2])
    others = [i for i in range(len(samples)) if i not in fastest][-(MOST_SAMPLES // 2) :]
    return [samples[i] for i in sorted(fastest | set(others))]


def _places(knobs: Sequence[Knob]) -> list[FloatArray]:
    """For each knob the place of each value in 0..1: by log2 where all are numbers above 0."""
    result = []
    for knob in knobs:
        values = knob.values
        numbers = all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values)
        places = np.array([log2(v) for v in values] if numbers else range(len(values)), np.float64)
        span = np.ptp(places)
        result.append((places - places.min()) / span if span > 0 else np.zeros(len(values)))
    return result
