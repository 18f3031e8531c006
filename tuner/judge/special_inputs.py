"""Drawing of inputs with a few NaN, infinities and zeros of both signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from tilewright.schedules.algebra.narrow import narrowed
from tilewright.schedules.dtypes import DType
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

from .discriminating_inputs import combined_values, one_place_per_line, summed_dims, with_axis
from .inputs import tiled

Array = npt.NDArray[Any]
ZERO_SHARE = 0.1
"""The fraction of values that are zeros. Half of them are -0.0."""
_DENSEST = 1 / 24
_MIN_ELEMENTS = 16
_SMALL_ELEMENTS = 1 << 14
_MAX_SINGLE_INPUTS = 4
_TURNS = 1 << 16


@dataclass(frozen=True, slots=True)
class SpecialDraw:
    """The special values of one draw, and the inputs that receive them.

    By default, every input has a few special values. With `but_largest` or `only`, each line along
    a reduction has one special value. If the input has no reduced dimension, half of its elements
    are special values. So code for few rows or lanes processes them too.
    """

    values: tuple[float, ...]
    largest_only: bool = False
    """Only the largest input has them."""
    but_largest: bool = False
    """All inputs except the largest have them."""
    only: int | None = None
    """Only the input of this index has them."""


DRAWS = (
    SpecialDraw((np.nan, np.inf, -np.inf), largest_only=False),
    SpecialDraw((np.nan, np.inf, -np.inf), largest_only=True),
    SpecialDraw((-np.inf,), largest_only=True),
    SpecialDraw((np.inf,), largest_only=True),
)


def further_draws(workload: Workload) -> list[SpecialDraw]:
    """Return draws with special values in only some inputs.

    In the draws `DRAWS`, the effect of a special value may be hidden by special values of another
    factor, or by a few special values that already reach every output. For small inputs, there is
    one draw per input and value, because NaN hides the infinities of its line.
    """
    floats = [(n, t) for n, t in enumerate(workload.inputs) if t.dtype.is_float]
    if max(t.elements for _, t in floats) >= _SMALL_ELEMENTS:
        every = (np.nan, np.inf, -np.inf)
        return [SpecialDraw(every, but_largest=True)] if len(floats) > 1 else []
    kinds = ((np.nan,), (np.inf,), (-np.inf,))
    return [SpecialDraw(kind, only=n) for n, _ in floats[:_MAX_SINGLE_INPUTS] for kind in kinds]


def special_inputs(
    workload: Workload, draw: SpecialDraw, positive: bool, rng: Generator
) -> list[Array]:
    share = min(_DENSEST, 0.25 / max(map(combined_values, workload.stages), default=1))
    floats = [t for t in workload.inputs if t.dtype.is_float]
    largest = max(floats, key=lambda t: t.elements)
    dims = summed_dims(workload)
    found = []
    for number, tensor in enumerate(workload.inputs):
        has_them = not (draw.but_largest if tensor is largest else draw.largest_only)
        if draw.only is not None:
            has_them = number == draw.only
        values = draw.values if has_them and tensor.dtype.is_float else ()
        drawn = _drawn(with_axis(tensor), positive, rng)
        if draw.but_largest or draw.only is not None:
            _put_in_lines(drawn, values, dims[tensor.name], rng)
        elif tensor.elements >= _MIN_ELEMENTS:
            _put_few(drawn, values, share, rng)
        found.append(narrowed(drawn, tensor.dtype).reshape(tensor.shape))
    return found


def _put_few(drawn: Array, values: tuple[float, ...], share: float, rng: Generator) -> None:
    flat = drawn.reshape(-1)
    for value in values:
        count = max(1, rng.binomial(flat.size, share))
        flat[rng.integers(0, flat.size, count)] = value


def _put_in_lines(
    drawn: Array, values: tuple[float, ...], dims: tuple[int, ...], rng: Generator
) -> None:
    if not values:
        return
    if dims:
        where = one_place_per_line(drawn.shape, dims, int(rng.integers(_TURNS)))
        drawn[where] = np.resize(np.array(values), where[0].size)
    else:
        where = np.nonzero(rng.random(drawn.shape) < 0.5)
        drawn[where] = rng.choice(np.array(values), where[0].size)


def _drawn(tensor: Tensor, positive: bool, rng: Generator) -> Array:
    """Draw magnitudes of 1/4 to 1, so that no exponential of their sums overflows."""
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

    return tiled(tensor.shape, draw)
