"""Choose the factors of a sum of products that are multiplied in a separate stage.

A product of more than two factors costs one multiplication per additional factor and point, and a
factor that is an expression is computed again for every use. A precomputed pair costs only the
points of its own axes. Pairs are chosen greedily one after the other, as in opt_einsum (Smith and
Gray, JOSS 3(26), 2018, doi:10.21105/joss.00753). If the workload permits it, this includes pairs
for which a factor is moved out of a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod

from ...algebra.scalar import Scalar, loads, vars_of
from ...form import Form
from ...hardware import FMA_PIPES, LOAD_PORTS
from ...rewrites import PrecomputeFactors
from ...rewrites.precompute_factors import factors_of, kept_axes, may_distribute, summed_axes
from ...workload.tensors import Axis, Stage
from ...workload.workload import Workload
from ..analysis.stages import math_calls

ELEMENT_COST = FMA_PIPES + FMA_PIPES / LOAD_PORTS
"""Cost of storing an element of an intermediate tensor (one vector per cycle) and loading it again,
in operations of a reduction."""


def precompute_factors(form: Form) -> Form:
    """Return the form with precomputed factors in all stages for which this is profitable."""
    return form.apply_until_fixpoint(_gains)


def _gains(workload: Workload) -> Iterator[PrecomputeFactors]:
    for stage in workload.stages:
        factors = factors_of(stage)
        chosen = _costly_factor(workload, stage, factors) or _pair(workload, stage, factors)
        if chosen is not None:
            yield PrecomputeFactors(stage.name, chosen)


def _costly_factor(
    workload: Workload, stage: Stage, factors: Sequence[Scalar]
) -> tuple[int, ...] | None:
    """Find a factor that calls math functions and would be computed again at most points. Return
    the numbers of this factor and of all factors that have no other axes. Return None if there is
    no such factor."""
    points = _points(stage, factors)
    for factor in factors:
        own = _points(stage, [factor])
        dense = own <= 2 * sum(workload.tensors[ld.tensor].elements for ld in loads(factor))
        if math_calls(factor) and points >= ELEMENT_COST * own and dense:
            return tuple(n for n, f in enumerate(factors) if vars_of(f) <= vars_of(factor))
    return None


def _pair(workload: Workload, stage: Stage, factors: Sequence[Scalar]) -> tuple[int, ...] | None:
    """Return the two factors whose precomputed product saves the most work, or None if no pair
    saves work."""
    least = float(_points(stage, factors)) * (len(factors) - 1)
    best: tuple[int, ...] | None = None
    for pair in combinations(range(len(factors)), 2) if len(factors) > 2 else ():
        both = [factors[n] for n in pair]
        rest = [factor for n, factor in enumerate(factors) if n not in pair]
        summed = summed_axes(stage, both, rest)
        if summed and not may_distribute(workload, stage):
            continue
        cost = _points(stage, both) + _left(stage, both, rest, summed)
        if cost < least:
            least, best = cost, pair
    return best


def _left(
    stage: Stage, both: Sequence[Scalar], rest: Sequence[Scalar], summed: Sequence[Axis]
) -> float:
    """Return the multiply-adds that remain if the product of `both`, summed over `summed`, is
    stored."""
    if _names(rest).isdisjoint(axis.name for axis in stage.reduce_axes):
        return prod(axis.extent for axis in stage.axes)  # the remaining factors multiply the sum
    names = _names([*both, *rest]) - {axis.name for axis in summed}
    kept = prod(axis.extent for axis in kept_axes(stage, both, rest))
    return ELEMENT_COST * kept + len(rest) * _extent(stage, names)


def _points(stage: Stage, factors: Sequence[Scalar]) -> int:
    return _extent(stage, _names(factors))


def _names(factors: Sequence[Scalar]) -> set[str]:
    return {name for factor in factors for name in vars_of(factor)}


def _extent(stage: Stage, names: set[str]) -> int:
    return prod(a.extent for a in stage.all_axes if a.name in names)
