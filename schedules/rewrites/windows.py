"""Sums of products over windows of one operand (convolutions), matched by structure.

    out[.., h, .., o] = sum over r, .., c of  data[.., h + r - p, .., c] * weight[r, .., c, o]

The output axis `h` and the tap `r` index the same dimension of the data. Any order of axes, any
number of windows and any padding by zeros match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..algebra.affine import Affine, Interval, Ranges, Var
from ..algebra.conditions import needed, normal_cond, within
from ..algebra.scalar import All, Binary, BinaryOp, Const, Load, Reducer, Scalar, Select
from ..dtypes import DType
from ..workload.tensors import Axis, Stage, Tensor
from ..workload.validate import stage_ranges


@dataclass(frozen=True, slots=True)
class WindowAccess:
    """The indices of one window: `walk` and `tap` together index a dimension of the data."""

    dim: int
    """The output dimension of `walk`."""
    walk: Axis
    """The output axis along which the window moves."""
    tap: Axis
    """The reduction axis over the elements of the window."""
    data_dim: int
    """The dimension of the data with the index walk + tap + offset."""
    offset: int
    weight_dim: int
    """The dimension of the weight with the index tap + weight_offset."""
    weight_offset: int


@dataclass(frozen=True, slots=True)
class WindowedSum:
    """A stage that sums data * weight over `windows`, in the order of the output's dimensions."""

    stage: Stage
    data: Load
    weight: Load
    data_shape: tuple[int, ...]
    windows: tuple[WindowAccess, ...]

    @property
    def ranges(self) -> dict[str, Interval]:
        return stage_ranges(self.stage)


def find_windows(stage: Stage, tensors: Mapping[str, Tensor]) -> WindowedSum | str:
    """Return the stage as a windowed sum of products, or the reason why it is not one."""
    body = stage.body
    if (
        not stage.reduces_by(Reducer.SUM)
        or not isinstance(body, Binary)
        or body.op is not BinaryOp.MUL
    ):
        return "the stage must be a sum of products of two tensors"
    if stage.tensor.dtype not in (DType.F32, DType.F64):
        return f"the stage must be f32 or f64, it is {stage.tensor.dtype}"
    for first, second in ((body.a, body.b), (body.b, body.a)):
        data = _read(first)
        if data is None or not isinstance(second, Load):
            continue
        if any(index.has_data for index in (*data.index, *second.index)):
            continue
        windows = _windows(stage, data, second)
        if not windows:
            continue
        shape = tensors[data.tensor].shape
        if not _pads_with_zeros(first, data, shape, stage_ranges(stage)):
            return "the data may have no conditions other than its own bounds"
        return WindowedSum(stage, data, second, shape, windows)
    return "no axis slides over an operand with steps of one (index axis + tap)"


def _read(node: Scalar) -> Load | None:
    """Return the load `node`, or the load of a Select between a load and zero. Return None for
    other nodes."""
    match node:
        case Load():
            return node
        case Select(All(), Load() as load, Const(0, _)):
            return load
        case _:
            return None


def _pads_with_zeros(node: Scalar, data: Load, shape: tuple[int, ...], ranges: Ranges) -> bool:
    """Return whether the condition of `node` is exactly that the index of `data` is in bounds."""
    inside = [c for i, extent in zip(data.index, shape, strict=True) for c in within(i, extent)]
    wanted = needed(inside, ranges)
    if wanted is None:
        return False
    given: tuple[object, ...] = ()
    if isinstance(node, Select) and isinstance(node.cond, All):
        given = tuple(normal_cond(c) for c in node.cond.conds)
    return set(given) == set(wanted)


def _windows(stage: Stage, data: Load, weight: Load) -> tuple[WindowAccess, ...]:
    found = []
    for dim, walk in enumerate(stage.axes):
        window = _window(stage, dim, walk, data, weight)
        if window is not None:
            found.append(window)
    return tuple(found)


def _window(stage: Stage, dim: int, walk: Axis, data: Load, weight: Load) -> WindowAccess | None:
    data_dim = _only_dim(data.index, walk.name)
    if data_dim is None or any(walk.name in i.vars() for i in weight.index):
        return None
    index = data.index[data_dim]
    for tap in stage.reduce_axes:
        if dict(index.terms) != {Var(walk.name): 1, Var(tap.name): 1}:
            continue
        weight_dim = _only_dim(weight.index, tap.name)
        if weight_dim is None or _only_dim(data.index, tap.name) is None:
            continue
        at = weight.index[weight_dim]
        if dict(at.terms) == {Var(tap.name): 1}:
            return WindowAccess(dim, walk, tap, data_dim, index.const, weight_dim, at.const)
    return None


def _only_dim(index: tuple[Affine, ...], name: str) -> int | None:
    """Return the dimension whose index contains `name`, or None unless there is exactly one."""
    using = [d for d, i in enumerate(index) if name in i.vars()]
    return using[0] if len(using) == 1 else None
