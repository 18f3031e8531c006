"""Cost model for few samples: a Gaussian process that infers from the samples how far the prior can
be trusted.

The model of log2 seconds is a constant level, plus `slope` times the prior, plus a random function.
The random function is a sum of three functions: an additive one over single knobs, a joint one over
all knobs, and one over the features that the prior computes. `HYPOTHESES` enumerate the weights of
these functions, their length scales, and whether the slope is near one or uncertain. Predictions
use the hypothesis with the highest evidence. Hence a prior that ranks the first samples well
dominates the prediction, and a prior that does not is overruled by the measurements.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2 and 5;
sums over single inputs: Duvenaud, Nickisch and Rasmussen, "Additive Gaussian processes" (NeurIPS
2011); averaging over hypotheses: Hoeting et al., Statistical Science 14 (1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import erf, log, log2, sqrt
from typing import TypeAlias

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import Knob, ScheduleSpace

from .base import BorrowedSample, Prediction, Sample, SettingFeatures
from .features import FEATURES, FeatureArray, Measured
from .learned import LearnedModel
from .prior import Corrects

MOST_SAMPLES = 96
"""Largest number of samples that the model learns from: the fastest and the newest ones. The work
grows with the cube of this number, and from 128 on OpenBLAS factorises in several threads, which
spin while the next candidate is timed."""

FAR = 2.0
"""Distance from the fastest sample, in log2 units, beyond which distances are compressed
logarithmically: the exact run time of a slow candidate carries no information about the fast
ones."""

NOISE = 0.02
"""Variance of the measurement noise, relative to the variance of the random function and of the
level."""

SOURCE_LEVEL = 0.25
"""Variance of the level of one workload relative to the variance of the random function: related
workloads may all be slower or faster than the prior predicts."""

RELATEDNESS = (0.5, 0.0, 1.0)
"""Factors of the similarity of related workloads that are compared by their evidence. The first one
is used if the samples do not tell, as with one related workload before the first measurement."""

MACHINE_RELATEDNESS = (0.5, 0.0, 1.0)
"""Correlations of the errors of the prior on different machines that are compared by their
evidence. The first one is used if the samples do not tell, as before the first measurement on a
machine."""

MOST_BORROWED = 64
"""Largest number of borrowed samples that the model learns from."""

ONE_CORE_PRODUCT = 1 << 18
"""Largest number of multiplications for which OpenBLAS computes a matrix product in one thread.
Published: its interface/gemm.c."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One set of hyperparameters of the Gaussian process.

    `slope` and `slope_sigma`: mean and standard deviation of the factor of the prior. `belief`:
    probability of the slope before any measurement, not normalised. `additive_weight`,
    `joint_weight` and `feature_weight`: shares of the three functions, with sum one. `length`:
    length scale of a knob as a fraction of the knob's range.
    """

    slope: float
    slope_sigma: float
    belief: float
    additive_weight: float
    joint_weight: float
    feature_weight: float
    length: float


SLOPES = ((1.0, 0.15, 2.0), (0.4, 0.5, 1.0))
"""Slope, its standard deviation and its belief: first for an accurate prior, then for a prior that
may be wrong."""

REAL_SHARE = 0.25
"""Slope of the prior below which the prior counts as wrong."""

SHARES = ((0.8, 0.2, 0.0), (0.4, 0.4, 0.2), (0.2, 0.2, 0.6), (0.0, 0.8, 0.2))
LENGTHS = (0.2, 0.4, 0.8)

HYPOTHESES = tuple(
    Hypothesis(*slope, *shares, length)
    for slope, shares, length in product(SLOPES, SHARES, LENGTHS)
)


Parts: TypeAlias = tuple[FeatureArray | FloatArray, FeatureArray | FloatArray, FloatArray]
"""Correlations of the additive function, of the joint function and of the function of features,
each (P, N)."""


class _Samples:
    """The samples as inputs of the random function. `places` holds the knob positions of each
    sketch."""

    def __init__(self, measured: Measured, places: list[list[FloatArray]]) -> None:
        self.sketch, self.settings, self.prior = measured.sketch, measured.settings, measured.prior
        self.source, self.similarity = measured.source, measured.similarity
        self.work, self.machine = measured.work, measured.machine
        self.places = places
        seen = measured.features[:, : len(FEATURES)]
        spread = seen.std(axis=0)
        self.used = np.flatnonzero(spread > 1e-4)
        self.weights = 1.0 / (spread[self.used] * np.sqrt(max(len(self.used), 1)))
        self.seen = self._scaled(measured.features)
        self.features = measured.features

    def _scaled(self, features: FeatureArray) -> FloatArray:
        """Return the features that differ between samples, each divided by its standard
        deviation."""
        return np.asarray(features[:, self.used].astype(np.float64) * self.weights)

    def of_knobs(
        self, sketch: int, settings: IntArray, length: float
    ) -> tuple[FeatureArray, FeatureArray]:
        """Return the correlations between `settings` (P, J) and the N samples, each (P, N): the
        mean of the correlations by single knobs, and the joint correlation over all knobs. Both are
        zero for samples of other sketches because their knobs have other meanings."""
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
        """Return the correlations by `features` (P, F), shape (P, N). The length scale is twice the
        length scale of the knobs."""
        one, two = self._scaled(features), self.seen
        lengths = (one**2).sum(axis=1)[:, None] + (two**2).sum(axis=1)[None, :]
        square = np.maximum(lengths - 2.0 * times_on_one_core(one, two.T), 0.0)
        return np.asarray(np.exp(square * (-0.5 / (2.0 * length) ** 2)))

    def tasks(self, relatedness: float, of_machines: float) -> tuple[FloatArray, FloatArray]:
        """Return the correlations of the random functions of the samples' tasks, and the covariance
        of the levels of their tasks, each (N, N).

        The correlation of two tasks is the product of those of their workloads, `relatedness` times
        their similarities, and of their machines, `of_machines`; 1 for equal ones.
        """
        of_works = relatedness * np.outer(self.similarity, self.similarity)
        related = np.where(self.work[:, None] == self.work, 1.0, of_works)
        related *= np.where(self.machine[:, None] == self.machine, 1.0, of_machines)
        return related, (self.source[:, None] == self.source) * self.level_variance

    def with_own_task(
        self, count: int, relatedness: float, of_machines: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the result of `tasks` for `count` settings of this run, and the N samples, each
        (count, N)."""
        related = np.where(self.work == 0, 1.0, relatedness * self.similarity)
        related *= np.where(self.machine == 0, 1.0, of_machines)
        levels = (self.source == 0) * self.level_variance
        shape = (count, len(self.source))
        return np.broadcast_to(related, shape), np.broadcast_to(levels, shape)

    @property
    def relatednesses(self) -> tuple[float, ...]:
        """The factors of `RELATEDNESS` to compare: one if all samples are of one workload."""
        return RELATEDNESS if self.work.any() else (1.0,)

    @property
    def has_other_machines(self) -> bool:
        return bool(self.machine.any())

    @property
    def level_variance(self) -> float:
        """Variance of the level of a task. It is 0 if all samples are of one task."""
        return SOURCE_LEVEL * bool(self.source.any())

    def among_themselves(self, length: float) -> Parts:
        """Return the correlations between the samples, each (N, N)."""
        alone, together = np.zeros((2, len(self.sketch), len(self.sketch)))
        for sketch in np.unique(self.sketch):
            rows = np.flatnonzero(self.sketch == sketch)
            own = np.stack([self.settings[r] for r in rows])
            alone[rows], together[rows] = self.of_knobs(int(sketch), own, length)
        return alone, together, self.of_features(self.features, length)


@dataclass(frozen=True, slots=True)
class _Posterior:
    """A hypothesis conditioned on the samples. `relatedness` is its factor of the similarity of
    other workloads, `of_machines` the correlation of different machines. `inverse` (N, N) is the
    inverse of the Cholesky factor of the kernel. `alpha` (N,) is the inverse of the kernel times
    the residuals left by slope and `level`. `scale` is the variance of the random function,
    `evidence` the log probability of the samples up to a constant."""

    hypothesis: Hypothesis
    relatedness: float
    of_machines: float
    level: float
    alpha: FloatArray
    inverse: FloatArray
    scale: float
    evidence: float


class GaussianModel(LearnedModel):
    """`LearnedModel` for few samples.

    `prior_trust` is the probability, 0..1, that the slope of the prior is at least `REAL_SHARE`, or
    None if there are too few samples. `of_machines` is the likeliest correlation of the prior's
    errors on this machine and on others, or None without samples of others.
    """

    def __init__(self, space: ScheduleSpace, correction: Corrects | None = None) -> None:
        super().__init__(space, correction)
        self.prior_trust: float | None = None
        self.of_machines: float | None = None
        self._places = [_places(sketch.knobs) for sketch in space.sketches]
        self._best = self._best_prior = self._mean_prior = 0.0
        self._fitted: tuple[_Samples, _Posterior]

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        self.prior_trust = self.of_machines = None
        kept = _kept(samples)
        super().fit(kept, borrowed[: min(MOST_BORROWED, MOST_SAMPLES - len(kept))])

    def learn(self, known: Measured) -> FloatArray:
        self._best, self._best_prior = float(known.log2_secs.min()), float(known.prior.min())
        self._mean_prior = float(_near(known.prior - self._best_prior).mean())
        prior = self._seen_of_prior(known.prior)
        inputs = _Samples(known, self._places)
        found = _posteriors(inputs, _near(known.log2_secs - self._best), prior)
        weights = np.exp([p.evidence - found[0].evidence for p in found])
        trusts = np.array([_trust(p, prior) for p in found])
        self.prior_trust = float((weights * trusts).sum() / weights.sum())
        likeliest = found[0]
        if inputs.has_other_machines:
            self.of_machines = likeliest.of_machines
        self._fitted = inputs, likeliest
        left_out: FloatArray = likeliest.alpha / (likeliest.inverse**2).sum(axis=0)
        return left_out[known.own]

    def predict_learned(self, description: SettingFeatures) -> Prediction:
        assert description.features is not None
        known, posterior = self._fitted
        h = posterior.hypothesis
        prior, own = map(self._seen_of_prior, (description.log2_prior, known.prior))
        knobs = known.of_knobs(description.sketch, description.settings, h.length)
        parts = (*knobs, known.of_features(description.features, h.length))
        related = posterior.relatedness, posterior.of_machines
        tasks = known.with_own_task(len(prior), *related)
        kernel = _kernel(h, parts, prior, own, tasks)
        mean = posterior.level + h.slope * prior + np.einsum("pn,n->p", kernel, posterior.alpha)
        known_part = (times_on_one_core(kernel, posterior.inverse.T) ** 2).sum(axis=1)
        # variance of function and level, then of the slope
        whole = 2.0 + known.level_variance + h.slope_sigma**2 * prior**2
        sigma = np.sqrt(posterior.scale * np.maximum(whole - known_part, 1e-4))
        return Prediction(self._best + mean, sigma)

    def _seen_of_prior(self, log2_prior: FloatArray) -> FloatArray:
        """Return the prior's log2 seconds relative to the fastest predicted sample, compressed by
        `_near`, minus the mean of the samples."""
        return np.asarray(_near(log2_prior - self._best_prior) - self._mean_prior)


def _kernel(
    h: Hypothesis,
    parts: Parts,
    prior: FloatArray,
    own: FloatArray,
    tasks: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Return the covariances (P, N) of candidates with `prior` (P,) and samples with `own` (N,),
    without noise and divided by the variance of the random function.

    `tasks` as from `_Samples.tasks`. The product of a correlation of settings and a correlation of
    tasks is the intrinsic coregionalisation model (Bonilla, Chai and Williams, "Multi-task
    Gaussian Process Prediction", NIPS 2007).
    """
    related, levels = tasks
    kernel: FloatArray = np.outer(h.slope_sigma**2 * prior, own) + 1.0 + levels
    for share, part in zip(
        (h.additive_weight, h.joint_weight, h.feature_weight), parts, strict=True
    ):
        if share:
            kernel += share * part * related
    return kernel


def _posteriors(known: _Samples, above: FloatArray, prior: FloatArray) -> list[_Posterior]:
    """Return one posterior per hypothesis, sorted by decreasing evidence. The relatedness of
    machines is compared only with the likeliest relatedness of workloads."""
    parts = {length: known.among_themselves(length) for length in LENGTHS}

    def conditioned(relatedness: float, of_machines: float) -> list[_Posterior]:
        tasks = known.tasks(relatedness, of_machines)
        return [
            _posterior(
                h,
                relatedness,
                of_machines,
                _kernel(h, parts[length], prior, prior, tasks),
                above,
                prior,
            )
            for length in LENGTHS
            for h in HYPOTHESES
            if h.length == length
        ]

    first, *others = MACHINE_RELATEDNESS if known.has_other_machines else (1.0,)
    found = [p for relatedness in known.relatednesses for p in conditioned(relatedness, first)]
    likeliest = max(found, key=lambda p: p.evidence).relatedness
    found += [p for of_machines in others for p in conditioned(likeliest, of_machines)]
    return sorted(found, key=lambda p: -p.evidence)


def _posterior(
    h: Hypothesis,
    relatedness: float,
    of_machines: float,
    kernel: FloatArray,
    above: FloatArray,
    prior: FloatArray,
) -> _Posterior:
    """Return hypothesis `h` conditioned on the samples. `above` (N,) are the log2 seconds of the
    samples above the fastest one.

    The variance of the random function has Jeffreys' prior, so the evidence is the density of a
    multivariate Student distribution (Rasmussen and Williams, section 2.2).
    """
    count = len(above)
    kernel[np.diag_indices(count)] += NOISE
    factor = np.linalg.cholesky(kernel)
    inverse = np.linalg.inv(factor)
    level = float(np.median(above - h.slope * prior))
    half = np.einsum("mn,n->m", inverse, above - h.slope * prior - level)
    shape, rate = 0.5 * count, max(0.5 * float((half**2).sum()), 1e-6)
    evidence = log(h.belief) - float(np.log(np.diag(factor)).sum()) - shape * log(rate)
    scale = rate / (shape - 1.0)
    alpha = np.einsum("mn,m->n", inverse, half)
    return _Posterior(h, relatedness, of_machines, level, alpha, inverse, scale, evidence)


def _trust(posterior: _Posterior, prior: FloatArray) -> float:
    """Return the probability that the slope exceeds `REAL_SHARE`. `prior` (N,) are the samples'
    values."""
    h = posterior.hypothesis
    half = np.einsum("mn,n->m", posterior.inverse, prior)
    mean = h.slope + h.slope_sigma**2 * float((prior * posterior.alpha).sum())
    known = h.slope_sigma**2 * float((half**2).sum())
    sigma = h.slope_sigma * sqrt(posterior.scale * max(1.0 - known, 1e-6))
    return 0.5 * (1.0 + erf((mean - REAL_SHARE) / (sigma * sqrt(2.0))))


def times_on_one_core(one: FloatArray, two: FloatArray) -> FloatArray:
    """Return the product of `one` (P, K) and `two` (K, N), computed in blocks of rows that BLAS
    multiplies in one thread. The threads of a larger product keep spinning after it and disturb the
    next measurement."""
    count, inner = one.shape
    result: FloatArray = np.zeros((count, two.shape[1]))
    rows = max(ONE_CORE_PRODUCT // max(inner * two.shape[1], 1), 1)
    for start in range(0, count, rows):
        np.matmul(one[start : start + rows], two, out=result[start : start + rows])
    return result


def _near(distance: FloatArray) -> FloatArray:
    """Return distances above the fastest sample in log2 units, with the part beyond FAR compressed
    logarithmically. The function is monotonic."""
    beyond = np.maximum(distance - FAR, 0.0)
    near: FloatArray = np.minimum(distance, FAR) + np.log2(1.0 + beyond)
    return near


def _kept(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples to learn from, in their order: all samples, or the fastest ones and the
    newest of the others if there are more than `MOST_SAMPLES`."""
    if len(samples) <= MOST_SAMPLES:
        return samples
    slow = float("inf")
    order = sorted(range(len(samples)), key=lambda i: (samples[i].run_secs or slow, i))
    fastest = set(order[: MOST_SAMPLES // 2])
    newest = [i for i in range(len(samples)) if i not in fastest][-(MOST_SAMPLES // 2) :]
    return [samples[i] for i in sorted([*fastest, *newest])]


def _places(knobs: Sequence[Knob]) -> list[FloatArray]:
    """Return, for each knob, the position of each value scaled to 0..1: by log2 if all values are
    positive integers, else by index. A knob with one position gets an array of length one."""
    result = []
    for knob in knobs:
        numbers = all(type(value) is int and value > 0 for value in knob.values)
        raw = [log2(v) for v in knob.values] if numbers else list(range(len(knob.values)))
        places = np.array(raw, np.float64)
        span = float(np.ptp(places))
        result.append((places - places.min()) / span if span else np.zeros(1))
    return result
