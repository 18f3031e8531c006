"""Addresses of array elements, and their alignment."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.schedules.algebra.affine import (
    Affine,
    Atom,
    Var,
    affine,
    simplify,
    vars_inside,
)
from tilewright.schedules.nest.loop_ir import Buffer, BufferScope

from .indices import Indices, VectorAxis
from .module import ModuleText
from .text import FunctionText
from .values import scalar_type


@dataclass(frozen=True, slots=True)
class Array:
    """An array in memory."""

    buffer: Buffer
    base: str
    """The register that has the array's address."""
    align: int
    """The proven alignment of this address in bytes."""


class Addresses:
    """A writer of element addresses in one function: the base class of `ArrayLoads` and
    `ArrayStores`."""

    def __init__(self, text: FunctionText, indices: Indices, module: ModuleText) -> None:
        self.text = text
        self.indices = indices
        self.module = module
        self._distances: dict[tuple[Affine, VectorAxis], tuple[int, ...] | None] = {}

    def pointer(self, place: Array, offset: Affine) -> str:
        """Return the address of element `offset`."""
        return self.indices.address(place.base, scalar_type(place.buffer.dtype), offset)

    def lane(self, offset: Affine, axis: VectorAxis, lane: int) -> Affine:
        """Return the index of the element that lane `lane` of `axis` accesses."""
        at = offset.substitute({axis.var: affine(lane)})
        return at if offset.is_linear_in(axis.var) else simplify(at, self.indices.ranges)

    def distances(self, offset: Affine, axis: VectorAxis) -> tuple[int, ...] | None:
        """Return how many elements behind that of lane 0 the element of each lane of `axis` is, or
        None if a distance is not constant."""
        moving = (term for term in offset.terms if _depends_on(term[0], axis.var))
        key = Affine(tuple(moving), 0), axis
        if key not in self._distances:
            first = self.lane(key[0], axis, 0)
            found = [self.lane(key[0], axis, lane) - first for lane in range(axis.lanes)]
            is_known = all(one.is_const for one in found)
            self._distances[key] = tuple(one.const for one in found) if is_known else None
        return self._distances[key]


def _depends_on(atom: Atom, name: str) -> bool:
    return atom.name == name if isinstance(atom, Var) else name in vars_inside(atom)


def aligned_to(place: Array, offset: Affine, lanes: int) -> int:
    """Return the proven alignment of element `offset` in bytes, at most the size of a vector."""
    size = place.buffer.dtype.bytes
    if place.buffer.scope is BufferScope.ARGUMENT:
        return size
    common = gcd(place.align, *(c * size for _, c in offset.terms), offset.const * size)
    whole = size * lanes
    return max(min(common & -common, whole & -whole), size)
