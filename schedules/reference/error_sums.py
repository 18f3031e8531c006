"""The error bound of reductions, from properties of their terms.

The worst case of a sum of K terms is gamma_K = (1 + u)**K - 1 times the sum of magnitudes. Three
tighter bounds are used:

- No error if the terms are multiples of a power of two and small enough (`error_exact`).
- The worst case for the nonzero terms only, since adding zero is exact.
- For inputs drawn from continuous distributions, an error that grows with sqrt(K), since roundings
  have both signs: `DEVIATIONS` * sqrt(K) * u times the sum of magnitudes. This is the probabilistic
  bound of Higham and Mary, SIAM J. Sci. Comput. 41 (2019), A2815, theorem 2.4 and section 3. It
  does not hold for equal terms or terms below the last place of the sum. The terms of sampled
  elements are therefore summed in the stage's type, in order and sorted by size, and the bound is
  at least `MARGIN` times the largest error measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import assert_never

import numpy as np

from ..algebra.scalar import Reducer, chain_terms
from ..arrays import distinct
from ..dtypes import DType
from ..workload.tensors import Elementwise, Reduction, Scan, Stage, TupleReduction
from .error_exact import common_step, exact_sums, sample
from .error_nodes import BoundedTensors, bounded_value, joint_step, signed_sum, term_of_sum
from .error_rounding import (
    Errors,
    as_array,
    or_overflow,
    plus,
    smallest_step,
    sum_errors,
    unit_roundoff,
)
from .error_special import Bounded, at_specials, finite_size, is_open, special_total, sure_factors
from .evaluate import value_of
from .math import Array
from .reads import AxisCoordinates, IterationBox, full_box

PARTS = {Reducer.SUM: 4, Reducer.PROD: 5, Reducer.MAX: 2, Reducer.MIN: 2}
"""Number of arrays that `box_parts` returns for each reducer."""
MARGIN = 8.0
DEVIATIONS = 8.0
FEW_TERMS = 256
"""Sums with fewer terms use the worst-case bound."""
_SPARSE = 0.75
"""Nonzero terms are counted if at least this fraction of a sample of the terms is zero."""
_SAMPLED_TERMS = 1 << 19
_MOST_SAMPLED = 24


@dataclass(frozen=True, slots=True)
class Terms:
    """Which properties of the terms of a sum the error analysis computes."""

    steps: bool
    """Whether an s is computed such that all terms are multiples of 2**s."""
    counts: bool
    """Whether the nonzero terms are counted."""


def terms_to_look_for(
    stage: Stage, reducer: Reducer, box: IterationBox, env: BoundedTensors
) -> Terms:
    """Return the properties to compute in all boxes of a reduction, judged by the terms in
    `box`."""
    if reducer is not Reducer.SUM or not stage.tensor.dtype.is_float:
        return Terms(steps=False, counts=False)
    parts = [v for _, (v, _) in _terms(stage, box, env)]
    zeros = min(float(np.mean(sample(v) == 0)) for v in parts)
    return Terms(joint_step(parts, stage.tensor.dtype) is not None, zeros >= _SPARSE)


def is_sparse(left: Array, right: Array) -> bool:
    """Return whether most products of two factors are zero, judged by a sample of each factor."""
    return max(float(np.mean(sample(x) == 0)) for x in (left, right)) >= _SPARSE


def joint_steps(left: Array, right: Array, dtype: DType) -> int | None:
    """Return an s such that all products of the two factors are multiples of 2**s, or None if a
    factor has no `common_step`."""
    a = common_step(left, dtype)
    b = None if a is None else common_step(right, dtype)
    return None if a is None or b is None else a + b


def least(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _terms(
    stage: Stage, box: IterationBox, env: BoundedTensors
) -> list[tuple[int, tuple[Array, Errors]]]:
    return [(sign, term_of_sum(t, box, env)) for sign, t in chain_terms(stage.body)]


def box_parts(
    stage: Stage, reducer: Reducer, box: IterationBox, env: BoundedTensors, wanted: Terms
) -> tuple[Array, list[Errors], int | None]:
    """Return the values of the body over `box`, arrays for `combined_errors`, and an s such that
    all terms are multiples of 2**s (or None).

    The caller reduces each array by `reducer`, too. For a sum, the arrays are the magnitudes, the
    errors, the counts of nonzero terms, and the NaN or infinite terms. For other reducers, let t be
    a term and e its error. For a product: |t|, |t| + e, max(|t| + e, 1) and both results of
    `sure_factors`. For max and min: t + e and t - e. An array None means zeros.
    """
    if reducer is Reducer.SUM:
        terms = _terms(stage, box, env)
        value = signed_sum(terms)
        magnitude, count = np.asarray(0.0), np.asarray(0.0)
        errors = plus(*(e for _, (_, e) in terms))
        for _, (v, e) in terms:
            magnitude = magnitude + finite_size(v)
            if wanted.counts:
                count = count + ((v != 0) | (as_array(e) != 0))
        values = [v for _, (v, _) in terms]
        step = joint_step(values, stage.tensor.dtype) if wanted.steps else None
        special = special_total(terms)
        given = special if special.ndim else None
        return value, [magnitude, errors, count if wanted.counts else None, given], step
    value, errors = bounded_value(stage.body, box, env)
    exact = value.astype(np.float64, copy=False)
    match reducer:
        case Reducer.PROD:
            size = finite_size(exact)
            reach = size + as_array(errors)
            sure = sure_factors((exact, errors))
            return value, [size, reach, np.maximum(reach, 1.0), *sure], None
        case Reducer.MAX | Reducer.MIN:
            if errors is None:
                return value, [exact, exact], None
            errors = np.where(is_open(errors), np.nan, errors)  # undetermined
            return value, [exact + errors, exact - errors], None
        case _:
            assert_never(reducer)


def combined_errors(
    stage: Stage,
    reducer: Reducer,
    values: Array,
    parts: list[Array],
    wanted: Terms,
    step: int | None,
    measured: float | None,
) -> Array:
    """Return the errors of a stage's elements `values`. `parts` are the arrays of `box_parts`,
    reduced over all boxes, or accumulated along the axis of a scan. All terms are multiples of
    2**step, unless `step` is None. `measured` is the result of `measured_growth`."""
    dtype = stage.tensor.dtype
    count = terms_combined(stage)
    match reducer:
        case Reducer.SUM:
            magnitude, errors, nonzero, special = parts
            roundings = count * len(chain_terms(stage.body))
            growth: float | Array = growth_of(dtype, roundings)
            if measured is not None:
                growth = np.minimum(growth, measured)
            if wanted.counts:
                growth = np.minimum(growth, growth_of(dtype, np.maximum(nonzero - 1, 0)))
            exact = exact_sums(step, magnitude, errors, dtype)
            bound = sum_errors(dtype, growth, magnitude, errors, tiny=0.0, exact=exact)
            return as_array(
                at_specials(
                    values,
                    bound,
                    lambda s: np.isnan(s[0]) | np.isfinite(as_array(s[1])),
                    (special, bound),
                )
            )
        case Reducer.PROD:
            return _product_errors(dtype, count, values, parts)
        case Reducer.MAX | Reducer.MIN:
            wide = values.astype(np.float64, copy=False)
            # Equality is tested first, as inf - inf is NaN.
            above = np.where(parts[0] == wide, 0.0, parts[0] - wide)
            return np.maximum(above, np.where(parts[1] == wide, 0.0, wide - parts[1]))
        case _:
            assert_never(reducer)


def terms_combined(stage: Stage) -> Array:
    """Return the number of body values that are combined for each element, in a shape that
    broadcasts to that of the tensor: a scan combines one more at each position."""
    match stage.kind:
        case Elementwise() | Reduction() | TupleReduction():
            return np.asarray(prod(a.extent for a in stage.reduce_axes))
        case Scan(_, dim, reverse):
            extent = stage.axes[dim].extent
            number = np.arange(1, extent + 1)
            others = len(stage.axes) - dim - 1
            return (number[::-1] if reverse else number).reshape(extent, *(1,) * others)
        case _:
            assert_never(stage.kind)


def _product_errors(dtype: DType, count: Array, values: Array, parts: list[Array]) -> Array:
    """Return the bound of products of `count` factors from the reduced arrays of `box_parts`."""
    exact_size, reach, partial, special, clear = parts
    growth = growth_of(dtype, count)
    errors = (reach - exact_size) + growth * reach + count * 2.0**-52 * reach
    # Further factors may multiply a partial product that underflowed or overflowed.
    errors = errors + np.where(reach > 0, count * smallest_step(dtype) * partial, 0.0)
    bound = or_overflow(dtype, partial, errors)

    def is_sure(given: Bounded, known: Bounded) -> Array:
        return np.asarray(np.isnan(given[0]) | (np.isfinite(as_array(given[1])) & (known[0] == 1)))

    return as_array(at_specials(values, bound, is_sure, (special, bound), (clear, None)))


def growth_of(dtype: DType, roundings: Array) -> Array:
    """Return `rounding_growth` for an array `roundings`."""
    if not dtype.is_float:
        return np.zeros(np.shape(roundings))
    return np.asarray(np.expm1(roundings * np.log1p(unit_roundoff(dtype) + 2.0**-52)))


def measured_growth(
    stage: Stage, places: Mapping[str, AxisCoordinates], env: BoundedTensors
) -> float | None:
    """Return the probabilistic error of a sum of continuous inputs, relative to the sum of
    magnitudes. Return None if the worst-case bound must be used.

    It is computed from up to 24 sampled elements, with half a million terms in total.
    """
    dtype = stage.tensor.dtype
    count = prod(a.extent for a in stage.reduce_axes) * len(chain_terms(stage.body))
    unit = unit_roundoff(dtype)
    if not stage.reduces_by(Reducer.SUM) or not dtype.is_float or count < FEW_TERMS:
        return None
    if count * unit > 1 / 16 or dtype.is_narrow_float or count > 8 * _SAMPLED_TERMS:
        return None  # terms may be below the last place of the sum
    worst = 0.0
    most = max(min(_SAMPLED_TERMS // count, _MOST_SAMPLED), 1)
    for box in _sampled_boxes(stage, places, most):
        parts = [(sign, value_of(t, box, env.tensors)) for sign, t in chain_terms(stage.body)]
        terms = np.stack([sign * np.broadcast_to(v, box.extents).reshape(-1) for sign, v in parts])
        worst = max(worst, _met(terms.T.reshape(-1), dtype))
    return max(MARGIN * worst, DEVIATIONS * sqrt(count) * unit)


def _met(terms: Array, dtype: DType) -> float:
    """Sum `terms` in two orders in type `dtype`. Return the larger error relative to the sum of
    magnitudes, or infinity if a term is not finite."""
    size = float(np.abs(terms).sum())
    if not np.isfinite(size):
        return np.inf
    if size == 0.0:
        return 0.0
    narrow = terms.astype(dtype.numpy)
    right = float(narrow.astype(np.float64).sum())
    orders = (narrow, narrow[np.argsort(-np.abs(narrow), kind="stable")])
    return max(abs(float(np.add.accumulate(o)[-1]) - right) for o in orders) / size


def _sampled_boxes(
    stage: Stage, places: Mapping[str, AxisCoordinates], count: int
) -> list[IterationBox]:
    """Return up to `count` boxes, each with all terms of one output element. The elements are
    evenly spread over the output."""
    shape = [a.extent for a in stage.axes]
    total = prod(shape)
    spread = distinct(np.linspace(0, total - 1, min(count, total)).astype(np.int64))
    whole = full_box(stage.all_axes, places)
    extents = (*((1,) * len(shape)), *(a.extent for a in stage.reduce_axes))
    starts = [np.unravel_index(int(p), shape) if shape else () for p in spread]
    zeros = (0,) * len(stage.reduce_axes)
    return [
        replace(whole, starts=(*(int(i) for i in start), *zeros), extents=extents)
        for start in starts
    ]
