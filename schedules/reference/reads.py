"""Boxes of an iteration space, and reads of tensors over them.

An `IterationBox` is a rectangular set of iterations. Reading a tensor over a box gives an array
with one dimension per axis of the box, of extent 1 if the read does not depend on the axis. If the
index is linear, the array is a view without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..algebra.affine import Affine, Datum, Mod, Var
from ..algebra.comparisons import Cond, Ge0
from ..workload.tensors import Axis
from .math import Array


@dataclass(frozen=True, slots=True, eq=False)
class AxisCoordinates:
    """The sampled coordinates along one axis, int64 in ascending order."""

    values: Array

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class SampledTensor:
    """A sample of the elements of a tensor of shape `shape`.

    `values[i, j, ...]` is the element at the coordinates (places[0].values[i], places[1].values[j],
    ...). If `places[d]` is None, all coordinates of dimension d are present.
    """

    values: Array
    places: tuple[AxisCoordinates | None, ...]
    shape: tuple[int, ...]

    def position(self, dim: int, coordinates: Array) -> Array:
        """Return the positions of `coordinates` along dimension `dim` of `values`."""
        places = self.places[dim]
        if places is None:
            return coordinates
        found = np.searchsorted(places.values, coordinates)
        return np.minimum(found, len(places) - 1)  # coordinates beyond the last one are never read


Stored: TypeAlias = "Array | SampledTensor"
"""A tensor with all of its elements, or a sample of them."""


@dataclass(frozen=True, slots=True)
class IterationBox:
    """The iterations `starts[i] .. starts[i] + extents[i] - 1` of each axis `names[i]`.

    Iteration `n` of axis `i` has coordinate `n`, or `places[i].values[n]` on a sampled axis. Empty
    `places` mean that no axis is sampled.
    """

    names: tuple[str, ...]
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    places: tuple[AxisCoordinates | None, ...] = ()

    @property
    def points(self) -> int:
        return prod(self.extents)

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(s, s + e) for s, e in zip(self.starts, self.extents, strict=True))

    def restricted(self, names: Sequence[str]) -> IterationBox:
        """Return the box with the axes `names` only, in this order."""
        at = [self.names.index(n) for n in names]
        return IterationBox(
            tuple(names),
            tuple(self.starts[p] for p in at),
            tuple(self.extents[p] for p in at),
            tuple(self.places[p] for p in at) if self.places else (),
        )

    def coordinates(self, name: str) -> Array:
        """Return the coordinates of axis `name`, int64, in a shape that broadcasts to the box."""
        at = self.names.index(name)
        start, stop = self.starts[at], self.starts[at] + self.extents[at]
        places = self.places[at] if self.places else None
        line = np.arange(start, stop) if places is None else places.values[start:stop]
        return line.reshape([-1 if n == at else 1 for n in range(len(self.names))])

    @property
    def placed(self) -> frozenset[str]:
        """The names of the sampled axes."""
        pairs = zip(self.names, self.places, strict=False)
        return frozenset(name for name, places in pairs if places is not None)


def full_box(
    axes: Sequence[Axis], places: Mapping[str, AxisCoordinates] | None = None
) -> IterationBox:
    """Return the box of all iterations of `axes`. `places` has the coordinates of sampled axes by
    name."""
    found = tuple((places or {}).get(a.name) for a in axes)
    names, extents = tuple(a.name for a in axes), tuple(a.extent for a in axes)
    return IterationBox(
        names, (0,) * len(axes), extents, found if any(p is not None for p in found) else ()
    )


def tiles(box: IterationBox, extents: Sequence[int]) -> Iterator[IterationBox]:
    """Split `box` into boxes of at most `extents[n]` iterations along axis n. The last axis varies
    fastest."""
    steps = [
        [(s + at, min(step, e - at)) for at in range(0, e, step)]
        for s, e, step in zip(box.starts, box.extents, extents, strict=True)
    ]
    for piece in product(*steps):
        yield IterationBox(
            box.names, tuple(s for s, _ in piece), tuple(e for _, e in piece), box.places
        )


def leading_tiles(box: IterationBox, max_points: int) -> Iterator[IterationBox]:
    """Split `box` along its leading axes into boxes of at most `max_points` points."""
    extents = list(box.extents)
    for place in range(len(extents)):
        rest = prod(extents[place + 1 :])
        extents[place] = max(min(extents[place], max_points // rest), 1)
        if extents[place] > 1:
            break
    return tiles(box, extents)


Data: TypeAlias = Mapping[Datum, Array]
"""The values of the data in an index over a box, in shapes that broadcast to it."""


def index_values(index: Affine, box: IterationBox, data: Data | None = None) -> Array:
    """Return `index` at every point of `box`, int64, in a shape that broadcasts to the box."""
    total = np.asarray(index.const, np.int64)
    for atom, coefficient in index.terms:
        if isinstance(atom, Var):
            values = box.coordinates(atom.name)
        elif isinstance(atom, Datum):
            assert data is not None, f"{atom} is known only where a tensor is read"
            values = data[atom]
        elif isinstance(atom, Mod):
            values = index_values(atom.numerator, box, data) % atom.divisor
        else:
            values = index_values(atom.numerator, box, data) // atom.divisor
        total = total + coefficient * values
    return np.asarray(total)


def conditions_hold(conds: Sequence[Cond], box: IterationBox) -> Array:
    """Return a mask of the points at which all of `conds` hold, in a shape that broadcasts to
    `box`."""
    result = np.asarray(True)
    for cond in conds:
        values = index_values(cond.index, box)
        result = result & (values >= 0 if isinstance(cond, Ge0) else values == 0)
    return np.asarray(result)


def read(
    tensor: Stored, index: Sequence[Affine], box: IterationBox, data: Data | None = None
) -> Array:
    """Return `tensor[index]` at every point of `box`, in a shape that broadcasts to the box. `data`
    has the values of all data in `index`.

    If the index is out of bounds, the value is 0 or any element of the array. It is not used,
    because the expression reads the tensor inside a `Select` that takes its other branch. `tensor`
    must be C-contiguous. The result may be a view and must not be written.
    """
    if isinstance(tensor, SampledTensor):
        return _gather(tensor.values, index, box, tensor, data)
    array = tensor
    if box.places and any(i.vars() & box.placed for i in index):
        return _gather(array, index, box, None, data)
    if not all(isinstance(atom, Var) for i in index for atom, _ in i.terms):
        return _gather(array, index, box, None, data)
    spans = [_span(i, box) for i in index]
    if all(lo >= 0 and hi < n for (lo, hi), n in zip(spans, array.shape, strict=True)):
        return _view(array, index, [0] * len(index), box)
    region_points = prod(hi - lo + 1 for lo, hi in spans)
    if region_points > 4 * box.points + 4096:
        return _gather(array, index, box)
    return _view(_region(array, spans), index, [lo for lo, _ in spans], box)


def _span(index: Affine, box: IterationBox) -> tuple[int, int]:
    """Return the least and the greatest value of a linear index over `box`."""
    lo = hi = index.const
    for name, start, extent in zip(box.names, box.starts, box.extents, strict=True):
        ends = index.coefficient(name) * start, index.coefficient(name) * (start + extent - 1)
        lo, hi = lo + min(ends), hi + max(ends)
    return lo, hi


def _region(array: Array, spans: Sequence[tuple[int, int]]) -> Array:
    """Return a copy of `array` at the indices `spans` (ends included), with zeros out of bounds."""
    region = np.zeros([hi - lo + 1 for lo, hi in spans], array.dtype)
    inside, source = [], []
    for (lo, hi), n in zip(spans, array.shape, strict=True):
        first, last = max(lo, 0), min(hi, n - 1)
        if first > last:
            return region
        inside.append(slice(first - lo, last - lo + 1))
        source.append(slice(first, last + 1))
    region[tuple(inside)] = array[tuple(source)]
    return region


def _view(array: Array, index: Sequence[Affine], origin: Sequence[int], box: IterationBox) -> Array:
    """Return `array[index - origin]` over `box` as a strided view. Indices must be in bounds."""
    shape, strides = [], []
    offset = 0
    for i, stride, first in zip(index, array.strides, origin, strict=True):
        offset += (i.const - first) * stride
    for name, start, extent in zip(box.names, box.starts, box.extents, strict=True):
        coefficients = [i.coefficient(name) for i in index]
        step = sum(c * s for c, s in zip(coefficients, array.strides, strict=True))
        offset += step * start
        shape.append(extent if any(coefficients) else 1)
        strides.append(step if any(coefficients) else 0)
    flat = array.reshape(-1)[offset // array.itemsize :]
    return as_strided(flat, shape, strides, writeable=False)


def _gather(
    array: Array,
    index: Sequence[Affine],
    box: IterationBox,
    sampled: SampledTensor | None = None,
    data: Data | None = None,
) -> Array:
    flat = np.zeros((1,) * len(box.names), np.int64)
    stride = array.size
    shape = array.shape if sampled is None else sampled.shape
    for dim, (i, n) in enumerate(zip(index, shape, strict=True)):
        stride //= array.shape[dim]
        at = np.clip(index_values(i, box, data), 0, n - 1)
        flat = flat + (at if sampled is None else sampled.position(dim, at)) * stride
    return np.asarray(array.reshape(-1).take(flat))
