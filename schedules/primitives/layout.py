"""TransformLayout: the order in which a private buffer is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Affine, simplify
from ..algebra.scalar import Load, Scalar
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import ScheduleError
from ..nest.finding import all_ranges, buffers_in
from ..nest.loop_ir import Allocate, Nest, Prefetch, Scope, Stmt, Store, Update, transform
from .primitive import Primitive


@dataclass(frozen=True, slots=True)
class TransformLayout(Primitive):
    """Keep a private buffer in another order (`transform_layout` in TVM).

    Each entry of `dims` is (dimension, part): part 0 is the whole dimension; otherwise the
    dimension is divided by `split[dimension]` into 1 (quotient) and 2 (remainder). A packed
    panel of width nr is `split={1: nr}, dims=((1, 1), (0, 0), (1, 2))`.
    Legal for buffers of the nest's own, when every part is kept exactly once.
    """

    buffer: str
    split: tuple[tuple[int, int], ...]
    dims: tuple[tuple[int, int], ...]

    def apply(self, nest: Nest) -> Nest:
        """The nest with the buffer kept so. ScheduleError: an argument, or parts do not match."""
        buffers = buffers_in(nest)
        if self.buffer not in buffers:
            raise ScheduleError(self, f"there is no buffer {self.buffer!r}")
        buffer = buffers[self.buffer]
        if buffer.scope is Scope.ARGUMENT:
            raise ScheduleError(self, f"{self.buffer!r} is an argument: its layout is the caller's")
        factors = dict(self.split)
        wanted = sorted(
            part
            for d in range(len(buffer.shape))
            for part in (((d, 1), (d, 2)) if d in factors else ((d, 0),))
        )
        if sorted(self.dims) != wanted or any(f < 1 for f in factors.values()):
            raise ScheduleError(self, f"the new order must be made of {wanted}")
        shape = tuple(_part_extent(buffer.shape, factors, part) for part in self.dims)
        ranges = all_ranges(nest.body)

        def index(old: tuple[Affine, ...]) -> tuple[Affine, ...]:
            return tuple(simplify(_part_index(old, factors, part), ranges) for part in self.dims)

        def scalar(node: Scalar) -> Scalar | None:
            if isinstance(node, Load) and node.tensor == self.buffer:
                return replace(node, index=index(node.index))
            return None

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if isinstance(stmt, Allocate) and stmt.buffer.name == self.buffer:
                new = replace(stmt.buffer, shape=shape)
                return (Allocate(new, transform(stmt.body, change)),)
            if isinstance(stmt, Store | Update):
                new_leaf = replace(stmt, value=rewrite_scalar(stmt.value, scalar))
                if stmt.buffer == self.buffer:
                    new_leaf = replace(new_leaf, index=index(stmt.index))
                return (new_leaf,)
            if isinstance(stmt, Prefetch) and stmt.buffer == self.buffer:
                return (replace(stmt, index=index(stmt.index)),)
            return None

        return replace(nest, body=transform(nest.body, change))


def _part_extent(shape: tuple[int, ...], factors: dict[int, int], part: tuple[int, int]) -> int:
    d, which = part
    if which == 0:
        return shape[d]
    return -(-shape[d] // factors[d]) if which == 1 else factors[d]


def _part_index(old: tuple[Affine, ...], factors: dict[int, int], part: tuple[int, int]) -> Affine:
    d, which = part
    if which == 0:
        return old[d]
    return old[d] // factors[d] if which == 1 else old[d] % factors[d]
