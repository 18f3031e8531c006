"""Importance of knobs: how much of the variation between trials each knob explains.

The trials are grouped by the value of one knob. The importance is the fraction of the variance of
the ranks of their times that lies between the groups (eta squared of Kruskal and Wallis, 1952).
Ranks are used because one slow trial would dominate the variance of times. For random values, k
groups of n trials would have the importance (k - 1) / (n - 1) on average, which is subtracted
(epsilon squared; Kelley 1935). The result is a correlation within the trials of one search, not a
causation: the search changes several knobs together, and these knobs share the explained variance.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

ONE_IN_A_HUNDRED = 2.326
"""The quantile of the normal distribution that is exceeded with probability 0.01."""

LEAST_TRIALS = 12
"""With fewer trials, chance and effects cannot be separated."""

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Importance:
    """One knob: its `share` of the variance (0 if chance may explain it), its number of `values`,
    and the value with the lowest median time."""

    name: str
    share: float
    values: int
    best_value: str


def importances(trials: Sequence[tuple[Settings, float]]) -> list[Importance]:
    """Return the knobs that vary, the most important first; none if there are too few trials.
    `trials` are (settings by name, seconds) of passed trials."""
    if len(trials) < LEAST_TRIALS:
        return []
    times = [secs for _, secs in trials]
    ranks = _ranks(times)
    whole = _spread(ranks)
    if whole <= 0.0:
        return []
    names = sorted({name for settings, _ in trials for name in settings})
    found = []
    for name in names:
        groups: defaultdict[str, list[float]] = defaultdict(list)
        for (settings, _), rank in zip(trials, ranks, strict=True):
            groups[str(settings.get(name, "-"))].append(rank)
        chance = (len(groups) - 1) / (len(ranks) - 1)
        if len(groups) < 2 or chance >= 1.0:
            continue
        between = 1.0 - sum(map(_spread, groups.values())) / whole
        share = (between - chance) / (1.0 - chance)
        if between * (len(ranks) - 1) <= _most_by_chance(len(groups) - 1):
            share = 0.0
        fastest = min(groups, key=lambda value: median(groups[value]))
        found.append(Importance(name, share, len(groups), fastest))
    return sorted(found, key=lambda one: (-one.share, one.name))


def _most_by_chance(freedom: int) -> float:
    """Return the value that chance exceeds with probability 0.01: the quantile of chi squared with
    `freedom` degrees of freedom (Wilson and Hilferty, 1931)."""
    part = 2.0 / (9.0 * freedom)
    return freedom * (1.0 - part + ONE_IN_A_HUNDRED * math.sqrt(part)) ** 3


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal values share the mean of their ranks."""
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value)) / 2 for value in values]


def _spread(values: Sequence[float]) -> float:
    """Return the sum of squared deviations from the mean."""
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values)
