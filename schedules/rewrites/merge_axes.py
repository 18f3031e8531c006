"""Axis merging: two adjacent axes that always lie together become one axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import ClassVar

from ..algebra.affine import Index, var
from ..algebra.scalar import IndexValue, Load, Scalar, index_conds, loads, walk
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import require
from ..limits import MAX_EXTENT
from ..workload.tensors import Axis, Scan, Stage, Tensor, TupleReduction
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class MergeAxes(Rewrite):
    """Replace the axes `outer` and `inner` of `stage` by one axis over all their pairs.

        Y[a,c,d] += X[a,b,c,d]    ->    Y[a,m] += X[a,b,m]    with m = c * (extent of d) + d

    All tensors that the axes index have one dimension in place of two, and so have the axes of all
    stages that access one of these dimensions. The shapes of inputs and outputs may therefore
    differ from those of the workload, but not their memory: tensors are dense and row-major. No
    value and no order of operations changes.

    The rewrite is legal if in every affected stage, every access has the pair as two adjacent
    indices, in this order, or does not use it; no other index, condition or index value uses one of
    its axes; no scan is along one of them; and a reduction of tuples has them in this order. The
    step is also known as loop fusion, here of the expression, or as collapsing dimensions.
    """

    label: ClassVar[str] = "merge"
    keeps_operations: ClassVar[bool] = True
    keeps_shapes: ClassVar[bool] = False

    outer: str
    inner: str

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with fewer axes, in normal form.

        Raise ScheduleError if there is no such stage or axis, if an access does not use the two
        axes as a pair, or if the merged axis would be too long.
        """
        return self.with_own_names(workload).normalised()

    def with_own_names(self, workload: Workload) -> Workload:
        """Return the result of `rewrite` with the names of `workload`, not in normal form. The
        merged axis has the name of the outer one. Raise ScheduleError as `rewrite` does."""
        self.stage_of(workload)
        merge = _Merge(self, workload)
        pairs = merge.pairs
        inputs = tuple(merge.tensor(tensor) for tensor in workload.inputs)
        stages = tuple(merge.stage(stage, pairs.get(stage.name, {})) for stage in workload.stages)
        return replace(workload, inputs=inputs, stages=stages)


@dataclass(frozen=True)
class _Merge:
    """All pairs of axes and of dimensions that one step must merge together."""

    step: MergeAxes
    workload: Workload

    @cached_property
    def pairs(self) -> dict[str, dict[str, str]]:
        """The pairs of axes of each affected stage: the inner axis by the outer axis."""
        return self._found[0]

    @cached_property
    def dims(self) -> frozenset[tuple[str, int]]:
        """Each (tensor, dimension) that is merged with the dimension after it."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[dict[str, dict[str, str]], frozenset[tuple[str, int]]]:
        """Pairs of axes give pairs of dimensions, and these give pairs of axes in all stages that
        access the tensors. Repeat until nothing new is found."""
        stages = {stage.name: stage for stage in self.workload.stages}
        users: dict[str, list[tuple[str, Index]]] = {}
        for stage in self.workload.stages:
            for tensor, index in accesses_of_stage(stage):
                users.setdefault(tensor, []).append((stage.name, index))
        pairs: dict[str, dict[str, str]] = {}
        dims = set[tuple[str, int]]()
        pending = [(self.step.stage, self.step.outer, self.step.inner)]
        while pending:
            name, outer, inner = pending.pop()
            own = pairs.setdefault(name, {})
            if own.get(outer) == inner:
                continue
            taken = {*own, *own.values()}
            problem = f"axes {outer} and {inner} of {name!r} overlap another pair"
            require(outer != inner and taken.isdisjoint((outer, inner)), self.step, problem)
            own[outer] = inner
            for tensor, dim in self._dims_of(stages[name], outer, inner):
                if (tensor, dim) in dims:
                    continue
                dims.add((tensor, dim))
                for user, index in users[tensor]:
                    pending.append((user, *self._variables(tensor, index, dim)))
        return pairs, frozenset(dims)

    def _variables(self, tensor: str, index: Index, dim: int) -> tuple[str, str]:
        """Return the names of the two axes that are indices `dim` and `dim` + 1 of an access."""
        names = [next(iter(i.vars()), "") for i in index[dim : dim + 2]]
        plain = all(i == var(n) for i, n in zip(index[dim : dim + 2], names, strict=True))
        problem = f"dimensions {dim} and {dim + 1} of {tensor!r} are not indexed by two axes"
        require(plain, self.step, problem)
        return names[0], names[1]

    def _dims_of(self, stage: Stage, outer: str, inner: str) -> list[tuple[str, int]]:
        """Return each (tensor, dimension) that `outer` indexes in `stage`. Raise ScheduleError if
        an axis of the pair is used anywhere without the other one."""
        extents = {axis.name: axis.extent for axis in stage.all_axes}
        problem = f"{stage.name!r} has no axes {outer} and {inner}"
        require({outer, inner} <= extents.keys(), self.step, problem)
        problem = f"a merged axis has more than {MAX_EXTENT} positions"
        require(extents[outer] * extents[inner] <= MAX_EXTENT, self.step, problem)
        if isinstance(stage.kind, Scan):
            scanned = stage.axes[stage.kind.dim].name
            require(scanned not in (outer, inner), self.step, f"{stage.name!r} scans {scanned}")
        if isinstance(stage.kind, TupleReduction):
            names = [axis.name for axis in stage.kind.axes]
            place = names.index(outer) if outer in names else -1
            kept = place < 0 or names[place + 1 : place + 2] == [inner]
            problem = f"{stage.name!r} combines tuples along {inner} not just inside of {outer}"
            require(kept, self.step, problem)
        for used in other_indices(stage.body):
            problem = f"a condition or index value of {stage.name!r} uses {outer} or {inner}"
            require(used.isdisjoint((outer, inner)), self.step, problem)
        found = list[tuple[str, int]]()
        for tensor, index in accesses_of_stage(stage):
            shape = self.workload.tensors[tensor].shape
            for dim, entry in enumerate(index):
                second = dim > 0 and index[dim - 1] == var(outer) and entry == var(inner)
                if second and shape[dim] == extents[inner]:
                    problem = f"a dimension of {tensor!r} has more than {MAX_EXTENT} positions"
                    require(shape[dim - 1] * shape[dim] <= MAX_EXTENT, self.step, problem)
                    found.append((tensor, dim - 1))
                    continue
                first = entry == var(outer) and index[dim + 1 : dim + 2] == (var(inner),)
                problem = f"{stage.name!r} indexes {tensor!r} by {outer} or {inner} alone"
                apart = entry.mentions(outer) or entry.mentions(inner)
                require(not apart or (first and not second), self.step, problem)
        return found

    def tensor(self, tensor: Tensor) -> Tensor:
        """Return `tensor` with its merged shape."""
        shape = list[int]()
        for dim, extent in enumerate(tensor.shape):
            if (tensor.name, dim - 1) in self.dims:
                shape[-1] *= extent
            else:
                shape.append(extent)
        return replace(tensor, shape=tuple(shape))

    def stage(self, stage: Stage, pairs: Mapping[str, str]) -> Stage:
        """Return `stage` with the axes of `pairs` merged. A merged axis has the name of the outer
        one."""
        if not pairs:
            return stage
        inner = set(pairs.values())
        extents = {axis.name: axis.extent for axis in stage.all_axes}

        def merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(
                replace(axis, extent=axis.extent * extents[pairs[axis.name]])
                if axis.name in pairs
                else axis
                for axis in axes
                if axis.name not in inner
            )

        kind = stage.kind
        if isinstance(kind, Scan):
            before = sum(axis.name in inner for axis in stage.axes[: kind.dim])
            kind = replace(kind, dim=kind.dim - before)
        made = Stage(self.tensor(stage.tensor), merged(stage.axes), self._body(stage.body), kind)
        return made.reducing_over(merged(stage.reduce_axes))

    def _body(self, body: Scalar) -> Scalar:
        def leaf(node: Scalar) -> Scalar | None:
            if not isinstance(node, Load):
                return None
            kept = (i for d, i in enumerate(node.index) if (node.tensor, d - 1) not in self.dims)
            return replace(node, index=tuple(kept))

        return rewrite_scalar(body, leaf)


def accesses_of_stage(stage: Stage) -> Iterator[tuple[str, Index]]:
    """Yield the tensor and the index of the element that `stage` computes, and of each read."""
    yield stage.name, tuple(var(axis.name) for axis in stage.axes)
    for load in loads(stage.body):
        yield load.tensor, load.index


def other_indices(body: Scalar) -> Iterator[frozenset[str]]:
    """Yield the variables of each condition and index value of `body`."""
    values = (node.index for node in walk(body) if isinstance(node, IndexValue))
    for index in chain(values, (cond.index for cond in index_conds(body))):
        yield index.vars()
