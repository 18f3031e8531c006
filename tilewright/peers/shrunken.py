"""Shrinks a workload to tiny tensors, so that its time is the cost of calling a library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilewright.schedules.algebra.affine import Affine, Interval, Var, interval
from tilewright.schedules.algebra.scalar import index_conds, loads, walk
from tilewright.schedules.workload.tensors import Axis, Stage, Tensor
from tilewright.schedules.workload.workload import Workload

SHRUNKEN_EXTENTS = ((16, 4), (16, 2), (8, 2), (8, 1), (4, 1))
"""Pairs of extents: of a tensor's last dimension, and of its other dimensions. The first pair that
makes the workload small enough is used. If the last extent is the length of a vector, a library can
use its vector code."""

LITTLE_FLOPS, MOST_FLOPS = 100_000, 300_000
"""`LITTLE_FLOPS` operations take one or two microseconds. With more than `MOST_FLOPS`, the time is
not the cost of a call any more."""

Dim = tuple[str, int]
"""(tensor name, dimension), or ("stage.axis", -1) for an axis of a stage."""


def shrunken(workload: Workload) -> Workload | None:
    """Return `workload` with its extents reduced if indices allow it, or None if it is still large.
    Stages, types, order of dimensions, windows, strides and groups are unchanged. Results that use
    a constant derived from an extent, such as means, differ."""
    classes = _ExtentClasses(workload)
    small = [_cut(workload, classes, innermost, others) for innermost, others in SHRUNKEN_EXTENTS]
    found = next((each for each in small if each.flops <= LITTLE_FLOPS), small[-1])
    return found if found.flops <= MOST_FLOPS else None


def _cut(workload: Workload, classes: _ExtentClasses, innermost: int, others: int) -> Workload:
    extents = {
        stage.name: {a.name: classes.cut(stage, a, innermost, others) for a in stage.all_axes}
        for stage in workload.stages
    }
    inputs = tuple(_smaller(tensor, workload, extents) for tensor in workload.inputs)
    stages = tuple(_smaller_stage(stage, extents[stage.name]) for stage in workload.stages)
    return replace(
        workload, inputs=inputs, stages=stages, declared_flops=None, declared_min_bytes=None
    )


def _smaller_stage(stage: Stage, extents: Mapping[str, int]) -> Stage:
    def cut(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, extents[a.name]) for a in axes)

    axes = cut(stage.axes)
    tensor = replace(stage.tensor, shape=tuple(a.extent for a in axes))
    return replace(stage, tensor=tensor, axes=axes).reducing_over(cut(stage.reduce_axes))


def _smaller(
    tensor: Tensor, workload: Workload, extents: Mapping[str, Mapping[str, int]]
) -> Tensor:
    """Return the input `tensor` with reduced dimensions. The largest index of a dimension and its
    extent are reduced by the same number."""
    shape = [0] * len(tensor.shape)
    for stage, dim, index in _reads(workload, tensor.name):
        before = {a.name: a.extent for a in stage.all_axes}
        less = _last(index, before) - _last(index, extents[stage.name])
        shape[dim] = max(shape[dim], tensor.shape[dim] - less, 1)
    return replace(
        tensor, shape=tuple(n or old for n, old in zip(shape, tensor.shape, strict=True))
    )


def _reads(workload: Workload, tensor: str) -> Iterator[tuple[Stage, int, Affine]]:
    for stage in workload.stages:
        for load in loads(stage.body):
            if load.tensor == tensor:
                for dim, index in enumerate(load.index):
                    yield stage, dim, index


def _last(index: Affine, extents: Mapping[str, int]) -> int:
    return interval(index, {name: Interval(0, n - 1) for name, n in extents.items()}).hi


class _ExtentClasses:
    """Classes of tensor dimensions and stage axes with equal extents. Some cannot be reduced."""

    def __init__(self, workload: Workload) -> None:
        self._parent: dict[Dim, Dim] = {}
        self._fixed: set[Dim] = set()
        self._innermost: set[Dim] = set()
        made = {stage.name for stage in workload.stages}
        for stage in workload.stages:
            for place, axis in enumerate(stage.axes):
                self._join(_axis(stage, axis.name), (stage.name, place))
            self._last((stage.name, len(stage.axes) - 1))
        for stage in workload.stages:
            for load in loads(stage.body):
                for dim, index in enumerate(load.index):
                    self._read(stage, (load.tensor, dim), index, load.tensor in made)
                self._last((load.tensor, len(load.index) - 1))
            for node in walk(stage.body):
                for cond in index_conds(node):
                    self._keep_divided(stage, cond.index)

    def _last(self, dim: Dim) -> None:
        """Record a last dimension, except of a vector, which usually has one entry per row."""
        if dim[1] > 0:
            self._innermost.add(dim)

    def cut(self, stage: Stage, axis: Axis, innermost: int, others: int) -> int:
        """Return the new extent of an axis."""
        root = self._root(_axis(stage, axis.name))
        if root in {self._root(each) for each in self._fixed}:
            return axis.extent
        inner = root in {self._root(each) for each in self._innermost}
        return min(axis.extent, innermost if inner else others)

    def _read(self, stage: Stage, dim: Dim, index: Affine, is_made: bool) -> None:
        """Record the index of one dimension in a read. An index of one axis gives the dimension
        this axis's extent. In a window, only the spatial axis can be reduced. Axes in divisions,
        and in windows over an earlier stage's result (`is_made`), cannot be reduced."""
        if index.has_data:
            self._fixed.add(dim)
            return
        names = sorted(index.vars())
        if len(index.terms) == 1 and not index.const and index.terms[0] == (Var(names[0]), 1):
            self._join(_axis(stage, names[0]), dim)
            return
        summed = {axis.name for axis in stage.reduce_axes}
        for name in names:
            fixed = name in summed and len(names) > 1
            turned = index.is_linear_in(name) and index.coefficient(name) < 1
            if fixed or is_made or turned:
                self._fixed.add(_axis(stage, name))
        if is_made:
            self._fixed.add(dim)
        self._keep_divided(stage, index)

    def _keep_divided(self, stage: Stage, index: Affine) -> None:
        for atom, _ in index.terms:
            if not isinstance(atom, Var) and len(index.terms) > 1:
                self._fixed.update(_axis(stage, name) for name in index.vars())

    def _root(self, dim: Dim) -> Dim:
        while dim in self._parent:
            dim = self._parent[dim]
        return dim

    def _join(self, a: Dim, b: Dim) -> None:
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[a] = b


def _axis(stage: Stage, name: str) -> Dim:
    return f"{stage.name}.{name}", -1
