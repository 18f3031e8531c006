"""Training of the model of the database: XGBoost learns what the prior gets wrong.

Only differences between candidates of one workload matter to a search, so the errors of each group
(one workload on one target) are measured from the median error of its faster half. This also
cancels a constant factor between machines. Candidates weigh more the faster they are, because the
search has to order the fast ones, and groups weigh alike however many trials they have.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray

from .correction import FEATURES, MAX_CORRECTION, Correction
from .forest import Columns, Forest, Tree, forest_of
from .metrics import spearman


@dataclass(frozen=True, slots=True)
class Growth:
    """The number of trees, and the share of its correction that each tree adds."""

    rounds: int = 120
    eta: float = 0.05


QUICK = Growth(40, 0.15)
"""The growth of trees that only choose the weights of other machines."""

PARAMETERS = {
    "max_depth": 4,
    "subsample": 0.7,
    "colsample_bynode": 0.5,
    "min_child_weight": 5,
    "tree_method": "hist",
    "nthread": 1,
    "seed": 0,
    "base_score": 0.0,
    "verbosity": 0,
}

FOLDS = 5
"""Parts of the cross-validation. Workloads of one structure are in one part."""

SHARES = (0.25, 0.5, 0.75, 1.0)

MIN_CORRELATION = 0.1
"""Rank correlation of held-out predictions and errors that a model must surely exceed."""

SOURCE_WEIGHTS = (0.25, 1.0)
"""Weights that are tried for the trials of another machine, relative to those of the target."""

MOST_SOURCES = 3
"""Number of other machines whose trials are tried; each takes as long as half of the training."""

UNTESTED_SHARE = 0.5
"""Share of a model that was not tested on the target, because it has too few trials."""

PERMUTATIONS = 8
"""Random orders of the predictions, with which a share is compared."""

MIN_GROUPS, MIN_SAMPLES = 3, 48
"""Groups and samples below which nothing is learned."""

LEAST_WEIGHT = 0.05
"""Weight of a slow candidate relative to the fastest one."""


class TooFewSamplesError(ValueError):
    """There are too few samples to train on. The message is one line for users."""


@dataclass(frozen=True)
class TrialGroup:
    """The N trials of one workload on one target. `family`: groups with an equal family may
    resemble each other. `columns` (F, N): the features. `log2_prior` and `log2_secs` (N,):
    predicted and measured time. `weight`: weight of the group, 1 for the target itself. `origin`:
    name of another target, "" for the target itself."""

    family: str
    columns: Columns
    log2_prior: FloatArray
    log2_secs: FloatArray
    weight: float = 1.0
    origin: str = ""

    @property
    def errors(self) -> FloatArray:
        """The errors of the prior in log2 units, shape (N,), from their median over the faster
        half."""
        errors = self.log2_secs - self.log2_prior
        faster = self.log2_secs <= np.median(self.log2_secs)
        centred = errors - np.median(errors[faster])
        return np.asarray(np.clip(centred, -MAX_CORRECTION, MAX_CORRECTION))

    @property
    def weights(self) -> FloatArray:
        """Weights of the candidates, shape (N,), with the sum `weight`."""
        weights = np.clip(2.0 ** (self.log2_secs.min() - self.log2_secs), LEAST_WEIGHT, 1.0)
        return np.asarray(weights * self.weight / weights.sum())


@dataclass(frozen=True, slots=True)
class Quality:
    """What a model was trained on, and its errors on groups left out of the training.

    `groups` and `samples`: their numbers; `families`: the number of structures; `weights`: the
    weights of other machines, by name. The errors are those on the target, or on other machines if
    the target has too few trials (`is_tested` is false then). `prior_error` and
    `model_error`: root mean squares of the weighted errors, in log2 units, of the prior and of the
    prior corrected by the whole prediction. `correlation`: mean rank correlation, over the groups,
    of the prediction and the prior's error. `prior_cost` and `model_cost`: mean log2 of the time of
    the candidate predicted to be fastest over the fastest, for the prior and for the prior
    corrected by `share` of the prediction.
    """

    groups: int
    samples: int
    families: int
    prior_error: float
    model_error: float
    correlation: float
    prior_cost: float
    model_cost: float
    share: float
    weights: dict[str, float] = field(default_factory=dict)
    is_tested: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def train(groups: Sequence[TrialGroup]) -> tuple[Correction, Quality]:
    """Return a model for one target, and its quality on groups left out.

    The weight of each other machine is the one that helps on the target's groups left out of the
    training, possibly 0. If the target has too few groups, the given weights are used, and only
    `UNTESTED_SHARE` of the share that helps on other machines.

    Raise TooFewSamplesError if there is too little to learn from, ImportError without XGBoost.
    """
    groups = [group for group in groups if len(group.log2_secs) > 1]
    own = [group for group in groups if not group.origin]
    is_tested = _suffice(own)
    if is_tested:
        weights = source_weights(own, [group for group in groups if group.origin])
        groups = own + [
            replace(group, weight=weights[group.origin])
            for group in groups
            if weights.get(group.origin)
        ]
    else:
        own = groups = [group for group in groups if group.weight]
        weights = {group.origin: group.weight for group in groups if group.origin}
    samples = sum(len(group.log2_secs) for group in groups)
    if not _suffice(groups):
        raise TooFewSamplesError(
            f"{samples} trials of {len(groups)} workloads are too few to learn from: "
            f"{MIN_SAMPLES} of {MIN_GROUPS} are needed"
        )
    held = _held_out(own, [group for group in groups if group.origin and is_tested])
    share = best_share(own, held) * (1.0 if is_tested else UNTESTED_SHARE)
    by_sample = np.concatenate([group.weights for group in own])
    errors = np.concatenate([group.errors for group in own])
    missed = np.concatenate([g.errors - p for g, p in zip(own, held, strict=True)])
    quality = Quality(
        groups=len(groups),
        samples=samples,
        families=len({group.family for group in groups}),
        prior_error=_root_mean_square(errors, by_sample),
        model_error=_root_mean_square(missed, by_sample),
        correlation=float(
            np.average(_correlations(own, held), weights=[group.weight for group in own])
        ),
        prior_cost=_mean_cost(own, held, 0.0),
        model_cost=_mean_cost(own, held, share),
        share=share,
        weights=weights,
        is_tested=is_tested,
    )
    return Correction(_grown(groups), share), quality


def _suffice(groups: Sequence[TrialGroup]) -> bool:
    samples = sum(len(group.log2_secs) for group in groups)
    return len(groups) >= MIN_GROUPS and samples >= MIN_SAMPLES


def source_weights(own: Sequence[TrialGroup], others: Sequence[TrialGroup]) -> dict[str, float]:
    """Return the weight of each origin of `others`: the one with which the predictions for `own`
    groups left out of the training surely correlate better with the errors, or else 0."""
    origins = list(dict.fromkeys(group.origin for group in others))
    weights = dict.fromkeys(origins, 0.0)
    shares = np.array([group.weight for group in own])
    shares /= shares.sum()

    def correlations(tried: dict[str, float]) -> FloatArray:
        lent = [replace(g, weight=tried[g.origin]) for g in others if tried[g.origin]]
        return _correlations(own, _held_out(own, lent, QUICK))

    before = correlations(weights) if origins else np.empty(0)
    for origin in origins[:MOST_SOURCES]:
        for weight in SOURCE_WEIGHTS:
            tried = {**weights, origin: weight}
            after = correlations(tried)
            if _less_errors(shares, after - before, 1.0) <= 0.0:
                break
            weights, before = tried, after
    return weights


def _held_out(
    own: Sequence[TrialGroup], lent: Sequence[TrialGroup], growth: Growth = Growth()
) -> list[FloatArray]:
    """Return the prediction for each of `own` by trees grown without its family, but with all
    `lent` groups: each (N,)."""
    fold = folds([group.family for group in own])
    held: list[FloatArray] = [np.empty(0)] * len(own)
    for number in np.unique(fold):
        others = [g for g, f in zip(own, fold, strict=True) if f != number]
        forest = _grown([*others, *lent], growth)
        for place in np.flatnonzero(fold == number).tolist():
            held[place] = _clipped(forest.predict(own[place].columns))
    return held


def folds(families: Sequence[str]) -> IntArray:
    """Return the number of the fold of each group, shape (G,). Groups of one family are in one
    fold, unless there are fewer than `MIN_GROUPS` families: then each group is separate."""
    names = list(dict.fromkeys(families))
    if len(names) < MIN_GROUPS:
        return np.arange(len(families)) % FOLDS
    return np.array([names.index(family) % FOLDS for family in families], np.int64)


def best_share(groups: Sequence[TrialGroup], predicted: Sequence[FloatArray]) -> float:
    """Return the share of the held-out predictions, one array (N,) per group, that helps most: 0
    unless the predictions surely correlate with the errors, and lower the mean cost, compared with
    the prior and with predictions that were permuted within each group.

    The permutations are needed because a search chose the trials: it found the late ones in spite
    of the prior, so among them any change of the prior's order is a gain. The correlation is
    needed because the cost of a few choices varies much.
    """
    weights = np.array([group.weight for group in groups])
    weights /= weights.sum()
    if _less_errors(weights, _correlations(groups, predicted), 2.0) <= MIN_CORRELATION:
        return 0.0
    rng = np.random.default_rng(0)
    permuted = [[rng.permutation(own) for own in predicted] for _ in range(PERMUTATIONS)]
    before = _costs(groups, predicted, 0.0)
    best, most = 0.0, 0.0
    for share in SHARES:
        after = _costs(groups, predicted, share)
        chance = np.mean([_costs(groups, others, share) for others in permuted], axis=0)
        gain = min(_less_errors(weights, gains, 0.5) for gains in (before - after, chance - after))
        if gain > most:
            best, most = share, gain
    return best


def _correlations(groups: Sequence[TrialGroup], predicted: Sequence[FloatArray]) -> FloatArray:
    """Return the rank correlation of predictions and errors of each group, shape (G,); 0 if it is
    undefined."""
    found = [spearman(own, group.errors) for own, group in zip(predicted, groups, strict=True)]
    return np.array([0.0 if one is None else one for one in found])


def _less_errors(weights: FloatArray, values: FloatArray, count: float) -> float:
    """Return the weighted mean of `values` (G,) minus `count` standard errors of that mean."""
    mean = float(weights @ values)
    return mean - count * sqrt(float(weights**2 @ (values - mean) ** 2))


def _costs(
    groups: Sequence[TrialGroup], predicted: Sequence[FloatArray], share: float
) -> FloatArray:
    """Return the cost of each group, shape (G,), if `share` of the prediction is used."""
    return np.array(
        [
            cost_of_choice(group.log2_prior + share * own, group.log2_secs)
            for group, own in zip(groups, predicted, strict=True)
        ]
    )


def cost_of_choice(predicted: FloatArray, measured: FloatArray) -> float:
    """Return log2 of the time of the candidate predicted to be fastest over the fastest time; the
    expectation if each candidate is available with probability one half, which varies less."""
    order = np.argsort(predicted, kind="stable")
    chances = 0.5 ** (1.0 + np.arange(len(order)))
    above = measured[order] - measured.min()
    return float((chances * above).sum() / chances.sum())


def _mean_cost(
    groups: Sequence[TrialGroup], predicted: Sequence[FloatArray], share: float
) -> float:
    weights = [group.weight for group in groups]
    return float(np.average(_costs(groups, predicted, share), weights=weights))


def _root_mean_square(errors: FloatArray, weights: FloatArray) -> float:
    return float(np.sqrt(np.average(errors**2, weights=weights)))


def _clipped(errors: FloatArray) -> FloatArray:
    return np.asarray(np.clip(errors, -MAX_CORRECTION, MAX_CORRECTION))


def _grown(groups: Sequence[TrialGroup], growth: Growth = Growth()) -> Forest:
    # Start-up: XGBoost takes a second to import, and only training needs it.
    xgboost: Any = importlib.import_module("xgboost")
    weights = np.concatenate([group.weights for group in groups])
    data = xgboost.DMatrix(
        np.concatenate([group.columns for group in groups], axis=1).T,
        label=np.concatenate([group.errors for group in groups]),
        weight=weights * len(weights) / weights.sum(),
        nthread=1,
    )
    booster = xgboost.train({**PARAMETERS, "eta": growth.eta}, data, growth.rounds)
    return forest_of_booster(booster)


def forest_of_booster(booster: Any, features: tuple[str, ...] = FEATURES) -> Forest:
    """Return the forest of an XGBoost booster for squared errors."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    trees = [
        Tree(
            tree["left_children"],
            tree["right_children"],
            tree["split_indices"],
            tree["split_conditions"],
        )
        for tree in learner["gradient_booster"]["model"]["trees"]
    ]
    base = json.loads(learner["learner_model_param"]["base_score"])
    return forest_of(features, float(base[0] if isinstance(base, list) else base), trees)
