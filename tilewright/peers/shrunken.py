"""The same computation on next to nothing: its time is what calling a library costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilewright.schedules.algebra.affine import Affine, Interval, Var, interval
from tilewright.schedules.algebra.scalar import index_conds, loads, walk
from tilewright.schedules.workload.tensors import Axis, Stage, Tensor
from tilewright.schedules.workload.workload import Workload

SHRUNKEN_EXTENTS = ((16, 4), (16, 2), (8, 2), (8, 1), (4, 1))
"""What extents are cut to, the last one of a tensor and the others: the first that is little enough
counts. A last one of a vector's length lets a library take the code that it takes for vectors."""

LITTLE_FLOPS, MOST_FLOPS = 100_000, 300_000
"""A microsecond or two of arithmetic; and what is too much to say anything about calling."""

Dim = tuple[str, int]
"""A tensor's dimension, or (stage's name and axis, -1)."""


def shrunken(workload: Workload) -> Workload | None:
    """`workload` with its extents cut, where indices allow it: stages, types, order of dimensions,
    windows, strides and groups are the same. What it computes with numbers of the expression that
    depended on an extent, such as a mean's, is another value. None if it is still large."""
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
    """An input as large as what is read of it now, its padding kept."""
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
    """Dimensions of tensors and axes of stages that must have one extent, and which may be cut."""

    def __init__(self, workload: Workload) -> None:
        self._parent: dict[Dim, Dim] = {}
        self._kept: set[Dim] = set()
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
        """Of a line of one number a row it is the rows that it has."""
        if dim[1] > 0:
            self._innermost.add(dim)

    def cut(self, stage: Stage, axis: Axis, innermost: int, others: int) -> int:
        """The new extent of an axis."""
        root = self._root(_axis(stage, axis.name))
        if root in {self._root(each) for each in self._kept}:
            return axis.extent
        inner = root in {self._root(each) for each in self._innermost}
        return min(axis.extent, innermost if inner else others)

    def _read(self, stage: Stage, dim: Dim, index: Affine, is_made: bool) -> None:
        """An axis alone has the dimension's extent. Of a window only what slides is cut; nothing in
        a division is, nor what reads windows of an earlier stage's result, whose extent follows."""
        names = sorted(index.vars())
        if len(index.terms) == 1 and not index.const and index.terms[0] == (Var(names[0]), 1):
            self._join(_axis(stage, names[0]), dim)
            return
        summed = {axis.name for axis in stage.reduce_axes}
        for name in names:
            fixed = name in summed and len(names) > 1
            turned = index.is_linear_in(name) and index.coefficient(name) < 1
            if fixed or is_made or turned:
                self._kept.add(_axis(stage, name))
        if is_made:
            self._kept.add(dim)
        self._keep_divided(stage, index)

    def _keep_divided(self, stage: Stage, index: Affine) -> None:
        for atom, _ in index.terms:
            if not isinstance(atom, Var) and len(index.terms) > 1:
                self._kept.update(_axis(stage, name) for name in index.vars())

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
