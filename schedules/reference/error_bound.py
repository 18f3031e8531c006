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
- monotone functions: the larger change of f at x - e and x + e, or the largest slope in between
  times e, and `allowed_ulps` of the result (`algebra/functions.py`).
  Floor, truncation and rounding to narrow floats are monotone too: their bound is the jump they
  make if an integer (or a tie) lies within e of x, and zero otherwise.
- a comparison whose operands are closer than their errors may go either way: a select on it is
  bounded by the distance to the side not taken.
- nothing is added where an operation, a function or a sum is exact for the values at hand, see
  `error_exact`; sums of mostly zeros count the terms that are not, and sums of continuous inputs
  are held to what is likely besides, see `error_sums`.
- where a result may overflow, or divides by something that may be zero, the bound is infinite.

The reference itself is computed in float64, so u includes its roundings as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from ..algebra.scalar import Scalar, loads, walk
from ..dtypes import DType
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .boxes import MAX_BOX_POINTS, over_boxes
from .contract import Contraction, contract, output_slices, pieces, recognise, side_box
from .error_exact import NO_STEP, exact_sums, is_number_of
from .error_nodes import BoundedTensors, bounded_value
from .error_rounding import Errors, as_array, dense, rounding_growth, smallest_step, sum_errors
from .error_special import Bounded, ProductTerms, finite_size, stage_keeps_zero_sign
from .error_sums import (
    PARTS,
    box_parts,
    combined_errors,
    growth_of,
    is_sparse,
    joint_steps,
    least,
    measured_growth,
    terms_to_look_for,
)
from .evaluate import evaluate_stage, load_inputs
from .exactness import exact_inputs_range
from .math import Array, combiner, reduce, value_dtype
from .reads import Box, full_box, leading_tiles

__all__ = ["bounded_outputs", "evaluate_with_bound", "exact_inputs_range"]


def evaluate_with_bound(
    workload: Workload, inputs: Sequence[Array], exact_stages: Collection[str] = ()
) -> list[tuple[Array, Array]]:
    """`bounded_outputs` with an array for every bound."""
    found = bounded_outputs(workload, inputs, exact_stages)
    return [(values, dense(errors, values.shape)) for values, errors in found]


def bounded_outputs(
    workload: Workload,
    inputs: Sequence[Array],
    exact_stages: Collection[str] = (),
    *,
    continuous: bool = False,
) -> list[Bounded]:
    """`(values, bound)` of every output: a correct kernel's y has |y - values| <= bound.

    `inputs` as for `reference.evaluate`; values are its values up to float64 rounding, bounds
    are float64 arrays of the same shape, None for zero. `exact_stages` names stages that are known
    to be free of rounding for these inputs, see `exactness.value_ranges`. `continuous` says that
    the inputs were drawn from continuous distributions: long sums are then held to what their
    roundings make likely, see `error_sums`. An infinite bound says that
    nothing can be promised (overflow, a root of something that may be negative). Integer values
    are exact modulo 2**bits; their bound is zero unless they come from floats.
    """
    signed = frozenset(t.name for t in workload.inputs if t.dtype.is_float)
    env = BoundedTensors(
        dict(load_inputs(workload, inputs)), {t.name: None for t in workload.inputs}, signed
    )
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            known = stage.name in exact_stages or _is_exact(stage, env.errors)
            values, errors = (
                (evaluate_stage(stage, env.tensors), None)
                if known
                else _stage(stage, env, continuous)
            )
            env.tensors[stage.name], env.errors[stage.name] = values, errors
            if stage_keeps_zero_sign(stage, env.signed):
                env.signed |= {stage.name}
    return [(env.tensors[n], env.errors[n]) for n in workload.outputs]


def _stage(stage: Stage, env: BoundedTensors, continuous: bool) -> Bounded:
    measured = measured_growth(stage, env) if continuous else None
    plan = recognise(stage)
    found = None if plan is None else _contracted(stage, plan, env, measured)
    return _by_boxes(stage, env, measured) if found is None else found


def _given(errors: Array) -> Array:
    """`errors` with room for the roundings of the comparison itself, far below u; what is no
    number is infinite."""
    errors = np.asarray(errors * (1 + 2.0**-30))
    if not np.isnan(errors.max(initial=0.0)):
        return errors
    return np.where(np.isnan(errors), np.inf, errors)


def _is_exact(stage: Stage, errors: Mapping[str, Errors]) -> bool:
    """Whether no float and no inexact tensor is involved."""
    integers = all(not node.dtype.is_float for node in walk(stage.body))
    return integers and all(errors[ld.tensor] is None for ld in loads(stage.body))


def _by_boxes(stage: Stage, env: BoundedTensors, measured: float | None) -> Bounded:
    """The body over boxes of all axes; see `reference._by_boxes`."""
    outer = len(stage.axes)
    shape, dtype = stage.tensor.shape, stage.tensor.dtype
    dims = tuple(range(outer, outer + len(stage.reduce_axes)))
    boxes = list(leading_tiles(full_box((*stage.axes, *stage.reduce_axes)), MAX_BOX_POINTS))
    values = np.empty(shape, value_dtype(dtype))
    # Zeros that nothing is written over take no memory.
    parts = [np.zeros(shape) for _ in range(PARTS[stage.reducer])]
    wanted = terms_to_look_for(stage, boxes[0], env)

    def fill(box: Box) -> tuple[bool, int | None]:
        """Whether there is an error, and the common step of the terms."""
        where = box.slices[:outer]
        first = not any(box.starts[outer:])
        value, new_parts, step = box_parts(stage, box, env, wanted)
        if stage.reducer is None:
            values[where] = value
            (errors,) = new_parts
            if errors is None or not errors.any():
                return False, step
            parts[0][where] = _given(errors)
            return True, step
        partial = reduce(stage.reducer, np.broadcast_to(value, box.extents), dims)
        combine = combiner(stage.reducer.op, partial.dtype)
        values[where] = partial if first else combine(values[where], partial)
        for total, part in zip(parts, new_parts, strict=True):
            if part is None:
                continue
            partial = reduce(stage.reducer, np.broadcast_to(part, box.extents), dims)
            combine = combiner(stage.reducer.op, partial.dtype)
            total[where] = partial if first else combine(total[where], partial)
        return True, step

    apart = not any(any(box.starts[outer:]) for box in boxes)
    done = over_boxes(fill, boxes, apart=apart)
    if stage.reducer is None:
        return values, parts[0] if any(wrong for wrong, _ in done) else None
    steps = [step for _, step in done]
    step = None if None in steps else min(s for s in steps if s is not None)
    errors = _given(combined_errors(stage, values, parts, wanted, step, measured))
    return values, errors if errors.any() else None


def _contracted(
    stage: Stage, plan: Contraction, env: BoundedTensors, measured: float | None
) -> Bounded | None:
    """Values and bound by matrix multiplications; None where the plan does not hold."""
    dtype = stage.tensor.dtype
    shape = plan.stage.tensor.shape
    values, magnitude, errors = (np.zeros(shape, t) for t in (value_dtype(dtype), float, float))
    nonzero: Array | None = None
    step: int | None = NO_STEP
    special = ProductTerms(plan, shape, env.tensors)
    for number, piece in enumerate(pieces(plan)):
        boxes = side_box(plan.left_axes, piece), side_box(plan.right_axes, piece)
        left, left_errors = _factor(plan.left, boxes[0], env)
        right, right_errors = _factor(plan.right, boxes[1], env)
        special.add(piece, boxes, (left, left_errors), (right, right_errors))
        where = output_slices(plan, piece)
        values[where] += contract(plan, piece, left, right)
        left_size, right_size = (finite_size(x) for x in (left, right))
        magnitude[where] += contract(plan, piece, left_size, right_size)
        if left_errors is not None:
            reach = right_size if right_errors is None else right_size + right_errors
            errors[where] += contract(plan, piece, left_errors, reach)
        if right_errors is not None:
            errors[where] += contract(plan, piece, left_size, right_errors)
        if dtype.is_float and step is not None:
            step = least(step, joint_steps(left, right, dtype))
        if dtype.is_float and step is None and (number == 0 or nonzero is not None):
            if nonzero is None and is_sparse(left, right):
                nonzero = np.zeros(shape)
            if nonzero is not None:
                left_count, right_count = (
                    ((v != 0) | (as_array(e) != 0)).astype(np.float64)
                    for v, e in ((left, left_errors), (right, right_errors))
                )
                nonzero[where] += contract(plan, piece, left_count, right_count)
    regroups = plan.masked or plan.left_sums or plan.right_sums
    if regroups and not (np.isfinite(values).all() and np.isfinite(errors).all()):
        return None
    count = prod(a.extent for a in stage.reduce_axes)
    # One rounding a product and one an addition; two more for factors multiplied beforehand.
    growth: float | Array = rounding_growth(dtype, count + 2)
    if measured is not None:
        growth = min(growth, measured + rounding_growth(dtype, 4))
    exact = exact_sums(step, magnitude, errors, dtype)
    if nonzero is not None:
        growth = np.minimum(growth, growth_of(dtype, nonzero + 2))
        # One product that is a number of the type is not rounded at all.
        if dtype is not DType.F64:  # of which products are rounded in the reference, too
            exact = (nonzero <= 1) & (errors == 0) & is_number_of(values, dtype)
    bound = sum_errors(
        dtype, growth, magnitude, errors, tiny=count * smallest_step(dtype), exact=exact
    )
    bound = _given(special.bound(values, bound)).reshape(stage.tensor.shape)
    return values.reshape(stage.tensor.shape), bound if bound.any() else None


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
