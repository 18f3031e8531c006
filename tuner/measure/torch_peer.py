"""PyTorch's way of computing a workload, where PyTorch is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from schedules.affine import Var
from schedules.dtypes import DType
from schedules.reference_contract import Contraction, recognise
from schedules.reference_reads import conditions_hold, full_box, index_values
from schedules.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from schedules.workload import Axis, Stage, Workload

from .convolution_form import ConvolutionForm, convolution_form
from .numpy_peer import NoPeerError

Array = NDArray[Any]
Value = Callable[[], Any]

_UNARY = {
    UnaryOp.NEG: "neg", UnaryOp.ABS: "abs", UnaryOp.EXP: "exp", UnaryOp.LOG: "log",
    UnaryOp.SQRT: "sqrt", UnaryOp.RSQRT: "rsqrt", UnaryOp.TANH: "tanh", UnaryOp.ERF: "erf",
    UnaryOp.SIGMOID: "sigmoid", UnaryOp.FLOOR: "floor",
}  # fmt: skip
_BINARY = {
    BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul", BinaryOp.DIV: "div",
    BinaryOp.MIN: "minimum", BinaryOp.MAX: "maximum",
}  # fmt: skip
_REDUCE = {
    Reducer.SUM: "sum", Reducer.MAX: "amax", Reducer.MIN: "amin",
}  # fmt: skip


class TorchPeer:
    """`workload` in PyTorch on `threads` threads; calling it replaces what `outputs` gives.

    Convolutions are `conv1d` to `conv3d` on channels-last views, other sums of products
    `matmul`, the rest element-wise operations. NoPeerError where PyTorch is not installed or
    reads are not plain.
    """

    def __init__(self, workload: Workload, inputs: Sequence[Array], threads: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise NoPeerError("PyTorch is not installed: pip install torch") from error
        self._torch = torch
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        if any(t.dtype is DType.BF16 for t in workload.tensors.values()):
            raise NoPeerError("bf16 is not compared with PyTorch yet")
        self._workload = workload
        self._now: dict[str, Any] = {
            t.name: torch.from_numpy(np.array(a, order="C"))
            for t, a in zip(workload.inputs, inputs, strict=True)
        }
        self._steps: list[tuple[str, Value]] = []
        for stage in workload.stages:
            step = self._stage(stage)
            self._steps.append((stage.name, step))
            self._now[stage.name] = step()

    def call(self) -> None:
        """One evaluation of the workload."""
        for name, step in self._steps:
            self._now[name] = step()

    def outputs(self) -> list[Array]:
        """What the last call gave, as NumPy arrays of the workload's shapes."""
        found = []
        for tensor in self._workload.output_tensors:
            values = self._now[tensor.name].expand(tensor.shape).numpy()
            found.append(np.ascontiguousarray(values, tensor.dtype.numpy))
        return found

    def _stage(self, stage: Stage) -> Value:
        form = convolution_form(stage)
        if form is not None and stage.tensor.dtype.is_float:
            return self._convolution(form)
        plan = recognise(stage)
        if plan is not None and stage.tensor.dtype.is_float:
            return self._contraction(plan)
        axes = (*stage.axes, *stage.reduce_axes)
        value = self._value(stage.body, axes)
        if stage.reducer is None:
            return value
        if stage.reducer not in _REDUCE:
            raise NoPeerError("PyTorch has no product over several dimensions")
        reduce = getattr(self._torch, _REDUCE[stage.reducer])
        dims = tuple(range(len(stage.axes), len(axes)))
        shape = tuple(a.extent for a in axes)
        return lambda: reduce(value().expand(shape), dim=dims)

    def _convolution(self, form: ConvolutionForm) -> Value:
        function = getattr(self._torch.nn.functional, f"conv{len(form.stride)}d")
        cut = tuple(slice(0, n) for n in form.output_shape)

        def convolve() -> Any:
            data = self._now[form.data].permute(form.data_order)
            weight = self._now[form.weight].permute(form.weight_order)
            result = function(
                data,
                weight.unsqueeze(1) if form.depthwise else weight,
                stride=form.stride,
                padding=form.pad,
                dilation=form.dilation,
                groups=data.shape[1] if form.depthwise else 1,
            )
            return result[cut].permute(form.output_order)

        if tuple(convolve().shape) != tuple(form.output_shape[i] for i in form.output_order):
            raise NoPeerError("PyTorch pads both sides alike, this convolution does not")
        return convolve

    def _contraction(self, plan: Contraction) -> Value:
        def size(axes: tuple[Axis, ...]) -> int:
            return prod(a.extent for a in axes)

        if plan.left_sums or plan.right_sums or plan.repeats > 1:
            raise NoPeerError("no plain matmul computes this sum of products")
        left = self._value(plan.left, plan.left_axes)
        right = self._value(plan.right, plan.right_axes)
        full_left = tuple(a.extent for a in plan.left_axes)
        full_right = tuple(a.extent for a in plan.right_axes)
        lead = (size(plan.batch),) if plan.batch else ()
        left_shape = (*lead, size(plan.rows), size(plan.inner))
        right_shape = (*lead, size(plan.inner), size(plan.columns))
        order = [a.name for a in (*plan.batch, *plan.rows, *plan.columns)]
        folded = [a.extent for a in (*plan.batch, *plan.rows, *plan.columns)]
        if len(order) != len(plan.stage.axes):
            raise NoPeerError("no plain matmul computes this sum of products")
        back = [order.index(a.name) for a in plan.stage.axes]
        shape = plan.stage.tensor.shape

        def multiply() -> Any:
            a = left().expand(full_left).reshape(left_shape)
            b = right().expand(full_right).reshape(right_shape)
            return self._torch.matmul(a, b).reshape(folded).permute(back).reshape(shape)

        return multiply

    def _value(self, node: Scalar, axes: tuple[Axis, ...]) -> Value:
        torch = self._torch
        match node:
            case Const():
                constant = torch.from_numpy(np.asarray(node.value).astype(node.dtype.numpy))
                return lambda: constant
            case IndexValue():
                indices = index_values(node.index, full_box(axes)).astype(node.dtype.numpy)
                return partial(_same, torch.from_numpy(indices))
            case All():
                return partial(_same, torch.from_numpy(conditions_hold(node.conds, full_box(axes))))
            case Load():
                return self._read(node, axes)
            case Cast():
                x, kind = self._value(node.x, axes), torch.from_numpy(np.empty(0, node.dtype.numpy))
                return lambda: x().to(kind.dtype)
            case Unary():
                x, unary = self._value(node.x, axes), getattr(torch, _UNARY[node.op])
                return lambda: unary(x())
            case Binary() | Compare():
                name = _BINARY[node.op] if isinstance(node, Binary) else node.op.value
                a, b = self._value(node.a, axes), self._value(node.b, axes)
                function = getattr(torch, name)
                return lambda: function(a(), b())
            case Select():
                c = self._value(node.cond, axes)
                t, f = self._value(node.on_true, axes), self._value(node.on_false, axes)
                return lambda: torch.where(c(), t(), f())
            case _:
                assert_never(node)

    def _read(self, node: Load, axes: tuple[Axis, ...]) -> Value:
        """A permuted view, for reads whose every index is one axis of its own."""
        names = [a.name for a in axes]
        places = []
        for index in node.index:
            atom = index.terms[0][0] if len(index.terms) == 1 else None
            if not isinstance(atom, Var) or index.const or index.coefficient(atom.name) != 1:
                raise NoPeerError(f"{node.tensor}[{index}] has no plain spelling in PyTorch")
            places.append(names.index(atom.name))
        if len(set(places)) != len(places):
            raise NoPeerError(f"{node.tensor} is read along a diagonal")
        order = sorted(range(len(places)), key=places.__getitem__)
        shape = tuple(a.extent if i in places else 1 for i, a in enumerate(axes))
        for dim, place in enumerate(places):
            if self._now[node.tensor].shape[dim] != axes[place].extent:
                raise NoPeerError(f"only a part of {node.tensor} is read")
        return lambda: self._now[node.tensor].permute(order).reshape(shape)


def _same(value: Any) -> Any:
    return value
