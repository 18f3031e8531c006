"""Split expressions into stages: each reduction or scan inside an expression becomes a stage."""

from __future__ import annotations

from collections.abc import Mapping

from ..algebra.affine import affine, fresh, var
from ..algebra.comparisons import Ge0
from ..algebra.neutral import only_where
from ..algebra.scalar import Components, Load, Reducer, Scalar, rewrite, substitute
from ..errors import WorkloadError
from ..workload.tensors import (
    Axis,
    Elementwise,
    Reduction,
    Scan,
    Stage,
    StageKind,
    Tensor,
    TupleReduction,
)
from ..workload.validate import settled_stage
from .expr_core import Expr
from .reading import TensorExpr
from .references import Combination, LoopVar, NestedReduction, Running


def build_stages(name: str, axes: tuple[LoopVar, ...], value: Expr) -> TensorExpr:
    """Return the tensor `name[axes] = value`, with its reductions in separate, validated stages."""
    _check_free(name, axes, value)
    splitter = _Splitter(name, {n: t.tensor for n, t in value.tensors.items()})
    splitter.main(axes, value)
    stages = tuple(splitter.stages)
    return TensorExpr(stages[-1].tensor, stages, tuple(value.tensors.values()))


def _check_free(name: str, axes: tuple[LoopVar, ...], value: Expr) -> None:
    known = {v.name for v in axes}
    for v in value.vars.values():
        if v.name in known:
            continue
        if v.reduce:
            raise WorkloadError(
                f"{name}: reduce axis {v.label!r} is used outside a reduction over it",
                code="unknown_axis",
            )
        raise WorkloadError(
            f"{name}: index {v.label!r} belongs to another compute", code="unknown_axis"
        )


class _Splitter:
    """A splitter of one expression into stages; equal reductions are computed once."""

    def __init__(self, name: str, known: dict[str, Tensor]) -> None:
        self._name = name
        self._known = known
        self._done: list[tuple[NestedReduction, tuple[LoopVar, ...], Tensor]] = []
        self.stages: list[Stage] = []

    def main(self, axes: tuple[LoopVar, ...], value: Expr) -> None:
        node = value.node
        whole = value.reductions.get(node.tensor) if isinstance(node, Load) else None
        if whole is None:
            self._emit(self._name, axes, self._lower(node, value.reductions, axes))
            return
        body = self._lower(whole.node, whole.inner, axes + whole.axes)
        self._emit(self._name, axes, body, whole)

    def _lower(
        self, node: Scalar, reductions: Mapping[str, NestedReduction], scope: tuple[LoopVar, ...]
    ) -> Scalar:
        def leaf(n: Scalar) -> Scalar | None:
            if isinstance(n, Load) and n.tensor in reductions:
                return self._split_off(reductions[n.tensor], scope)
            return None

        return rewrite(node, leaf)

    def _split_off(self, reduction: NestedReduction, scope: tuple[LoopVar, ...]) -> Scalar:
        free = tuple(v for v in scope if v.name in reduction.free)
        index = tuple(var(v.name) for v in free) or (affine(0),)
        for done, done_free, tensor in self._done:
            if done_free == free and done.same_as(reduction):
                return Load(tensor.name, index, tensor.dtype)
        body = self._lower(reduction.node, reduction.inner, free + reduction.axes)
        # A tensor with a single value has one axis of extent 1.
        axes = free or (LoopVar("one", 1, reduce=False),)
        name = fresh(f"{self._name}_{reduction.reducer}", {self._name, *self._known})
        tensor = self._emit(name, axes, body, reduction)
        self._done.append((reduction, free, tensor))
        return Load(tensor.name, index, tensor.dtype)

    def _emit(
        self,
        name: str,
        axes: tuple[LoopVar, ...],
        body: Scalar,
        reduction: NestedReduction | None = None,
    ) -> Tensor:
        running = None if reduction is None else reduction.running
        reducer = None if reduction is None else reduction.reducer
        if isinstance(reducer, Reducer) and running is not None and running.exclusive:
            body = _of_position_before(body, reducer, running)
        names: dict[str, str] = {}
        for v in (*axes, *(reduction.axes if reduction else ())):
            names[v.name] = fresh(v.label, set(names.values()))
        body = substitute(body, {old: var(new) for old, new in names.items()})
        dtype = body.dtype
        if isinstance(reducer, Combination) and isinstance(body, Components):
            dtype = body.values[reducer.position].dtype
        tensor = Tensor(name, tuple(v.extent for v in axes), dtype)
        spatial = tuple(Axis(names[v.name], v.extent) for v in axes)
        kind: StageKind = Elementwise()
        over = tuple(Axis(names[v.name], v.extent) for v in reduction.axes) if reduction else ()
        if isinstance(reducer, Combination):
            kind = TupleReduction(
                over, reducer.identities, reducer.combine, reducer.position, reducer.commutative
            )
        elif reducer is not None and running is not None:
            dim = [v.name for v in axes].index(running.along.name)
            kind = Scan(reducer, dim, running.reverse)
        elif reducer is not None:
            kind = Reduction(reducer, over)
        if name in self._known:
            raise WorkloadError(f"two tensors are named {name!r}", code="duplicate")
        stage = settled_stage(Stage(tensor, spatial, body, kind), self._known)
        self._known[name] = tensor
        self.stages.append(stage)
        return tensor


def _of_position_before(body: Scalar, reducer: Reducer, running: Running) -> Scalar:
    """Return the value that the position before this one adds to an exclusive scan: `body` at that
    position, or the identity at the first position."""
    name, last = running.along.name, running.along.extent - 1
    position = var(name)
    moved = substitute(body, {name: position + (1 if running.reverse else -1)})
    exists = Ge0(last - 1 - position) if running.reverse else Ge0(position - 1)
    return only_where((exists,), moved, reducer)
