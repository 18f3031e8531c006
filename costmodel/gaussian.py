"""The model of few samples: a Gaussian process that finds out how far the prior can be trusted.

log2 seconds are taken for a level, plus `slope` times the prior, plus a random function that is a
sum of three: one of each knob alone, one of all knobs together and one of what the prior sees in a
candidate (its features). How much each counts, over which distances it varies, and whether the
prior's slope is near one or anything are hypotheses, `HYPOTHESES`. Each predicts with the weight
that its evidence gives it: a prior that ranks the first samples well is followed, one that does not
is left for what was measured.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2 and 5;
sums over single inputs: Duvenaud, Nickisch and Rasmussen, "Additive Gaussian processes" (NeurIPS
2011); averaging over hypotheses: Hoeting et al., Statistical Science 14 (1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import erf, log, log2, sqrt
from typing import TypeAlias

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.space import Knob, ScheduleSpace

from .base import Description, Prediction, Sample
from .features import FEATURES, FeatureArray, Featuriser
from .model import FAILED_FACTOR, PRIOR_SIGMA

MIN_SAMPLES = 4
"""Successful samples from which more than the level is learned."""

MOST_SAMPLES = 96
"""Samples that are learned from, fastest and newest ones. Work grows with their cube, and from 128
on OpenBLAS factorises in threads, which spin while the next candidate is timed."""

FAR = 2.0
"""Beyond this many log2 units above the fastest only the logarithm of the distance counts: how
slow a slow candidate is says nothing about the fast ones."""

NOISE, LEVEL = 0.02, 4.0
"""Variances of a measurement and of the level, over the random function's."""

SCALE, SCALE_SAMPLES = 0.25, 3.0
"""The random function's variance before anything was measured, worth this many samples."""

LEAST_WEIGHT, MOST_KEPT = 0.05, 4
"""Hypotheses that predict: the likeliest ones of at least this weight beside the likeliest."""

ONE_CORE_PRODUCT = 1 << 18
"""Multiplications up to which OpenBLAS starts no threads for a product (interface/gemm.c)."""

SEEN = next(i for i, f in enumerate(FEATURES) if f.name == "knob_0")
"""Features before this one are what the prior sees; from it on they are the knobs again."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One way the machine may be.

    `slope` of the prior with its standard deviation; shares of the three functions, which add up to
    one; `length` is the part of its range by which a knob must change to matter; `belief` how
    likely all this is before anything was measured (not normalised).
    """

    slope: float
    slope_sigma: float
    alone: float
    together: float
    seen: float
    length: float
    belief: float


TRUSTED, DOUBTED = (1.0, 0.15, 2.0), (0.4, 0.5, 1.0)
"""Slope, its standard deviation and belief for a prior that is right and one that may be wrong."""

REAL_SHARE = 0.25
"""A prior of which less than this part is real is called wrong."""

LENGTHS = (0.2, 0.4, 0.8)
SHARES = ((0.8, 0.2, 0.0), (0.4, 0.4, 0.2), (0.2, 0.2, 0.6), (0.0, 0.8, 0.2))

HYPOTHESES = tuple(
    Hypothesis(slope, sigma, *shares, length, belief)
    for (slope, sigma, belief), shares, length in product((TRUSTED, DOUBTED), SHARES, LENGTHS)
)


@dataclass(frozen=True)
class _Known:
    """The samples as inputs: `sketch` (N,), `settings` one row each, prior (N,) and features."""

    places: list[list[FloatArray]]
    sketch: IntArray
    settings: list[IntArray]
    prior: FloatArray
    features: FeatureArray
    used: IntArray = field(init=False)
    weights: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        spread = self.features[:, :SEEN].std(axis=0)
        used = np.flatnonzero(spread > 1e-4)
        object.__setattr__(self, "used", used)
        object.__setattr__(self, "weights", 1.0 / (spread[used] * np.sqrt(max(len(used), 1))))

    def of_knobs(
        self, sketch: int, settings: IntArray, length: float
    ) -> tuple[FeatureArray, FeatureArray]:
        """(P, N) correlations of `settings` (P, J) and the samples: a mean over the knobs alone,
        and that of all together. None between sketches, whose knobs mean other things."""
        rows = np.flatnonzero(self.sketch == sketch)
        shape = (len(settings), len(self.sketch))
        alone, together = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        if not len(rows):
            return alone, together
        own = np.stack([self.settings[r] for r in rows])
        free = [j for j, place in enumerate(self.places[sketch]) if len(place) > 1]
        each = np.zeros((len(settings), len(rows)), np.float32)
        apart = np.zeros((len(settings), len(rows)), np.float32)
        for j in free:
            place = self.places[sketch][j]
            gaps = ((place[:, None] - place[own[:, j]][None, :]) ** 2).astype(np.float32)
            each += np.exp(gaps * np.float32(-0.5 / length**2))[settings[:, j]]
            apart += gaps[settings[:, j]]
        count = max(len(free), 1)
        alone[:, rows] = each / np.float32(count) if free else 1.0
        together[:, rows] = np.exp(apart * np.float32(-0.5 / (length**2 * count)))
        return alone, together

    def of_features(self, features: FeatureArray, length: float) -> FloatArray:
        """(P, N) correlations by features (P, F), each in units of its spread."""
        one = features[:, self.used].astype(np.float64) * self.weights
        two = self.features[:, self.used].astype(np.float64) * self.weights
        square = (
            (one**2).sum(axis=1)[:, None]
            + (two**2).sum(axis=1)[None, :]
            - 2.0 * times_on_one_core(one, two.T)
        )
        near: FloatArray = np.exp(np.maximum(square, 0.0) * (-0.125 / length**2))
        return near


@dataclass(frozen=True, slots=True)
class _Posterior:
    """A hypothesis after the samples. `inverse` (N, N) is that of the kernel's Cholesky factor,
    `alpha` (N,) the kernel's inverse times what slope and `level` leave, `scale` the variance of
    the random function, `evidence` the log probability of the samples, up to a constant."""

    hypothesis: Hypothesis
    level: float
    alpha: FloatArray
    inverse: FloatArray
    scale: float
    evidence: float


class GaussianModel:
    """`CostModel` for one space.

    `prior_trust` is the probability, 0..1, that at least `REAL_SHARE` of the differences that the
    prior sees is real; `left_out` (n,) how far each sample that ran is from what the others say of
    it, log2 units. Both are None before there are enough samples.
    """

    def __init__(self, space: ScheduleSpace) -> None:
        self.featurise = Featuriser(space)
        self.prior_trust: float | None = None
        self.left_out: FloatArray | None = None
        self._places = [_places(sketch.knobs) for sketch in space.sketches]
        self._offset = 0.0
        self._known: _Known | None = None
        self._best = self._best_prior = self._mean_prior = 0.0
        self._posteriors: list[tuple[float, _Posterior]] = []

    def describe(self, sketch: int, settings: IntArray) -> Description:
        features, analysis = self.featurise(sketch, settings)
        return Description(sketch, settings, features, np.log2(analysis.secs))

    def predict(self, sketch: int, settings: IntArray) -> Prediction:
        return self.predict_from(self.describe(sketch, settings))

    def fit(self, samples: Sequence[Sample]) -> None:
        self.prior_trust = self.left_out = None
        self._posteriors, self._offset = [], 0.0
        samples = _kept(samples)
        timed = [s.run_secs for s in samples if s.run_secs is not None]
        if not timed:
            return
        slow = FAILED_FACTOR * max(timed)
        log2_secs = np.log2([slow if s.run_secs is None else s.run_secs for s in samples])
        ran = np.array([s.run_secs is not None for s in samples])
        known = self._known = self._inputs(samples)
        self._offset = float(np.median((log2_secs - known.prior)[ran]))
        if len(timed) < MIN_SAMPLES:
            return
        self._best, self._best_prior = float(log2_secs.min()), float(known.prior.min())
        above = _near(log2_secs - self._best)
        prior = _near(known.prior - self._best_prior)
        self._mean_prior = float(prior.mean())
        found = self._all_posteriors(known, above, prior - self._mean_prior)
        weights = np.exp([p.evidence - found[0].evidence for p in found])
        trusts = np.array([_trust(p, prior - self._mean_prior) for p in found])
        self.prior_trust = float((weights * trusts).sum() / weights.sum())
        kept = [(float(w), p) for w, p in zip(weights, found, strict=True) if w >= LEAST_WEIGHT]
        kept = kept[:MOST_KEPT]
        total = sum(w for w, _ in kept)
        self._posteriors = [(w / total, p) for w, p in kept]
        likeliest = kept[0][1]
        self.left_out = (likeliest.alpha / (likeliest.inverse**2).sum(axis=0))[ran]

    def predict_from(self, description: Description) -> Prediction:
        log2_prior = description.log2_prior
        if not self._posteriors or self._known is None:
            return Prediction(log2_prior + self._offset, np.full(len(log2_prior), PRIOR_SIGMA))
        known = self._known
        assert description.features is not None
        prior = _near(log2_prior - self._best_prior) - self._mean_prior
        own = _near(known.prior - self._best_prior) - self._mean_prior
        parts: dict[float, Parts] = {}
        for length in {p.hypothesis.length for _, p in self._posteriors}:
            knobs = known.of_knobs(description.sketch, description.settings, length)
            parts[length] = (*knobs, known.of_features(description.features, length))
        mean, square = np.zeros(len(prior)), np.zeros(len(prior))
        for weight, posterior in self._posteriors:
            h = posterior.hypothesis
            kernel = _kernel(h, parts[h.length], prior, own)
            here = posterior.level + h.slope * prior + np.einsum("pn,n->p", kernel, posterior.alpha)
            known_part = (times_on_one_core(kernel, posterior.inverse.T) ** 2).sum(axis=1)
            whole = 1.0 + LEVEL + h.slope_sigma**2 * prior**2
            variance = posterior.scale * np.maximum(whole - known_part, 1e-4)
            mean += weight * here
            square += weight * (variance + here**2)
        sigma = np.sqrt(np.maximum(square - mean**2, 1e-8))
        return Prediction(self._best + mean, sigma)

    def _inputs(self, samples: Sequence[Sample]) -> _Known:
        sketch = np.array([s.candidate.sketch for s in samples], np.int64)
        settings = [np.array(s.candidate.setting, np.int64) for s in samples]
        prior = np.empty(len(samples))
        features = np.empty((len(samples), len(FEATURES)), np.float32)
        for number in np.unique(sketch):
            rows = np.flatnonzero(sketch == number)
            described = self.describe(int(number), np.stack([settings[r] for r in rows]))
            prior[rows], features[rows] = described.log2_prior, described.features
        return _Known(self._places, sketch, settings, prior, features)

    def _all_posteriors(
        self, known: _Known, above: FloatArray, prior: FloatArray
    ) -> list[_Posterior]:
        """One a hypothesis, the likeliest first."""
        found: list[_Posterior] = []
        for length in LENGTHS:
            count = len(above)
            alone, together = np.zeros((count, count)), np.zeros((count, count))
            for sketch in np.unique(known.sketch):
                rows = np.flatnonzero(known.sketch == sketch)
                own = np.stack([known.settings[r] for r in rows])
                alone[rows], together[rows] = known.of_knobs(int(sketch), own, length)
            parts = (alone, together, known.of_features(known.features, length))
            found += [
                _posterior(h, _kernel(h, parts, prior, prior), above, prior)
                for h in HYPOTHESES
                if h.length == length
            ]
        return sorted(found, key=lambda p: -p.evidence)


Parts: TypeAlias = tuple[FeatureArray | FloatArray, FeatureArray | FloatArray, FloatArray]
"""(P, N) correlations: knobs alone, knobs together, features."""


def _kernel(h: Hypothesis, parts: Parts, prior: FloatArray, own: FloatArray) -> FloatArray:
    """(P, N) covariances over the random function's variance, without the noise, of candidates
    with `prior` (P,) and samples with `own` (N,)."""
    kernel: FloatArray = np.outer(h.slope_sigma**2 * prior, own) + LEVEL
    for share, part in zip((h.alone, h.together, h.seen), parts, strict=True):
        if share:
            kernel += share * part
    return kernel


def _posterior(
    h: Hypothesis, kernel: FloatArray, above: FloatArray, prior: FloatArray
) -> _Posterior:
    """What the samples, `above` the fastest (N,), make of a hypothesis.

    The variance of the random function has an inverse gamma distribution, so the evidence is that
    of a multivariate Student distribution (Rasmussen and Williams, section 2.2, with O'Hagan's
    conjugate scale).
    """
    count = len(above)
    kernel[np.diag_indices(count)] += NOISE
    factor = np.linalg.cholesky(kernel)
    inverse = np.linalg.inv(factor)
    level = float(np.median(above - h.slope * prior))
    half = np.einsum("mn,n->m", inverse, above - h.slope * prior - level)
    shape = 0.5 * (SCALE_SAMPLES + count)
    rate = 0.5 * (SCALE_SAMPLES * SCALE + float((half**2).sum()))
    evidence = log(h.belief) - float(np.log(np.diag(factor)).sum()) - shape * log(rate)
    scale = rate / (shape - 1.0)
    return _Posterior(h, level, np.einsum("mn,m->n", inverse, half), inverse, scale, evidence)


def _trust(posterior: _Posterior, prior: FloatArray) -> float:
    """The probability that the slope is above `REAL_SHARE`; `prior` (N,) is that of the samples."""
    h = posterior.hypothesis
    half = np.einsum("mn,n->m", posterior.inverse, prior)
    mean = h.slope + h.slope_sigma**2 * float((prior * posterior.alpha).sum())
    known = h.slope_sigma**2 * float((half**2).sum())
    sigma = h.slope_sigma * sqrt(posterior.scale * max(1.0 - known, 1e-6))
    return 0.5 * (1.0 + erf((mean - REAL_SHARE) / (sigma * sqrt(2.0))))


def times_on_one_core(one: FloatArray, two: FloatArray) -> FloatArray:
    """`one` (P, K) times `two` (K, N), by as many rows at once as BLAS multiplies on one core: the
    threads of a larger product spin on for a while, and disturb what is measured next."""
    count, inner = one.shape
    result: FloatArray = np.zeros((count, two.shape[1]))
    rows = max(ONE_CORE_PRODUCT // max(inner * two.shape[1], 1), 1)
    for start in range(0, count, rows):
        np.matmul(one[start : start + rows], two, out=result[start : start + rows])
    return result


def _near(distance: FloatArray) -> FloatArray:
    """Distances above the fastest, log2 units, the part beyond FAR pulled in; rising."""
    beyond = np.maximum(distance - FAR, 0.0)
    near: FloatArray = np.minimum(distance, FAR) + np.log2(1.0 + beyond)
    return near


def _kept(samples: Sequence[Sample]) -> Sequence[Sample]:
    """All samples; of too many the fastest half and the newest of the others, in their order."""
    if len(samples) <= MOST_SAMPLES:
        return samples
    slow = float("inf")
    order = sorted(range(len(samples)), key=lambda i: (samples[i].run_secs or slow, i))
    fastest = set(order[: MOST_SAMPLES // 2])
    newest = [i for i in range(len(samples)) if i not in fastest][-(MOST_SAMPLES // 2) :]
    return [samples[i] for i in sorted([*fastest, *newest])]


def _places(knobs: Sequence[Knob]) -> list[FloatArray]:
    """For each knob the place of each value in 0..1: by log2 where all are numbers above 0, else
    in order. A single number for a knob without a choice."""
    result = []
    for knob in knobs:
        numbers = all(type(value) is int and value > 0 for value in knob.values)
        raw = [log2(v) for v in knob.values] if numbers else list(range(len(knob.values)))
        places = np.array(raw, np.float64)
        span = float(np.ptp(places))
        result.append((places - places.min()) / span if span else np.zeros(1))
    return result
