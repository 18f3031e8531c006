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
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ..algebra.scalar import loads, walk
from ..dtypes import DType
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .boxes import MAX_BOX_POINTS, over_boxes
from .contract import (
    Contraction,
    Factor,
    contract,
    masked,
    output_slices,
    pieces,
    recognise,
    side_box,
)
from .error_exact import NO_STEP, exact_sums, is_number_of
from .error_nodes import Bounded, BoundedTensors, bounded_value
from .error_rounding import Errors, dense, rounding_growth, smallest_step, sum_errors
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
from .evaluate import evaluate_stage, held, load_inputs, masks_over
from .exactness import exact_inputs_range
from .extended import Side, contract_sides
from .math import Array, combiner, reduce, value_dtype
from .reads import Box, Places, Stored, full_box, leading_tiles
from .sample import Sample, grid_of, sampled_stage

__all__ = ["bounded_outputs", "evaluate_with_bound", "exact_inputs_range"]


def evaluate_with_bound(
    workload: Workload,
    inputs: Sequence[Array],
    exact_stages: Collection[str] = (),
    sample: Sample | None = None,
) -> list[tuple[Array, Array]]:
    """`bounded_outputs` with an array for every bound."""
    found = bounded_outputs(workload, inputs, exact_stages, sample=sample)
    return [(values, dense(errors, values.shape)) for values, errors in found]


def bounded_outputs(
    workload: Workload,
    inputs: Sequence[Array],
    exact_stages: Collection[str] = (),
    *,
    continuous: bool = False,
    sample: Sample | None = None,
) -> list[Bounded]:
    """`(values, bound)` of every output: a correct kernel's y has |y - values| <= bound.

    `inputs` and `sample` as for `reference.evaluate`; values are its values up to float64
    rounding, bounds are float64 arrays of the same shape, None for zero. `exact_stages` names
    stages that are known to be free of rounding for these inputs, see
    `exactness.value_ranges`. `continuous` says that
    the inputs were drawn from continuous distributions: long sums are then held to what their
    roundings make likely, see `error_sums`. An infinite bound says that
    nothing can be promised (overflow, a root of something that may be negative). Integer values
    are exact modulo 2**bits; their bound is zero unless they come from floats.
    """
    env = BoundedTensors(
        dict(load_inputs(workload, inputs)), {t.name: None for t in workload.inputs}
    )
    found: dict[str, Bounded] = {}
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            known = stage.name in exact_stages or _is_exact(stage, env.errors)
            grid = grid_of(sample, stage)
            values, errors = (
                (evaluate_stage(stage, env.tensors, grid), None)
                if known
                else _stage(*sampled_stage(stage, grid), env, continuous)
            )
            found[stage.name] = values, errors
            env.tensors[stage.name] = held(values, stage, grid)
            env.errors[stage.name] = None if errors is None else held(errors, stage, grid)
    return [found[n] for n in workload.outputs]


def _stage(
    stage: Stage, places: Mapping[str, Places], env: BoundedTensors, continuous: bool
) -> Bounded:
    measured = measured_growth(stage, places, env) if continuous else None
    plan = recognise(stage, whole=places)
    if plan is None:
        return _by_boxes(stage, places, env, measured)
    return _contracted(stage, plan, places, env, measured)


def _given(errors: Array) -> Array:
    """`errors` with room for the roundings of the comparison itself, far below u; what is no
    number is infinite."""
    errors = np.asarray(errors * (1 + 2.0**-30))
    if not np.isnan(errors.max(initial=0.0)):
        return errors
    return np.where(np.isnan(errors), np.inf, errors)


def _is_exact(stage: Stage, errors: Mapping[str, Stored | None]) -> bool:
    """Whether no float and no inexact tensor is involved."""
    integers = all(not node.dtype.is_float for node in walk(stage.body))
    return integers and all(errors[ld.tensor] is None for ld in loads(stage.body))


def _by_boxes(
    stage: Stage, places: Mapping[str, Places], env: BoundedTensors, measured: float | None
) -> Bounded:
    """The body over boxes of all axes; see `reference._by_boxes`."""
    outer = len(stage.axes)
    shape, dtype = stage.tensor.shape, stage.tensor.dtype
    dims = tuple(range(outer, outer + len(stage.reduce_axes)))
    whole = full_box((*stage.axes, *stage.reduce_axes), places)
    boxes = list(leading_tiles(whole, MAX_BOX_POINTS))
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
    stage: Stage,
    plan: Contraction,
    places: Mapping[str, Places],
    env: BoundedTensors,
    measured: float | None,
) -> Bounded:
    """Values and bound by matrix multiplications."""
    dtype = stage.tensor.dtype
    shape = plan.stage.tensor.shape
    values, magnitude, errors = (np.zeros(shape, t) for t in (value_dtype(dtype), float, float))
    nonzero: Array | None = None
    step: int | None = NO_STEP
    for number, piece in enumerate(pieces(plan, places)):
        left = _factor(plan.left_factor, side_box(plan.left_axes, piece), env)
        right = _factor(plan.right_factor, side_box(plan.right_axes, piece), env)
        where = output_slices(plan, piece)
        values[where] += contract_sides(plan, piece, left.side, right.side)
        sizes = left.size, right.size
        magnitude[where] += contract_sides(plan, piece, *sizes)
        if left.errors is not None:
            reach = sizes[1] if right.errors is None else right.reach
            errors[where] += contract_sides(plan, piece, left.errors, reach)
        if right.errors is not None:
            errors[where] += contract_sides(plan, piece, sizes[0], right.errors)
        factors = left.side.values, right.side.values
        if dtype.is_float and step is not None:
            step = least(step, joint_steps(*factors, dtype))
        if dtype.is_float and step is None and (number == 0 or nonzero is not None):
            if nonzero is None and is_sparse(*factors):
                nonzero = np.zeros(shape)
            if nonzero is not None:
                nonzero[where] += contract(plan, piece, left.counted, right.counted)
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
    bound = _given(bound).reshape(stage.tensor.shape)
    return values.reshape(stage.tensor.shape), bound if bound.any() else None


@dataclass(frozen=True, slots=True)
class _BoundedFactor:
    """A factor over a piece, and its errors where products depend on it; None is zero."""

    side: Side
    errors: Side | None

    @property
    def size(self) -> Side:
        return replace(self.side, raw=np.abs(self.side.raw.astype(np.float64)))

    @property
    def reach(self) -> Side:
        """The largest magnitudes there may be."""
        assert self.errors is not None, "asked where there are errors"
        return replace(self.side, raw=self.size.raw + self.errors.raw)

    @property
    def counted(self) -> Array:
        """1.0 where the factor may be other than zero."""
        errors = np.asarray(0.0) if self.errors is None else self.errors.raw
        return ((self.side.values != 0) | (errors != 0)).astype(np.float64)


def _factor(factor: Factor, box: Box, env: BoundedTensors) -> _BoundedFactor:
    """`factor` and its error at every point of `box`, contiguous, built in small boxes."""
    node = masked(factor.node, factor.given)
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
    side = Side(values, *masks_over(factor, box))
    if errors is None:
        return _BoundedFactor(side, None)
    if side.met is not None:
        errors = np.where(side.met, errors, 0.0)
    there = [m for m in (side.given, side.met) if m is not None]
    return _BoundedFactor(side, Side(errors, np.logical_and.reduce(there) if there else None))
