"""Recognises sums of products of plain reads, which `einsum` computes, and their subscripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_letters

from tilewright.schedules.algebra.scalar import Binary, BinaryOp, Load, Reducer, Scalar
from tilewright.schedules.workload.tensors import Stage

from .convolution import axis_of

_MOST_FACTORS = 5


@dataclass(frozen=True, slots=True)
class EinsumForm:
    """A sum of products in the notation of `einsum`. `factors` and `output` have one letter per
    dimension of each of `tensors` and of the result."""

    tensors: tuple[str, ...]
    factors: tuple[str, ...]
    output: str

    @property
    def subscripts(self) -> str:
        return f"{','.join(self.factors)}->{self.output}"


def einsum_form(stage: Stage) -> EinsumForm | None:
    """Match `stage` as a sum of products of two or more reads, or return None."""
    axes = [axis.name for axis in stage.all_axes]
    if not stage.reduces_by(Reducer.SUM) or not stage.tensor.dtype.is_float:
        return None
    found = list(_factors(stage.body))
    if not 2 <= len(found) <= _MOST_FACTORS or len(axes) > len(ascii_letters):
        return None
    letters = dict(zip(axes, ascii_letters, strict=False))
    factors = []
    for load in found:
        if not isinstance(load, Load) or load.dtype != stage.tensor.dtype:
            return None
        names = [name for name in map(axis_of, load.index) if name is not None]
        if len(set(names)) != len(load.index):
            return None
        factors.append("".join(letters[name] for name in names))
    if set("".join(factors)) != set(letters.values()):
        return None
    output = "".join(letters[axis.name] for axis in stage.axes)
    tensors = tuple(load.tensor for load in found if isinstance(load, Load))
    return EinsumForm(tensors, tuple(factors), output)


def _factors(node: Scalar) -> Iterator[Scalar]:
    if isinstance(node, Binary) and node.op is BinaryOp.MUL:
        yield from _factors(node.a)
        yield from _factors(node.b)
    else:
        yield node
