"""How much of the difference between trials goes with which setting.

For each knob the trials are grouped by its value, and the share of the variance of the ranks of
their times that lies between the groups is taken (eta squared of Kruskal and Wallis, 1952: ranks,
as one slow trial would else be all the variance there is). Groups of few trials differ by chance
alone: of k groups among n trials the share would be (k - 1) / (n - 1) in the mean if the
values were dealt out at random, and that much is taken off (epsilon squared; Kelley 1935). It is
what goes together in the trials of one search, one knob at a time, and no proof of a cause: a
search that draws what it expects to be fast moves knobs together, and they share what they explain.
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
"""How many standard deviations of a normal distribution that is."""

LEAST_TRIALS = 12
"""Fewer tell chance from knobs too badly."""

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Importance:
    """One knob: the share of the variance that goes with it, 0 where chance may give as much, over
    how many `values` it was varied, and the one whose trials are the fastest in the median."""

    name: str
    share: float
    values: int
    best_value: str


def importances(trials: Sequence[tuple[Settings, float]]) -> list[Importance]:
    """The knobs that were varied, the most important first; empty where there is too little to say.
    `trials` are settings by names and seconds, of those that passed."""
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
    """What chance alone exceeds once in a hundred times: the quantile of chi squared, which the
    statistic follows then (Wilson and Hilferty, 1931)."""
    part = 2.0 / (9.0 * freedom)
    return freedom * (1.0 - part + ONE_IN_A_HUNDRED * math.sqrt(part)) ** 3


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in their order; equal ones share the mean of theirs."""
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value)) / 2 for value in values]


def _spread(values: Sequence[float]) -> float:
    """The sum of squares around the mean."""
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values)
