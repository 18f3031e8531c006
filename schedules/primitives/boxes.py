"""Rectangular regions of tensors that a body accesses, and private buffers for them.

A region has one span per dimension. A span is a range of indices with a constant step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd

from ..algebra.affine import (
    ZERO,
    Affine,
    Index,
    Ranges,
    Var,
    affine,
    interval,
    simplify,
    var,
)
from ..dtypes import DType
from ..errors import ScheduleError
from ..nest.loop_ir import Buffer, BufferScope, For


@dataclass(frozen=True, slots=True)
class DimensionSpan:
    """The elements `base`, `base + step`, ... up to `base + width` of one dimension.

    `base` depends only on enclosing loops; `step` is 0 for a single element.
    """

    base: Affine
    width: int
    step: int

    @property
    def extent(self) -> int:
        return self.width // max(self.step, 1) + 1

    def local(self, index: Affine) -> Affine:
        """Return the position of the element `index` within the span."""
        offset, step = index - self.base, max(self.step, 1)
        # With divisions, the offset may be a multiple of `step` although its constant is not.
        assert offset.const % step == 0 or any(not isinstance(a, Var) for a, _ in offset.terms)
        return offset // step

    def joined(self, other: DimensionSpan, source: object) -> DimensionSpan:
        """Return the smallest span that contains both spans. Raise ScheduleError if the distance of
        their bases is not constant."""
        offset = other.base - self.base
        if not offset.is_const:
            problem = f"the distance of two accesses is not constant: {self.base} and {other.base}"
            raise ScheduleError(source, problem)
        shift, low = offset.const, min(0, offset.const)
        width = max(self.width, shift + other.width) - low
        return DimensionSpan(self.base + low, width, gcd(self.step, other.step, shift))


@dataclass(frozen=True, slots=True)
class TensorRegion:
    """A box of elements of a tensor: a span in each dimension."""

    spans: tuple[DimensionSpan, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(span.extent for span in self.spans)

    def within(self, shape: tuple[int, ...]) -> TensorRegion:
        """Return the region without elements behind the end of a tensor of this shape, which
        guards exclude. Only spans at a fixed position are known to exceed it."""
        return TensorRegion(
            tuple(
                replace(span, width=min(span.width, size - 1 - span.base.const))
                if span.base.is_const and 0 <= span.base.const < size
                else span
                for span, size in zip(self.spans, shape, strict=True)
            )
        )

    def local_index(self, index: Index) -> Index:
        """Return the index in a copy of the region for the tensor element `index`."""
        return tuple(span.local(i) for span, i in zip(self.spans, index, strict=True))

    def element(self, position: Index) -> Index:
        """Return the index in the tensor for a `position` in a copy of the region."""
        pairs = zip(self.spans, position, strict=True)
        return tuple(span.base + x * max(span.step, 1) for span, x in pairs)


@dataclass(frozen=True, slots=True)
class BufferBox:
    """A private buffer and the loops over its dimensions. `names` has the name of the loop of each
    dimension. Dimensions of one element have a name but no loop."""

    buffer: Buffer
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, name: str, extent: tuple[int, ...], dtype: DType, register: bool, taken: set[str]
    ) -> BufferBox:
        """Return a buffer in registers or in the workspace, with loops named `name`.0, `name`.1,
        ... A quote is appended to a name that is in `taken`."""
        names = []
        for d in range(len(extent)):
            loop = f"{name}.{d}"
            while loop in taken:
                loop += "'"
            names.append(loop)
        scope = BufferScope.REGISTER if register else BufferScope.WORKSPACE
        return cls(Buffer(name, extent, dtype, scope), tuple(names))

    @property
    def loops(self) -> tuple[For, ...]:
        sizes = zip(self.names, self.buffer.shape, strict=True)
        return tuple(For(name, extent, ()) for name, extent in sizes if extent > 1)

    def index(self, names: tuple[str, ...]) -> Index:
        """Return the index with the variables `names`. It is zero in dimensions of one element."""
        sizes = zip(names, self.buffer.shape, strict=True)
        return tuple(var(name) if extent > 1 else ZERO for name, extent in sizes)

    @property
    def position(self) -> Index:
        """The index with the variables of `loops`."""
        return self.index(self.names)


def region_of(
    indices: Iterable[Index], inner: Ranges, outer: Ranges, source: object
) -> TensorRegion:
    """Return the smallest region that contains all `indices` for all values of the `inner`
    variables.

    Raise ScheduleError if the region has no fixed size. This is so if an index divides a sum of
    inner and outer variables, or if the distance of two indices is not constant.
    """
    ranges = {**outer, **inner}
    first, *others = (tuple(_span(i, inner, ranges, source) for i in index) for index in indices)
    for spans in others:
        first = tuple(a.joined(b, source) for a, b in zip(first, spans, strict=True))
    return TensorRegion(first)


def _span(index: Affine, inner: Ranges, ranges: Ranges, source: object) -> DimensionSpan:
    """Return the values of `index` over all values of the `inner` variables."""
    index = simplify(index, ranges)
    fixed, moving = affine(index.const), ZERO
    for atom, c in index.terms:
        term = Affine(((atom, c),), 0)
        names = term.vars()
        if term.has_data:  # any element of the range: the data may depend on the iteration
            moving = moving + term
        elif names.isdisjoint(inner):
            fixed = fixed + term
        elif names <= inner.keys():
            moving = moving + term
        else:
            problem = f"index {index} divides a sum of loops from inside and outside"
            raise ScheduleError(source, problem)
    bounds = interval(moving, ranges)
    plain = all(isinstance(a, Var) for a, _ in moving.terms)
    step = gcd(*(c for _, c in moving.terms)) if plain else 1
    return DimensionSpan(fixed + bounds.lo, bounds.hi - bounds.lo, step)
