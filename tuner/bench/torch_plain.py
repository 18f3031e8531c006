"""Stages as plain calls of PyTorch: the way that is always there, and that others are held to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, assert_never

import numpy as np

from schedules.algebra.affine import Var
from schedules.algebra.scalar import (
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
from schedules.reference.contract import Contraction
from schedules.reference.reads import conditions_hold, full_box, index_values
from schedules.workload.tensors import Axis, Stage

from .convolution_form import ConvolutionForm, convolution_form
from .product_form import contraction_of, product_form
from .ways import NoPeerError

Value = Callable[[], Any]
BINARY = {
    BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul", BinaryOp.DIV: "div",
    BinaryOp.MIN: "minimum", BinaryOp.MAX: "maximum",
}  # fmt: skip
REDUCE = {
    Reducer.SUM: "sum", Reducer.MAX: "amax", Reducer.MIN: "amin",
}  # fmt: skip


class PlainTorch:
    """Makes calls of stages and nodes on `values`, tensors by name, which may change between calls;
    those in `inputs` do not. NoPeerError where PyTorch has no plain spelling."""

    def __init__(self, torch: Any, values: dict[str, Any], inputs: Collection[str]) -> None:
        self._torch = torch
        self._values = values
        self._inputs = inputs
        self._shared: list[Any] | None = None
        self._taken = 0

    @contextmanager
    def one_memory(self) -> Iterator[None]:
        """What is made meanwhile has its results in the same memory, step by step."""
        self._shared = []
        try:
            yield
        finally:
            self._shared = None

    def begin_step(self) -> None:
        """The next step takes that memory from the start."""
        self._taken = 0

    def stage(self, stage: Stage) -> Value:
        """One stage: a convolution, a product of matrices, or element by element."""
        form = convolution_form(stage)
        if form is not None and stage.tensor.dtype.is_float:
            return self._convolution(form)
        plan = contraction_of(stage)
        if plan is not None and stage.tensor.dtype.is_float:
            return self._contraction(plan)
        axes = (*stage.axes, *stage.reduce_axes)
        value = self.value(stage.body, axes)
        if stage.reducer is None:
            return value
        if stage.reducer not in REDUCE:
            raise NoPeerError("PyTorch has no product over several dimensions")
        reduce = getattr(self._torch, REDUCE[stage.reducer])
        dims = tuple(range(len(stage.axes), len(axes)))
        shape = tuple(a.extent for a in axes)
        return lambda: reduce(value().expand(shape), dim=dims)

    def _convolution(self, form: ConvolutionForm) -> Value:
        rank = len(form.stride)
        name = f"conv_transpose{rank}d" if form.transposed else f"conv{rank}d"
        function = getattr(self._torch.nn.functional, name)
        cut = tuple(slice(0, n) for n in form.output_shape)

        def convolve() -> Any:
            data = self._values[form.data].permute(form.data_order)
            weight = self._values[form.weight].permute(form.weight_order)
            result = function(
                data,
                weight.unsqueeze(1) if form.depthwise else weight,
                stride=form.stride,
                padding=form.pad,
                dilation=form.dilation,
                groups=data.shape[1] if form.depthwise else form.groups,
            )
            return result[cut].permute(form.output_order)

        if tuple(convolve().shape) != tuple(form.output_shape[i] for i in form.output_order):
            raise NoPeerError("PyTorch pads both sides alike, this convolution does not")
        return convolve

    def _contraction(self, plan: Contraction) -> Value:
        product = product_form(plan)
        if product is None:
            raise NoPeerError("no plain matmul computes this sum of products")
        left = self.value(product.left, product.left_axes)
        right = self.value(product.right, product.right_axes)
        full_left = tuple(a.extent for a in product.left_axes)
        full_right = tuple(a.extent for a in product.right_axes)

        def multiply() -> Any:
            a = left().expand(full_left).reshape(product.left_shape)
            b = right().expand(full_right).reshape(product.right_shape)
            return product.unfolded(self._torch.matmul(a, b))

        return multiply

    def value(self, node: Scalar, axes: tuple[Axis, ...]) -> Value:
        """A node over `axes`, of extent 1 where it does not depend on one."""
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
                return self.read(node, axes)
            case Cast():
                x, kind = self.value(node.x, axes), torch.from_numpy(np.empty(0, node.dtype.numpy))
                return lambda: x().to(kind.dtype)
            case Unary():
                return self._into(self._function(node.op), (node.x,), axes)
            case Binary():
                return self._into(getattr(torch, BINARY[node.op]), (node.a, node.b), axes)
            case Compare():
                a, b = self.value(node.a, axes), self.value(node.b, axes)
                compare = getattr(torch, node.op.value)
                return lambda: compare(a(), b())
            case Select():
                c = self.value(node.cond, axes)
                t, f = self.value(node.on_true, axes), self.value(node.on_false, axes)
                return lambda: torch.where(c(), t(), f())
            case _:
                assert_never(node)

    def _function(self, op: UnaryOp) -> Any:
        """PyTorch's function of this name."""
        if not hasattr(self._torch, op.value):
            raise NoPeerError(f"PyTorch has no {op}")
        return getattr(self._torch, op.value)

    def _into(self, function: Any, nodes: Sequence[Scalar], axes: tuple[Axis, ...]) -> Value:
        """`function` with an output allocated beforehand: an operand's own where that is as large
        and only made for it."""
        values = [self.value(node, axes) for node in nodes]
        first = [value() for value in values]
        result = function(*first)
        out = self._buffer(result)
        for node, found in zip(nodes, first, strict=True):
            made_for_it = isinstance(node, Unary | Binary)
            if made_for_it and found.shape == result.shape and found.dtype == result.dtype:
                out = found
        if len(values) == 1:
            (x,) = values
            return lambda: function(x(), out=out)
        a, b = values
        return lambda: function(a(), b(), out=out)

    def _buffer(self, like: Any) -> Any:
        """Memory for a result; between steps of one reduction the same, in the order of asking."""
        if self._shared is None:
            return self._torch.empty_like(like)
        place, self._taken = self._taken, self._taken + 1
        if place == len(self._shared):
            self._shared.append(self._torch.empty_like(like))
        known = self._shared[place]
        same = known.shape == like.shape and known.dtype == like.dtype
        return known if same else self._torch.empty_like(like)

    def read(self, node: Load, axes: tuple[Axis, ...]) -> Value:
        """A permuted view, for reads whose every index is one axis of its own."""
        names = [a.name for a in axes]
        places = []
        whole = self._values[node.tensor]
        at: list[Any] = []
        for dim, index in enumerate(node.index):
            if not index.terms and 0 <= index.const < whole.shape[dim]:
                at.append(index.const)
                continue
            at.append(slice(None))
            atom = index.terms[0][0] if len(index.terms) == 1 else None
            if not isinstance(atom, Var) or index.const or index.coefficient(atom.name) != 1:
                raise NoPeerError(f"{node.tensor}[{index}] has no plain spelling in PyTorch")
            places.append(names.index(atom.name))
        if len(set(places)) != len(places):
            raise NoPeerError(f"{node.tensor} is read along a diagonal")
        order = sorted(range(len(places)), key=places.__getitem__)
        shape = tuple(a.extent if i in places else 1 for i, a in enumerate(axes))
        extents = [whole.shape[dim] for dim, each in enumerate(at) if isinstance(each, slice)]
        if extents != [axes[place].extent for place in places]:
            raise NoPeerError(f"only a part of {node.tensor} is read")
        part = tuple(at)
        if node.tensor in self._inputs:
            view = whole[part].permute(order).reshape(shape)
            if view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr():
                return lambda: view
        if any(each != slice(None) for each in at):
            return lambda: self._values[node.tensor][part].permute(order).reshape(shape)
        return lambda: self._values[node.tensor].permute(order).reshape(shape)


def _same(value: Any) -> Any:
    return value
