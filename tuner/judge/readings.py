"""What a right kernel may make of special values: readings of one workload, by IEEE arithmetic and
by what it may do otherwise; and which zeros keep their signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    rewrite,
    walk,
)
from schedules.dtypes import DType
from schedules.reference.boxes import MAX_BOX_POINTS, over_boxes
from schedules.reference.evaluate import evaluate_stage, load_inputs, value_of
from schedules.reference.reads import Box, full_box, leading_tiles
from schedules.workload.tensors import Stage
from schedules.workload.workload import Workload

from .classes import Classes, classes_of, over_parts

Array = npt.NDArray[Any]
_TINY = 2.0**-60
_MODEST_EXPONENT = 60.0
_MAX_OR_MIN = (BinaryOp.MAX, BinaryOp.MIN)


def reading(
    workload: Workload, inputs: Sequence[Array], lost: float | None = None
) -> list[Classes | None] | None:
    """The classes of the outputs' elements, None for outputs that are no floats; None if values
    leave the range of their types. With `lost`, what else a right kernel may make of the inputs:
    that number instead of a NaN in a maximum, nothing instead of a product with padding."""
    tensors = load_inputs(workload, inputs)
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            read = stage if lost is None else replace(stage, body=_without_padding(stage))
            if not _exponents_are_modest(read, tensors):
                return None
            values = evaluate_stage(read, tensors)
            if values.dtype.kind == "f" and not _read_otherwise(stage, values, lost):
                return None
            tensors[stage.name] = values
    return [
        classes_of(tensors[t.name], _modest(t.dtype)) if t.dtype.is_float else None
        for t in workload.output_tensors
    ]


def _read_otherwise(stage: Stage, values: Array, lost: float | None) -> bool:
    """Change the `values` of a stage to what a right kernel may make of them, unless `lost` is
    None; whether all finite ones are of modest size."""
    flat, modest, may_lose = values.reshape(-1), _modest(stage.tensor.dtype), _may_lose_nan(stage)

    def change(part: slice) -> bool:
        some = flat[part]
        size = np.abs(some)
        if bool(((size > modest) & (size < np.inf)).any()):
            return False
        if lost is not None:
            some[size < _TINY] = 0.0
            if may_lose:
                some[np.isnan(some)] = lost
        return True

    return all(over_parts(change, flat.size))


def _modest(dtype: DType) -> float:
    """The largest magnitude that is far from the end of the type."""
    if not dtype.is_float:
        return 2.0**30
    most = dtype.binary.max_exponent
    return 2.0 ** (200 if most > 200 else min(30, most - 4))


def _exponents_are_modest(stage: Stage, tensors: dict[str, Array]) -> bool:
    """Whether no exponential in the body of `stage` overflows or vanishes for a finite argument,
    which would show in no value of the stage."""
    exponents = [
        node.x
        for node in walk(stage.body)
        if isinstance(node, Unary)
        and node.op.function.may_leave_range
        and not isinstance(node.x, Load)
    ]
    boxes = list(leading_tiles(full_box((*stage.axes, *stage.reduce_axes)), MAX_BOX_POINTS))
    for exponent in exponents:

        def is_modest(box: Box, exponent: Scalar = exponent) -> bool:
            size = np.abs(value_of(exponent, box, tensors))
            return not bool(((size > _MODEST_EXPONENT) & np.isfinite(size)).any())

        if not all(over_boxes(is_modest, boxes, apart=True)):
            return False
    return True


def _without_padding(stage: Stage) -> Scalar:
    """The body of a sum with each product that is zero without some conditions made a choice by
    them: what else is multiplied is not looked at where one fails."""
    if stage.reducer is not Reducer.SUM:
        return stage.body

    def leaf(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Binary) and node.op is BinaryOp.MUL):
            return None
        found: Scalar = Binary(BinaryOp.MUL, rewrite(node.a, leaf), rewrite(node.b, leaf))
        for cond in dict.fromkeys(_needed(node)):
            found = Select(cond, found, Const(0, node.dtype))
        return found

    return rewrite(stage.body, leaf)


def _needed(node: Scalar) -> tuple[Scalar, ...]:
    """Conditions of choices of which each must hold for `node` not to be zero. Through conversions,
    signs and sums these are padding alone: kernels test data where the expression says so."""
    match node:
        case Select(cond, on_true, Const(0)):
            each = [All((one,)) for one in cond.conds] if isinstance(cond, All) else [cond]
            return (*each, *_needed(on_true))
        case Cast(x) | Unary(UnaryOp.NEG | UnaryOp.ABS, x):
            return tuple(cond for cond in _needed(x) if isinstance(cond, All))
        case Binary(BinaryOp.MUL, a, b):
            return (*_needed(a), *_needed(b))
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            other = _needed(b)
            return tuple(cond for cond in _needed(a) if isinstance(cond, All) and cond in other)
        case _:
            return ()


def _is_lossy(node: Scalar) -> bool:
    """Whether a NaN in one operand may be lost: beside a constant it is not."""
    if not (isinstance(node, Binary) and node.op in _MAX_OR_MIN and node.dtype.is_float):
        return False
    return not (isinstance(node.a, Const) or isinstance(node.b, Const))


def _may_lose_nan(stage: Stage) -> bool:
    if stage.reducer in (Reducer.MAX, Reducer.MIN):
        return stage.tensor.dtype.is_float
    return any(_is_lossy(node) for node in walk(stage.body))


def swallows_what_may_be_lost(stage: Stage) -> bool:
    """Whether the body makes a number of what a maximum in it may have lost: no reading of whole
    stages shows that."""
    swallows = any(
        isinstance(node, Compare) or (isinstance(node, Cast) and not node.dtype.is_float)
        for node in walk(stage.body)
    )
    return swallows and any(_is_lossy(node) for node in walk(stage.body))


def has_one_reading(workload: Workload) -> bool:
    """Whether there is nothing to disagree on: one stage whose terms are rounded once or are
    products of stored values, none of them with padding, no NaN to lose."""
    if len(workload.stages) != 1:
        return False
    (stage,) = workload.stages
    if _may_lose_nan(stage) or any(_needed(node) for node in walk(stage.body)):
        return False
    nodes = list(walk(stage.body))
    sums = [n for n in nodes if isinstance(n, Binary) and n.op in (BinaryOp.ADD, BinaryOp.SUB)]
    if len(sums) > (1 if stage.reducer is None else 0):
        return False
    allowed = {BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MAX, BinaryOp.MIN}
    return all(
        isinstance(node, Load | Const | Select | All)
        or (isinstance(node, Unary) and node.op in (UnaryOp.NEG, UnaryOp.ABS))
        or (isinstance(node, Binary) and node.op in allowed)
        for node in nodes
    )


def zero_signs(workload: Workload, inputs: Sequence[Array]) -> dict[str, npt.NDArray[np.int8]]:
    """Outputs whose zeros keep their signs, and which signs: those that are made of inputs without
    any sum, maximum or reduction."""
    keeping = {t.name for t in workload.inputs if t.dtype.is_float}
    tensors = load_inputs(workload, inputs)
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            reads = {node.tensor for node in walk(stage.body) if isinstance(node, Load)}
            if stage.reducer is None and reads <= keeping and _keeps_signs(stage.body):
                tensors[stage.name] = evaluate_stage(stage, tensors)
                keeping.add(stage.name)
    signs = {}
    for tensor in workload.output_tensors:
        if tensor.name in keeping:
            values = tensors[tensor.name]
            sign = np.where(np.signbit(values), -1, 1).astype(np.int8)
            signs[tensor.name] = np.where(values == 0, sign, np.int8(0))
    return signs


def _keeps_signs(node: Scalar) -> bool:
    match node:
        case Load() | Const():
            return node.dtype.is_float
        case Unary(op, x):
            return op.function.keeps_zero_sign and _keeps_signs(x)
        case Binary(op, a, b):
            return op in (BinaryOp.MUL, BinaryOp.DIV) and _keeps_signs(a) and _keeps_signs(b)
        case Select(cond, on_true, on_false):
            return isinstance(cond, All) and _keeps_signs(on_true) and _keeps_signs(on_false)
        case Cast(x, dtype):
            return dtype.is_float and _keeps_signs(x)
        case Compare() | All() | IndexValue():
            return False
