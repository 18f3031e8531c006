"""Conversions of NumPy arrays from and to narrow float types.

A buffer of a narrow type is widened to f32 when it is read, and rounded to nearest, ties to even,
when it is written. A type that NumPy lacks is stored as the upper bits of f32 numbers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..dtypes import DType

Array: TypeAlias = npt.NDArray[Any]

_QUIET = np.uint32(1 << 22)
"""The quiet bit of an f32 NaN. If it is set, the value is a NaN even after truncation."""


def widened(stored: Array, dtype: DType) -> Array:
    """Return the numbers in a buffer of `dtype`: f32 for narrow floats, else the buffer itself."""
    if not dtype.is_narrow_float:
        return stored
    if dtype.numpy.kind == "f":
        return stored.astype(np.float32)
    bits = np.asarray(stored).astype(np.uint32) << np.uint32(32 - dtype.bits)
    return bits.view(np.float32)


def narrowed(values: Array, dtype: DType) -> Array:
    """Return a buffer of `dtype` with `values`, each rounded once; the inverse of `widened`."""
    if not dtype.is_narrow_float:
        return values.astype(dtype.numpy, copy=False)
    rounded = np.asarray(round_to(values, dtype), np.float32, order="C")
    if dtype.numpy.kind == "f":
        return rounded.astype(dtype.numpy)
    bits = rounded.view(np.uint32)
    bits = np.where(np.isnan(rounded), bits | _QUIET, bits)
    return (bits >> np.uint32(32 - dtype.bits)).astype(dtype.numpy)


_WHOLE = 1 << 53
"""All integers up to this magnitude are float64 numbers."""


def to_odd(values: Array) -> Array:
    """Return `values` as float64 numbers that round to every narrower float type as `values`
    themselves would.

    A 64-bit integer that is not representable in float64 would be rounded twice. Instead, its last
    12 bits are cleared, and the next bit is set if they were not all zero: "round to odd" (Boldo
    and Melquiond, IEEE Trans. Comput. 57 (2008), p. 462).
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return np.asarray(values, np.float64)
    lost = values & 0xFFF
    odd = (values - lost) | ((lost != 0).astype(values.dtype) << 12)
    small = (values >= -_WHOLE) & (values <= _WHOLE)
    return np.where(small, values, odd).astype(np.float64)


def nearest(value: float, dtype: DType) -> float:
    """Return the number of the float type `dtype` that is nearest to the Python number `value`,
    rounded once. It is infinite if `value` is beyond the range of `dtype`.

    Raise OverflowError for an integer beyond the range of f64.
    """
    if isinstance(value, int) and dtype is not DType.F64:
        surplus = max(abs(value).bit_length() - 53, 0)
        kept = value >> surplus
        odd = kept | (kept << surplus != value)
        exact = float(odd << surplus)
    else:
        exact = float(value)
    if dtype is DType.F64:
        return exact
    with np.errstate(over="ignore"):
        if dtype is DType.F32:
            return float(np.float32(exact))
        return float(round_to(np.asarray(exact), dtype))


def round_to(values: Array, dtype: DType) -> Array:
    """Return the float64 `values` rounded once to the nearest number of the float type `dtype`,
    ties to even, as float64.

    Rounding to float32 first could round twice, so the function works on the float64 bits. It
    rounds to `precision` significant bits, and to fewer below the smallest normal number.
    """
    with np.errstate(all="ignore"):  # no warnings for infinities, NaN and huge values
        values = np.asarray(values, np.float64, order="C")  # keeps 0-d arrays, for `view`
        form = dtype.binary
        off = 53 - form.precision
        bits = values.view(np.uint64)
        odd = (bits >> np.uint64(off)) & np.uint64(1)
        kept = (bits + np.uint64((1 << (off - 1)) - 1) + odd) >> np.uint64(off)
        result = (kept << np.uint64(off)).view(np.float64)
        # np.rint rounds ties to even as well; scaling by powers of two is exact.
        step = form.step_exponent
        small = np.abs(values) < 2.0**form.normal_exponent
        result = np.where(small, np.rint(values * 2.0**-step) * 2.0**step, result)
        result = np.where(np.abs(result) > form.largest, np.copysign(np.inf, values), result)
        return np.where(np.isfinite(values), result, values)
