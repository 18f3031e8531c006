"""Determine samples: the elements of each stage that the reference evaluates.

The sample of an output is a grid: all combinations of selected coordinates along each dimension.
The sample of another stage contains all elements that its consumers read for their samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias, assert_never

import numpy as np

from ..algebra.affine import Affine
from ..algebra.scalar import loads
from ..arrays import distinct
from ..workload.tensors import Axis, Elementwise, Reduction, Scan, Stage, TupleReduction
from ..workload.workload import Workload
from .math import Array
from .reads import AxisCoordinates, full_box, index_values

Grid: TypeAlias = tuple[AxisCoordinates | None, ...]
"""The coordinates along each dimension of a tensor; None means all of them."""
Sample: TypeAlias = Mapping[str, Grid]
"""The grid of each stage by name. Stages without an entry are evaluated completely."""
_MOST_LOOKED_AT = 1 << 20
"""Largest number of points for which the values of an index are enumerated. If there are more
points, the whole dimension is evaluated."""
_WHOLE = 0.75
"""If a sample has at least this fraction of a dimension, the whole dimension is evaluated, because
reads are then views."""


_NOTHING = np.zeros(0, np.int64)


def places_of(coordinates: Iterable[int] | Array, extent: int) -> AxisCoordinates | None:
    """Return the `coordinates` within `0..extent-1`. Return None, which means all coordinates, if
    they are at least the fraction `_WHOLE` of the extent."""
    if not isinstance(coordinates, np.ndarray):
        coordinates = list(coordinates)
    found = distinct(np.asarray(coordinates, np.int64))
    found = found[(found >= 0) & (found < extent)]
    if not found.size:  # all reads are out of bounds: any element suffices
        found = np.zeros(1, np.int64)
    return None if found.size >= _WHOLE * extent else AxisCoordinates(found)


def demanded(workload: Workload, outputs: Sample) -> Sample:
    """Return, for every stage, the elements on which the elements `outputs` of the workload's
    outputs depend."""
    wanted: dict[str, list[Array | None]] = {}
    for name in workload.outputs:
        shape = workload.stage(name).tensor.shape
        grid = outputs.get(name, (None,) * len(shape))
        wanted[name] = [None if p is None else p.values for p in grid]
    grids: dict[str, Grid] = {}
    stages = {s.name: s for s in workload.stages}
    for stage in reversed(workload.stages):
        asked = wanted.get(stage.name, [_NOTHING for _ in stage.axes])
        grid = tuple(
            None if some is None else places_of(some, axis.extent)
            for some, axis in zip(asked, stage.axes, strict=True)
        )
        grids[stage.name] = grid
        compact, places = sampled_stage(stage, grid)
        for read in loads(stage.body):
            if read.tensor not in stages:
                continue
            into = wanted.setdefault(read.tensor, [_NOTHING for _ in read.index])
            for dim, index in enumerate(read.index):
                some = _values_of(index, compact.all_axes, places)
                known = into[dim]
                into[dim] = (
                    None
                    if some is None or known is None
                    else distinct(np.concatenate([known, some]))
                )
    return grids


def _values_of(
    index: Affine, axes: tuple[Axis, ...], places: Mapping[str, AxisCoordinates]
) -> Array | None:
    """Return all values of `index` over `axes`, or None if there are too many points to enumerate
    or the values depend on data."""
    if index.has_data:
        return None
    used = index.vars()
    own = [a for a in axes if a.name in used]
    if prod(a.extent for a in own) > _MOST_LOOKED_AT:
        return None
    values = index_values(index, full_box(own, places))
    return distinct(values)


def sampled_stage(stage: Stage, grid: Grid) -> tuple[Stage, dict[str, AxisCoordinates]]:
    """Return `stage` restricted to the elements that must be evaluated for `grid`, and the
    coordinates of its sampled axes.

    They are the elements `grid`, and for a scan all positions along its axis (see `left_out`).
    """
    whole = stage.kind.dim if isinstance(stage.kind, Scan) else -1
    places = {
        axis.name: some
        for dim, (axis, some) in enumerate(zip(stage.axes, grid, strict=True))
        if some is not None and dim != whole
    }
    if not places:
        return stage, places
    axes = tuple(Axis(a.name, len(places[a.name])) if a.name in places else a for a in stage.axes)
    tensor = replace(stage.tensor, shape=tuple(a.extent for a in axes))
    return replace(stage, tensor=tensor, axes=axes), places


def left_out(stage: Stage, grid: Grid) -> Grid:
    """Return the coordinates of `grid` that `sampled_stage` does not apply, because the elements of
    a scan depend on each other along its axis."""
    match stage.kind:
        case Elementwise() | Reduction() | TupleReduction():
            return (None,) * len(grid)
        case Scan(dim=scanned):
            return tuple(p if dim == scanned else None for dim, p in enumerate(grid))
        case _:
            assert_never(stage.kind)


def grid_of(sample: Sample | None, stage: Stage) -> Grid:
    everything: Grid = (None,) * len(stage.axes)
    return everything if sample is None else sample.get(stage.name, everything)


def wanted_shape(stage: Stage, grid: Grid) -> tuple[int, ...]:
    """Return the number of elements of `grid` along each dimension of `stage`."""
    pairs = zip(stage.axes, grid, strict=True)
    return tuple(axis.extent if places is None else len(places) for axis, places in pairs)


def element_of(grid: Grid, where: Sequence[Any]) -> tuple[int, ...]:
    """Return the tensor index of the element at position `where` of `grid`."""
    places = grid or (None,) * len(where)
    return tuple(
        int(n) if p is None else int(p.values[n]) for p, n in zip(places, where, strict=True)
    )


def taken(values: Array, grid: Grid) -> Array:
    """Return the elements `grid` of the complete tensor `values`."""
    for dim, places in enumerate(grid):
        if places is not None:
            values = values.take(places.values, axis=dim)
    return values
