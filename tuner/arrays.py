"""Arrays aligned to cache lines. NumPy's arrays often begin 16 bytes after the start of a line."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from math import prod
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.workload.tensors import Tensor

ALIGN_BYTES = 64
"""The size of a cache line and of the widest vector. `tune` times kernels on arrays aligned to it.
"""

Array = npt.NDArray[Any]


def empty(shape: int | Iterable[int], dtype: npt.DTypeLike = np.float32) -> Array:
    """Return an array like `numpy.empty`, C-contiguous and aligned to 64 bytes.

    `dtype` is a type of NumPy, whose names are not those of workloads: NumPy's "i8" has 8 bytes.
    """
    shape = tuple(map(index, shape)) if isinstance(shape, Iterable) else (index(shape),)
    if min(shape, default=0) < 0:  # np.ndarray would take any size that fits
        raise ValueError(f"negative dimensions are not allowed, got {shape}")
    return allocator(shape, np.dtype(dtype))()


def allocator(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Array]:
    """Return a function that returns a new array like `empty`. Calls of kernels wait for it, so it
    computes only what differs between two arrays, and finds addresses by the buffer protocol."""
    bytes_needed = prod(shape) * dtype.itemsize + ALIGN_BYTES
    new, byte, array = np.empty, np.dtype(np.uint8), np.ndarray
    address, buffer = ctypes.addressof, ctypes.c_char.from_buffer

    def allocate() -> Array:
        memory: Any = new(bytes_needed, byte)
        return array(shape, dtype, memory, -address(buffer(memory)) % ALIGN_BYTES)

    return allocate


def aligned(array: npt.ArrayLike) -> Array:
    """Return `array` if it is C-contiguous and aligned to 64 bytes, otherwise such a copy of it."""
    given = np.asarray(array)
    if given.flags.c_contiguous and given.ctypes.data % ALIGN_BYTES == 0:
        return given
    copy = empty(given.shape, given.dtype)
    copy[...] = given
    return copy


def as_bytes(array: Array) -> npt.NDArray[np.uint8]:
    """Return the elements of an array, row-major, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def as_array(tensor: Tensor, stored: npt.NDArray[np.uint8]) -> Array:
    """Return a view of stored bytes with the shape and NumPy type of `tensor`."""
    return stored.view(tensor.dtype.numpy).reshape(tensor.shape)


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of the first element. This is several times as fast as
    `array.ctypes.data`."""
    return int(array.__array_interface__["data"][0])
