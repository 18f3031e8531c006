"""Conditions of results: they choose which elements of a stage exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.comparisons import Cond, substitute_cond
from ..algebra.conditions import needed
from ..algebra.neutral import assuming, identity_of, neutral_conditions
from ..algebra.scalar import All, Load, Reducer, Select, conditional_loads
from ..errors import require
from ..workload.tensors import Reduction, Scan, Stage, TupleReduction
from ..workload.validate import stage_ranges
from ..workload.workload import Workload
from .rewrite import Rewrite, reads_in_bounds


@dataclass(frozen=True, slots=True)
class MaskResult(Rewrite):
    """Choose by conditions which elements of `stage` exist.

        Y[i,j] += A[i,k] * B[k,j] if j <= i else 0
    ->  T[i,j] += A[i,k] * B[k,j];  Y[i,j] = T[i,j] if j <= i else 0

        S[i,j] += Q[i,k] * K[j,k];  M[i] max= S[i,j] if j <= i else -inf
    ->  T[i,j] += Q[i,k] * K[j,k];  S[i,j] = T[i,j] if j <= i else 0;  M[i] max= ...

    The conditions are those of all terms that depend on no reduction axis, as in the first example,
    and those under which all readers use an element, as in the second. Tiles then skip elements
    that do not exist (`lowering/unread.py`). No result changes: the other elements are the
    reducer's identity, or are not used. An elementwise stage, which has no terms, gets the
    conditions of its readers in place. The rewrite is legal if there is such a condition, except
    for scans, whose elements use each other, and for reductions of tuples.
    """

    label: ClassVar[str] = "mask"
    keeps_operations: ClassVar[bool] = True

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with two stages in place of a reduction, or with a condition in an
        elementwise stage, in normal form.

        Raise ScheduleError if there is no such stage or condition, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        conds = result_conditions(workload, stage)
        require(bool(conds), self, f"no condition limits the results of {stage.name!r}")
        if isinstance(stage.kind, Reduction):
            self.require_room(workload)
            new: tuple[Stage, ...] = _whole_and_chosen(workload, stage, stage.kind, conds)
        else:
            zero = identity_of(Reducer.SUM, stage.body)
            new = (replace(stage, body=Select(All(conds), stage.body, zero)),)
        pairs = (new if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for pair in pairs for s in pair)).normalised()


def _whole_and_chosen(
    workload: Workload, stage: Stage, kind: Reduction, conds: tuple[Cond, ...]
) -> tuple[Stage, Stage]:
    """Return the reduction without its own conditions, and the stage that chooses its results."""
    name = fresh("whole", set(workload.tensors))
    body = assuming(stage.body, conditions_of_terms(workload, stage))
    whole = replace(stage, tensor=replace(stage.tensor, name=name), body=body)
    at = tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in stage.axes)
    read = Load(name, at, stage.tensor.dtype)
    chosen = Select(All(conds), read, identity_of(kind.reducer, read))
    return whole, Stage(stage.tensor, stage.axes, chosen)


def result_conditions(workload: Workload, stage: Stage) -> tuple[Cond, ...]:
    """Return conditions on the axes of `stage`. If one of them fails for an element, the element is
    the reducer's identity, or no result depends on it. Conditions by which an elementwise stage
    already chooses are omitted."""
    found = (*conditions_of_terms(workload, stage), *conditions_of_readers(workload, stage))
    match stage.body if stage.is_elementwise else None:
        case Select(All(conds)):
            given = conds
        case _:
            given = ()
    return needed(found, stage_ranges(stage), given) or ()


def conditions_of_terms(workload: Workload, stage: Stage) -> tuple[Cond, ...]:
    """Return the conditions of all terms of a reduction that depend on no reduction axis. Those
    without which a read would be out of bounds are omitted."""
    if not isinstance(stage.kind, Reduction):
        return ()
    own = {axis.name for axis in stage.axes}
    found, left = list[Cond](), stage
    for cond in dict.fromkeys(neutral_conditions(stage.body, stage.kind.reducer)):
        without = replace(left, body=assuming(left.body, (cond,)))
        if cond.index.vars() <= own and reads_in_bounds(without, workload):
            found.append(cond)
            left = without
    return tuple(found)


def conditions_of_readers(workload: Workload, stage: Stage) -> tuple[Cond, ...]:
    """Return the conditions, on the axes of `stage`, under which all its readers use an element.

    Conditions count if they depend only on axes of a reader that are indices of its read.
    """
    if stage.name in workload.outputs or isinstance(stage.kind, Scan | TupleReduction):
        return ()
    common: dict[Cond, None] | None = None
    for reader in workload.consumers(stage.name):
        for load, conds in conditional_loads(reader.body):
            if load.tensor != stage.name:
                continue
            pairs = zip(load.index, stage.axes, strict=True)
            axis_of = {n: var(axis.name) for i, axis in pairs for n in i.vars() if i == var(n)}
            own = dict.fromkeys(
                substitute_cond(cond, axis_of)
                for cond in conds
                if cond.index.vars() <= axis_of.keys()
            )
            common = own if common is None else {cond: None for cond in common if cond in own}
    return tuple(common or ())
