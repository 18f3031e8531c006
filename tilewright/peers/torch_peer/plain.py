"""Stages as plain calls of PyTorch, one per operation; other variants are compared with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import isnan, prod
from typing import Any, assert_never

import numpy as np

from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Components,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.reference.contract import Contraction
from tilewright.schedules.reference.reads import conditions_hold, full_box, index_values
from tilewright.schedules.workload.tensors import (
    Axis,
    Elementwise,
    Reduction,
    Scan,
    Stage,
    TupleReduction,
)

from ..forms.convolution import ConvolutionForm, convolution_form
from ..forms.product import contraction_of, product_form
from ..variants import NoPeerError
from .convolutions import dispatched, framed, library_convolution
from .products import ProductEpilogue
from .reads import is_strided, is_zero_padding, reader

Value = Callable[[], Any]
BINARY = {
    BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul", BinaryOp.DIV: "div",
    BinaryOp.MIN: "minimum", BinaryOp.MAX: "maximum", BinaryOp.BIT_AND: "bitwise_and",
    BinaryOp.BIT_OR: "bitwise_or", BinaryOp.BIT_XOR: "bitwise_xor",
    BinaryOp.SHIFT_LEFT: "bitwise_left_shift", BinaryOp.SHIFT_RIGHT: "bitwise_right_shift",
    BinaryOp.FLOOR_DIV: "floor_divide", BinaryOp.FLOOR_MOD: "remainder",
    BinaryOp.POW: "pow", BinaryOp.ATAN2: "atan2",
}  # fmt: skip
REDUCE = {
    Reducer.SUM: "sum", Reducer.MAX: "amax", Reducer.MIN: "amin",
}  # fmt: skip
CUMULATIVE = {
    Reducer.SUM: "cumsum", Reducer.PROD: "cumprod", Reducer.MAX: "cummax", Reducer.MIN: "cummin",
}  # fmt: skip
SUMMED = (Reducer.SUM, Reducer.PROD)
"""Their cumulative functions return values only, the others also positions."""

_COMMUTES = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX)
_BOUND = {BinaryOp.MIN: "max", BinaryOp.MAX: "min"}
"""The parameter of `torch.clamp` that takes a constant operand of MIN or MAX."""

MOST_BYTES = 4 << 30
"""The limit on the bytes of one call's gathered operands."""


class PlainTorch:
    """Translates stages and nodes to plain calls of PyTorch. Raise NoPeerError if PyTorch has no
    plain call.

    - `values`: the tensors by name, which may change between calls except the tensors in `fixed`
    - `traced`: whether the calls are for a compiler. They then write to no existing tensor, and
      convolutions are calls of PyTorch's convolutions
    - `multiply_adds`: whether a sum with a product as operand is one call
    """

    def __init__(
        self,
        torch: Any,
        values: dict[str, Any],
        fixed: Collection[str],
        *,
        traced: bool = False,
        multiply_adds: bool = False,
    ) -> None:
        self._torch = torch
        self._values = values
        self._fixed = fixed
        self._traced = traced
        self._multiply_adds = multiply_adds
        self._shared: list[Any] | None = None
        self._buffers_used = 0

    @contextmanager
    def one_memory(self) -> Iterator[None]:
        """Within this context, the results of every step use the same memory."""
        self._shared = []
        try:
            yield
        finally:
            self._shared = None

    def begin_step(self) -> None:
        """Begin a step, which reuses the memory of `one_memory` from the start."""
        self._buffers_used = 0

    def stage(self, stage: Stage) -> Value:
        """Return a call that computes a stage, as a matrix product or element by element."""
        form = convolution_form(stage) if self._traced and stage.tensor.dtype.is_float else None
        if form is not None:
            return self._convolution(form)
        plan = contraction_of(stage)
        # A product of two vectors is summed pairwise, because the error of matmul grows with its
        # length, and all other variants are compared with this one.
        is_product = plan is not None and bool(plan.rows or plan.columns)
        if plan is not None and is_product and stage.tensor.dtype.is_float:
            product = self._contraction(plan)
            if product is not None:
                shape = stage.tensor.shape  # the plan may have split an axis of the stage
                return lambda: product().reshape(shape)
        axes = stage.all_axes
        shape = tuple(a.extent for a in axes)
        match stage.kind:
            case Elementwise():
                return self._written(self.value(stage.body, axes), shape)
            case Reduction(reducer):
                pass
            case Scan():
                return self._scanned(stage, stage.kind)
            case TupleReduction():
                raise NoPeerError("PyTorch has no reduction of tuples")
            case _:
                assert_never(stage.kind)
        if reducer not in REDUCE:
            raise NoPeerError("PyTorch has no product over several dimensions")
        if prod(shape) * stage.tensor.dtype.bytes > MOST_BYTES:
            raise NoPeerError(f"{stage.name} would be reduced from over {MOST_BYTES >> 30} GiB")
        terms = self.value(stage.body, axes)
        reduce = getattr(self._torch, REDUCE[reducer])
        dims = tuple(range(len(stage.axes), len(axes)))
        return lambda: reduce(terms().expand(shape), dim=dims)

    def _scanned(self, stage: Stage, kind: Scan) -> Value:
        """Return a call of a cumulative function, on a flipped copy if the scan is in reverse."""
        terms, shape, dim = self.value(stage.body, stage.axes), stage.tensor.shape, kind.dim
        function = getattr(self._torch, CUMULATIVE[kind.reducer])
        is_summed = kind.reducer in SUMMED

        def accumulate() -> Any:
            given = terms().expand(shape)
            given = given.flip(dim) if kind.reverse else given
            typed = {"dtype": given.dtype} if is_summed else {}  # else integers become i64
            found = function(given, dim=dim, **typed)
            values = found if is_summed else found.values
            return values.flip(dim) if kind.reverse else values

        return accumulate

    def _convolution(self, form: ConvolutionForm) -> Value:
        """Return PyTorch's dispatched convolution, with the weights in their memory order."""

        def convolve() -> Any:
            image = form.image(self._values[form.data])
            kernel = form.kernel(self._values[form.weight])
            how, around = library_convolution(form, image.shape[2:], kernel.shape[2:])
            image = framed(image, around)
            return form.unfolded(dispatched(lambda: image, kernel, how, ProductEpilogue())()())

        return convolve

    def _contraction(self, plan: Contraction) -> Value | None:
        """Return one `matmul`, or None if a single one cannot compute this sum of products."""
        product = product_form(plan)
        if product is None:
            return None
        full_left = tuple(a.extent for a in product.left_axes)
        full_right = tuple(a.extent for a in product.right_axes)
        if (prod(full_left) + prod(full_right)) * plan.stage.tensor.dtype.bytes > MOST_BYTES:
            raise NoPeerError(f"operands of {plan.stage.name} have over {MOST_BYTES >> 30} GiB")
        left = self.value(product.left, product.left_axes)
        right = self.value(product.right, product.right_axes)

        def multiply() -> Any:
            a = left().expand(full_left).reshape(product.left_shape)
            b = right().expand(full_right).reshape(product.right_shape)
            return product.unfolded(self._torch.matmul(a, b))

        return multiply

    def value(self, node: Scalar, axes: tuple[Axis, ...]) -> Value:
        """Return a node over `axes`, with extent 1 along axes on which it does not depend."""
        torch = self._torch
        match node:
            case Const():
                constant = torch.from_numpy(np.asarray(node.value).astype(node.dtype.numpy))
                return lambda: constant
            case IndexValue():
                found = index_values(node.index, full_box(axes)).astype(node.dtype.numpy)
                indices = torch.from_numpy(found)
                return lambda: indices
            case All():
                mask = torch.from_numpy(conditions_hold(node.conds, full_box(axes)))
                return lambda: mask
            case Load():
                return self.read(node, axes)
            case Cast():
                x, kind = self.value(node.x, axes), torch.from_numpy(np.empty(0, node.dtype.numpy))
                return lambda: x().to(kind.dtype)
            case Unary():
                return self._into(self._function(node.op), (node.x,), axes)
            case Binary():
                return self._binary(node, axes)
            case Compare():
                a, b = self.value(node.a, axes), self.value(node.b, axes)
                compare = getattr(torch, node.op.value)
                return lambda: compare(a(), b())
            case Select() if self._is_padded(node, axes):
                return self.value(node.on_true, axes)
            case Select():
                c = self.value(node.cond, axes)
                t, f = self.value(node.on_true, axes), self.value(node.on_false, axes)
                return lambda: torch.where(c(), t(), f())
            case Components():
                raise NoPeerError("PyTorch has no reduction of tuples")
            case _:
                assert_never(node)

    def _written(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Return the value of a whole tensor, copied if it is a view or needs broadcasting."""
        first = value()
        mine = all(
            first.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
            for other in self._values.values()
        )
        if self._traced or (mine and first.shape == shape and first.is_contiguous()):
            return lambda: value().expand(shape)
        out = self._torch.empty(shape, dtype=first.dtype)
        return lambda: out.copy_(value().expand(shape))

    def _binary(self, node: Binary, axes: tuple[Axis, ...]) -> Value:
        """Return a binary operation. Constants stay Python numbers."""
        torch, a, b = self._torch, node.a, node.b
        if node.op in _COMMUTES and isinstance(a, Const):
            a, b = b, a
        takes_number = node.dtype.is_float and node.op is not BinaryOp.ATAN2
        if isinstance(b, Const) and not isinstance(a, Const) and takes_number:
            number = float(np.asarray(b.value).astype(b.dtype.numpy))
            if node.op in _BOUND:
                if isnan(number):
                    return self._into(getattr(torch, BINARY[node.op]), (a, b), axes)
                bound = {_BOUND[node.op]: number}
                return self._into(partial(torch.clamp, **bound), (a,), axes)
            function = getattr(torch, BINARY[node.op])
            return self._into(_with_number(function, number), (a,), axes)
        if self._multiply_adds and node.op is BinaryOp.ADD and node.dtype.is_float:
            for product, other in ((a, b), (b, a)):
                if isinstance(product, Binary) and product.op is BinaryOp.MUL:
                    return self._into(torch.addcmul, (other, product.a, product.b), axes)
        return self._into(getattr(torch, BINARY[node.op]), (a, b), axes)

    def _function(self, op: UnaryOp) -> Any:
        if op is UnaryOp.SOFTPLUS:
            return lambda x, out=None: self._torch.nn.functional.softplus(x)
        if not hasattr(self._torch, op.value):
            raise NoPeerError(f"PyTorch has no {op}")
        return getattr(self._torch, op.value)

    def _into(self, function: Any, nodes: Sequence[Scalar], axes: tuple[Axis, ...]) -> Value:
        """Return `function` with a preallocated output. An operand's memory is used if it has the
        same size and no other use."""
        values = [self.value(node, axes) for node in nodes]
        if self._traced:
            return lambda: function(*(value() for value in values))
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
        if len(values) == 2:
            a, b = values
            return lambda: function(a(), b(), out=out)
        return lambda: function(*(value() for value in values), out=out)

    def _buffer(self, like: Any) -> Any:
        """Return memory for a result. In a reduction, every step gets the same memory again."""
        if self._shared is None:
            return self._torch.empty_like(like)
        place, self._buffers_used = self._buffers_used, self._buffers_used + 1
        if place == len(self._shared):
            self._shared.append(self._torch.empty_like(like))
        known = self._shared[place]
        same = known.shape == like.shape and known.dtype == like.dtype
        return known if same else self._torch.empty_like(like)

    def _is_padded(self, node: Select, axes: tuple[Axis, ...]) -> bool:
        """Return whether a plain read with zero padding equals the select."""
        load = node.on_true
        if not isinstance(load, Load) or not is_strided(load):
            return False
        return is_zero_padding(node, self._values[load.tensor].shape, axes)

    def read(self, node: Load, axes: tuple[Axis, ...]) -> Value:
        """Return a read. For a fixed tensor it is a view if strides allow one."""
        whole = self._values[node.tensor]
        part = reader(self._torch, node, whole.shape, axes)
        if node.tensor in self._fixed:
            view = part(whole)
            if view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr():
                return lambda: view
        return lambda: part(self._values[node.tensor])


def _with_number(function: Any, number: float) -> Any:
    return lambda x, **out: function(x, number, **out)
