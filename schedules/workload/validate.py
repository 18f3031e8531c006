"""Validation of a computation, including a proof that every read is in bounds.

The JSON pointers in errors refer to the JSON document of the workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from ..algebra.affine import Interval
from ..algebra.scalar import (
    Reducer,
    Scalar,
    children,
    index_conds,
    vars_of,
)  # fmt: skip
from ..dtypes import DType
from ..errors import WorkloadError
from ..limits import (
    MAX_ALL_CONDS,
    MAX_BODY_DEPTH,
    MAX_BYTES,
    MAX_DIMS,
    MAX_INPUTS,
    MAX_JSON_NODES,
    MAX_STAGES,
)  # fmt: skip
from .checks import check_extent, check_name, check_shape
from .computation import C, Computation
from .settle import settled_body
from .size import check_limits, json_nodes
from .tensors import Axis, Elementwise, Reduction, Scan, Stage, Tensor, TupleReduction
from .tuple_stages import check_tuple_reduction, needed_components, stored_value
from .validate_body import check_nodes, check_reads


def validate(computation: Computation) -> None:
    """Raise WorkloadError with a stable code and a JSON pointer if a rule is violated."""
    _stages(computation, settle=False)


def settled(computation: C) -> C:
    """Return `computation` with simplified bodies (`settle.py`). Raise WorkloadError if a rule is
    violated.

    Reads that simplification removes need not be in bounds.
    """
    return replace(computation, stages=_stages(computation, settle=True))


def _stages(computation: Computation, *, settle: bool) -> tuple[Stage, ...]:
    """Validate `computation`. Return its stages, simplified if `settle` is true."""
    _check_counts(computation)
    found: list[Stage] = []
    known: dict[str, Tensor] = {}
    for number, tensor in enumerate(computation.inputs):
        _check_new(tensor, known, f"/inputs/{number}")
        known[tensor.name] = tensor
    nodes = conds = 0
    for number, stage in enumerate(computation.stages):
        pointer = f"/stages/{number}"
        _check_new(stage.tensor, known, pointer)
        check_depth(stage.body, f"{pointer}/body")
        nodes += json_nodes(stage.body)
        if isinstance(stage.kind, TupleReduction):
            for part, node in enumerate(stage.kind.combine):
                check_depth(node, f"{pointer}/combine/{part}")
                nodes += json_nodes(node)
        if nodes > MAX_JSON_NODES:
            raise WorkloadError(
                f"the expressions have {nodes} or more JSON values, at most {MAX_JSON_NODES}",
                code="too_large",
                pointer=f"{pointer}/body",
            )
        conds += sum(1 for _ in index_conds(stage.body))
        if conds > MAX_ALL_CONDS:
            raise WorkloadError(
                f"the guards have {conds} or more conditions, at most {MAX_ALL_CONDS}",
                code="too_large",
                pointer=f"{pointer}/body",
            )
        if settle:
            found.append(settled_stage(stage, known, pointer))
        else:
            validate_stage(stage, known, pointer)
            found.append(stage)
        known[stage.name] = stage.tensor
    _check_outputs(computation)
    check_limits(computation, max_bytes=MAX_BYTES)
    return tuple(found)


def _check_counts(computation: Computation) -> None:
    for what, found, limit in (
        ("inputs", len(computation.inputs), MAX_INPUTS),
        ("stages", len(computation.stages), MAX_STAGES),
    ):
        if found > limit:
            raise WorkloadError(
                f"at most {limit} {what} are allowed, got {found}",
                code="too_large",
                pointer=f"/{what}",
            )


def _check_outputs(computation: Computation) -> None:
    stages = [s.name for s in computation.stages]
    if not computation.outputs:
        raise WorkloadError("a workload needs at least one output", pointer="/outputs")
    for number, name in enumerate(computation.outputs):
        if name not in stages:
            raise WorkloadError(
                f"output {name!r} is not computed by a stage; stages: {', '.join(stages)}",
                code="unknown_tensor",
                pointer=f"/outputs/{number}",
            )
        if name in computation.outputs[:number]:
            raise WorkloadError(
                f"output {name!r} is named twice", code="duplicate", pointer=f"/outputs/{number}"
            )


def _check_new(tensor: Tensor, known: Mapping[str, Tensor], pointer: str) -> None:
    check_name(tensor.name, "a tensor", pointer)
    if tensor.name in known:
        raise WorkloadError(
            f"two tensors are named {tensor.name!r}", code="duplicate", pointer=pointer
        )
    check_shape(tensor.name, tensor.shape, pointer)


def check_depth(node: Scalar, pointer: str = "") -> None:
    """Raise WorkloadError if `node` is deeper than `MAX_BODY_DEPTH`. Not recursive."""
    level, depth = [node], 0
    while level:
        depth += 1
        if depth > MAX_BODY_DEPTH:
            raise WorkloadError(
                f"an expression may be {MAX_BODY_DEPTH} levels deep; split it into two stages",
                code="too_deep",
                pointer=pointer,
            )
        level = [child for n in level for child in children(n)]


def stage_ranges(stage: Stage) -> dict[str, Interval]:
    """Return the range of values of each axis of `stage`."""
    return {a.name: Interval(0, a.extent - 1) for a in stage.all_axes}


def validate_stage(stage: Stage, known: Mapping[str, Tensor], pointer: str = "") -> None:
    """Raise WorkloadError if `stage` is not well formed. It may read the tensors `known`."""
    _check_form(stage, known, pointer)
    check_reads(stage, stage.body, known, stage_ranges(stage), pointer)


def settled_stage(stage: Stage, known: Mapping[str, Tensor], pointer: str = "") -> Stage:
    """Return `stage` with its body simplified, and without components of tuples that it does not
    need (`needed_components`). Raise WorkloadError if the original body is not well
    typed, or a read in the simplified body is not in bounds."""
    _check_form(stage, known, pointer)
    stage = needed_components(stage)
    ranges = stage_ranges(stage)
    body = settled_body(stage.body, ranges, frozenset(a.name for a in stage.reduce_axes))
    check_reads(stage, body, known, ranges, pointer)
    return stage if body is stage.body else replace(stage, body=body)


def _check_form(stage: Stage, known: Mapping[str, Tensor], pointer: str) -> None:
    """Raise WorkloadError if `stage` violates a rule other than the bounds of its reads."""
    _check_axes(stage, pointer)
    _check_kind(stage, pointer)
    check_nodes(stage, known, stage_ranges(stage), f"{pointer}/body")
    stored = stored_value(stage).dtype
    if stored is not stage.tensor.dtype:
        raise WorkloadError(
            f"stage {stage.name!r} stores {stage.tensor.dtype}, its expression is"
            f" {stored}; cast it",
            code="dtype_clash",
            pointer=f"{pointer}/body",
        )
    used = vars_of(stage.body)
    for axis in stage.reduce_axes:
        if axis.name not in used:
            raise WorkloadError(
                f"stage {stage.name!r} reduces over {axis.name!r}, which its expression never uses",
                code="unused_axis",
                pointer=f"{pointer}/reduce_axes",
            )


def _check_kind(stage: Stage, pointer: str) -> None:
    match stage.kind:
        case Elementwise():
            pass
        case Reduction(reducer, axes):
            if not axes:
                raise WorkloadError(
                    f"stage {stage.name!r}: a reducer and reduction axes need each other",
                    code="bad_reduction",
                    pointer=f"{pointer}/reduce_axes",
                )
            _check_no_narrow_float(stage, "reduce", pointer)
            _check_no_sum_of_bools(stage, reducer, pointer)
        case Scan(reducer, dim):
            if not 0 <= dim < len(stage.axes):
                raise WorkloadError(
                    f"stage {stage.name!r} scans along dimension {dim}, it has {len(stage.axes)}",
                    code="bad_reduction",
                    pointer=f"{pointer}/scan_axis",
                )
            _check_no_narrow_float(stage, "scan", pointer)
            _check_no_sum_of_bools(stage, reducer, pointer)
        case TupleReduction():
            check_tuple_reduction(stage, pointer)
        case _:
            assert_never(stage.kind)


def _check_no_narrow_float(stage: Stage, verb: str, pointer: str) -> None:
    if stage.tensor.dtype.is_narrow_float:
        raise WorkloadError(
            f"stage {stage.name!r} {verb}s in {stage.tensor.dtype};"
            f" {verb} in f32 and cast the result",
            code="bad_dtype",
            pointer=pointer,
        )


def _check_no_sum_of_bools(stage: Stage, reducer: Reducer, pointer: str) -> None:
    if stage.tensor.dtype is DType.BOOL and reducer in (Reducer.SUM, Reducer.PROD):
        raise WorkloadError(
            f"stage {stage.name!r} combines bools by {reducer}; bools have max (any of"
            " them) and min (all of them), and are counted as i32",
            code="bad_dtype",
            pointer=pointer,
        )


def _check_axes(stage: Stage, pointer: str) -> None:
    seen: set[str] = set()
    for axis in stage.all_axes:
        check_name(axis.name, "an axis", f"{pointer}/axes")
        check_extent(axis.extent, f"axis {axis.name!r} of stage {stage.name!r}", f"{pointer}/axes")
        if axis.name in seen:
            raise WorkloadError(
                f"stage {stage.name!r} has two axes named {axis.name!r}",
                code="duplicate",
                pointer=f"{pointer}/axes",
            )
        seen.add(axis.name)
    if tuple(a.extent for a in stage.axes) != stage.tensor.shape:
        raise WorkloadError(
            f"stage {stage.name!r} has the shape {stage.tensor.shape}, its axes have"
            f" {_extents(stage.axes)}",
            code="bad_shape",
            pointer=f"{pointer}/axes",
        )
    if len(stage.reduce_axes) > MAX_DIMS:
        raise WorkloadError(
            f"stage {stage.name!r}: at most {MAX_DIMS} reduction axes,"
            f" got {len(stage.reduce_axes)}",
            code="too_large",
            pointer=f"{pointer}/reduce_axes",
        )


def _extents(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    return tuple(a.extent for a in axes)
