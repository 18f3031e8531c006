"""Integers for inputs on which indices depend (gathers).

A kernel may treat an integer wrongly only if it is at or beyond an end of its dimension, or only if
it has more bits than the kernel's arithmetic. So both occur beside integers that are inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.scalar import Load, data_of, loads, walk
from tilewright.schedules.workload.workload import Workload

from .discriminating_inputs import discriminating_place_count, discriminating_places

Array = npt.NDArray[Any]

_NEAR = (0, -1, 1, -2, 2)
_TURNS = (-1, 0, 1, 2)
"""Multiples of the extent: from them on, a remainder repeats, also below zero."""
_SHARES = (0.5, 0.7, 0.8, 0.9)
"""The cumulative shares of integers inside, near an end, inside but for high bits, and of the full
range of the type. The others are as they were drawn."""


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
                for read in loads(datum.value):
                    found[read.tensor].add(datum.extent)
    integers = (t.name for t in workload.inputs if not t.dtype.is_float)
    return {name: tuple(sorted(found[name])) for name in integers if found[name]}


def indices(values: Array, extents: tuple[int, ...], turn: int, rng: np.random.Generator) -> Array:
    """Return integers `values` with most replaced by indices of dimensions of the given extents.

    Half are inside, in the order of `discriminating_places`; `turn` is the number of arrays that
    were drawn before. A fifth are near 0, near the extent or near a multiple of it. Others are
    inside except for one high bit, or are any integers of the type and its least and greatest one.
    """
    limits = np.iinfo(values.dtype)
    extent = np.asarray(extents)[rng.integers(0, len(extents), values.size)]
    choice = rng.random(values.size)
    inside = _inside(extents, extent, turn, rng)
    near = extent * rng.choice(_TURNS, values.size) + rng.choice(_NEAR, values.size)
    bit = np.left_shift(np.int64(1), rng.integers(0, limits.bits - 1, values.size))
    every = rng.integers(limits.min, limits.max, values.size, values.dtype, endpoint=True)
    every = every.astype(np.int64)
    end = rng.random(values.size)
    every = np.where(end < 0.2, limits.min, np.where(end > 0.8, limits.max, every))
    found = np.select(
        [choice < share for share in _SHARES],
        [inside, near, inside | bit, every],
        values.reshape(-1).astype(np.int64),
    )
    kept: Array = np.clip(found, limits.min, limits.max).astype(values.dtype)
    return kept.reshape(values.shape)


def _inside(extents: tuple[int, ...], extent: Array, turn: int, rng: np.random.Generator) -> Array:
    """Return an integer in 0..n-1 for each n in `extent`: most important places first, and random
    ones."""
    found = rng.integers(0, extent)
    for n in extents:
        (at,) = np.nonzero(extent == n)
        places = np.asarray(discriminating_places(n)[: discriminating_place_count(n)])
        half = rng.permutation(at)[: (at.size + 1) // 2]
        found[half] = places[(np.arange(half.size) + turn * half.size) % len(places)]
    return found
