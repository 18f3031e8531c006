"""What a computation is made of: axes, tensors, and the stages that compute tensors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..algebra.scalar import Reducer, Scalar
from ..dtypes import DType


@dataclass(frozen=True, slots=True)
class Axis:
    """A named loop variable over `0..extent-1`."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A dense row-major array. `constant` says its values do not change between calls."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    constant: bool = False

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class Stage:
    """`tensor[axes] = body`, or `= reducer over reduce_axes of body`.

    `tensor.shape` is the extents of `axes`, in order. The body's variables are the names in
    `axes` and `reduce_axes`.
    """

    tensor: Tensor
    axes: tuple[Axis, ...]
    body: Scalar
    reducer: Reducer | None = None
    reduce_axes: tuple[Axis, ...] = ()

    @property
    def name(self) -> str:
        return self.tensor.name
