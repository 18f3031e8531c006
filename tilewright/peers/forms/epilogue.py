"""Recognises the epilogue of a sum of products that libraries compute in the same call.

The final activation is recognised by its values, not by its expression: a rectifier may be a
maximum, a select or half of `x + abs(x)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.reference import math as reference_math
from tilewright.schedules.workload.tensors import Stage

Values = NDArray[Any]
_POINTS = np.concatenate([np.linspace(-9, 9, 73), np.linspace(-0.9, 0.9, 7)])
_TOLERANCE = 1e-5
"""Relative tolerance: constants of a workload are rounded to its type."""


def _gelu(x: Values) -> Values:
    inner: Values = 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    return inner


_KNOWN: dict[str, Callable[[Values], Values]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": _gelu,
    "gelu_erf": lambda x: 0.5 * x * (1 + reference_math.unary(UnaryOp.ERF, x / sqrt(2))),
}


@dataclass(frozen=True, slots=True)
class EpilogueForm:
    """The epilogue `activation(product + bias + added)` of a sum of products."""

    bias: str | None
    """The name of a tensor with one element per element of the channel axis, or None."""
    added: str | None
    """The name of a tensor with the shape of the product, or None."""
    activation: str
    """One of ACTIVATIONS in `torch_peer/products.py`, or ""."""


def epilogue_form(stage: Stage, product: str, channel: int) -> EpilogueForm | None:
    """Match `stage` as the epilogue of tensor `product` with a bias along axis `channel`, or return
    None."""
    if not stage.is_elementwise:
        return None
    total = _sum_with(stage.body, product)
    if total is None:
        return None
    names = [axis.name for axis in stage.axes]
    whole, along = tuple(map(var, names)), (var(names[channel]),)
    loads = list(_leaves(total))
    products = [load for load in loads if load.tensor == product]
    biases = [load.tensor for load in loads if load.index == along and load.tensor != product]
    added = [
        load.tensor for load in loads if load.index == whole != along and load.tensor != product
    ]
    if len(products) != 1 or products[0].index != whole or len(biases) > 1 or len(added) > 1:
        return None
    if len(loads) != 1 + len(biases) + len(added):
        return None
    with np.errstate(all="ignore"):
        found = _values(stage.body, total, _POINTS)
    for name, function in _KNOWN.items():
        if found is not None and np.allclose(found, function(_POINTS), atol=_TOLERANCE, rtol=0):
            return EpilogueForm(next(iter(biases), None), next(iter(added), None), name)
    return None


def _sum_with(node: Scalar, product: str) -> Scalar | None:
    """Return the outermost sum of plain reads that includes `product`, or None."""
    leaves = list(_leaves(node))
    if leaves:
        return node if any(load.tensor == product for load in leaves) else None
    return next((s for s in (_sum_with(part, product) for part in _parts(node)) if s), None)


def _leaves(node: Scalar) -> Iterator[Load]:
    """Yield the reads of a sum. Yield nothing if an operand of the sum is not a read."""
    match node:
        case Load():
            yield node
        case Binary(op=BinaryOp.ADD):
            left, right = list(_leaves(node.a)), list(_leaves(node.b))
            if left and right:
                yield from (*left, *right)


def _parts(node: Scalar) -> tuple[Scalar, ...]:
    match node:
        case Unary() | Cast():
            return (node.x,)
        case Binary() | Compare():
            return (node.a, node.b)
        case Select():
            return (node.cond, node.on_true, node.on_false)
        case _:
            return ()


def _values(node: Scalar, total: Scalar, x: Values) -> Values | None:
    """Evaluate `node` as a function of `total`, at `x`; return None if it depends on other
    values."""
    if node == total:
        return x
    if isinstance(node, Const):
        return np.full(x.shape, node.value, np.float64)
    parts = [_values(part, total, x) for part in _parts(node)]
    known = [part for part in parts if part is not None]
    if not known or len(known) != len(parts):
        return None
    match node:
        case Cast():
            return known[0] if node.dtype.is_float and node.x.dtype.is_float else None
        case Unary():
            return reference_math.unary(node.op, known[0])
        case Binary():
            return reference_math.binary(node.op, *known)
        case Compare():
            return reference_math.compare(node.op, *known)
        case Select():
            return np.where(known[0], known[1], known[2])
        case _:
            return None
