"""What the values of the Python front end refer to: index variables, reductions and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..algebra.scalar import Const, Reducer, Scalar
from ..dtypes import DType
from ..workload.checks import check_extent, check_name
from ..workload.tensors import Stage, Tensor


class LoopVar:
    """An index variable, compared by identity: two variables may have the same label."""

    __slots__ = ("extent", "label", "name", "reduce")

    def __init__(self, label: str, extent: int, *, reduce: bool) -> None:
        check_name(label, "an axis")
        check_extent(extent, f"axis {label!r}")
        self.label = label
        self.extent = extent
        self.reduce = reduce
        # Unique while an expression refers to this object. Stages use other names.
        self.name = f"{label}@{id(self):x}"


Vars: TypeAlias = Mapping[str, LoopVar]


@dataclass(frozen=True, slots=True)
class Running:
    """The axis of a scan: running results over the index variable `along`, which remains free. If
    `reverse`, they run from the last position down. If `exclusive`, they end before the own
    position."""

    along: LoopVar
    reverse: bool = False
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Combination:
    """How tuples are combined, and the component that is the result (`TupleReduction`)."""

    identities: tuple[Const, ...]
    combine: tuple[Scalar, ...]
    position: int = 0
    commutative: bool = False

    def __str__(self) -> str:
        return f"tuple{self.position}"


@dataclass(frozen=True, slots=True, eq=False)
class NestedReduction:
    """A reduction or scan inside an expression, before it becomes a separate stage."""

    reducer: Reducer | Combination
    node: Scalar
    """The value that is combined; for a `Combination`, `Components`."""
    axes: tuple[LoopVar, ...]
    """The reduction axes, none for a scan."""
    free: Vars
    """The index variables of the reduction except `axes`."""
    inner: Mapping[str, NestedReduction]
    """The reductions inside `node`."""
    running: Running | None = None
    """The axis of a scan, or None for a reduction."""

    def same_as(self, other: NestedReduction) -> bool:
        mine = (self.reducer, self.node, self.axes, self.running)
        return mine == (other.reducer, other.node, other.axes, other.running)


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """A tensor that expressions read: an input, or the result of the last of `stages`. `reads` are
    the tensors that the expression of the tensor reads."""

    tensor: Tensor
    stages: tuple[Stage, ...] = ()
    reads: tuple[NamedTensor, ...] = ()

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype
