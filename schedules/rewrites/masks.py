"""Masks: elementwise stages that store one of two constants, as a condition says."""

from __future__ import annotations

from ..algebra.scalar import Cast, Compare, Const, Load, Scalar, Select, rewrite, substitute
from ..workload.tensors import Stage
from ..workload.workload import Workload


def with_masks_inlined(stage: Stage, workload: Workload) -> Scalar:
    """Return the body of `stage` with the elements of masks in place of their reads.

    Zeros of masks become implicit zeros, whose products with infinities and NaN may be skipped
    (docs/math.md).
    """
    masks = {one.name: one for one in workload.stages if one.is_elementwise and _is_mask(one.body)}

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Load) or node.tensor not in masks:
            return None
        mask = masks[node.tensor]
        return substitute(
            mask.body, dict(zip((a.name for a in mask.axes), node.index, strict=True))
        )

    return rewrite(stage.body, leaf) if masks else stage.body


def _is_mask(body: Scalar) -> bool:
    match body:
        case Select(_, Const(), Const()) | Compare() | Cast(Compare()):
            return True
        case _:
            return False
