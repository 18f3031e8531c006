"""Reads of tensors by indices and by integer values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..algebra import values
from ..algebra.gathers import DataPosition, Outside, gathered
from ..algebra.scalar import depth_of
from ..errors import WorkloadError
from .expr_core import ArrayValue, Expr, Index, as_index, derived
from .references import LoopVar, NamedTensor


@dataclass(frozen=True, slots=True, eq=False)
class DataIndex:
    """An integer value as the index of a read, with the policy for integers outside."""

    value: Expr
    outside: Outside = Outside.ZERO


def as_position(value: object) -> Index | DataIndex:
    """Convert `value` to an index of a read: an index, or an integer value."""
    if isinstance(value, DataIndex):
        return value
    single = value.single_value() if isinstance(value, ArrayValue) else None
    if single is not None:
        return DataIndex(single)
    return DataIndex(value) if isinstance(value, Expr) else as_index(value)


class TensorExpr(NamedTensor):
    """A tensor to read, by an index or an element."""

    __slots__ = ()

    def __getitem__(self, index: object) -> Expr:
        """Return the element at `index`, which has one integer, index or integer value per
        dimension."""
        return self.element(index)

    def element(self, index: object, fill: float = 0) -> Expr:
        """Return the element at `index`, as `self[index]` does.

        An entry of the index may be an integer value (an `Expr`, or a `DataIndex` with a policy). A
        read outside is then `fill` by default.
        """
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != len(self.shape):
            raise WorkloadError(
                f"{self.name} has {len(self.shape)} dimensions {self.shape},"
                f" got {len(given)} indices",
                code="bad_rank",
            )
        indices = [as_position(i) for i in given]
        variables: dict[str, LoopVar] = {}
        for i in indices:
            if isinstance(i, Index):
                variables.update(i.vars)
        places = [
            i.affine if isinstance(i, Index) else DataPosition(i.value.node, i.outside)
            for i in indices
        ]
        node = gathered(self.name, self.shape, self.dtype, places, values.const(fill, self.dtype))
        read = Expr(node, variables, {self.name: self}, {})
        data = [i.value for i in indices if isinstance(i, DataIndex)]
        # The policy may compare the integer with both ends of the dimension.
        return derived(node, read, *(data * 3), depth=depth_of(node)) if data else read

    def __iter__(self) -> Any:
        raise TypeError(f"tensor {self.name} cannot be iterated; index it with index variables")
