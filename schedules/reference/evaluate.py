"""The reference semantics of a workload: evaluation with NumPy, directly from the expression.

The reference does not use loop nests, primitives or lowering, so that it shares no mistake with
them. Floats are computed in float64, integers exactly modulo 2**bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from ..algebra.narrow import round_to, widened
from ..algebra.scalar import (
    All,
    Binary,
    Cast,
    Compare,
    Components,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    data_of,
    loads,
)
from ..dtypes import DType
from ..errors import WorkloadError
from ..workload.tensors import Elementwise, Reduction, Scan, Stage, TupleReduction
from ..workload.workload import Workload
from .active import Active, active_boxes
from .boxes import MAX_BOX_POINTS, over_boxes
from .contract import (
    Contraction,
    Factor,
    masked,
    output_slices,
    pieces,
    recognise,
    side_box,
)
from .extended import FactorValues, Mask, contract_sides
from .math import (
    Array,
    accumulate,
    binary,
    cast,
    combiner,
    compare,
    constant,
    reduce,
    unary,
    value_dtype,
)
from .reads import (
    AxisCoordinates,
    Data,
    IterationBox,
    SampledTensor,
    Stored,
    conditions_hold,
    full_box,
    index_values,
    leading_tiles,
    read,
)
from .repeated import Expression, Once
from .residues import residue_classes
from .sample import Grid, Sample, grid_of, left_out, sampled_stage, taken, wanted_shape
from .tuples import Parts, folded, over_points, point_box, shaped, sides


def evaluate(
    workload: Workload, inputs: Sequence[Array], sample: Sample | None = None
) -> list[Array]:
    """Return the outputs of `workload` for `inputs`, both in argument order.

    `inputs` are arrays of the tensors' shapes and buffer types (`DType.numpy`). Float outputs are
    float64: f32 and f64 values unrounded, narrow floats rounded to nearest even. Integer outputs
    have their own NumPy type. Temporaries need less than about 200 MB, in addition to the tensors
    of the stages. If `sample`, a result of `sample.demanded`, is given, only its elements are
    evaluated and returned. Raise WorkloadError if the inputs do not match the workload.
    """
    tensors: dict[str, Stored] = {**load_inputs(workload, inputs)}
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            grid = grid_of(sample, stage)
            tensors[stage.name] = stored_sample(evaluate_stage(stage, tensors, grid), stage, grid)
    return [values_in(tensors[name]) for name in workload.outputs]


def stored_sample(values: Array, stage: Stage, grid: Grid) -> Stored:
    """Return `values`, the elements `grid` of `stage`, as later stages read them: an array if all
    elements were evaluated, else a `SampledTensor`."""
    complete = all(p is None for p in grid)
    return values if complete else SampledTensor(values, grid, stage.tensor.shape)


def values_in(tensor: Stored) -> Array:
    """Return the array of the evaluated elements of `tensor`."""
    return tensor.values if isinstance(tensor, SampledTensor) else tensor


def load_inputs(workload: Workload, inputs: Sequence[Array]) -> dict[str, Array]:
    """Return `inputs` by name, contiguous and with narrow floats as float32. Raise WorkloadError if
    shapes or types do not match."""
    if len(inputs) != len(workload.inputs):
        raise WorkloadError(
            f"{workload.name or 'workload'} takes {len(workload.inputs)} inputs, got {len(inputs)}",
            code="bad_inputs",
        )
    loaded = {}
    for tensor, array in zip(workload.inputs, inputs, strict=True):
        if array.shape != tensor.shape or array.dtype != tensor.dtype.numpy:
            raise WorkloadError(
                f"input {tensor.name} must be {tensor.dtype.numpy} of shape {tensor.shape}, "
                f"got {array.dtype} of shape {array.shape}",
                code="bad_inputs",
            )
        dense = np.asarray(array, order="C")
        if tensor.dtype is DType.BOOL:
            dense = dense.view(np.uint8) != 0  # NumPy does not expect other bytes than 0 and 1
        loaded[tensor.name] = widened(dense, tensor.dtype)
    return loaded


def evaluate_stage(stage: Stage, tensors: Mapping[str, Stored], grid: Grid | None = None) -> Array:
    """Return the elements `grid` of `stage`, or all elements if `grid` is None."""
    wanted = grid or (None,) * len(stage.axes)
    classes = residue_classes(
        stage, wanted, lambda: are_finite(tensors[r.tensor] for r in loads(stage.body))
    )
    if classes is not None:
        values = np.zeros(wanted_shape(stage, wanted), value_dtype(stage.tensor.dtype))
        for each in classes:
            values[np.ix_(*each.where)] = evaluate_stage(each.stage, tensors, each.grid)
        return values
    unapplied = left_out(stage, wanted)
    stage, places = sampled_stage(stage, wanted)
    plan = recognise(stage, whole=places)
    if plan is None:
        values = _by_boxes(stage, tensors, places)
    else:
        values = _contracted(stage, plan, tensors, places)
    values = taken(values, unapplied)
    dtype = stage.tensor.dtype
    return round_to(values, dtype) if dtype.is_narrow_float else values


def _by_boxes(
    stage: Stage, tensors: Mapping[str, Stored], places: Mapping[str, AxisCoordinates]
) -> Array:
    """Return the elements of `stage`, evaluated and reduced box by box: the general path."""
    active = active_boxes(
        stage,
        full_box(stage.all_axes, places),
        MAX_BOX_POINTS,
        lambda: are_finite(tensors[r.tensor] for r in loads(stage.body)),
    )
    match stage.kind:
        case Elementwise():
            return _stored(stage, active, tensors)
        case Reduction(reducer):
            return _reduced(stage, reducer, active, tensors)
        case Scan(reducer, dim, reverse):
            return accumulate(reducer, _stored(stage, active, tensors), dim, reverse=reverse)
        case TupleReduction():
            return _combined(stage, stage.kind, active, tensors)
        case _:
            assert_never(stage.kind)


def _stored(stage: Stage, active: Active, tensors: Mapping[str, Stored]) -> Array:
    result = np.empty(stage.tensor.shape, value_dtype(stage.tensor.dtype))

    def fill(box: IterationBox) -> None:
        result[box.slices] = value_of(stage.body, box, tensors)

    over_boxes(fill, active.boxes, disjoint=active.disjoint)
    return result


def _reduced(
    stage: Stage, reducer: Reducer, active: Active, tensors: Mapping[str, Stored]
) -> Array:
    dtype, outer = stage.tensor.dtype, len(stage.axes)
    dims = tuple(range(outer, outer + len(stage.reduce_axes)))
    result = np.full(stage.tensor.shape, reducer.identity(dtype), value_dtype(dtype))

    def combine(where: tuple[slice, ...], part: Array) -> None:
        result[where] = combiner(reducer.op, result.dtype)(result[where], part)

    def fill(box: IterationBox) -> None:
        values = np.broadcast_to(value_of(stage.body, box, tensors), box.extents)
        combine(box.slices[:outer], reduce(reducer, values, dims))

    over_boxes(fill, active.boxes, disjoint=active.disjoint)
    for box in active.partial:
        assert active.neutral is not None
        combine(box.slices[:outer], constant(active.neutral.value, dtype))
    return result


def _combined(
    stage: Stage, kind: TupleReduction, active: Active, tensors: Mapping[str, Stored]
) -> Array:
    """Return the elements of a reduction of tuples. Boxes are in ascending order."""
    outer, combine = len(stage.axes), over_points(kind)
    shape = stage.tensor.shape
    results = [np.full(shape, c.value, value_dtype(c.dtype)) for c in kind.identities]

    def combination(left: Parts, right: Parts) -> list[tuple[Array, Array | None]]:
        given = sides(left, right)
        components = {name: values for name, (values, _) in given.items()}
        box, like = point_box(next(iter(components.values())).size), left[0][0].shape
        found = (value_of(node, box, components) for node in combine)
        return [(shaped(values, like), None) for values in found]

    def fill(box: IterationBox) -> None:
        parts = [(values, None) for values in component_values(stage, box, tensors)]
        where = box.slices[:outer]
        before = [(result[where], None) for result in results]
        found = combination(before, folded(parts, combination))
        for result, (values, _) in zip(results, found, strict=True):
            result[where] = values

    over_boxes(fill, active.boxes, disjoint=active.disjoint)
    return results[kind.position]


def component_values(stage: Stage, box: IterationBox, tensors: Mapping[str, Stored]) -> list[Array]:
    """Return the values of all components of the body over `box`, with the reduction axes as one
    dimension."""
    assert isinstance(stage.body, Components)
    shape = (*box.extents[: len(stage.axes)], -1)
    values = (value_of(node, box, tensors) for node in stage.body.values)
    return [np.broadcast_to(each, box.extents).reshape(shape) for each in values]


def are_finite(tensors: Iterable[Stored | None]) -> bool:
    """Return whether all elements of `tensors` are finite. None is ignored."""
    return all(t is None or bool(np.isfinite(values_in(t)).all()) for t in tensors)


def _contracted(
    stage: Stage,
    plan: Contraction,
    tensors: Mapping[str, Stored],
    places: Mapping[str, AxisCoordinates],
) -> Array:
    """Return the elements of `stage` as matrix products of its two factors: the fast path."""
    result = np.zeros(plan.stage.tensor.shape, value_dtype(stage.tensor.dtype))
    left = _LastFactor(plan.left_factor, tensors)
    right = _LastFactor(plan.right_factor, tensors)
    for piece in pieces(plan, places):
        a = left.over(side_box(plan.left_axes, piece))
        b = right.over(side_box(plan.right_axes, piece))
        result[output_slices(plan, piece)] += contract_sides(plan, piece, a, b)
    return result.reshape(stage.tensor.shape)


class _LastFactor:
    """Evaluates a factor over boxes. The last result is cached, because successive pieces may have
    the same box."""

    def __init__(self, factor: Factor, tensors: Mapping[str, Stored]) -> None:
        self._factor = factor
        self._tensors = tensors
        self._box: IterationBox | None = None
        self._side = FactorValues(np.empty(0))

    def over(self, box: IterationBox) -> FactorValues:
        if box != self._box:
            self._side = side_over(self._factor, box, self._tensors)
            self._box = box
        return self._side


def side_over(factor: Factor, box: IterationBox, tensors: Mapping[str, Stored]) -> FactorValues:
    """Return the values and the condition masks of `factor` at every point of `box`."""
    raw = factor_over(masked(factor.node, factor.given), box, tensors)
    return FactorValues(raw, *masks_over(factor, box))


def masks_over(factor: Factor, box: IterationBox) -> tuple[Mask | None, Mask | None]:
    """Return two masks over `box`: the points at which the conditions `given` of `factor` hold, and
    those at which `lent` hold. A mask is None if there are no such conditions."""
    given, lent = (
        np.broadcast_to(conditions_hold(conds, box), box.extents) if conds else None
        for conds in (factor.given, factor.lent)
    )
    return given, lent


def factor_over(node: Scalar, box: IterationBox, tensors: Mapping[str, Stored]) -> Array:
    """Return `node` at every point of `box` in a contiguous array, evaluated in small boxes."""
    if isinstance(node, Load) or box.points <= MAX_BOX_POINTS:
        values = np.broadcast_to(value_of(node, box, tensors), box.extents)
        return np.asarray(values, order="C")
    result = np.empty(box.extents, value_dtype(node.dtype))
    base = np.asarray(box.starts)
    for part in leading_tiles(box, MAX_BOX_POINTS):
        offsets = tuple(int(s) for s in np.asarray(part.starts) - base)
        result[IterationBox(part.names, offsets, part.extents).slices] = value_of(
            node, part, tensors
        )
    return result


def data_over(load: Load, box: IterationBox, tensors: Mapping[str, Stored]) -> Data:
    """Return the data in the index of `load` at every point of `box`, int64."""
    return {
        datum: np.clip(value_of(datum.value, box, tensors), 0, datum.extent - 1).astype(np.int64)
        for datum in data_of(load)
    }


def value_of(node: Scalar, box: IterationBox, tensors: Mapping[str, Stored]) -> Array:
    """Return `node` at every point of `box`, in a shape that broadcasts to the box's extents. Equal
    subexpressions are evaluated once."""
    return _Values(box, tensors, Once(Expression(node))).of(node)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of the nodes of one expression over `box`."""

    box: IterationBox
    tensors: Mapping[str, Stored]
    once: Once[Array]

    def of(self, node: Scalar) -> Array:
        return self.once.result(node, self._evaluated)

    def _evaluated(self, node: Scalar) -> Array:
        box = self.box
        match node:
            case Const(value, dtype):
                return constant(value, dtype)
            case Load(tensor, index, dtype):
                found = read(self.tensors[tensor], index, box, data_over(node, box, self.tensors))
                return np.asarray(found, value_dtype(dtype), order="C")
            case IndexValue(index, dtype):
                return cast(index_values(index, box), dtype)
            case All(conds):
                return conditions_hold(conds, box)
            case Unary(op, x):
                return unary(op, self.of(x))
            case Binary(op, a, b):
                return binary(op, self.of(a), self.of(b))
            case Compare(op, a, b):
                return compare(op, self.of(a), self.of(b))
            case Cast(x, dtype):
                return cast(self.of(x), dtype)
            case Select(cond, on_true, on_false):
                chosen = self.of(cond)
                if chosen.all():  # if an index selects the formula, most boxes need one branch
                    return self.of(on_true)
                if not chosen.any():
                    return self.of(on_false)
                return np.where(chosen, self.of(on_true), self.of(on_false))
            case Components():
                raise AssertionError("the components of a tuple are evaluated one by one")
            case _:
                assert_never(node)
