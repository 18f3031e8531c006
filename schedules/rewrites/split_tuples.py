"""Division of a reduction of tuples: partial results first, then their combination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.comparisons import Ge0
from ..algebra.scalar import All, Components, Load, Scalar, Select, substitute
from ..errors import ScheduleError, require
from ..limits import MAX_EXTENT, MAX_STAGES
from ..workload.tensors import Axis, Stage, Tensor, TupleReduction
from ..workload.tuple_stages import needed_components
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class SplitTuples(Rewrite):
    """Combine `parts` partial results of the reduction of tuples `stage` along its last axis.

        P[i] = combine of V[i,k] over k
    ->  T[i,p] = combine of V[i, p*length + q] over q;  P[i] = combine of T[i,p] over p

    The parts are blocks of the axis, so that tuples keep their order. If `interleaved`, part p has
    the positions p, p + parts, p + 2*parts, ...: vectors along the parts are then contiguous where
    the axis is. Positions after the end are the identity. Each component that the stage needs is a
    tensor of partial results, and all of them are computed in one pass (`lowering/tuples.py`). The
    rewrite only regroups. It is legal for every reduction of tuples along one longer axis; along
    several axes, or with `interleaved`, if the combination is commutative.
    """

    keeps_operations: ClassVar[bool] = True

    parts: int
    interleaved: bool = False

    @property
    def label(self) -> str:
        return f"{'lanes' if self.interleaved else 'blocks'}{self.parts}"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with partial results, in normal form.

        Raise ScheduleError if there is no such stage, if it is no reduction of tuples, if its last
        axis is not longer than the parts, if the order would change, or if there are too many
        stages.
        """
        stage = self.stage_of(workload)
        kind, body = stage.kind, stage.body
        if not isinstance(kind, TupleReduction) or not isinstance(body, Components):
            raise ScheduleError(self, f"{stage.name!r} is no reduction of tuples")
        *outer, last = kind.axes
        problem = f"the last reduction axis of {stage.name!r} has {last.extent} positions"
        require(1 < self.parts < last.extent, self, problem)
        in_order = not self.interleaved and not outer
        problem = f"the order would change, and {stage.name!r} does not combine in any order"
        require(in_order or kind.commutative, self, problem)
        room = len(workload.stages) + len(body.values) <= MAX_STAGES
        require(room, self, f"the result would have more than {MAX_STAGES} stages")
        partial = self._partial(stage, kind, body)
        names = self._names(workload, len(partial))
        stages = [
            replace(one, tensor=replace(one.tensor, name=name))
            for one, name in zip(partial, names, strict=True)
        ]
        whole = self._combined(stage, kind, stages)
        found = ((*stages, whole) if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for part in found for s in part)).normalised()

    @staticmethod
    def _names(workload: Workload, count: int) -> list[str]:
        taken, names = set(workload.tensors), list[str]()
        for _ in range(count):
            names.append(fresh("partial", taken))
            taken.add(names[-1])
        return names

    def _partial(self, stage: Stage, kind: TupleReduction, body: Components) -> list[Stage]:
        """Return a stage for each component, with the parts as its last axis."""
        *outer, last = kind.axes
        taken = {axis.name for axis in stage.all_axes}
        length = -(-last.extent // self.parts)
        part = Axis(fresh("part", taken), self.parts)
        step = Axis(last.name, length)
        extent = part.extent * step.extent
        require(extent <= MAX_EXTENT, self, f"an axis would have more than {MAX_EXTENT} positions")
        if self.interleaved:
            position = var(step.name) * self.parts + var(part.name)
        else:
            position = var(part.name) * length + var(step.name)
        values: list[Scalar] = []
        for value, identity in zip(body.values, kind.identities, strict=True):
            moved = substitute(value, {last.name: position})
            if extent > last.extent:
                inside = All((Ge0(affine(last.extent - 1) - position),))
                moved = Select(inside, moved, identity)
            values.append(moved)
        axes, found = (*stage.axes, part), list[Stage]()
        shape = tuple(axis.extent for axis in axes)
        for number, identity in enumerate(kind.identities):
            tensor = Tensor("partial", shape, identity.dtype)
            own = replace(kind, axes=(*outer, step), position=number)
            whole = Stage(tensor, axes, Components(tuple(values)), own)
            found.append(needed_components(whole))
        return found

    def _combined(self, stage: Stage, kind: TupleReduction, partial: list[Stage]) -> Stage:
        taken = {axis.name for axis in stage.axes}
        part = Axis(fresh("part", taken), self.parts)
        at = tuple(var(a.name) if a.extent > 1 else affine(0) for a in (*stage.axes, part))
        values = tuple(Load(one.name, at, one.tensor.dtype) for one in partial)
        body = Components(values)
        return replace(stage, body=body, kind=replace(kind, axes=(part,)))
