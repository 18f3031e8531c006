"""Element-by-element comparison of a kernel's outputs with the expected outputs.

If results are exact, every element must be equal. Otherwise every element must be within the error
bound of a correct schedule. Errors are never averaged: one wrong element makes a kernel wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.narrow import widened
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference.math import cast
from tilewright.schedules.reference.sample import Grid, element_of, taken
from tilewright.schedules.workload.tensors import Tensor

from ..arrays import Array
from .input_plan import InputKind

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Expected:
    """The correct values of one output. An element y must satisfy `|y - values| <= bound`.

    The arrays have one entry for each compared element.
    """

    tensor: Tensor
    values: Array
    """The expected values in float64. If they are exact or integers, they are of the output's type
    (f32 for narrow floats)."""
    bound: Array | None
    """The error bounds. None means that the elements must equal `values`."""
    free: npt.NDArray[np.bool_] | None
    """The elements that may have any value. None means that there are no such elements."""
    grid: Grid = ()
    """The compared elements. Empty means all elements."""
    span: tuple[Array, Array] | None = None
    """`limits()` if they were computed in advance, for a faster comparison."""

    def with_span(self) -> Expected:
        """Return a copy with `span`, for expected values that many outputs are compared with.

        Without a bound, there is nothing to compute. In float64, limits could not be represented
        better than distances.
        """
        dtype = self.tensor.dtype
        if self.bound is None or not dtype.is_float or dtype is DType.F64:
            return self
        shape, kind = self.values.shape, _compared(dtype)
        low, high = np.empty(shape, kind), np.empty(shape, kind)
        lows, highs, values, bound = (
            a.reshape(-1) for a in (low, high, self.values, np.broadcast_to(self.bound, shape))
        )
        with np.errstate(all="ignore"):
            for at in range(0, values.size, _CHUNK):
                part = slice(at, at + _CHUNK)
                lows[part], highs[part] = _float_limits(dtype, values[part], bound[part])
        return replace(self, span=(low, high))

    def wrong(self, output: Array) -> str | None:
        """Return one line about the first wrong element of `output`, or None if all elements are
        correct."""
        if output.shape != self.tensor.shape or output.dtype != self.tensor.dtype.numpy:
            raise ValueError(
                f"output {self.tensor.name} must be {self.tensor.dtype.numpy} of shape "
                f"{self.tensor.shape}, got {output.dtype} of shape {output.shape}"
            )
        got = self._numbers(output)
        right = self._within(got)
        if right is None:
            return None
        right |= np.isnan(got) & np.isnan(self.values)
        if self.free is not None:
            right |= self.free
        return None if right.all() else self._describe(got, ~right)

    def wrong_zeros(self, output: Array, signs: npt.NDArray[np.int8]) -> str | None:
        """Return one line about the first zero of `output` with a wrong sign, or None if all signs
        are correct.

        An entry of `signs` is -1 or 1 if the element must be a zero of that sign. It is 0 if the
        element may be any number.
        """
        got = self._numbers(output)
        wrong = (signs != 0) & ((got != 0) | (np.signbit(got) != (signs < 0)))
        if not wrong.any():
            return None
        where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        index = ", ".join(str(i) for i in element_of(self.grid, where))
        return (
            f"{self.tensor.name}[{index}] is {float(got[where])!r}, expected "
            f"{'-0.0' if signs[where] < 0 else '0.0'}; {int(wrong.sum())} of {wrong.size} zeros"
            " are wrong"
        )

    @property
    def judged_fraction(self) -> float:
        """The fraction of elements that are compared with a number. NaN does not count, because it
        hides mistakes."""
        numbers = np.asarray(~np.isnan(self.values))
        return float((numbers if self.free is None else numbers & ~self.free).mean())

    def largest_error(self, output: Array) -> float:
        """Return the largest finite distance between an element and its exact value."""
        with np.errstate(all="ignore"):
            distance = np.abs(self._numbers(output).astype(np.float64) - self.values)
        return float(np.max(distance, where=np.isfinite(distance), initial=0.0))

    def limits(self, where: tuple[Any, ...] = ()) -> tuple[Array, Array]:
        """Return the least and the greatest correct number of each element. `where` selects the
        elements."""
        values = np.asarray(self.values[where])
        if self.bound is None:
            return values, values
        of_type = _float_limits if self.tensor.dtype.is_float else _integer_limits
        with np.errstate(all="ignore"):
            return of_type(self.tensor.dtype, values, np.asarray(self.bound[where]))

    @property
    def sampled_fraction(self) -> float:
        return self.values.size / self.tensor.elements

    def _numbers(self, output: Array) -> Array:
        if self.tensor.dtype is DType.BOOL:
            return taken(output.view(np.uint8), self.grid)  # bytes, which must be 0 or 1
        return widened(taken(output, self.grid), self.tensor.dtype)

    def _within(self, got: Array) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the elements within the bound, or None if all are within it. The
        comparison is done in chunks that fit the cache."""
        if self.bound is None:
            equal = np.asarray(got == self.values)
            return None if equal.all() else equal
        if self.span is not None or not self.tensor.dtype.is_float:
            low, high = self.limits() if self.span is None else self.span
            return _between(low, got, high)
        flat, values, bound = (a.reshape(-1) for a in (got, self.values, self.bound))
        scratch = np.empty(min(_CHUNK, flat.size))
        right = np.empty(flat.size, np.bool_)
        with np.errstate(all="ignore"):
            for at in range(0, flat.size, _CHUNK):
                part = slice(at, min(at + _CHUNK, flat.size))
                distance = scratch[: part.stop - at]
                np.subtract(flat[part], values[part], out=distance)
                np.abs(distance, out=distance)
                np.less_equal(distance, bound[part], out=right[part])
            if right.all():
                return None
            # The difference of two infinities is NaN, so infinities are compared directly.
            right |= flat == values
        return right.reshape(got.shape)

    def _describe(self, got: Array, wrong: npt.NDArray[np.bool_]) -> str:
        where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        index = ", ".join(str(i) for i in element_of(self.grid, where))
        low, high = (limit[()] for limit in self.limits(where))
        allowed = "exactly" if low == high else f"{_number(low)} to {_number(high)}"
        return (
            f"{self.tensor.name}[{index}] is {_number(got[where])}, expected "
            f"{_number(self.values[where])} ({allowed}); "
            f"{int(wrong.sum())} of {wrong.size} elements are wrong"
            + ("" if wrong.size == self.tensor.elements else " of those compared")
        )


def _between(low: Array, got: Array, high: Array) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the elements of `got` within `low` and `high`, or None if all are within
    them. The comparison is done in chunks that fit the cache."""
    lows, flat, highs = (np.broadcast_to(a, got.shape).reshape(-1) for a in (low, got, high))
    for at in range(0, flat.size, _CHUNK):
        part = slice(at, at + _CHUNK)
        if not ((lows[part] <= flat[part]) & (flat[part] <= highs[part])).all():
            return np.asarray((low <= got) & (got <= high))
    return None


def _number(value: Any) -> str:
    return f"{float(value):.9g}" if isinstance(value, np.floating) else str(int(value))


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs with its expected outputs. `exact` is True if each output has only one
    correct value.

    The error of a rewritten kernel is relative to `scale`. It is None if no rewrite has an error.
    """

    kind: InputKind
    seed: int
    exact: bool
    inputs: tuple[Array, ...]
    expected: tuple[Expected, ...]
    scale: float | None = None

    def check(self, outputs: Sequence[Array]) -> str | None:
        """Return one line about the first wrong element, or None if all elements are correct.

        `outputs` are in argument order and have the types of the buffers.
        """
        if len(outputs) != len(self.expected):
            raise ValueError(f"{len(self.expected)} outputs are expected, got {len(outputs)}")
        for expected, output in zip(self.expected, outputs, strict=True):
            problem = expected.wrong(output)
            if problem is not None:
                return f"{problem}; inputs: {self.kind}, seed {self.seed}"
        return None

    def error(self, outputs: Sequence[Array]) -> float | None:
        """Return the largest error of `outputs` relative to `scale`, or None if `scale` is None."""
        if not self.scale:
            return None
        pairs = zip(self.expected, outputs, strict=True)
        return max(expected.largest_error(output) for expected, output in pairs) / self.scale

    def with_spans(self) -> Case:
        """Return a copy for many comparisons (see `Expected.with_span`)."""
        return replace(self, expected=tuple(e.with_span() for e in self.expected))

    @property
    def sampled_fraction(self) -> float:
        return min((e.sampled_fraction for e in self.expected), default=1.0)

    @property
    def judged_fraction(self) -> float:
        """The fraction of compared elements that are numbers, in the output with the lowest
        fraction."""
        return min(expected.judged_fraction for expected in self.expected)


def expect(tensor: Tensor, values: Array, bound: Array | None, grid: Grid = ()) -> Expected:
    """Return the expected elements `grid` of `tensor`. They must equal `values`, or be within
    `bound` of them if it is not None."""
    with np.errstate(all="ignore"):
        if bound is None or not bound.any():
            exact = values.astype(_compared(tensor.dtype), copy=False)
            return Expected(tensor, exact, None, None, grid)
        free = None if np.isfinite(bound.max()) else ~np.isfinite(bound)
        return Expected(tensor, values, bound, free, grid)


def _compared(dtype: DType) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype.is_narrow_float else dtype.numpy


def _float_limits(dtype: DType, values: Array, bound: Array) -> tuple[Array, Array]:
    """Return the least and the greatest number of `dtype` within `bound` of `values`."""
    least, greatest = values - bound, values + bound
    low, high = least.astype(_compared(dtype)), greatest.astype(_compared(dtype))
    low = np.where(low < least, np.nextafter(low, low.dtype.type(np.inf)), low)
    high = np.where(high > greatest, np.nextafter(high, high.dtype.type(-np.inf)), high)
    free = np.isinf(bound)
    return np.where(free, -np.inf, low), np.where(free, np.inf, high)


def _integer_limits(dtype: DType, values: Array, bound: Array) -> tuple[Array, Array]:
    # Only values with a bound are converted to float64, which cannot represent every 64-bit
    # integer.
    whole = np.floor(bound)
    if dtype is DType.BOOL:
        return values & (whole <= 0), values | (whole > 0)
    low = np.where(whole > 0, cast(values - whole, dtype), values)
    high = np.where(whole > 0, cast(values + whole, dtype), values)
    return low, high
