"""A lazy array expression: the shape, the type, and the value of one element.

`Node.element` builds the value of the element at an index. It reads its operands through a function
that is given to it: `stages.py` decides whether an operand is computed in place or is a tensor of
its own. The operators of users are in `arrays.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from ...algebra.affine import affine
from ...algebra.scalar import ON_FLOATS_ONLY, Binary, Load, Scalar, Unary, walk
from ...dtypes import DType
from ..expr_core import Condition, Expr, Index, as_condition
from ..reading import DataIndex, TensorExpr
from .shapes import broadcast, check_rank

Indices: TypeAlias = tuple[Index, ...]
Places: TypeAlias = tuple[Index | DataIndex, ...]
"""An index of an operand that is a tensor: some entries may be data."""
Read: TypeAlias = Callable[["Node", Places], Expr]
"""Function that returns an element of an operand."""

ORIGIN = Index(affine(0), {})


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Node:
    """An array expression of the given shape (with 0 to 8 dimensions) and element type, compared by
    identity."""

    shape: tuple[int, ...]
    dtype: DType
    element: Callable[[Indices, Read], Expr]
    operands: tuple[Node, ...] = ()
    label: str = "t"
    """The beginning of the name of its tensor, if it becomes one."""
    source: TensorExpr | None = None
    """The tensor that the node is, or None if it is computed."""
    inserted: frozenset[int] = frozenset()
    """Dimensions of extent 1 that no operand has. A temporary tensor does not have them either."""
    reduced: int | None = None
    """For a reduction: the number of values that one element combines. For a scan: 1."""
    is_scan: bool = False
    """Whether its elements are computed from each other, so that it is a stage of its own, read at
    its own indices."""
    rearranges: bool = False
    """Whether it only orders or selects elements of its one operand, by affine indices without
    divisions."""
    reads_once: bool = False
    """Whether it reads each element of its operands at most once, even if it has more elements."""
    looked_up: tuple[Node, ...] = ()
    """The operands that it reads at data, so that they are tensors."""
    costly: bool = False
    """Whether one element takes a division or a function, more than a few instructions."""

    def __repr__(self) -> str:
        return f"<{self.label} {self.dtype}{list(self.shape)}>"

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def points(self) -> int:
        """The number of times that it reads its operands."""
        return self.elements * (self.reduced or 1)

    def rereads(self, operand: Node) -> bool:
        """Return whether it reads some elements of `operand` more than once."""
        return not self.reads_once and self.points > operand.elements


@dataclass(frozen=True, eq=False)
class MaskNode:
    """An array of conditions."""

    shape: tuple[int, ...]
    operands: tuple[Node, ...]
    condition: Callable[[Indices, Read], Condition]
    costly: bool = False


def source(tensor: TensorExpr) -> Node:
    """Return `tensor` as an array expression."""
    return Node(
        shape=tensor.shape, dtype=tensor.dtype, label=tensor.name, source=tensor,
        element=lambda index, read: tensor.element(index),
    )  # fmt: skip


def scalar(value: Expr) -> Node:
    """Return `value`, which has no index variables, as an array without dimensions."""
    return Node(shape=(), dtype=value.dtype, element=lambda index, read: value)


def mapped(function: Callable[..., Expr], *operands: Node, label: str = "t") -> Node:
    """Return `function` of the elements of `operands`, whose shapes are broadcast. Raise
    WorkloadError if the shapes or the types do not match."""
    shape = broadcast([n.shape for n in operands])
    sample = function(*(stand_in(n.dtype) for n in operands))

    def element(index: Indices, read: Read) -> Expr:
        return function(*(read(n, aligned(index, n.shape, shape)) for n in operands))

    return Node(
        shape=shape, dtype=sample.dtype, element=element, operands=operands, label=label,
        inserted=broadcast_inserted(shape, operands), costly=is_costly(sample.node),
    )  # fmt: skip


def chosen_by(choose: Callable[..., Expr], mask: MaskNode, *operands: Node) -> Node:
    """Return `choose(condition, *values)` of the elements of `mask` and `operands`, broadcast."""
    shape = broadcast([mask.shape, *(n.shape for n in operands)])
    sample = choose(Condition(lambda a, b: a), *(stand_in(n.dtype) for n in operands))

    def element(index: Indices, read: Read) -> Expr:
        condition = mask.condition(aligned(index, mask.shape, shape), read)
        return choose(condition, *(read(n, aligned(index, n.shape, shape)) for n in operands))

    every = (*mask.operands, *operands)
    return Node(
        shape=shape, dtype=sample.dtype, element=element, operands=every, label="where",
        inserted=broadcast_inserted(shape, every), costly=mask.costly,
    )  # fmt: skip


def bools(mask: MaskNode) -> Node:
    """Return the conditions of `mask` as an array of bools."""
    return Node(
        shape=mask.shape, dtype=DType.BOOL, operands=mask.operands, label="mask",
        element=lambda index, read: mask.condition(index, read).value(),
        inserted=broadcast_inserted(mask.shape, mask.operands), costly=mask.costly,
    )  # fmt: skip


def conditions(x: Node) -> MaskNode:
    """Return the elements of `x`, an array of bools, as conditions."""
    return MaskNode(x.shape, (x,), lambda index, read: as_condition(read(x, index)), x.costly)


def compared(compare: Callable[..., Condition], *operands: Node) -> MaskNode:
    """Return the conditions `compare(a, b)` of the elements of `operands`, broadcast."""
    shape = broadcast([n.shape for n in operands])
    compare(*(stand_in(n.dtype) for n in operands))  # raises WorkloadError for types that clash

    def condition(index: Indices, read: Read) -> Condition:
        return compare(*(read(n, aligned(index, n.shape, shape)) for n in operands))

    return MaskNode(shape, operands, condition)


def combined(join: Callable[..., Condition], *masks: MaskNode) -> MaskNode:
    """Return `join` of the conditions of `masks`, broadcast."""
    shape = broadcast([m.shape for m in masks])

    def condition(index: Indices, read: Read) -> Condition:
        return join(*(m.condition(aligned(index, m.shape, shape), read) for m in masks))

    operands = tuple(n for m in masks for n in m.operands)
    return MaskNode(shape, operands, condition, any(m.costly for m in masks))


def view(
    x: Node,
    shape: tuple[int, ...],
    index_of: Callable[[Indices], Indices],
    *,
    inserted: frozenset[int] = frozenset(),
    rearranges: bool = False,
) -> Node:
    """Return the array whose element at `index` is the element of `x` at `index_of(index)`, which
    must be inside `x`."""
    check_rank(shape)
    return Node(
        shape=shape, dtype=x.dtype, operands=(x,), label=x.label, inserted=inserted,
        rearranges=rearranges, element=lambda index, read: read(x, index_of(index)),
    )  # fmt: skip


def aligned(index: Indices, shape: tuple[int, ...], result: tuple[int, ...]) -> Indices:
    """Return the index in an operand of `shape` for an index of an array of the broadcast shape
    `result`."""
    first = len(result) - len(shape)
    return tuple(
        ORIGIN if extent < result[first + dim] else index[first + dim]
        for dim, extent in enumerate(shape)
    )


def broadcast_inserted(shape: tuple[int, ...], operands: tuple[Node, ...]) -> frozenset[int]:
    """Return the dimensions of the broadcast result that no operand has."""
    rank = len(shape)
    owned = {
        dim + rank - len(n.shape)
        for n in operands
        for dim in range(len(n.shape))
        if dim not in n.inserted
    }
    return frozenset(range(rank)) - owned


def stand_in(dtype: DType) -> Expr:
    """Return some value of `dtype`, to find the type of a result and mistakes in its operands."""
    return Expr(Load("x", (), dtype), {}, {}, {})


def is_costly(node: Scalar) -> bool:
    """Return whether `node` divides or calls a function of more than a few instructions."""
    return any(
        (isinstance(n, Binary) and n.op in ON_FLOATS_ONLY)
        or (isinstance(n, Unary) and n.op.function.slots > 0)
        for n in walk(node)
    )
