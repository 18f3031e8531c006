"""Inputs with a few NaN, infinities and zeros of both signs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from schedules.algebra.narrow import narrowed
from schedules.dtypes import DType
from schedules.workload.tensors import Tensor
from schedules.workload.workload import Workload

from .inputs import tiled

Array = npt.NDArray[Any]
ZERO_SHARE = 0.1
"""Of elements that are zero, half of them -0.0."""
_DENSEST = 1 / 24
_FEWEST_ELEMENTS = 16
_SMALL_ELEMENTS = 1 << 11
_MOST_ALONE = 4


@dataclass(frozen=True, slots=True)
class SpecialDraw:
    """Which special values there are, and whether in the largest input only, in all but that one,
    or in that of the number `only`, however small it is."""

    values: tuple[float, ...]
    largest_only: bool = False
    but_largest: bool = False
    only: int | None = None


DRAWS = (
    SpecialDraw((np.nan, np.inf, -np.inf), largest_only=False),
    SpecialDraw((np.nan, np.inf, -np.inf), largest_only=True),
    SpecialDraw((-np.inf,), largest_only=True),
    SpecialDraw((np.inf,), largest_only=True),
)


def further_draws(workload: Workload) -> list[SpecialDraw]:
    """Special values in some inputs alone, whose own the draws of `DRAWS` may never show: beside
    those of another factor, or where a few already reach every output. Where inputs are small
    enough, in each input alone, and NaN, which hides infinities of its line, in another case."""
    floats = [(n, t) for n, t in enumerate(workload.inputs) if t.dtype.is_float]
    if max(t.elements for _, t in floats) >= _SMALL_ELEMENTS:
        every = (np.nan, np.inf, -np.inf)
        return [SpecialDraw(every, but_largest=True)] if len(floats) > 1 else []
    kinds = ((np.nan,), (np.inf, -np.inf))
    return [SpecialDraw(kind, only=n) for n, _ in floats[:_MOST_ALONE] for kind in kinds]


def _terms(workload: Workload) -> int:
    return max((prod(a.extent for a in s.reduce_axes) for s in workload.stages), default=1)


def special_inputs(
    workload: Workload, draw: SpecialDraw, positive: bool, rng: np.random.Generator
) -> list[Array]:
    share = min(_DENSEST, 0.25 / _terms(workload))
    floats = [t for t in workload.inputs if t.dtype.is_float]
    largest = max(floats, key=lambda t: t.elements)
    found = []
    for number, tensor in enumerate(workload.inputs):
        has_them = not (draw.but_largest if tensor is largest else draw.largest_only)
        has_them &= tensor.elements >= _FEWEST_ELEMENTS
        if draw.only is not None:
            has_them = number == draw.only
        found.append(_drawn(tensor, draw.values if has_them else (), share, positive, rng))
    return found


def _drawn(
    tensor: Tensor,
    values: tuple[float, ...],
    share: float,
    positive: bool,
    rng: np.random.Generator,
) -> Array:
    """Magnitudes of 1/4 to 1, so that no exponential of a sum of them leaves its type."""
    if not tensor.dtype.is_float:
        high = 1 if tensor.dtype is DType.BOOL else 4
        return rng.integers(0, high, tensor.shape, np.int8, endpoint=True).astype(
            tensor.dtype.numpy
        )
    kind = np.float64 if tensor.dtype is DType.F64 else np.float32

    def draw(count: int) -> Array:
        some: Array = rng.random(count, kind) * kind(0.75) + kind(0.25)
        if positive:
            return some
        some[rng.random(count, np.float32) < 0.5] *= kind(-1.0)
        some[rng.random(count, np.float32) < ZERO_SHARE] *= kind(0.0)
        return some

    drawn = tiled(tensor.shape, draw)
    flat = drawn.reshape(-1)
    for value in values:
        count = max(1, rng.binomial(flat.size, share))
        where = rng.integers(0, flat.size, count)
        if flat.size < _FEWEST_ELEMENTS:  # so few that one would often fall on another
            finite = np.flatnonzero(np.isfinite(flat))
            where = rng.choice(finite if finite.size else flat.size, 1)
        flat[where] = value
    return _stored(tensor, drawn)


def _stored(tensor: Tensor, values: Array) -> Array:
    return narrowed(values, tensor.dtype)
