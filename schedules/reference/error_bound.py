"""Bounds on the error of a correct kernel, for each output element.

This is a running error analysis, stage by stage. Every value has a bound on the distance between
the result of any legal schedule and the exact value. A legal schedule may reorder and regroup sums,
use partial sums, and fuse multiplication and addition; each operation rounds once in its node's
type. Inputs are exact.

Rules, with u the unit roundoff of the node's type and e(x) the bound of x:

- a + b, a * b, a / b: the propagated error plus u |result|. A chain of three or more additions may
  be regrouped, so it is bounded like a sum.
- A sum of K terms t: sum e(t) + ((1 + u)**K - 1) sum |t|; Higham, "Accuracy and Stability of
  Numerical Algorithms", 2nd ed., section 4.2.
- A monotone function f: the larger change of f at x - e and x + e, or the largest slope in that
  interval times e, plus `allowed_ulps` of the result (`algebra/functions.py`). Floor, truncation
  and rounding to narrow floats are monotone too.
- A comparison is undecided if its operands are closer than their errors. The bound of a select on
  an undecided comparison is the distance to the other branch.
- No rounding error is added if an operation, a function or a sum is exact for the actual values,
  see `error_exact`. Sparse sums count only nonzero terms, and sums of continuous inputs have a
  probabilistic bound, see `error_sums`.
- The bound is infinite if a result may overflow or a divisor may be zero.

The reference itself is computed in float64, so the bounds include its roundings as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import assert_never

import numpy as np

from ..algebra.scalar import Components, Reducer, loads, walk
from ..dtypes import DType
from ..workload.tensors import Elementwise, Reduction, Scan, Stage, TupleReduction
from ..workload.workload import Workload
from .active import Active, active_boxes
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
from .error_nodes import BoundedTensors, bounded_value
from .error_rounding import Errors, dense, rounding_growth, smallest_step, sum_errors
from .error_special import (
    Bounded,
    Marked,
    ProductTerms,
    finite_size,
    is_open,
    stage_keeps_zero_sign,
)
from .error_sums import (
    PARTS,
    Terms,
    box_parts,
    combined_errors,
    growth_of,
    is_sparse,
    joint_steps,
    least,
    measured_growth,
    terms_to_look_for,
)
from .error_tuples import of_any_grouping, rounded_parts
from .evaluate import are_finite, evaluate_stage, load_inputs, masks_over, stored_sample
from .exactness import exact_inputs_range
from .extended import FactorValues, contract_sides
from .math import Array, accumulate, combiner, constant, reduce, value_dtype
from .reads import AxisCoordinates, IterationBox, Stored, full_box, leading_tiles
from .residues import ResidueClass, residue_classes
from .sample import Grid, Sample, grid_of, left_out, sampled_stage, taken, wanted_shape
from .tuples import (
    Parts,
    folded,
    folded_otherwise,
    over_points,
    point_box,
    shaped,
    sides,
)

__all__ = ["bounded_outputs", "evaluate_with_bound", "exact_inputs_range"]


def evaluate_with_bound(
    workload: Workload,
    inputs: Sequence[Array],
    exact_stages: Collection[str] = (),
    sample: Sample | None = None,
) -> list[tuple[Array, Array]]:
    """Return (values, bound) for every output, as `bounded_outputs` does, but with an array of
    zeros instead of None."""
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
    """Return `(values, bound)` for every output: each element y of a correct kernel satisfies |y -
    values| <= bound.

    `inputs` and `sample` have the same meaning as for `evaluate.evaluate`, and `values` equal its
    results up to float64 rounding. A bound is a float64 array of the same shape, or None if it is
    zero everywhere. It is infinite at elements for which every value is accepted, for example after
    overflow or a root of a value that may be negative. `exact_stages` are stages that do not round
    for these inputs (`exactness.value_ranges`). If `continuous`, the inputs were drawn from
    continuous distributions, so that long sums have a probabilistic bound (`error_sums`).
    """
    signed = frozenset(t.name for t in workload.inputs if t.dtype.is_float)
    env = BoundedTensors(
        dict(load_inputs(workload, inputs)), {t.name: None for t in workload.inputs}, signed
    )
    found: dict[str, Bounded] = {}
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            known = stage.name in exact_stages or _is_exact(stage, env.errors)
            grid = grid_of(sample, stage)
            values, errors = (
                (evaluate_stage(stage, env.tensors, grid), None)
                if known
                else _sampled(stage, grid, env, continuous)
            )
            found[stage.name] = values, errors
            env.tensors[stage.name] = stored_sample(values, stage, grid)
            env.errors[stage.name] = None if errors is None else stored_sample(errors, stage, grid)
            if stage_keeps_zero_sign(stage, env.signed):
                env.signed |= {stage.name}
    return [found[n] for n in workload.outputs]


def _sampled(stage: Stage, grid: Grid, env: BoundedTensors, continuous: bool) -> Bounded:
    classes = residue_classes(stage, grid, lambda: _are_finite(stage, env))
    if classes is not None:
        return _by_classes(stage, grid, classes, env, continuous)
    values, errors = _stage(*sampled_stage(stage, grid), env, continuous)
    unapplied = left_out(stage, grid)
    return taken(values, unapplied), None if errors is None else taken(errors, unapplied)


def _by_classes(
    stage: Stage,
    grid: Grid,
    classes: Iterable[ResidueClass],
    env: BoundedTensors,
    continuous: bool,
) -> Bounded:
    """Return the elements `grid` of a sum and their errors. Terms in no class are zero, so adding
    them is exact."""
    shape = wanted_shape(stage, grid)
    values, errors = np.zeros(shape, value_dtype(stage.tensor.dtype)), np.zeros(shape)
    for each in classes:
        at = np.ix_(*each.where)
        values[at], found = _sampled(each.stage, each.grid, env, continuous)
        if found is not None:
            errors[at] = found
    return values, errors if errors.any() else None


def _are_finite(stage: Stage, env: BoundedTensors) -> bool:
    """Return whether all elements that `stage` may read, and their errors, are finite."""
    read = [r.tensor for r in loads(stage.body)]
    return are_finite([t[name] for t in (env.tensors, env.errors) for name in read])


def _stage(
    stage: Stage, places: Mapping[str, AxisCoordinates], env: BoundedTensors, continuous: bool
) -> Bounded:
    measured = measured_growth(stage, places, env) if continuous else None
    plan = recognise(stage, whole=places)
    if plan is None:
        return _by_boxes(stage, places, env, measured)
    return _contracted(stage, plan, places, env, measured)


def _given(errors: Array) -> Array:
    """Return `errors`, slightly enlarged, with infinity for NaN. The increase covers the roundings
    when outputs are compared with the bound."""
    errors = np.asarray(errors * (1 + 2.0**-30))
    if not np.isnan(errors.max(initial=0.0)):
        return errors
    return np.where(np.isnan(errors), np.inf, errors)


def _is_exact(stage: Stage, errors: Mapping[str, Stored | None]) -> bool:
    """Return whether the stage computes in integers only and reads only exact tensors."""
    combine = stage.kind.combine if isinstance(stage.kind, TupleReduction) else ()
    integers = all(not n.dtype.is_float for root in (stage.body, *combine) for n in walk(root))
    return integers and all(errors[ld.tensor] is None for ld in loads(stage.body))


def _by_boxes(
    stage: Stage, places: Mapping[str, AxisCoordinates], env: BoundedTensors, measured: float | None
) -> Bounded:
    """Return the elements of `stage` and their errors, evaluated box by box: the general path.
    `measured` is the result of `measured_growth`."""
    whole = full_box(stage.all_axes, places)
    active = active_boxes(stage, whole, MAX_BOX_POINTS, lambda: _are_finite(stage, env))
    match stage.kind:
        case Elementwise():
            return _stored(stage, active, env)
        case Reduction(reducer):
            largest = max(active.boxes, key=lambda box: box.points, default=whole)
            wanted = terms_to_look_for(stage, reducer, largest, env)
            return _reduced(stage, reducer, active, env, wanted, measured)
        case Scan():
            return _scanned(stage, stage.kind, active, env)
        case TupleReduction():
            return _combined(stage, stage.kind, active, env)
        case _:
            assert_never(stage.kind)


def _stored(stage: Stage, active: Active, env: BoundedTensors) -> Bounded:
    shape = stage.tensor.shape
    values, errors = np.empty(shape, value_dtype(stage.tensor.dtype)), np.zeros(shape)

    def fill(box: IterationBox) -> bool:
        """Evaluate one box, and return whether any of its elements has an error."""
        values[box.slices], found = bounded_value(stage.body, box, env)
        if found is None or not found.any():
            return False
        errors[box.slices] = _given(found)
        return True

    return values, errors if any(over_boxes(fill, active.boxes, disjoint=active.disjoint)) else None


def _reduced(
    stage: Stage,
    reducer: Reducer,
    active: Active,
    env: BoundedTensors,
    wanted: Terms,
    measured: float | None,
) -> Bounded:
    """Evaluate the body of a reduction over its boxes, and combine the results by `reducer`. Return
    the elements of the stage and their errors."""
    shape, dtype, outer = stage.tensor.shape, stage.tensor.dtype, len(stage.axes)
    dims = tuple(range(outer, outer + len(stage.reduce_axes)))
    values = np.full(shape, reducer.identity(dtype), value_dtype(dtype))
    identity = reducer.identity(DType.F64)
    # Pages of `np.zeros` that are never written take no memory.
    parts = [
        np.full(shape, identity, float) if identity else np.zeros(shape)
        for _ in range(PARTS[reducer])
    ]

    def combine(where: tuple[slice, ...], total: Array, part: Array) -> None:
        total[where] = combiner(reducer.op, total.dtype)(total[where], part)

    def fill(box: IterationBox) -> int | None:
        """Evaluate and combine one box. Return an s such that all of its terms are multiples of
        2**s, or None if there is none."""
        value, new_parts, step = box_parts(stage, reducer, box, env, wanted)
        for total, part in zip((values, *parts), (value, *new_parts), strict=True):
            if part is not None:
                some = reduce(reducer, np.broadcast_to(part, box.extents), dims)
                combine(box.slices[:outer], total, some)
        return step

    steps = over_boxes(fill, active.boxes, disjoint=active.disjoint)
    for box in active.partial:
        assert active.neutral is not None
        rest = constant(active.neutral.value, dtype)
        for total in (values, *parts):
            combine(box.slices[:outer], total, rest.astype(total.dtype))
    step = None if None in steps else min((s for s in steps if s is not None), default=NO_STEP)
    errors = _given(combined_errors(stage, reducer, values, parts, wanted, step, measured))
    return values, errors if errors.any() else None


def _scanned(stage: Stage, kind: Scan, active: Active, env: BoundedTensors) -> Bounded:
    """Return the elements of a scan and their errors. The element at position p is bounded like a
    reduction of p + 1 terms: any grouping of a running result adds each term once."""
    dtype, shape = stage.tensor.dtype, stage.tensor.shape
    wanted = Terms(steps=dtype.is_float, counts=True)
    values = np.empty(shape, value_dtype(dtype))
    parts = [np.zeros(shape) for _ in range(PARTS[kind.reducer])]

    def fill(box: IterationBox) -> int | None:
        values[box.slices], found, step = box_parts(stage, kind.reducer, box, env, wanted)
        for part, some in zip(parts, found, strict=True):
            if some is not None:
                part[box.slices] = some
        return step

    steps = over_boxes(fill, active.boxes, disjoint=active.disjoint)
    step = None if None in steps else min((s for s in steps if s is not None), default=NO_STEP)
    values, *parts = (
        accumulate(kind.reducer, x, kind.dim, reverse=kind.reverse) for x in (values, *parts)
    )
    errors = combined_errors(stage, kind.reducer, values, parts, wanted, step, None)
    errors = _given(errors)
    return values, errors if errors.any() else None


def _combined(stage: Stage, kind: TupleReduction, active: Active, env: BoundedTensors) -> Bounded:
    """Return the elements of a reduction of tuples and their errors in any grouping
    (`error_tuples.py`)."""
    outer, combine, shape = len(stage.axes), over_points(kind), stage.tensor.shape
    number = kind.position

    def identities() -> list[tuple[Array, Array]]:
        return [
            (np.full(shape, c.value, value_dtype(c.dtype)), np.zeros(shape))
            for c in kind.identities
        ]

    results, others = identities(), identities()
    errors = np.zeros(shape)

    def combination(left: Parts, right: Parts) -> list[Bounded]:
        given = sides(left, right)
        components: dict[str, Stored] = {name: values for name, (values, _) in given.items()}
        known: dict[str, Stored | None] = {name: found for name, (_, found) in given.items()}
        box, like = point_box(next(iter(given.values()))[0].size), left[0][0].shape
        parts = (bounded_value(node, box, BoundedTensors(components, known)) for node in combine)
        made = [(shaped(v, like), None if e is None else shaped(e, like)) for v, e in parts]
        return rounded_parts(kind, left, right, made)

    def fill(box: IterationBox) -> None:
        parts = _component_parts(stage, box, env)
        where = box.slices[:outer]
        is_first = not any(box.starts[outer:])
        otherwise = partial(folded_otherwise, commutative=kind.commutative)
        for totals, fold in ((results, folded), (others, otherwise)):
            before = [(values[where], found[where]) for values, found in totals]
            after = fold(parts, combination)
            if totals is results or not is_first:  # the other tree does without the identity
                after = combination(before, after)
            for (total, total_errors), (values, found) in zip(totals, after, strict=True):
                total[where] = values
                total_errors[where] = 0.0 if found is None else found
        part = (results[number][0][where], results[number][1][where])
        errors[where] = _given(of_any_grouping(kind, number, part, others[number][0][where]))

    over_boxes(fill, active.boxes, disjoint=active.disjoint)
    return results[number][0], errors if errors.any() else None


def _component_parts(stage: Stage, box: IterationBox, env: BoundedTensors) -> list[Bounded]:
    """Return all components of the body over `box` with their errors, with the reduction axes as
    one dimension."""
    assert isinstance(stage.body, Components)
    shape = (*box.extents[: len(stage.axes)], -1)
    found: list[Bounded] = []
    for node in stage.body.values:
        values, errors = (
            None if part is None else np.broadcast_to(part, box.extents).reshape(shape)
            for part in bounded_value(node, box, env)
        )
        assert values is not None
        found.append((values, errors))
    return found


def _contracted(
    stage: Stage,
    plan: Contraction,
    places: Mapping[str, AxisCoordinates],
    env: BoundedTensors,
    measured: float | None,
) -> Bounded:
    dtype = stage.tensor.dtype
    shape = plan.stage.tensor.shape
    values, magnitude, errors = (np.zeros(shape, t) for t in (value_dtype(dtype), float, float))
    nonzero: Array | None = None
    step: int | None = NO_STEP
    special = ProductTerms(plan, shape, env.tensors)
    for number, piece in enumerate(pieces(plan, places)):
        boxes = side_box(plan.left_axes, piece), side_box(plan.right_axes, piece)
        left = _factor(plan.left_factor, boxes[0], env)
        right = _factor(plan.right_factor, boxes[1], env)
        special.add(piece, left.marked(boxes[0]), right.marked(boxes[1]))
        where = output_slices(plan, piece)
        values[where] += contract_sides(plan, piece, left.side, right.side)
        magnitude[where] += contract(plan, piece, left.size, right.size)
        if left.errors is not None:
            reach = right.reach if right.errors is not None else replace(right.side, raw=right.size)
            errors[where] += contract_sides(plan, piece, left.errors, reach)
        if right.errors is not None:
            size = replace(left.side, raw=left.size)
            errors[where] += contract_sides(plan, piece, size, right.errors)
        factors = left.side.values, right.side.values
        if dtype.is_float and step is not None:
            step = least(step, joint_steps(*factors, dtype))
        if dtype.is_float and step is None and (number == 0 or nonzero is not None):
            if nonzero is None and is_sparse(*factors):
                nonzero = np.zeros(shape)
            if nonzero is not None:
                nonzero[where] += contract(plan, piece, left.counted, right.counted)
    count = prod(a.extent for a in stage.reduce_axes)
    # One rounding per product and one per addition; two more for factors that are products.
    growth: float | Array = rounding_growth(dtype, count + 2)
    if measured is not None:
        growth = min(growth, measured + rounding_growth(dtype, 4))
    exact = exact_sums(step, magnitude, errors, dtype)
    if nonzero is not None:
        growth = np.minimum(growth, growth_of(dtype, nonzero + 2))
        # A single representable product is not rounded.
        if dtype is not DType.F64:  # the reference rounds f64 products, too
            exact = (nonzero <= 1) & (errors == 0) & is_number_of(values, dtype)
    bound = sum_errors(
        dtype, growth, magnitude, errors, tiny=count * smallest_step(dtype), exact=exact
    )
    bound = _given(special.bound(values, bound)).reshape(stage.tensor.shape)
    return values.reshape(stage.tensor.shape), bound if bound.any() else None


@dataclass(frozen=True, slots=True)
class _BoundedFactor:
    """One factor of a contraction over one piece, with its errors."""

    side: FactorValues
    size: Array
    """Magnitudes of the finite values; 0 for NaN and infinities."""
    errors: FactorValues | None
    """Errors at points with a product. None means zero."""
    doubtful: Array | None
    """Mask of the points at which this factor may be NaN or infinite, and a condition makes the
    other factor zero. A kernel may compute or omit these products."""

    def marked(self, box: IterationBox) -> Marked:
        masks = [mask for mask in (self.side.given, self.side.met) if mask is not None]
        there = np.logical_and.reduce(masks) if masks else None
        errors = None if self.errors is None else self.errors.raw
        return Marked(box, (self.side.values, errors), there, self.doubtful)

    @property
    def reach(self) -> FactorValues:
        """Upper bounds of the magnitudes. `errors` must not be None."""
        assert self.errors is not None
        return replace(self.side, raw=self.size + self.errors.raw)

    @property
    def counted(self) -> Array:
        """1.0 at each point at which the factor may be nonzero, else 0.0."""
        errors = np.asarray(0.0) if self.errors is None else self.errors.raw
        return np.asarray((self.side.values != 0) | (errors != 0), np.float64)


def _factor(factor: Factor, box: IterationBox, env: BoundedTensors) -> _BoundedFactor:
    """Return `factor` and its error at every point of `box` in contiguous arrays."""
    node = masked(factor.node, factor.given)
    values = np.empty(box.extents, value_dtype(node.dtype))
    errors: Errors = None
    base = box.starts
    for part in leading_tiles(box, MAX_BOX_POINTS):
        offsets = tuple(s - b for s, b in zip(part.starts, base, strict=True))
        where = IterationBox(part.names, offsets, part.extents).slices
        values[where], part_errors = bounded_value(node, part, env)
        if part_errors is not None:
            errors = np.zeros(box.extents) if errors is None else errors
            errors[where] = part_errors
    side = FactorValues(values, *masks_over(factor, box))
    size = finite_size(side.values)
    if side.met is None:
        return _BoundedFactor(
            side, size, None if errors is None else FactorValues(errors, side.given), None
        )
    # `values` are zero at points without a product.
    doubtful = ~side.met & (~np.isfinite(values) | is_open(errors))
    if errors is not None:
        errors = np.where(side.met, errors, 0.0)
    there = side.met if side.given is None else side.met & side.given
    return _BoundedFactor(
        side, size, None if errors is None else FactorValues(errors, there), doubtful
    )
