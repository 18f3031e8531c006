"""How far a correct kernel may be from the exact result, element by element.

Running error analysis, stage by stage: every value travels with a bound on the distance between
what any legal schedule computes and the exact value. Legal means any order and grouping of a
sum, partial sums, and multiplication and addition fused or not; each operation rounds once in
its node's type. Inputs are exact.

Rules, with u the unit roundoff of the node's type and e(x) the bound carried by x:

- a + b, a * b, a / b: the propagated error, and u |result|; a chain of three or more additions
  may be regrouped, so it is bounded like a sum.
- a sum of K terms t: sum e(t) + ((1 + u)**K - 1) sum |t|; Higham, "Accuracy and Stability of
  Numerical Algorithms", 2nd ed., section 4.2.
- monotone functions: the larger change of f at x - e and x + e, and `MATH_ULPS` of the result.
  Floor, truncation and rounding to bf16 are monotone too: their bound is the jump they make
  if an integer (or a tie) lies within e of x, and zero otherwise.
- a comparison whose operands are closer than their errors may go either way: a select on it is
  bounded by the distance to the side not taken.
- where a result may overflow, or divides by something that may be zero, the bound is infinite.

The reference itself is computed in float64, so u includes its roundings as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from .error_nodes import MATH_ULPS, Bounded, BoundedTensors, bounded_value, chain_terms, signed_sum
from .error_rounding import (
    Errors,
    as_array,
    dense,
    or_overflow,
    plus,
    rounding_growth,
    smallest_step,
    sum_errors,
)
from .exactness import exact_inputs_range
from .reference import MAX_BOX_POINTS, evaluate_stage, load_inputs
from .reference_contract import Contraction, contract, output_slices, pieces, recognise, side_box
from .reference_math import Array, combiner, reduce, value_dtype
from .reference_reads import Box, full_box, leading_tiles
from .scalar import Reducer, Scalar, loads, walk
from .workload import Stage, Workload

__all__ = ["MATH_ULPS", "evaluate_with_bound", "exact_inputs_range"]


def evaluate_with_bound(
    workload: Workload, inputs: Sequence[Array], exact_stages: Collection[str] = ()
) -> list[tuple[Array, Array]]:
    """`(values, bound)` of every output: a correct kernel's y has |y - values| <= bound.

    `inputs` as for `reference.evaluate`; values are its values up to float64 rounding, bounds
    are float64 arrays of the same shape. `exact_stages` names stages that are known to be free
    of rounding for these inputs, see `exactness.value_ranges`. An infinite bound says that
    nothing can be promised (overflow, a root of something that may be negative). Integer values
    are exact modulo 2**bits; their bound is zero unless they come from floats.
    """
    env = BoundedTensors(
        dict(load_inputs(workload, inputs)), {t.name: None for t in workload.inputs}
    )
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            known = stage.name in exact_stages or _is_exact(stage, env.errors)
            values, errors = (
                (evaluate_stage(stage, env.tensors), None) if known else _stage(stage, env)
            )
            env.tensors[stage.name], env.errors[stage.name] = values, errors
    return [(env.tensors[n], dense(env.errors[n], env.tensors[n].shape)) for n in workload.outputs]


def _stage(stage: Stage, env: BoundedTensors) -> Bounded:
    plan = recognise(stage)
    found = None if plan is None else _contracted(stage, plan, env)
    values, errors = _by_boxes(stage, env) if found is None else found
    # The comparison of float64 sums is itself rounded, far below u.
    errors = np.nan_to_num(errors * (1 + 2.0**-30), copy=False, nan=np.inf, posinf=np.inf)
    return values, errors if errors.any() else None


def _is_exact(stage: Stage, errors: Mapping[str, Errors]) -> bool:
    """Whether no float and no inexact tensor is involved."""
    integers = all(not node.dtype.is_float for node in walk(stage.body))
    return integers and all(errors[ld.tensor] is None for ld in loads(stage.body))


def _by_boxes(stage: Stage, env: BoundedTensors) -> tuple[Array, Array]:
    """The body over boxes of all axes; see `reference._by_boxes`."""
    outer = len(stage.axes)
    shape, dtype = stage.tensor.shape, stage.tensor.dtype
    dims = tuple(range(outer, outer + len(stage.reduce_axes)))
    values = np.empty(shape, value_dtype(dtype))
    parts = [np.empty(shape) for _ in range(_PARTS[stage.reducer])]
    for box in leading_tiles(full_box((*stage.axes, *stage.reduce_axes)), MAX_BOX_POINTS):
        where = box.slices[:outer]
        first = not any(box.starts[outer:])
        value, new_parts = _box_parts(stage, box, env)
        if stage.reducer is None:
            values[where] = np.broadcast_to(value, box.extents)
            parts[0][where] = np.broadcast_to(new_parts[0], box.extents)
            continue
        partial = reduce(stage.reducer, np.broadcast_to(value, box.extents), dims)
        combine = combiner(stage.reducer.op, partial.dtype)
        values[where] = partial if first else combine(values[where], partial)
        for total, part in zip(parts, new_parts, strict=True):
            partial = reduce(stage.reducer, np.broadcast_to(part, box.extents), dims)
            combine = combiner(stage.reducer.op, partial.dtype)
            total[where] = partial if first else combine(total[where], partial)
    return values, _combined_errors(stage, values, parts)


_PARTS = {None: 1, Reducer.SUM: 2, Reducer.PROD: 3, Reducer.MAX: 2, Reducer.MIN: 2}


def _box_parts(stage: Stage, box: Box, env: BoundedTensors) -> tuple[Array, list[Array]]:
    """The body over `box`, and what its reducer needs to know to bound the result.

    Each part is combined with the reducer's own operation: for a sum the terms' magnitudes and
    errors, for a product |t|, |t| + e and max(|t| + e, 1), for max and min t + e and t - e.
    """
    if stage.reducer is Reducer.SUM:
        terms = [(sign, bounded_value(t, box, env)) for sign, t in chain_terms(stage.body)]
        value = signed_sum(terms)
        magnitude: Array = np.asarray(0.0)
        for _, (v, _) in terms:
            magnitude = magnitude + np.abs(v.astype(np.float64))
        return value, [magnitude, as_array(plus(*(e for _, (_, e) in terms)))]
    value, errors = bounded_value(stage.body, box, env)
    e = as_array(errors)
    if stage.reducer is None:
        return value, [e]
    exact = value.astype(np.float64)
    if stage.reducer is Reducer.PROD:
        reach = np.abs(exact) + e
        return value, [np.abs(exact), reach, np.maximum(reach, 1.0)]
    return value, [exact + e, exact - e]


def _combined_errors(stage: Stage, values: Array, parts: list[Array]) -> Array:
    """The bound of a stage's elements from the combined parts of `_box_parts`."""
    dtype = stage.tensor.dtype
    if stage.reducer is None:
        return parts[0]
    count = prod(a.extent for a in stage.reduce_axes)
    if stage.reducer is Reducer.SUM:
        roundings = count * len(chain_terms(stage.body))
        return sum_errors(dtype, roundings, parts[0], parts[1], tiny=0.0)
    if stage.reducer is Reducer.PROD:
        exact, reach, partial = parts
        growth = rounding_growth(dtype, count)
        errors = (reach - exact) + growth * reach + count * 2.0**-52 * reach
        # A factor can follow a partial product that underflowed or overflowed.
        errors = errors + np.where(reach > 0, count * smallest_step(dtype) * partial, 0.0)
        return or_overflow(dtype, partial, errors)
    wide = values.astype(np.float64)
    # Equal first: the difference of two infinities is no number.
    above = np.where(parts[0] == wide, 0.0, parts[0] - wide)
    return np.maximum(above, np.where(parts[1] == wide, 0.0, wide - parts[1]))


def _contracted(stage: Stage, plan: Contraction, env: BoundedTensors) -> tuple[Array, Array] | None:
    """Values and bound by matrix multiplications; None where the plan does not hold."""
    dtype = stage.tensor.dtype
    shape = plan.stage.tensor.shape
    values, magnitude, errors = (np.zeros(shape, t) for t in (value_dtype(dtype), float, float))
    for piece in pieces(plan):
        left, left_errors = _factor(plan.left, side_box(plan.left_axes, piece), env)
        right, right_errors = _factor(plan.right, side_box(plan.right_axes, piece), env)
        where = output_slices(plan, piece)
        values[where] += contract(plan, piece, left, right)
        left_size, right_size = (np.abs(x.astype(np.float64)) for x in (left, right))
        magnitude[where] += contract(plan, piece, left_size, right_size)
        if left_errors is not None:
            reach = right_size if right_errors is None else right_size + right_errors
            errors[where] += contract(plan, piece, left_errors, reach)
        if right_errors is not None:
            errors[where] += contract(plan, piece, left_size, right_errors)
    if plan.masked and not (np.isfinite(values).all() and np.isfinite(errors).all()):
        return None
    count = prod(a.extent for a in stage.reduce_axes)
    # One rounding a product and one an addition; two more for factors multiplied beforehand.
    bound = sum_errors(dtype, count + 2, magnitude, errors, tiny=count * smallest_step(dtype))
    return values.reshape(stage.tensor.shape), bound.reshape(stage.tensor.shape)


def _factor(node: Scalar, box: Box, env: BoundedTensors) -> Bounded:
    """`node` and its error at every point of `box`, contiguous, built in small boxes."""
    values = np.empty(box.extents, value_dtype(node.dtype))
    errors: Errors = None
    base = box.starts
    for part in leading_tiles(box, MAX_BOX_POINTS):
        offsets = tuple(s - b for s, b in zip(part.starts, base, strict=True))
        where = Box(part.names, offsets, part.extents).slices
        values[where], part_errors = bounded_value(node, part, env)
        if part_errors is not None:
            errors = np.zeros(box.extents) if errors is None else errors
            errors[where] = part_errors
    return values, errors
