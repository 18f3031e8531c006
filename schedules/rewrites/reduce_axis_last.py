"""Reduction in two stages: over one short axis last, from partial results of the other axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import Interval, affine, floor_div, fresh, modulo, recombine, simplify, var
from ..algebra.scalar import Load, map_index, substitute
from ..errors import ScheduleError, require
from ..limits import MAX_EXTENT
from ..workload.tensors import Axis, Reduction, Stage, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class ReduceAxisLast(Rewrite):
    """Reduce `stage` over the other reduction axes first, and over `inner` in a second stage.

        Y[n,g] += f(X[n,p,4*g+k], m[n,g])
    ->  T[n,c] += f(X[n,p,c], m[n,c//4]);  Y[n,g] += T[n,4*g+k]

    `inner` is a reduction axis and `outer` an axis of the result. The partial results have one axis
    for both, so that vectors can be contiguous along all groups of `inner`. The rewrite is legal
    for every reduction over at least one other axis. It only reassociates, as RFactor does.
    """

    label: ClassVar[str] = "last"
    keeps_operations: ClassVar[bool] = True

    outer: str
    inner: str

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with two stages in place of `stage`, in normal form.

        Raise ScheduleError if there are no such axes, if nothing is left to reduce first, if the
        common axis would be too long, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        kind = stage.kind
        outer = next((axis for axis in stage.axes if axis.name == self.outer), None)
        inner = next((axis for axis in stage.reduce_axes if axis.name == self.inner), None)
        if not isinstance(kind, Reduction):
            raise ScheduleError(self, f"{self.stage!r} is no reduction by a reducer")
        problem = f"{self.outer} is no axis or {self.inner} no reduction axis of {stage.name!r}"
        require(outer is not None and inner is not None, self, problem)
        assert outer is not None
        assert inner is not None
        first = tuple(axis for axis in kind.axes if axis != inner)
        require(bool(first), self, f"{stage.name!r} reduces over {self.inner} only")
        both = Axis(outer.name, outer.extent * inner.extent)
        require(both.extent <= MAX_EXTENT, self, f"an axis has more than {MAX_EXTENT} positions")
        self.require_room(workload)
        axes = tuple(both if axis == outer else axis for axis in stage.axes)
        name = fresh("partial", set(workload.tensors))
        tensor = Tensor(name, tuple(axis.extent for axis in axes), stage.tensor.dtype)
        place = var(both.name)
        parts = {
            outer.name: floor_div(place, inner.extent),
            inner.name: modulo(place, inner.extent),
        }
        ranges = {axis.name: Interval(0, axis.extent - 1) for axis in (*axes, *first)}
        body = map_index(substitute(stage.body, parts), lambda i: recombine(simplify(i, ranges)))
        partials = Stage(tensor, axes, body, replace(kind, axes=first))
        self.require_in_bounds(partials, workload)
        at = {axis.name: var(axis.name) if axis.extent > 1 else affine(0) for axis in stage.axes}
        at[outer.name] = at[outer.name] * inner.extent + var(inner.name)
        read = Load(name, tuple(at[axis.name] for axis in stage.axes), tensor.dtype)
        total = replace(stage, body=read, kind=replace(kind, axes=(inner,)))
        pairs = ((partials, total) if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for pair in pairs for s in pair)).normalised()
