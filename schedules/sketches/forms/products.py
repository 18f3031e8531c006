"""Which factors of a sum of products to multiply beforehand: the steps that cost least.

A product of more than two factors costs a multiplication more for each, every time; a factor
that is itself computed is computed again for every element that uses it. Taken apart, each pair
costs only the points of its own axes. All orders of few factors are tried, those in which a factor
leaves a sum where the workload permits that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

from ...algebra.scalar import Scalar, loads, vars_of
from ...errors import ScheduleError
from ...form import Form
from ...rewrites import Beforehand
from ...rewrites.product import factors_of, kept_axes, may_distribute, summed_axes
from ...workload.tensors import Stage
from ...workload.workload import Workload
from ..analysis import math_calls

MOST_FACTORS = 5
"""Longer products are left as they are: the orders become too many."""

LEAST_GAIN = 1.25
"""How many times cheaper the steps must be."""

ELEMENT_COST = 4.0
"""Writing and reading an element of an intermediate tensor, in operations of a reduction."""


LEAST_REUSE = 8
"""How often a factor with functions in it would be computed, for it to be kept."""


def beforehand(form: Form) -> Form:
    """The form with the steps for all its stages that gain by them."""
    while (found := _first_gain(form)) is not None:
        form = found
    return form


def _first_gain(form: Form) -> Form | None:
    workload = form.workload
    for stage in workload.stages:
        factors = factors_of(stage)
        if not 2 <= len(factors) <= MOST_FACTORS:
            continue
        chosen = _costly_factor(workload, stage, factors) or _pair(workload, stage, factors)
        if chosen is None:
            continue
        try:
            return form.after(Beforehand(stage.name, chosen))
        except ScheduleError:
            continue
    return None


def _costly_factor(
    workload: Workload, stage: Stage, factors: Sequence[Scalar]
) -> tuple[int, ...] | None:
    """A factor with functions in it that most points would compute again, and those that depend
    on nothing else."""
    points = _points(stage, factors)
    for factor in factors:
        own = _points(stage, [factor])
        dense = own <= 2 * sum(workload.tensors[ld.tensor].elements for ld in loads(factor))
        if math_calls(factor) and points >= LEAST_REUSE * own and dense:
            return tuple(n for n, f in enumerate(factors) if vars_of(f) <= vars_of(factor))
    return None


def _pair(workload: Workload, stage: Stage, factors: Sequence[Scalar]) -> tuple[int, int] | None:
    """The first two factors to be multiplied in the cheapest order, if that gains enough."""
    if len(factors) < 3:
        return None
    whole = float(_points(stage, factors)) * (len(factors) - 1)
    groups = tuple((factor,) for factor in factors)
    cost, pair = _cheapest(stage, groups, may_distribute(workload, stage))
    return pair if cost * LEAST_GAIN <= whole else None


Group = tuple[Scalar, ...]


def _cheapest(
    stage: Stage, groups: tuple[Group, ...], distributes: bool
) -> tuple[float, tuple[int, int] | None]:
    """The least cost of multiplying `groups` in pairs, in multiply-adds, and the first pair; none
    that has a sum of its own unless the step `distributes`."""
    if len(groups) == 2:
        return float(_step_points(stage, groups, (0, 1))), None
    best: tuple[float, tuple[int, int] | None] = (float("inf"), None)
    for a, b in combinations(range(len(groups)), 2):
        rest = tuple(group for n, group in enumerate(groups) if n not in (a, b))
        others = [factor for group in rest for factor in group]
        joined = (*groups[a], *groups[b])
        if not distributes and summed_axes(stage, joined, others):
            continue
        cost = float(_step_points(stage, groups, (a, b)))
        if _names(others).isdisjoint(axis.name for axis in stage.reduce_axes):
            cost += prod(axis.extent for axis in stage.axes)  # what is left is done with the sum
        else:
            kept = prod(axis.extent for axis in kept_axes(stage, joined, others))
            cost += ELEMENT_COST * kept + _cheapest(stage, (joined, *rest), distributes)[0]
        if cost < best[0]:
            best = (cost, (a, b))
    return best


def _step_points(stage: Stage, groups: Sequence[Group], pair: tuple[int, int]) -> int:
    """Points of the product of two groups, each summed over what it alone depends on."""
    names: set[str] = set()
    for number in pair:
        others = [f for n, group in enumerate(groups) if n != number for f in group]
        group = groups[number]
        gone = summed_axes(stage, group, others) if len(group) > 1 else ()
        names |= _names(group) - {axis.name for axis in gone}
    return _extent(stage, names)


def _points(stage: Stage, factors: Sequence[Scalar]) -> int:
    return _extent(stage, _names(factors))


def _names(factors: Sequence[Scalar]) -> set[str]:
    return {name for factor in factors for name in vars_of(factor)}


def _extent(stage: Stage, names: set[str]) -> int:
    return prod(a.extent for a in (*stage.axes, *stage.reduce_axes) if a.name in names)
