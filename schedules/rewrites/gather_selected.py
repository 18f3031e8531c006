"""Sums of the one term that data select, as with one-hot vectors, are reads at an index of data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.gathers import DataPosition, Outside, place_of
from ..algebra.neutral import identity_of
from ..algebra.scalar import Scalar, Select, substitute
from ..algebra.selection import selected_terms
from ..errors import require
from ..workload.tensors import Axis, Elementwise, Reduction, Stage
from ..workload.workload import Workload
from .masks import only_in_reads, with_masks_inlined
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class GatherSelected(Rewrite):
    """Read the one term of a reduction along `axis` that a comparison with data selects.

        Y[n,d] += T[v,d] if v == I[n] else 0
    ->  Y[n,d] = T[clamp(I[n]),d] if 0 <= I[n] < V else 0

        H[n,v] = 1 if v == I[n] else 0;  Y[n,d] += H[n,v] * T[v,d]    ->    the same

    The rewrite is legal for a reduction whose term is the identity unless the position along the
    axis is an integer that does not depend on it, and uses the position as an index only. Products
    with implicit zeros are left out, even if the other factor is infinite or NaN (docs/math.md).
    """

    label: ClassVar[str] = "gather"

    axis: str

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload without the reduction axis, in normal form.

        Raise ScheduleError if there is no such stage, if data do not select its terms along the
        axis, or if a read would be out of bounds.
        """
        stage = self.stage_of(workload)
        selected = selection_of(stage, self.axis, workload)
        require(selected is not None, self, f"data select no terms of {stage.name!r}")
        assert selected is not None
        assert isinstance(stage.kind, Reduction)
        others = tuple(axis for axis in stage.kind.axes if axis.name != self.axis)
        kind = replace(stage.kind, axes=others) if others else Elementwise()
        new = replace(stage, body=selected.term(), kind=kind)
        self.require_in_bounds(new, workload)
        stages = tuple(new if old is stage else old for old in workload.stages)
        return replace(workload, stages=stages).normalised()


@dataclass(frozen=True, slots=True)
class SelectedRead:
    """The term of the reduction `stage` at the position `place` of `axis`. All others are the
    reducer's identity."""

    stage: Stage
    axis: Axis
    place: Scalar
    value: Scalar
    """The value of the term, if there is such a position."""

    def term(self) -> Scalar:
        """Return the value of the selected term, or the identity if there is no such position."""
        assert isinstance(self.stage.kind, Reduction)
        at, tests = place_of(DataPosition(self.place, Outside.ZERO), self.axis.extent)
        found = substitute(self.value, {self.axis.name: at})
        for test in reversed(tests):
            found = Select(test, found, identity_of(self.stage.kind.reducer, found))
        return found


def selection_of(stage: Stage, axis: str, workload: Workload) -> SelectedRead | None:
    """Return how data select the terms of `stage` along `axis`, or None if they do not."""
    along = next((one for one in stage.reduce_axes if one.name == axis), None)
    if along is None or not isinstance(stage.kind, Reduction):
        return None
    body = with_masks_inlined(stage, workload)
    for found in selected_terms(body, axis, stage.kind.reducer, exact=False):
        if only_in_reads(found.value, axis):
            return SelectedRead(stage, along, found.place, found.value)
    return None
