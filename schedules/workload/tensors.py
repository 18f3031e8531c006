"""The elements of a computation: axes, tensors, and the stages that compute tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias, assert_never

from ..algebra.scalar import Const, Reducer, Scalar
from ..dtypes import DType


@dataclass(frozen=True, slots=True)
class Axis:
    """A named loop variable over `0..extent-1`."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A dense row-major array. `constant`: whether its values never change between calls."""

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
class Elementwise:
    """The kind of a stage in which each element is the value of the body at its indices."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The kind of a stage in which each element combines the values of the body over `axes` (at
    least one) by `reducer`, in any order and grouping."""

    reducer: Reducer
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """The kind of a stage whose elements are running results along dimension `dim` of the tensor:
    each one combines, by `reducer`, the values of the body from the first position up to its own,
    or if `reverse`, from the last position down to its own, in any grouping.

    Other names: cumulative sum (product, ...), inclusive prefix sum.
    """

    reducer: Reducer
    dim: int
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class TupleReduction:
    """The kind of a stage that combines tuples of values over `axes` (at least one), and whose
    elements are component `position` of the results.

    The body is `Components`, one value for each component. `combine` has the components of the
    combination of two tuples, in terms of the components of the left and of the right one
    (`algebra/tuples.py`). It is associative with the identity `identities`, by the word of whoever
    wrote it. Tuples are combined in ascending order of the positions along `axes` (the last one
    fastest), in any grouping; if `commutative`, in any order. The types of the components are those
    of `identities`.
    """

    axes: tuple[Axis, ...]
    identities: tuple[Const, ...]
    combine: tuple[Scalar, ...]
    position: int
    commutative: bool = False


StageKind: TypeAlias = Elementwise | Reduction | Scan | TupleReduction
"""The rule that computes the elements of a stage from its body.

Code that depends on the kind matches every member and ends in `assert_never`, so that mypy finds it
if a kind is added. Code for one kind tests for that kind, never for the absence of another.
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """`tensor[axes] = body`, combined by the rule `kind`.

    `tensor.shape` is the extents of `axes`, in order. The variables of the body are the names of
    `all_axes`.
    """

    tensor: Tensor
    axes: tuple[Axis, ...]
    body: Scalar
    kind: StageKind = Elementwise()

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        """The reduction axes, empty for a stage that is no reduction."""
        match self.kind:
            case Elementwise() | Scan():
                return ()
            case Reduction(_, axes) | TupleReduction(axes):
                return axes
            case _:
                assert_never(self.kind)

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        """The axes of the body: the axes of the tensor, then the reduction axes."""
        return (*self.axes, *self.reduce_axes)

    @property
    def combined_axes(self) -> tuple[Axis, ...]:
        """The axes along which values of the body are combined: the reduction axes, or the axis of
        a scan."""
        match self.kind:
            case Elementwise():
                return ()
            case Reduction(_, axes) | TupleReduction(axes):
                return axes
            case Scan(_, dim):
                return (self.axes[dim],)
            case _:
                assert_never(self.kind)

    def reducing_over(self, axes: tuple[Axis, ...]) -> Stage:
        """Return the stage with the reduction axes `axes`, empty for a stage that is no
        reduction."""
        match self.kind:
            case Elementwise() | Scan():
                assert not axes, "this stage reduces over nothing"
                return self
            case Reduction(reducer):
                return replace(self, kind=Reduction(reducer, axes))
            case TupleReduction():
                return replace(self, kind=replace(self.kind, axes=axes))
            case _:
                assert_never(self.kind)

    @property
    def is_elementwise(self) -> bool:
        return isinstance(self.kind, Elementwise)

    @property
    def is_reduction(self) -> bool:
        """Whether the stage is a reduction by a reducer."""
        return isinstance(self.kind, Reduction)

    def reduces_by(self, *reducers: Reducer) -> bool:
        """Return whether the stage is a reduction by one of `reducers`."""
        return isinstance(self.kind, Reduction) and self.kind.reducer in reducers
