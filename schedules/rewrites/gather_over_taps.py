"""Scatter to gather: a sum over the input elements becomes a sum over the taps of a filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

from ..algebra.affine import Affine, fresh, var
from ..algebra.comparisons import Cond, Eq0
from ..algebra.conditions import within
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Const,
    Load,
    Scalar,
    Select,
    substitute,
    substitute_cond,
    vars_of,
)
from ..errors import ScheduleError
from ..workload.tensors import Axis, Stage, Tensor
from ..workload.workload import Workload
from .precompute_factors import factors_of
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class GatherOverTaps(Rewrite):
    """Replace the reduction over the input elements (`axis`) by a reduction over the taps of a
    filter.

        O[y] += (W[y + 1 - 2*i] if in bounds, else 0) * I[i]
        ->  O[y] += W[r] * (I[(y + 1 - r) / 2] if the index is an element, else 0)

    This converts a transposed convolution from scatter form to gather form. The omitted terms are
    products with padding zeros; the other terms are added in another order. The rewrite is legal
    for a sum of products in which one factor, the filter, is zero out of bounds. One index of the
    filter must be a multiple of `axis` plus an expression that does not depend on `axis`.
    """

    label: ClassVar[str] = "gather"

    axis: str

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with a sum over taps, in normal form.

        Raise ScheduleError if there is no such stage or axis, or if no factor is a filter.
        """
        stage = self.stage_of(workload)
        found = find_filter(stage, self.axis, workload.tensors)
        if found is None:
            raise ScheduleError(self, f"no factor of a sum is a filter along {self.axis!r}")
        changed = _over_taps(stage, found)
        stages = tuple(changed if old is stage else old for old in workload.stages)
        return replace(workload, stages=stages).normalised()


@dataclass(frozen=True, slots=True)
class Filter:
    """A factor of a sum of products that is a filter along the reduction axis `axis`."""

    axis: Axis
    number: int
    """The position of the factor in the sum of products."""
    load: Load
    """The element that the factor reads. Out of bounds, the factor is zero."""
    dim: int
    """The dimension of `load` with the index step * axis + rest."""
    step: int
    rest: Affine
    shape: tuple[int, ...]
    """The shape of the tensor that `load` reads."""

    @property
    def taps(self) -> int:
        return self.shape[self.dim]

    @property
    def most_met(self) -> int:
        """The largest number of taps that contribute to one output; the others fall between two
        elements."""
        return -(-self.taps // abs(self.step))


def find_filter(stage: Stage, axis: str, tensors: Mapping[str, Tensor]) -> Filter | None:
    """Return the factor of `stage` that is a filter along `axis`, or None if there is no filter.

    A filter is a factor that is zero outside its tensor. If there are several, the one with the
    fewest taps per output is returned.
    """
    found: list[Filter] = []
    for along in (each for each in stage.reduce_axes if each.name == axis):
        for number, factor in enumerate(factors_of(stage)):
            match factor:
                case Select(All(), Load() as load, Const(0)):
                    found += _filters(along, number, load, tensors[load.tensor])
                case _:
                    pass
    return min(found, key=lambda each: each.most_met, default=None)


def _filters(axis: Axis, number: int, load: Load, tensor: Tensor) -> Iterator[Filter]:
    if any(index.has_data for index in load.index):
        return  # the conditions of the new read would be conditions on data
    for dim, index in enumerate(load.index):
        step = index.coefficient(axis.name)
        if step and index.is_linear_in(axis.name):
            rest = index - var(axis.name) * step
            yield Filter(axis, number, load, dim, step, rest, tensor.shape)


def _over_taps(stage: Stage, found: Filter) -> Stage:
    names = {axis.name for axis in stage.all_axes}
    tap = Axis(fresh("tap", names), found.taps)
    # step * axis + rest = tap, so that size * axis = scaled.
    size = abs(found.step)
    scaled = (var(tap.name) - found.rest) * (1 if found.step > 0 else -1)
    element = scaled // size
    inside = within(element, found.axis.extent)
    conds = (Eq0(scaled % size), *inside) if size > 1 else inside

    def moved(number: int, factor: Scalar) -> Scalar:
        if found.axis.name not in vars_of(factor):
            return factor
        if number == found.number:
            return _filter(factor, found, tap, element, conds)
        inner = substitute(factor, {found.axis.name: element})
        return Select(All(conds), inner, Const(0, inner.dtype))

    factors = [moved(n, factor) for n, factor in enumerate(factors_of(stage))]
    others = [f for n, f in enumerate(factors_of(stage)) if n != found.number]
    if not any(found.axis.name in vars_of(f) for f in others):  # exclude taps between elements
        own = factors[found.number]
        factors[found.number] = Select(All(conds), own, Const(0, own.dtype))
    body = reduce(lambda a, b: Binary(BinaryOp.MUL, a, b), factors)
    axes = tuple(tap if axis == found.axis else axis for axis in stage.reduce_axes)
    return replace(stage, body=body).reducing_over(axes)


def _filter(
    factor: Scalar, found: Filter, tap: Axis, element: Affine, exists: tuple[Cond, ...]
) -> Scalar:
    """Return the read of the filter at `tap`, without a bounds check in dimension `found.dim`.

    `element` is the index of the input element. `exists` are the conditions that this element is in
    bounds. They are added if another index of the filter depends on the element.
    """
    assert isinstance(factor, Select)
    assert isinstance(factor.cond, All)
    load = factor.on_true
    assert isinstance(load, Load)
    inside = set(within(load.index[found.dim], found.taps))
    kept = tuple(c for c in factor.cond.conds if c not in inside)
    moved = {found.axis.name: element}
    index = tuple(
        var(tap.name) if dim == found.dim else i.substitute(moved)
        for dim, i in enumerate(load.index)
    )
    read = Load(load.tensor, index, load.dtype)
    conds = tuple(substitute_cond(c, moved) for c in kept)
    for dim, (i, new, extent) in enumerate(zip(load.index, index, found.shape, strict=True)):
        if dim == found.dim:
            continue
        # The removed conditions may have kept other dimensions in bounds too.
        conds = (*conds, *within(new, extent))
        if found.axis.name in i.vars():
            conds = (*conds, *exists)
    return Select(All(conds), read, factor.on_false) if conds else read
