"""The form in which a computation is scheduled: tensors of bools are bytes, 0 or 1.

A read of such a tensor becomes a comparison with 0, so that every byte but 0 is true. A stage that
computes one casts its conditions. So sketches, nests and generated code have no tensors of bools,
only conditions inside of expressions. A maximum of bools (any of them) is one of bytes.
"""

from __future__ import annotations

from dataclasses import replace

from ..algebra.scalar import (
    All,
    Cast,
    Compare,
    CompareOp,
    Const,
    Load,
    Scalar,
    Select,
    rewrite,
)
from ..dtypes import DType
from .computation import C
from .tensors import Stage, Tensor


def has_bools(computation: C) -> bool:
    """Return whether a tensor of `computation` has the type bool."""
    tensors = (*computation.inputs, *(stage.tensor for stage in computation.stages))
    return any(tensor.dtype is DType.BOOL for tensor in tensors)


def with_bytes(computation: C) -> C:
    """Return `computation` with every tensor of bools as one of bytes. Its results are the same
    bytes."""
    return replace(
        computation,
        inputs=tuple(map(_stored, computation.inputs)),
        stages=tuple(map(_stage, computation.stages)),
    )


def _stored(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype=tensor.dtype.stored)


def _stage(stage: Stage) -> Stage:
    body = _reading_bytes(stage.body)
    if stage.tensor.dtype is DType.BOOL:
        body = _as_byte(body)
    return replace(stage, tensor=_stored(stage.tensor), body=body)


def _reading_bytes(node: Scalar) -> Scalar:
    def leaf(n: Scalar) -> Scalar | None:
        match n:
            case Load(tensor, index, DType.BOOL):
                return _is_set(Load(tensor, index, DType.U8))
            case Select(All() as inside, Load(tensor, index, DType.BOOL), Const(0)):
                # Padding stays recognisable: a read that is 0 outside of the tensor.
                read = Load(tensor, index, DType.U8)
                return _is_set(Select(inside, read, Const(0, DType.U8)))
            case _:
                return None

    return rewrite(node, leaf)


def _is_set(byte: Scalar) -> Scalar:
    return Compare(CompareOp.NE, byte, Const(0, DType.U8))


def _as_byte(condition: Scalar) -> Scalar:
    return Cast(condition, DType.U8)


__all__ = ["has_bools", "with_bytes"]
