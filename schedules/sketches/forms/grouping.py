"""Sum groups of neighbouring columns after all their rows.

A group of neighbouring elements with a common result, such as the channels of a group in an image
with channels last, is too short for a loop over vectors. The partial results of all columns are
computed first, in vectors along all groups. What is read once per group is stored once per column.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

from ...algebra.affine import Affine, FloorDiv, Mod, affine, recombine, var
from ...algebra.scalar import Load, loads
from ...form import Form
from ...rewrites import ReduceAxisLast, RepeatElements
from ...rewrites.repeat_elements import distinct_reads
from ...target import Target
from ...workload.tensors import Axis, Stage
from ...workload.workload import Workload
from ..analysis.stages import SHORT_AXIS


def columns_first(form: Form, target: Target) -> Form:
    """Return `form` with all reductions over short groups of columns divided, and with what these
    columns read once per group stored once per column. Return `form` itself if there are none."""
    divided = form.apply_until_fixpoint(partial(_groups_last, target))
    return divided.apply_until_fixpoint(_repeated) if divided is not form else form


def _groups_last(target: Target, workload: Workload) -> Iterator[ReduceAxisLast]:
    """Yield the steps that divide a reduction whose innermost data are short groups of columns."""
    for stage in workload.stages:
        largest = max(
            loads(stage.body), key=lambda r: prod(workload.tensors[r.tensor].shape), default=None
        )
        pair = _group_of(stage, largest) if largest and stage.is_reduction else None
        if pair is None:
            continue
        outer, inner = pair
        if stage.axes[-1] != outer and stage.axes[-1].extent >= SHORT_AXIS:
            continue  # vectors are along another axis
        rows = prod(axis.extent for axis in stage.reduce_axes if axis != inner)
        lanes = target.lanes(stage.tensor.dtype)
        short = inner.extent % lanes or inner.extent < SHORT_AXIS * lanes
        if short and rows >= SHORT_AXIS:
            yield ReduceAxisLast(stage.name, outer.name, inner.name)


def _group_of(stage: Stage, read: Load) -> tuple[Axis, Axis] | None:
    """Return the output axis and the reduction axis that together are the last index of `read`, or
    None if it has another form."""
    axes = {axis.name: axis for axis in stage.all_axes}
    last = read.index[-1] if read.index else affine(0)
    for inner in stage.reduce_axes:
        for outer in (axes[name] for name in sorted(last.vars()) if axes[name] in stage.axes):
            plain = last == var(outer.name) * inner.extent + var(inner.name)
            if plain and min(outer.extent, inner.extent) > 1:
                return outer, inner
    return None


def _repeated(workload: Workload) -> Iterator[RepeatElements]:
    """Yield the steps that store what a stage reads at quotients or remainders of its last axis, if
    that is much less than the stage computes."""
    for stage in workload.stages:
        extents = {axis.name: axis.extent for axis in stage.all_axes}
        for number, read in enumerate(distinct_reads(stage)):
            used = frozenset(name for index in read.index for name in index.vars())
            stored = prod(extents[name] for name in used)
            columns = [axis.name for axis in stage.axes[-1:]]
            divides = any(_divides(index, name) for index in read.index for name in columns)
            if divides and SHORT_AXIS * stored <= prod(extents.values()):
                yield RepeatElements(stage.name, number)


def _divides(index: Affine, axis: str) -> bool:
    atoms = (atom for atom, _ in recombine(index).terms if isinstance(atom, FloorDiv | Mod))
    return any(atom.numerator == var(axis) for atom in atoms)
