"""Integers for inputs on which indices depend (gathers).

A kernel may treat an integer wrongly only if it is at or beyond an end of its dimension, or only if
it has more bits than the kernel's arithmetic. So both occur beside integers that are inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.scalar import Load, Scalar, children, data_of, loads, walk
from tilewright.schedules.dtypes import DType
from tilewright.schedules.workload.workload import Workload

from .discriminating_inputs import discriminating_place_count, discriminating_places

Array = npt.NDArray[Any]

_ENDS = ((0, -1), (1, 0), (0, 0), (1, -1), (-1, 0), (-1, -1), (2, 0), (2, -1), (1, 1), (0, -2))
"""Integers near the ends of a dimension of n positions, most important first: the pair (a, b) is
a*n + b. From multiples of n on, a remainder repeats."""
_INSIDE, _NEAR, _BEYOND, _ANY = 0.5, 0.2, 0.1, 0.1
"""The shares of integers inside, near an end, inside but for a high bit, and of the full range of
the type. The others are as they were drawn."""


def indexing_inputs(workload: Workload) -> Mapping[str, tuple[int, ...]]:
    """Return the integer inputs on which data in indices depend, also through other stages, with
    the extents of the dimensions that they index."""
    found: dict[str, set[int]] = {t.name: set() for t in workload.inputs}
    found |= {stage.name: set() for stage in workload.stages}
    for stage in reversed(workload.stages):
        for read in loads(stage.body):
            found[read.tensor] |= found[stage.name] if not stage.tensor.dtype.is_float else set()
        for node in walk(stage.body):
            for datum in data_of(node) if isinstance(node, Load) else ():
                for read in _reads(datum.value):
                    found[read.tensor].add(datum.extent)
    integers = (t.name for t in workload.inputs if not (t.dtype.is_float or t.dtype is DType.BOOL))
    return {name: tuple(sorted(found[name])) for name in integers if found[name]}


def _reads(value: Scalar) -> Iterator[Load]:
    """Yield the reads in `value`, except those in their indices."""
    if isinstance(value, Load):
        yield value
        return
    for child in children(value):
        yield from _reads(child)


def indices(values: Array, extents: tuple[int, ...], turn: int, rng: np.random.Generator) -> Array:
    """Return integers `values` with most replaced by indices of dimensions of the given extents.

    Half are inside and a fifth near an end, the most important ones first; `turn` is the number of
    arrays that were drawn before. Others are inside except for one high bit, or are any integers of
    the type and its least and greatest one. All are at random positions.
    """
    limits, size = np.iinfo(values.dtype), values.size
    found = values.reshape(-1).astype(np.int64)
    order = rng.permutation(size)
    extent = np.asarray(extents)[rng.integers(0, len(extents), size)]
    inside = rng.integers(0, extent)
    near, high, every, rest = np.split(
        order, np.cumsum([_count(size, _NEAR), _count(size, _BEYOND), _count(size, _ANY)])
    )
    ends = np.asarray(_ENDS)[(np.arange(near.size) + turn * near.size) % len(_ENDS)]
    found[near] = ends[:, 0] * extent[near] + ends[:, 1]
    bits = rng.integers(0, limits.bits - 1, high.size)
    found[high] = inside[high] | np.left_shift(np.int64(1), bits)
    found[every] = _of_type(values.dtype, every.size, rng)
    most = rest[: _count(size, _INSIDE)]
    found[most] = inside[most]
    half = most[: (most.size + 1) // 2]
    for n in extents:
        at = half[extent[half] == n]
        places = np.asarray(discriminating_places(n)[: discriminating_place_count(n)])
        found[at] = places[(np.arange(at.size) + turn * at.size) % len(places)]
    kept: Array = np.clip(found, limits.min, limits.max).astype(values.dtype)
    return kept.reshape(values.shape)


def _count(size: int, share: float) -> int:
    return int(np.ceil(size * share))


def _of_type(dtype: np.dtype[Any], count: int, rng: np.random.Generator) -> Array:
    """Return integers of the whole range of a type, a third of which are its ends."""
    limits = np.iinfo(dtype)
    every = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    every[::6], every[3::6] = limits.max, limits.min
    return every
