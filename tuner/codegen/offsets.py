"""The numbers of elements in arrays, which are dense and row-major."""

from __future__ import annotations

from tilewright.schedules.algebra.affine import Affine, affine, recombine
from tilewright.schedules.nest.loop_ir import Buffer


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements between neighbours in each dimension of a dense row-major array."""
    result = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        result[d] = result[d + 1] * shape[d + 1]
    return tuple(result)


def flat_offset(buffer: Buffer, index: tuple[Affine, ...]) -> Affine:
    """The element number of `buffer[index]`."""
    total = affine(0)
    for i, stride in zip(index, strides(buffer.shape), strict=True):
        total = total + i * stride
    return recombine(total)
