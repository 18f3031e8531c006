"""Conditions under which an earlier stage stored a constant are repeated where it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.comparisons import Cond, substitute_cond
from ..algebra.conditions import needed
from ..algebra.scalar import All, Const, Load, Scalar, Select, conditional_loads, rewrite
from ..errors import require
from ..workload.tensors import Stage
from ..workload.validate import stage_ranges
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class RepeatConditions(Rewrite):
    """Repeat the conditions of stored constants in the reduction `stage`.

        P[i,k] = exp(A[i,k]) if k <= i else 0;  C[i,j] += P[i,k] * B[k,j]
    ->  P[i,k] = exp(A[i,k]) if k <= i else 0;  C[i,j] += (P[i,k] if k <= i else 0) * B[k,j]

    No value changes, but stored zeros become implicit zeros, whose products with infinities and NaN
    may be skipped (docs/math.md). The reduction can then skip its terms that are zero (SkipBlocks).
    The rewrite is legal if the reduction reads an elementwise stage that stores a constant unless a
    condition holds, and does not have this condition yet.
    """

    label: ClassVar[str] = "conditions"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with more conditions in `stage`, in normal form.

        Raise ScheduleError if there is no such stage, if it is no reduction, or if there is nothing
        to repeat.
        """
        stage = self.stage_of(workload)
        require(stage.is_reduction, self, f"{stage.name!r} is no reduction")
        new = repeated_conditions(workload, stage)
        require(bool(new), self, f"no read of {stage.name!r} has conditions to repeat")

        def guarded(node: Scalar) -> Scalar | None:
            return new.get(node) if isinstance(node, Load) else None

        changed = replace(stage, body=rewrite(stage.body, guarded))
        stages = tuple(changed if old is stage else old for old in workload.stages)
        return replace(workload, stages=stages).normalised()


def repeated_conditions(workload: Workload, stage: Stage) -> Mapping[Load, Select]:
    """Return the reads of `stage` whose elements are a constant unless a condition holds, each with
    the same read under this condition. Reads that are under the condition already are omitted."""
    earlier = {one.name: one for one in workload.stages if one.is_elementwise}
    ranges, found = stage_ranges(stage), dict[Load, Select]()
    for load, given in conditional_loads(stage.body):
        stored = earlier.get(load.tensor)
        match stored.body if stored else None:
            case Select(All(conds), _, Const() as otherwise):
                assert stored is not None
                pairs = zip(stored.axes, load.index, strict=True)
                at = {axis.name: index for axis, index in pairs}
                here: list[Cond] = [substitute_cond(cond, at) for cond in conds]
                # Conditions on data are none; the others repeat a part of what chose the element.
                left = needed((c for c in here if not c.index.has_data), ranges, given)
                if left:
                    found[load] = Select(All(left), load, otherwise)
    return found
