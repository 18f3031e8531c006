"""Sums of products with masks that select an output of each term are sums of selected terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.neutral import identity_of
from ..algebra.scalar import CompareOp, Scalar, Select
from ..algebra.selection import SelectedTerm, selections
from ..errors import ScheduleError
from ..workload.tensors import Reduction, Stage
from ..workload.workload import Workload
from .masks import with_masks_inlined
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class SelectOutputs(Rewrite):
    """Replace products with masks that select an output of each term by choices.

        Y[v,d] += cast(I[n] == v) * X[n,d]    ->    Y[v,d] += X[n,d] if I[n] == v else 0

        H[n,v] = 1 if I[n] == v else 0;  Y[v,d] += H[n,v] * X[n,d]    ->    the same

    The rewrite is legal for a reduction whose term is the identity unless the position along an
    output axis is an integer that does not depend on it, and which is not written so. Products with
    implicit zeros are left out, even if the other factor is infinite or NaN (docs/math.md).
    """

    label: ClassVar[str] = "select"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the choices, in normal form. Raise ScheduleError if there is no
        such stage, or if no mask selects its outputs."""
        stage = self.stage_of(workload)
        body = selected_body(stage, workload)
        if body is None:
            raise ScheduleError(self, f"no mask selects outputs of {stage.name!r}")
        new = replace(stage, body=body)
        self.require_in_bounds(new, workload)
        stages = tuple(new if old is stage else old for old in workload.stages)
        return replace(workload, stages=stages).normalised()


def selected_body(stage: Stage, workload: Workload) -> Scalar | None:
    """Return the body of `stage` as choices of its terms by output axes, or None if no mask selects
    outputs, or if the body is written so."""
    if not isinstance(stage.kind, Reduction):
        return None
    reducer, axes = stage.kind.reducer, [axis.name for axis in stage.axes]
    masked = selections(with_masks_inlined(stage, workload), axes, reducer, exact=False)
    if not masked.by_name.keys() - selections(stage.body, axes, reducer).by_name.keys():
        return None
    body, identity = masked.value, identity_of(reducer, masked.value)
    for term in reversed(list(masked.by_name.values())):
        body = Select(_equality(term), body, identity)
    return body


def _equality(term: SelectedTerm) -> Scalar:
    return replace(term.test, op=CompareOp.EQ)
