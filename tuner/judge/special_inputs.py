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


@dataclass(frozen=True, slots=True)
class SpecialDraw:
    """Which special values there are, and whether in the largest input only."""

    values: tuple[float, ...]
    largest_only: bool


DRAWS = (
    SpecialDraw((np.nan, np.inf, -np.inf), largest_only=False),
    SpecialDraw((np.nan, np.inf, -np.inf), largest_only=True),
    SpecialDraw((-np.inf,), largest_only=True),
    SpecialDraw((np.inf,), largest_only=True),
)


def special_inputs(
    workload: Workload, draw: SpecialDraw, positive: bool, rng: np.random.Generator
) -> list[Array]:
    terms = max((prod(a.extent for a in s.reduce_axes) for s in workload.stages), default=1)
    share = min(_DENSEST, 0.25 / terms)
    floats = [t for t in workload.inputs if t.dtype.is_float]
    largest = max(floats, key=lambda t: t.elements)
    return [
        _drawn(
            t, draw.values if t is largest or not draw.largest_only else (), share, positive, rng
        )
        for t in workload.inputs
    ]


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
    if tensor.elements >= _FEWEST_ELEMENTS:
        flat = drawn.reshape(-1)
        for value in values:
            count = max(1, rng.binomial(flat.size, share))
            flat[rng.integers(0, flat.size, count)] = value
    return _stored(tensor, drawn)


def _stored(tensor: Tensor, values: Array) -> Array:
    return narrowed(values, tensor.dtype)
