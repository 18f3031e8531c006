"""Reads by affine indices as calls of PyTorch: views if strides allow them, otherwise gathers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.schedules.algebra.affine import Affine, Interval, Var, interval
from tilewright.schedules.algebra.scalar import All, Const, Load, Select, data_of
from tilewright.schedules.reference.reads import conditions_hold, full_box, index_values
from tilewright.schedules.workload.tensors import Axis

from ..variants import NoPeerError

MAX_GATHER_ELEMENTS = 1 << 28
"""The limit on the elements of a gather's index tensor."""

View = Callable[[Any], Any]
"""A function from a whole tensor to the elements that are read. Axes on which they do not depend
have extent 1."""


def reader(torch: Any, node: Load, shape: Sequence[int], axes: Sequence[Axis]) -> View:
    """Return a function that reads a tensor of `shape` at the indices of `node`, for all values of
    `axes`. Elements outside the tensor are zero, or undefined if the index is not a sum of axes
    with positive factors. Raise NoPeerError for too many indices."""
    if data_of(node):
        raise NoPeerError(f"{node.tensor} is read at indices that are data")
    if not is_strided(node):
        return _gather(torch, node, shape, axes)
    spans = [_span(index, axes) for index in node.index]
    pads = [(max(0, -s.lo), max(0, s.hi - n + 1)) for s, n in zip(spans, shape, strict=True)]
    if prod(n + sum(pad) for n, pad in zip(shape, pads, strict=True)) > MAX_GATHER_ELEMENTS:
        raise NoPeerError(f"{node.tensor} with its padding has over {MAX_GATHER_ELEMENTS} elements")
    flat_pads = [each for pad in reversed(pads) for each in pad]
    names = [name for index in node.index for name in index.vars()]
    one_each = all(len(index.terms) <= 1 for index in node.index)
    sliced = one_each and len(set(names)) == len(names)
    view = (_slices if sliced else _strides)(node.index, spans, pads, axes)
    if not any(flat_pads):
        return view
    return lambda whole: view(torch.nn.functional.pad(whole, flat_pads))


def is_strided(node: Load) -> bool:
    """Return whether the read is a strided view of the tensor."""
    terms = [term for index in node.index for term in index.terms]
    return all(isinstance(atom, Var) and factor > 0 for atom, factor in terms)


def is_zero_padding(node: Select, shape: Sequence[int], axes: Sequence[Axis]) -> bool:
    """Return whether `node` is a read of a tensor of `shape` with zeros outside the tensor."""
    load, cond, other = node.on_true, node.cond, node.on_false
    if not (isinstance(load, Load) and isinstance(cond, All) and isinstance(other, Const)):
        return False
    if data_of(load):
        return False
    box = full_box(axes)
    inside = np.asarray(True)
    for index, n in zip(load.index, shape, strict=True):
        place = index_values(index, box)
        inside = inside & (place >= 0) & (place < n)
    holds = conditions_hold(cond.conds, box)
    there, chosen = np.broadcast_arrays(inside, holds)
    return other.is_plus_zero and np.array_equal(there, chosen)


def _span(index: Affine, axes: Sequence[Axis]) -> Interval:
    return interval(index, {axis.name: Interval(0, axis.extent - 1) for axis in axes})


def _slices(
    index: Sequence[Affine],
    spans: Sequence[Interval],
    pads: Sequence[tuple[int, int]],
    axes: Sequence[Axis],
) -> View:
    """Return a function that takes a permuted slice of the tensor. Each dimension depends on at
    most one axis, and each axis occurs once."""
    at: list[Any] = []
    places = []
    for each, span, (before, _) in zip(index, spans, pads, strict=True):
        if not each.terms:
            at.append(each.const + before)
            continue
        ((atom, factor),) = each.terms
        assert isinstance(atom, Var)
        at.append(slice(span.lo + before, span.hi + before + 1, factor))
        places.append([axis.name for axis in axes].index(atom.name))
    part = tuple(at)
    order = sorted(range(len(places)), key=places.__getitem__)
    shape = tuple(axis.extent if n in places else 1 for n, axis in enumerate(axes))
    return lambda whole: whole[part].permute(order).reshape(shape)


def _strides(
    index: Sequence[Affine],
    spans: Sequence[Interval],
    pads: Sequence[tuple[int, int]],
    axes: Sequence[Axis],
) -> View:
    """Return a function that makes a strided view, for windows (several axes in a dimension) and
    diagonals (one axis in several dimensions)."""
    factors = [[each.coefficient(axis.name) for each in index] for axis in axes]
    first = [each.const + before for each, (before, _) in zip(index, pads, strict=True)]
    shape = tuple(a.extent if any(f) else 1 for a, f in zip(axes, factors, strict=True))

    def view(whole: Any) -> Any:
        strides = whole.stride()
        steps = tuple(sum(c * s for c, s in zip(f, strides, strict=True)) for f in factors)
        offset = sum(n * s for n, s in zip(first, strides, strict=True))
        return whole.as_strided(shape, steps, whole.storage_offset() + offset)

    return view


def _gather(torch: Any, node: Load, shape: Sequence[int], axes: Sequence[Axis]) -> View:
    box = full_box(axes)
    flat = np.zeros((1,) * len(axes), np.int64)
    for index, n in zip(node.index, shape, strict=True):
        flat = flat * n + np.clip(index_values(index, box), 0, n - 1)
        if flat.size > MAX_GATHER_ELEMENTS:
            raise NoPeerError(f"a gather of {node.tensor} has over {MAX_GATHER_ELEMENTS} indices")
    places = torch.from_numpy(flat)
    return lambda whole: torch.take(whole, places)
