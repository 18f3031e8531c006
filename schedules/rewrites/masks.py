"""Masks: elementwise stages that store one of two constants, as a condition says."""

from __future__ import annotations

from ..algebra.scalar import (
    All,
    Cast,
    Compare,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    rewrite,
    substitute,
    walk,
)
from ..workload.tensors import Stage
from ..workload.workload import Workload


def with_masks_inlined(stage: Stage, workload: Workload) -> Scalar:
    """Return the body of `stage` with the elements of masks in place of their reads. A mask is kept
    that is read at data and is not only a comparison of what it reads there.

    Zeros of masks become implicit zeros, whose products with infinities and NaN may be skipped
    (docs/math.md).
    """
    elementwise = (one for one in workload.stages if one.is_elementwise)
    masks = {one.name: one for one in elementwise if _is_compared(one.body)}

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Load) or node.tensor not in masks:
            return None
        mask = masks[node.tensor]
        at = dict(zip((axis.name for axis in mask.axes), node.index, strict=True))
        data = (name for name, index in at.items() if index.has_data)
        if not all(only_in_reads(mask.body, name) for name in data):
            return None
        return substitute(mask.body, at)

    return rewrite(stage.body, leaf) if masks else stage.body


def _is_compared(body: Scalar) -> bool:
    """Return whether `body` is a comparison, also as a number, or a constant that one chooses."""
    match body:
        case Select(_, Const(), Const()) | Compare() | Cast(Compare()):
            return True
        case _:
            return False


def only_in_reads(value: Scalar, axis: str) -> bool:
    """Return whether `axis` occurs in `value` only in indices of reads, outside of data. Then data
    may take its place."""
    for node in walk(value):
        match node:
            case IndexValue(index) if index.mentions(axis):
                return False
            case All(conds) if any(cond.index.mentions(axis) for cond in conds):
                return False
            case Load(_, indices) if any(
                axis in datum.vars() for index in indices for datum in index.data()
            ):
                return False
            case _:
                pass
    return True
