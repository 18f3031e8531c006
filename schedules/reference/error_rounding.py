"""Rounding errors of operations and sums: the arithmetic of the error bound.

A bound is a float64 array that broadcasts to its values, or None if it is zero everywhere.
"""

from __future__ import annotations

from math import expm1, log1p
from typing import TypeAlias

import numpy as np

from ..dtypes import DType
from .math import Array

Errors: TypeAlias = Array | None
"""A bound that broadcasts to its values; None means zero everywhere."""


def unit_roundoff(dtype: DType) -> float:
    """Return the unit roundoff of `dtype`, half the distance from 1 to the next number, or 0 for
    integers."""
    return 2.0**-dtype.binary.precision if dtype.is_float else 0.0


def rounding_growth(dtype: DType, roundings: int) -> float:
    """Return (1 + u)**roundings - 1, where u is the sum of the unit roundoffs of the kernel and of
    the reference."""
    if not dtype.is_float:
        return 0.0
    return expm1(roundings * log1p(unit_roundoff(dtype) + 2.0**-52))


def smallest_step(dtype: DType) -> float:
    """Return the distance between adjacent denormal numbers: the largest error of underflow."""
    return 2.0**dtype.binary.step_exponent if dtype.is_float else 0.0


def smallest_normal(dtype: DType) -> float:
    return smallest_step(dtype) * 2.0 ** (dtype.binary.precision - 1)


def rounded(
    dtype: DType, values: Array, errors: Errors, fresh: Array, exact: Array | None = None
) -> Errors:
    """Return the error of the results `values` of one operation: the propagated `errors` plus its
    rounding error `fresh`. It is 0 for results in the mask `exact` whose propagated error is 0, and
    infinite for results that may overflow. It has no meaning for NaN and infinite values."""
    if exact is not None:
        exact = exact if errors is None else exact & (errors == 0)
        if exact.all():
            return None
    total = fresh if errors is None else errors * (1 + rounding_growth(dtype, 1)) + fresh
    if exact is not None and exact.any():
        total = np.where(exact, 0.0, total)
    return or_overflow(dtype, np.abs(values), total)


def sum_errors(
    dtype: DType,
    growth: float | Array,
    magnitude: Array,
    errors: Array,
    tiny: float,
    exact: Array | None = None,
) -> Array:
    """Return the error of sums. The terms of a sum have the total magnitude `magnitude` and the
    total error `errors`. Rounding adds `growth` times both totals, and `tiny` for underflow. The
    error is 0 for sums in the mask `exact`."""
    if not dtype.is_float:
        return dense(or_wrapped(dtype, magnitude, errors), magnitude.shape)
    total = errors + growth * (magnitude + errors)
    total = total + np.where(magnitude > 0, tiny, 0.0)
    if exact is not None:
        total = np.where(exact, 0.0, total)
    return or_overflow(dtype, magnitude, total)


def or_overflow(dtype: DType, magnitude: Array, errors: Array) -> Array:
    limit = dtype.binary.largest if dtype.is_float else dtype.integer_range[1]
    over = magnitude + errors > limit
    return np.where(over, np.inf, errors) if over.any() else errors


def or_wrapped(dtype: DType, magnitude: Array, errors: Errors) -> Errors:
    """Return `errors`, with infinity for integers that have an error and may wrap."""
    if errors is None:
        return None
    room = dtype.integer_range[1]
    return np.where((errors > 0) & (magnitude + errors > room), np.inf, errors)


def as_array(errors: Errors) -> Array:
    return np.asarray(0.0) if errors is None else errors


def as_error(doubtful: Array) -> Errors:
    return doubtful.astype(np.float64) if doubtful.any() else None


def plus(*errors: Errors) -> Errors:
    total: Errors = None
    for e in errors:
        if e is not None:
            total = e if total is None else total + e
    return total


def dense(errors: Errors, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape) if errors is None else np.broadcast_to(errors, shape)
