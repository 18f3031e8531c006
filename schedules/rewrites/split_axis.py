"""Axis splitting: one axis becomes two adjacent axes. It is the inverse of `MergeAxes`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import ClassVar

from ..algebra.affine import Index, var
from ..algebra.scalar import Load, Scalar
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import require
from ..workload.normalise import normal_form
from ..workload.tensors import Axis, Scan, Stage, Tensor
from ..workload.workload import Workload
from .merge_axes import MergeAxes, accesses_of_stage, other_indices
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class SplitAxis(Rewrite):
    """Replace `axis` of `stage` by two axes, the second of extent `inner`.

        Y[a,m] += X[a,b,m]    ->    Y[a,c,d] += X[a,b,c,d]    with m = c * inner + d

    All tensors that the axis indexes have two dimensions in place of one, and so have the axes of
    all stages that access one of these dimensions. The shapes of inputs and outputs may therefore
    differ from those of the workload, but not their memory: tensors are dense and row-major. No
    value and no order of operations changes.

    The rewrite is legal if `inner` divides the extents of all these axes and dimensions, and if in
    every affected stage, every index that uses the axis is the axis itself; no condition and no
    index value uses it; and no scan is along it. The step is also known as strip-mining, here of
    the expression.
    """

    label: ClassVar[str] = "split"
    keeps_operations: ClassVar[bool] = True
    keeps_shapes: ClassVar[bool] = False

    axis: str
    inner: int

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with more axes, in normal form.

        Raise ScheduleError if there is no such stage or axis, if `inner` does not divide an extent,
        or if the axis is used in another way than as a whole index.
        """
        self.stage_of(workload)
        split = _Split(self, workload)
        inputs = tuple(split.tensor(tensor) for tensor in workload.inputs)
        stages = tuple(split.stage(stage) for stage in workload.stages)
        return replace(workload, inputs=inputs, stages=stages).normalised()


def undoing(merge: MergeAxes, workload: Workload) -> SplitAxis:
    """Return the step that makes `workload` (in normal form) of the result of `merge`. Raise
    ScheduleError if `merge` is not legal, or if its result does not tell what it was made of."""
    form = normal_form(merge.with_own_names(workload))
    (inner,) = (a.extent for a in workload.stage(merge.stage).all_axes if a.name == merge.inner)
    axis = form.axes[merge.stage, merge.outer]
    split = SplitAxis(form.tensors[merge.stage], axis, inner)
    problem = f"{split} does not undo {merge}"
    require(split.rewrite(form.computation) == workload, split, problem)
    return split


@dataclass(frozen=True)
class _Split:
    """All axes and dimensions that one step must split together."""

    step: SplitAxis
    workload: Workload

    @cached_property
    def axes(self) -> frozenset[tuple[str, str]]:
        """Each (stage, axis) that is split."""
        return self._found[0]

    @cached_property
    def dims(self) -> frozenset[tuple[str, int]]:
        """Each (tensor, dimension) that is split."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, int]]]:
        """Axes give dimensions, and these give axes in all stages that access the tensors. Repeat
        until nothing new is found."""
        stages = {stage.name: stage for stage in self.workload.stages}
        users: dict[str, list[tuple[str, Index]]] = {}
        for stage in self.workload.stages:
            for tensor, index in accesses_of_stage(stage):
                users.setdefault(tensor, []).append((stage.name, index))
        axes, dims = set[tuple[str, str]](), set[tuple[str, int]]()
        pending = [(self.step.stage, self.step.axis)]
        while pending:
            name, axis = pending.pop()
            if (name, axis) in axes:
                continue
            axes.add((name, axis))
            for tensor, dim in self._dims_of(stages[name], axis):
                if (tensor, dim) in dims:
                    continue
                dims.add((tensor, dim))
                for user, index in users[tensor]:
                    used = next(iter(index[dim].vars()), "")
                    problem = f"dimension {dim} of {tensor!r} is not indexed by an axis"
                    require(index[dim] == var(used), self.step, problem)
                    pending.append((user, used))
        return frozenset(axes), frozenset(dims)

    def _dims_of(self, stage: Stage, axis: str) -> list[tuple[str, int]]:
        """Return each (tensor, dimension) that `axis` indexes in `stage`. Raise ScheduleError if
        the axis cannot be split there."""
        extent = next((a.extent for a in stage.all_axes if a.name == axis), None)
        require(extent is not None, self.step, f"{stage.name!r} has no axis {axis}")
        assert extent is not None
        inner = self.step.inner
        divides = inner > 0 and extent % inner == 0
        require(divides, self.step, f"{inner} is no divisor of the extent {extent} of {axis}")
        scanned = isinstance(stage.kind, Scan) and stage.axes[stage.kind.dim].name == axis
        require(not scanned, self.step, f"{stage.name!r} scans {axis}")
        apart = any(axis in used for used in other_indices(stage.body))
        problem = f"a condition or index value of {stage.name!r} uses {axis}"
        require(not apart, self.step, problem)
        found = list[tuple[str, int]]()
        for tensor, index in accesses_of_stage(stage):
            shape = self.workload.tensors[tensor].shape
            for dim, entry in enumerate(index):
                if not entry.mentions(axis):
                    continue
                problem = f"{stage.name!r} indexes {tensor!r} by more than {axis}"
                require(entry == var(axis), self.step, problem)
                problem = f"{inner} is no divisor of dimension {dim} of {tensor!r}"
                require(shape[dim] % inner == 0, self.step, problem)
                found.append((tensor, dim))
        return found

    def tensor(self, tensor: Tensor) -> Tensor:
        """Return `tensor` with its split shape."""
        inner = self.step.inner
        pairs = (
            (extent // inner, inner) if (tensor.name, dim) in self.dims else (extent,)
            for dim, extent in enumerate(tensor.shape)
        )
        return replace(tensor, shape=tuple(extent for pair in pairs for extent in pair))

    def stage(self, stage: Stage) -> Stage:
        """Return `stage` with its axes split. The outer axis has the name of the whole one."""
        names = {a.name for a in stage.all_axes}
        unused = (name for number in count() if (name := f"q{number}") not in names)
        second = {a.name: next(unused) for a in stage.all_axes if (stage.name, a.name) in self.axes}
        if not second:
            return stage

        def split(axes: Iterable[Axis]) -> tuple[Axis, ...]:
            inner = self.step.inner
            pairs = (
                (replace(a, extent=a.extent // inner), Axis(second[a.name], inner))
                if a.name in second
                else (a,)
                for a in axes
            )
            return tuple(axis for pair in pairs for axis in pair)

        kind = stage.kind
        if isinstance(kind, Scan):
            before = sum(axis.name in second for axis in stage.axes[: kind.dim])
            kind = replace(kind, dim=kind.dim + before)

        def leaf(node: Scalar) -> Scalar | None:
            if not isinstance(node, Load):
                return None
            entries = (
                (entry, var(second[next(iter(entry.vars()))]))
                if (node.tensor, dim) in self.dims
                else (entry,)
                for dim, entry in enumerate(node.index)
            )
            return replace(node, index=tuple(entry for pair in entries for entry in pair))

        body = rewrite_scalar(stage.body, leaf)
        made = Stage(self.tensor(stage.tensor), split(stage.axes), body, kind)
        return made.reducing_over(split(stage.reduce_axes))
