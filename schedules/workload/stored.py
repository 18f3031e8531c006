"""The form in which a computation is scheduled: tensors are arrays of numbers with an axis or more.

A tensor of bools becomes one of bytes, 0 or 1: a read of it is a comparison with 0, so that every
byte but 0 is true, and a stage that computes one casts its conditions. A maximum of bools (any of
them) is one of bytes. A tensor without dimensions gets an axis of extent 1. The memory of tensors
is the same. So sketches, nests and generated code have conditions inside of expressions only, and
no special case for single values.
"""

from __future__ import annotations

from dataclasses import replace

from ..algebra.affine import affine
from ..algebra.scalar import All, Cast, Compare, CompareOp, Const, Load, Scalar, Select, rewrite
from ..dtypes import DType
from .computation import C
from .tensors import Axis, Stage, Tensor

_ZERO = affine(0)


def is_stored_form(computation: C) -> bool:
    """Return whether `stored_form` would change nothing."""
    tensors = (*computation.inputs, *(stage.tensor for stage in computation.stages))
    return all(tensor.dtype is not DType.BOOL and tensor.shape for tensor in tensors)


def stored_form(computation: C) -> C:
    """Return `computation` with tensors of bytes for bools, and of one axis for single values."""
    return replace(
        computation,
        inputs=tuple(map(_stored, computation.inputs)),
        stages=tuple(map(_stage, computation.stages)),
    )


def _stored(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype=tensor.dtype.stored, shape=tensor.shape or (1,))


def _stage(stage: Stage) -> Stage:
    body = rewrite(stage.body, _stored_read)
    if stage.tensor.dtype is DType.BOOL:
        body = Cast(body, DType.U8)
    axes = stage.axes or (Axis("one", 1),)
    return replace(stage, tensor=_stored(stage.tensor), axes=axes, body=body)


def _stored_read(node: Scalar) -> Scalar | None:
    match node:
        case Load(tensor, index, dtype):
            read = Load(tensor, index or (_ZERO,), dtype.stored)
            return _is_set(read) if dtype is DType.BOOL else read
        case Select(All() as inside, Load(tensor, index, DType.BOOL), Const(0)):
            # Padding stays recognisable: a read that is 0 outside of the tensor.
            read = Load(tensor, index, DType.U8)
            return _is_set(Select(inside, read, Const(0, DType.U8)))
        case _:
            return None


def _is_set(byte: Scalar) -> Scalar:
    return Compare(CompareOp.NE, byte, Const(0, DType.U8))
