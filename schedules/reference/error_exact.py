"""Detect results that are exact for the actual values, in any order of evaluation.

(`exactness` proves exactness for ranges of values.) An operation with exact operands whose result
is representable does not round. Functions have points at which every implementation is exact. A sum
of multiples of 2**s is exact in any order if its magnitude is at most 2**(s + bits of the
significand). The bound of such a result is zero, so that the smallest mistake is detected.

A result must never be classified as exact if a correct kernel could round it. An exact result that
is not detected only has a wider bound. Expensive tests therefore run only if they succeed for a
sample of the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..algebra.narrow import round_to
from ..algebra.scalar import UnaryOp
from ..dtypes import DType
from .error_rounding import Errors, smallest_normal
from .math import Array

NO_STEP = 2000
"""Result of `common_step` for zeros, which are multiples of every power of two."""
_SAMPLE = 64


def sample(values: Array) -> Array:
    """Return up to about 64 elements of `values`, evenly spread, as a vector."""
    if values.size <= _SAMPLE:
        return values.reshape(-1)
    # If values repeat with period 2**n, an odd stride samples all positions of the period.
    return np.asarray(values.flat[:: values.size // _SAMPLE | 1])


def is_number_of(values: Array, dtype: DType) -> Array:
    """Return a mask of the float64 `values` that are representable in the float type `dtype`."""
    if dtype.is_narrow_float:
        return np.asarray(round_to(values, dtype) == values)
    if dtype is DType.F32:
        return np.asarray(values.astype(np.float32) == values)
    return np.isfinite(values)


def exact_sum(a: Array, b: Array, values: Array, dtype: DType) -> Array | None:
    """Return a mask of the float64 sums a + b in `values` that are exact and representable in
    `dtype`. Return None if a sample suggests that there are none.

    The test is that the error term of Knuth's TwoSum is zero.
    """
    if not dtype.is_float or not is_number_of(sample(values), dtype).any():
        return None
    virtual = values - a
    no_error = (a - (values - virtual) == 0) & (b - virtual == 0)
    return np.asarray(no_error & is_number_of(values, dtype))


def exact_product(a: Array, b: Array, values: Array, dtype: DType) -> Array | None:
    """Return a mask of the float64 products a * b in `values` that are exact and representable in
    `dtype`. Return None if a sample suggests that there are none. For f64, only products of two f32
    numbers are classified as exact."""
    if not dtype.is_float:
        return None
    if dtype is not DType.F64:
        if not is_number_of(sample(values), dtype).any():
            return None
        return is_number_of(values, dtype)
    if not (is_number_of(sample(a), DType.F32).any() and is_number_of(sample(b), DType.F32).any()):
        return None
    return is_number_of(a, DType.F32) & is_number_of(b, DType.F32)


def exact_quotient(a: Array, b: Array, values: Array, dtype: DType) -> Array | None:
    """Return a mask of the float64 quotients a / b in `values` that are exact and representable in
    `dtype`. Return None if a sample suggests that there are none. A kernel may compute a * (1 / b).
    Therefore b must be a power of two, or a must be zero."""
    if not dtype.is_float:
        return None
    if not (_is_power(sample(b), dtype).any() or (sample(a) == 0).any()):
        return None
    simple = _is_power(b, dtype) & is_number_of(values, dtype)
    return np.asarray(simple | ((a == 0) & (np.abs(b) >= smallest_normal(dtype)) & np.isfinite(b)))


def _is_power(values: Array, dtype: DType) -> Array:
    """Return a mask of the values of the form +-2**n for which 2**n and 2**-n are normal in
    `dtype`."""
    limit = 1 / smallest_normal(dtype) / 4
    size = np.abs(values)
    return np.asarray((np.frexp(values)[0] ** 2 == 0.25) & (size <= limit) & (size >= 1 / limit))


def exact_function(op: UnaryOp, x: Array, values: Array, dtype: DType) -> Array | None:
    """Return a mask of the arguments `x` at which every implementation of `op` returns the float64
    results `values`, or None if there are none.

    docs/math.md lists these points, and tests/tuner/test_mathlib.py checks the implementations.
    """
    points = op.function.exact
    if points is None:
        return None
    exact = np.asarray(points(np, x, values, _Numbers(dtype)))
    return exact if exact.any() else None


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Tests of numbers of type `dtype`, as `ScalarFunction.exact` needs them (`FloatType`)."""

    dtype: DType

    def is_power(self, values: Array) -> Array:
        return _is_power(values, self.dtype)

    def has_square(self, values: Array) -> Array:
        return is_number_of(values, DType.F32 if self.dtype is DType.F64 else self.dtype)


def common_step(values: Array, dtype: DType) -> int | None:
    """Return an s such that all `values` are multiples of 2**s, or `NO_STEP` if all are zero.
    Return None if a sample determines no such s, or if a single value exceeds 2**(s + precision),
    so that sums may round."""
    some = sample(values)
    some = some[some != 0]
    if not some.size:
        some = np.asarray(values[values != 0])[:_SAMPLE]
        if not some.size:
            return NO_STEP
    if not np.isfinite(some).all():
        return None
    fractions, exponents = np.frexp(some.astype(np.float64))
    digits = (fractions * 2.0**53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    step = int((exponents - 53 + lowest).min())
    if float(np.abs(some).max()) > 2.0 ** min(step + dtype.binary.precision, 1000) or step < -1000:
        return None
    scaled = values * 2.0**-step
    return step if bool((np.rint(scaled) == scaled).all()) else None


def exact_sums(step: int | None, magnitude: Array, errors: Errors, dtype: DType) -> Array | None:
    """Return a mask of the sums that are exact in any order, or None if none is known to be exact.
    All terms are multiples of 2**step. For each sum, `magnitude` is the sum of the magnitudes of
    its terms, and `errors` is the sum of their errors."""
    if step is None or not dtype.is_float:
        return None
    small = magnitude <= 2.0 ** min(step + dtype.binary.precision, 1000)
    return small if errors is None else np.asarray(small & (errors == 0))
