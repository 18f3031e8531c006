"""Axis merging: two adjacent axes that always lie together become one axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import ClassVar

from ..algebra.affine import ZERO, Affine, Index, var
from ..algebra.comparisons import Cond, Ge0
from ..algebra.scalar import All, IndexValue, Load, Scalar, index_conds, loads, walk
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import ScheduleError, require
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

    A window may slide along the outer axis, and conditions may limit it (zero padding):

        Y[y,x,c] += X[y,x+r,c]    ->    Y[y,m] += X[y,m+3*r]          for 3 channels
        x + r - 1 >= 0            ->    m + 3*(r - 1) >= 0

    The rewrite is legal if in every affected stage, every access has the pair as two adjacent
    indices, in this order, or does not use it, where the first index may have other terms; no other
    index or index value, and no condition on the inner axis, uses one of its axes; no scan is along
    one of them; and a reduction of tuples has them in this order. The step is also known as loop
    fusion, here of the expression, or as collapsing dimensions.
    """

    label: ClassVar[str] = "merge"
    keeps_operations: ClassVar[bool] = True
    keeps_shapes: ClassVar[bool] = False

    outer: str
    inner: str

    def slides(self, workload: Workload) -> bool:
        """Return whether the step is legal and some window slides along the outer axis."""
        try:
            self.stage_of(workload)
            dims = _Merge(self, workload).dims
        except ScheduleError:
            return False
        return any(
            len(index[dim].terms) != 1 or index[dim].const
            for stage in workload.stages
            for tensor, index in _accesses(stage)
            for dim in range(len(index))
            if (tensor, dim) in dims
        )

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
            for tensor, index in _accesses(stage):
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
                    pending.append((user, *self._variables(stages[user], tensor, index, dim)))
        return pairs, frozenset(dims)

    def _variables(self, stage: Stage, tensor: str, index: Index, dim: int) -> tuple[str, str]:
        """Return the names of the two axes that are indices `dim` and `dim` + 1 of an access by
        `stage`. The outer one may have other terms beside it. Of several axes in the sum, it is the
        one that is reduced, or not, like the inner axis."""
        first, second = index[dim : dim + 2]
        inner = next(iter(second.vars()), "")
        names = [name for name in sorted(first.vars()) if _other_terms(first, name) is not None]
        reduced = {axis.name for axis in stage.reduce_axes}
        alike = [name for name in names if (name in reduced) == (inner in reduced)]
        found = alike if len(alike) == 1 else names
        problem = f"dimensions {dim} and {dim + 1} of {tensor!r} are not indexed by two axes"
        require(second == var(inner) and len(found) == 1, self.step, problem)
        return found[0], inner

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
        problem = f"a condition or index value of {stage.name!r} uses {outer} or {inner}"
        for used in _index_values(stage.body):
            require(used.isdisjoint((outer, inner)), self.step, problem)
        for cond in index_conds(stage.body):
            require(_merged_cond(cond, outer, inner, 1) is not None, self.step, problem)
        found = list[tuple[str, int]]()
        for tensor, index in _accesses(stage):
            shape = self.workload.tensors[tensor].shape
            for dim, entry in enumerate(index):
                second = dim > 0 and _is_pair(index[dim - 1 : dim + 1], outer, inner)
                if second and shape[dim] == extents[inner]:
                    problem = f"a dimension of {tensor!r} has more than {MAX_EXTENT} positions"
                    require(shape[dim - 1] * shape[dim] <= MAX_EXTENT, self.step, problem)
                    found.append((tensor, dim - 1))
                    continue
                first = _is_pair(index[dim : dim + 2], outer, inner)
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
        triples = [(outer, inner, extents[inner]) for outer, inner in pairs.items()]
        body = self._body(stage.body, triples, _unit_axes(stage))
        made = Stage(self.tensor(stage.tensor), merged(stage.axes), body, kind)
        return made.reducing_over(merged(stage.reduce_axes))

    def _cond(self, cond: Cond, pairs: Sequence[tuple[str, str, int]]) -> Cond:
        """Return `cond` on the merged axes. Raise ScheduleError if it compares two of them."""
        found = cond
        for outer, inner, extent in pairs:
            merged = _merged_cond(found, outer, inner, extent)
            require(merged is not None, self.step, f"the condition {cond} uses two pairs of axes")
            assert merged is not None
            found = merged
        return found

    def _body(
        self, body: Scalar, pairs: Sequence[tuple[str, str, int]], units: Mapping[str, Affine]
    ) -> Scalar:
        """Return `body` with merged indices and conditions. `pairs` has the outer axis, the inner
        axis and the extent of the inner axis of each pair. `units` has the axes of extent 1."""

        def leaf(node: Scalar) -> Scalar | None:
            if isinstance(node, All):
                return replace(node, conds=tuple(self._cond(cond, pairs) for cond in node.conds))
            if not isinstance(node, Load):
                return None
            plain, index = _without(units, node.index), list[Affine]()
            for dim, entry in enumerate(plain):
                if (node.tensor, dim - 1) in self.dims:
                    continue
                merged = (node.tensor, dim) in self.dims
                index.append(_merged_index(plain[dim : dim + 2], pairs) if merged else entry)
            return replace(node, index=tuple(index))

        return rewrite_scalar(body, leaf)


def _other_terms(index: Affine, outer: str) -> Affine | None:
    """Return `index` without the variable `outer`, or None if it is not the sum of `outer` and
    terms without it and without data."""
    rest = index - var(outer)
    return None if rest.mentions(outer) or rest.has_data else rest


def _is_pair(index: Index, outer: str, inner: str) -> bool:
    """Return whether two adjacent indices are the pair, the first with other terms or without."""
    if len(index) < 2 or index[1] != var(inner):
        return False
    rest = _other_terms(index[0], outer)
    return rest is not None and not rest.mentions(inner)


def _merged_index(index: Index, pairs: Sequence[tuple[str, str, int]]) -> Affine:
    """Return the merged index of two adjacent indices, which are one of `pairs`."""
    for outer, inner, extent in pairs:
        rest = _other_terms(index[0], outer)
        if rest is not None and index[1] == var(inner):
            return var(outer) + rest * extent
    raise AssertionError(f"no pair in {index}")


def _merged_cond(cond: Cond, outer: str, inner: str, extent: int) -> Cond | None:
    """Return a condition on the outer axis of a pair as one on the merged axis. Return None if
    there is none.

    With m = extent*x + c and 0 <= c < extent, x + r >= 0 if and only if m + extent*r >= 0, and
    r - x >= 0 if and only if extent*r + extent - 1 - m >= 0.
    """
    if not (cond.index.mentions(outer) or cond.index.mentions(inner)):
        return cond
    step = cond.index.coefficient(outer)
    rest = cond.index - var(outer) * step
    if not isinstance(cond, Ge0) or abs(step) != 1 or rest.mentions(outer) or rest.mentions(inner):
        return None
    return Ge0(var(outer) * step + rest * extent + (extent - 1 if step < 0 else 0))


def accesses_of_stage(stage: Stage) -> Iterator[tuple[str, Index]]:
    """Yield the tensor and the index of the element that `stage` computes, and of each read."""
    yield stage.name, tuple(var(axis.name) for axis in stage.axes)
    for load in loads(stage.body):
        yield load.tensor, load.index


def _accesses(stage: Stage) -> Iterator[tuple[str, Index]]:
    """Yield the `accesses_of_stage`. In sums of several axes, those of extent 1 are left out, such
    as the taps of a window of width 1."""
    units = _unit_axes(stage)
    for tensor, index in accesses_of_stage(stage):
        yield tensor, _without(units, index)


def _unit_axes(stage: Stage) -> dict[str, Affine]:
    return {axis.name: ZERO for axis in stage.all_axes if axis.extent == 1}


def _without(units: Mapping[str, Affine], index: Index) -> Index:
    return tuple(i.substitute(units) if len(i.terms) > 1 else i for i in index)


def _index_values(body: Scalar) -> Iterator[frozenset[str]]:
    """Yield the variables of each index value of `body`."""
    for node in walk(body):
        if isinstance(node, IndexValue):
            yield node.index.vars()


def other_indices(body: Scalar) -> Iterator[frozenset[str]]:
    """Yield the variables of each condition and index value of `body`."""
    values = (node.index for node in walk(body) if isinstance(node, IndexValue))
    for index in chain(values, (cond.index for cond in index_conds(body))):
        yield index.vars()
