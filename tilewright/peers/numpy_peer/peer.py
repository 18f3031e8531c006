"""A workload in NumPy, as an experienced user would write it.

The structure of the expression decides the calls: sums of products become `np.matmul` on views,
other reductions `ufunc.reduce`, the rest ufuncs with preallocated outputs. Arithmetic uses the
workload's own types. Views, masks and temporaries do not depend on values and are prepared once, so
that a call consists of NumPy's computation only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.algebra.affine import Datum, affine, var
from tilewright.schedules.algebra.comparisons import Cond
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    Cast,
    Clamped,
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
    data_of,
    substitute,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference.contract import Contraction
from tilewright.schedules.reference.math import combiner, compare
from tilewright.schedules.reference.reads import (
    IterationBox,
    conditions_hold,
    full_box,
    index_values,
    read,
)
from tilewright.schedules.workload.tensors import (
    Axis,
    Elementwise,
    Reduction,
    Scan,
    Stage,
    TupleReduction,
)
from tilewright.schedules.workload.workload import Workload

from ..forms.convolution import bare, convolution_form
from ..forms.einsum import einsum_form
from ..forms.pool import pool_form
from ..forms.product import contraction_of
from ..variants import (
    Call,
    ChosenVariants,
    FastestVariant,
    NoPeerError,
    PeerVariant,
    StepVariant,
    choose,
    variant_secs,
)
from .convolutions import convolution_variants
from .pooling import pool_by_taps

Array = NDArray[Any]
Value = Callable[[], Array]
"""A callable that returns an array, which broadcasts to the axes for which it was made."""

_MOST_BYTES = 8 << 30
_MOST_STEPS = 1024


class NumpyPeer:
    """Computes `workload` in NumPy, on copies of `inputs`. `call` fills `outputs`. `like` has the
    variants chosen for the same computation at other sizes, which are used without a race. Raise
    NoPeerError if NumPy lacks a type or would need arrays of more than 8 GiB."""

    def __init__(
        self, workload: Workload, inputs: Sequence[Array], *, like: ChosenVariants | None = None
    ) -> None:
        for tensor in workload.tensors.values():
            if tensor.dtype.is_float and tensor.dtype.numpy.kind != "f":
                raise NoPeerError(f"NumPy has no {tensor.dtype}, which {tensor.name} holds")
        self._bytes = 0
        self._reserve(sum(t.bytes for t in workload.inputs))
        self._tensors: dict[str, Array] = {
            t.name: np.array(a, order="C") for t, a in zip(workload.inputs, inputs, strict=True)
        }
        self._inputs = {t.name for t in workload.inputs}
        self._constant = {t.name for t in workload.inputs if t.constant}
        self._choices: list[FastestVariant] = []
        self._like = None if like is None else [step.variant for step in like.steps]
        self._shared: list[Array] | None = None
        self._buffers_used = 0
        self._steps: list[Callable[[], object]] = []
        for stage in workload.stages:
            self._tensors[stage.name] = self._empty(stage.tensor.shape, stage.tensor.dtype)
            self._steps.append(self._stage(stage))
            self._steps[-1]()  # variants of later stages are compared on this result
        self.outputs = [self._tensors[name] for name in workload.outputs]

    @property
    def call(self) -> Callable[[], object]:
        """One evaluation of the workload."""
        return self._steps[0] if len(self._steps) == 1 else self._all

    @property
    def variant(self) -> str:
        """The names of the chosen variants, one for each stage that has several."""
        return "; ".join(choice.name for choice in self._choices) or "ufuncs"

    @property
    def ways_secs(self) -> dict[str, float]:
        """Median seconds of each variant of each step that raced."""
        return variant_secs(self._choices)

    @property
    def chosen(self) -> ChosenVariants:
        """The chosen variants, one for each stage that has several."""
        return ChosenVariants(tuple(StepVariant(1, choice.name) for choice in self._choices))

    @property
    def dropped(self) -> dict[str, str]:
        """Variants that do not work, with the reasons."""
        return {name: why for choice in self._choices for name, why in choice.dropped.items()}

    def _all(self) -> None:
        for step in self._steps:
            step()

    def _reserve(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bytes > _MOST_BYTES:
            raise NoPeerError(f"NumPy would need arrays of more than {_MOST_BYTES >> 30} GiB")

    def _empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return a temporary array. In a reduction, every step gets the same arrays again."""
        if self._shared is None:
            return self._allocated(shape, dtype)
        place, self._buffers_used = self._buffers_used, self._buffers_used + 1
        if place == len(self._shared):
            self._shared.append(self._allocated(shape, dtype))
        known = self._shared[place]
        same = known.shape == tuple(shape) and known.dtype == dtype.numpy
        return known if same else self._allocated(shape, dtype)

    def _allocated(self, shape: Sequence[int], dtype: DType) -> Array:
        self._reserve(prod(shape) * dtype.bytes)
        return np.empty(tuple(shape), dtype.numpy)

    def _stage(self, stage: Stage) -> Callable[[], object]:
        plan = contraction_of(stage)
        out = self._tensors[stage.name]
        if plan is not None:
            variants = self._contraction(plan, out)
            return self._fastest([*variants, *self._named_variants(stage)], out)
        match stage.kind:
            case Elementwise():
                return self._into(stage.body, full_box(stage.axes), out)
            case Reduction(reducer):
                return self._reduced(stage, reducer, out)
            case Scan():
                return self._scanned(stage, stage.kind, out)
            case TupleReduction():
                raise NoPeerError("NumPy has no reduction of tuples")
            case _:
                assert_never(stage.kind)

    def _scanned(self, stage: Stage, kind: Scan, out: Array) -> Callable[[], object]:
        """Return a call of `ufunc.accumulate`, which `np.cumsum` and `np.cumprod` call too."""
        shape, dim = stage.tensor.shape, kind.dim
        values = self._over(stage.body, full_box(stage.axes))
        ufunc = combiner(kind.reducer.op, out.dtype)
        result = np.flip(out, dim) if kind.reverse else out

        def accumulate() -> None:
            terms = np.broadcast_to(values(), shape)
            ufunc.accumulate(np.flip(terms, dim) if kind.reverse else terms, axis=dim, out=result)

        return accumulate

    def _reduced(self, stage: Stage, reducer: Reducer, out: Array) -> Callable[[], object]:
        box = full_box(stage.all_axes)
        values = self._over(stage.body, box)
        dims = tuple(range(len(stage.axes), len(box.names)))
        ufunc = combiner(reducer.op, out.dtype)
        typed = {} if reducer in (Reducer.MAX, Reducer.MIN) else {"dtype": out.dtype}

        def at_once() -> None:
            ufunc.reduce(values(), axis=dims, out=out, **typed)

        variants = [PeerVariant(f"np.{ufunc.__name__}.reduce", lambda: at_once)]
        if (
            len(stage.reduce_axes) == 1
            and stage.axes
            and stage.reduce_axes[0].extent <= _MOST_STEPS
        ):
            variants.append(
                PeerVariant(
                    "one step of the reduction at a time", lambda: self._steps_of(stage, reducer)
                )
            )
        return self._fastest([*variants, *self._named_variants(stage)], out)

    def _named_variants(self, stage: Stage) -> list[PeerVariant]:
        """Return variants of the stage as a convolution, a pooling or an `einsum`."""
        out = self._tensors[stage.name]
        if not stage.tensor.dtype.is_float:
            return []
        form = convolution_form(stage)
        if form is not None and form.weight in self._inputs:  # weights may be in NumPy's order
            data = partial(self._tensors.__getitem__, form.data)
            return list(convolution_variants(form, data, self._tensors[form.weight], out))
        pool = pool_form(stage)
        if pool is not None and isinstance(bare(stage.body), Load | Select):
            return [
                PeerVariant(
                    "one tap at a time", lambda: pool_by_taps(pool, stage, self._tensors, out)
                )
            ]
        if isinstance(stage.body, Load) and stage.reduces_by(Reducer.SUM):
            return self._sum_by_ones(stage)
        subscripts = einsum_form(stage)
        if subscripts is None:
            return []
        operands = [self._tensors[name] for name in subscripts.tensors]

        def einsum() -> Call:
            order = np.einsum_path(subscripts.subscripts, *operands, optimize="optimal")[0]
            return partial(np.einsum, subscripts.subscripts, *operands, out=out, optimize=order)

        return [PeerVariant("np.einsum", einsum)]

    def _sum_by_ones(self, stage: Stage) -> list[PeerVariant]:
        """Return the sum of a matrix's columns or rows as a product with ones."""
        out = self._tensors[stage.name]
        if len(stage.axes) != 1 or len(stage.reduce_axes) != 1:
            return []
        ones = np.ones(stage.reduce_axes[0].extent, out.dtype)
        whole = self._over(stage.body, full_box(stage.all_axes))
        return [PeerVariant("product with ones", lambda: lambda: np.matmul(whole(), ones, out=out))]

    def _steps_of(self, stage: Stage, reducer: Reducer) -> Call:
        """Return a call that reduces one index of the reduced axis at a time, for the whole result.
        Its temporaries stay in the caches."""
        out, (axis,) = self._tensors[stage.name], stage.reduce_axes
        ufunc, box = combiner(reducer.op, out.dtype), full_box(stage.axes)
        steps: list[Value] = []
        self._shared = []
        for place in range(axis.extent):
            self._buffers_used = 0
            steps.append(self._value(substitute(stage.body, {axis.name: affine(place)}), box))
        self._shared = None
        first, *others = steps

        def call() -> None:
            np.copyto(out, first())
            for step in others:
                ufunc(out, step(), out=out)

        return call

    def _contraction(self, plan: Contraction, out: Array) -> list[PeerVariant]:
        """Return variants of `np.matmul` on both factors as stacks of matrices, into `out` if
        possible."""

        def size(axes: tuple[Axis, ...]) -> int:
            return prod(a.extent for a in axes)

        left = self._over(plan.left, full_box(plan.left_axes))
        right = self._over(plan.right, full_box(plan.right_axes))
        lead = [size(plan.batch)] if plan.batch else []
        left_shape = [*lead, size(plan.rows), size(plan.inner), size(plan.left_sums)]
        right_shape = [*lead, size(plan.inner), size(plan.columns), size(plan.right_sums)]

        def factor(value: Value, shape: list[int]) -> Value:
            if shape[-1] == 1:
                return lambda: value().reshape(shape[:-1])
            return lambda: value().reshape(shape).sum(axis=-1, dtype=out.dtype)

        a, b = factor(left, left_shape), factor(right, right_shape)
        order = (*plan.batch, *plan.rows, *plan.columns)
        names = [axis.name for axis in plan.stage.axes]
        places = [names.index(axis.name) for axis in order]
        rest = [i for i in range(len(names)) if i not in places]
        product_shape = [*lead, size(plan.rows), size(plan.columns)]
        target = out.reshape(plan.stage.tensor.shape).transpose([*rest, *places])
        flat = target[(0,) * len(rest)].reshape(product_shape)
        if np.shares_memory(flat, out) and not rest and plan.repeats == 1:
            constants = [self._is_constant(factor) for factor in (plan.left, plan.right)]
            return _product_variants(a, b, flat, *constants)
        product = np.empty(product_shape, out.dtype)
        folded = product.reshape([axis.extent for axis in order])

        def multiply() -> None:
            np.matmul(a(), b(), out=product)
            if plan.repeats > 1:
                np.multiply(product, plan.repeats, out=product)
            np.copyto(target, folded)

        return [PeerVariant("np.matmul", lambda: multiply)]

    def _is_constant(self, factor: Scalar) -> bool:
        return isinstance(factor, Load) and factor.tensor in self._constant

    def _fastest(self, variants: Sequence[PeerVariant], out: Array) -> Call:
        """Return the fastest of `variants` whose result equals the first one's."""
        expected: list[Array] = []

        if self._like is not None:
            wanted = self._like[len(self._choices)] if len(self._choices) < len(self._like) else ""
            variants = [variant for variant in variants if variant.name == wanted]

        def check(_: object) -> str | None:
            if self._like is not None:
                return None
            if not expected:
                expected.append(out.copy())
                out.fill(0)  # erase this result: the next variant must write it all
                return None
            limit = 1e-4 * np.abs(expected[0]).max(initial=0)
            same = np.allclose(out, expected[0], rtol=1e-4, atol=limit, equal_nan=True)
            out.fill(0)
            return None if same else "gives another result"

        choice = choose(variants, check)
        self._choices.append(choice)
        return choice.call

    def _over(self, node: Scalar, box: IterationBox) -> Value:
        """Return a function that evaluates `node` at every point of `box`, with the full extent in
        each dimension."""
        value = self._value(node, box)
        first = value()
        if first.shape == box.extents:
            return value
        return lambda: np.broadcast_to(value(), box.extents)

    def _into(self, node: Scalar, box: IterationBox, out: Array) -> Callable[[], object]:
        """Return a call that evaluates `node` at every point of `box` and writes the results to
        `out`."""
        if isinstance(node, Binary):
            a, b = self._value(node.a, box), self._value(node.b, box)
            ufunc = combiner(node.op, out.dtype)
            return lambda: ufunc(a(), b(), out=out)
        value = self._value(node, box)
        return lambda: np.copyto(out, value())

    def _value(self, node: Scalar, box: IterationBox) -> Value:
        match node:
            case Const():
                constant = np.asarray(node.value).astype(node.dtype.numpy)
                return lambda: constant
            case IndexValue():
                indices = index_values(node.index, box).astype(node.dtype.numpy)
                return lambda: indices
            case All():
                mask = conditions_hold(node.conds, box)
                return lambda: mask
            case Load():
                return self._read(node, box)
            case Cast():
                x = self._value(node.x, box)
                result = self._empty(x().shape, node.dtype)
                return partial(_cast, x, result)
            case Unary():
                return self._unary(node, self._value(node.x, box))
            case Binary():
                a, b = self._value(node.a, box), self._value(node.b, box)
                result = self._empty(np.broadcast_shapes(a().shape, b().shape), node.dtype)
                ufunc = combiner(node.op, result.dtype)
                return lambda: ufunc(a(), b(), out=result)
            case Compare():
                a, b = self._value(node.a, box), self._value(node.b, box)
                return lambda: compare(node.op, a(), b())
            case Select():
                return self._select(node, box)
            case Components():
                raise NoPeerError("NumPy has no reduction of tuples")
            case _:
                assert_never(node)

    def _read(self, node: Load, box: IterationBox) -> Value:
        array = self._tensors[node.tensor]
        data = data_of(node)
        if data:
            return self._gather(node, data, box)
        view = read(array, node.index, box)
        if np.may_share_memory(view, array):
            return lambda: view
        return lambda: read(array, node.index, box)  # padded or gathered: NumPy has to copy

    def _gather(self, node: Load, data: tuple[Clamped, ...], box: IterationBox) -> Value:
        """Return NumPy's `take` of the rows or elements that integers select."""
        array, at = self._tensors[node.tensor], {d: self._value(d.value, box) for d in data}

        def gather() -> Array:
            found: dict[Datum, Array] = {
                d: np.clip(value(), 0, d.extent - 1) for d, value in at.items()
            }
            return read(array, node.index, box, found)

        (first,), dims = data[:1], [n for n, i in enumerate(node.index) if i.has_data]
        rows = tuple(a for a in box.names if a in first.vars())
        rest = tuple(i for i in node.index if not i.has_data)
        whole = rest == tuple(map(var, box.names[len(rows) :])) and rows == box.names[: len(rows)]
        extents = tuple(n for d, n in enumerate(array.shape) if d not in dims)
        if len(data) > 1 or dims != [0] or not whole or extents != box.extents[len(rows) :]:
            return gather
        inner = self._value(first.value, box.restricted(rows))
        result = np.empty(box.extents, array.dtype)
        return lambda: np.take(array, inner(), axis=0, out=result, mode="clip")

    def _select(self, node: Select, box: IterationBox) -> Value:
        if isinstance(node.cond, All) and self._is_zero_padding(node, node.cond.conds, box):
            return self._value(node.on_true, box)
        cond = self._value(node.cond, box)
        yes, no = self._value(node.on_true, box), self._value(node.on_false, box)
        return lambda: np.where(cond(), yes(), no())

    def _is_zero_padding(self, node: Select, conds: Sequence[Cond], box: IterationBox) -> bool:
        """Return whether `node` equals a plain read with zeros outside the tensor."""
        load, other = node.on_true, node.on_false
        if not (isinstance(load, Load) and isinstance(other, Const) and other.is_plus_zero):
            return False
        if data_of(load):
            return False
        array = self._tensors[load.tensor]
        ones = read(np.ones(array.shape, np.bool_), load.index, box)
        inside = conditions_hold(conds, box)
        return np.array_equal(
            np.broadcast_to(ones, box.extents), np.broadcast_to(inside, box.extents)
        )

    def _unary(self, node: Unary, x: Value) -> Value:
        result = self._empty(x().shape, node.dtype)
        if node.op.function.rounds_to_integer and not node.dtype.is_float:
            return x
        if node.op in _SEQUENCES:
            return partial(_SEQUENCES[node.op], x, result)
        if node.op.function.numpy is None:
            raise NoPeerError(f"NumPy has no {node.op}")
        ufunc: np.ufunc = getattr(np, node.op.function.numpy)
        return lambda: ufunc(x(), out=result)


def _product_variants(
    a: Value, b: Value, out: Array, left_constant: bool, right_constant: bool
) -> list[PeerVariant]:
    """Return variants of a product of matrices or stacks. Constant factors may be transposed."""

    def variant(name: str, call: Call) -> PeerVariant:
        return PeerVariant(name, lambda: call)

    variants = [variant("np.matmul", lambda: np.matmul(a(), b(), out=out))]
    if out.ndim == 3:

        def one_by_one() -> None:
            for x, y, each in zip(a(), b(), out, strict=True):
                np.dot(x, y, out=each)

        return [*variants, variant("np.dot for each", one_by_one)]
    variants.append(variant("np.dot", lambda: np.dot(a(), b(), out=out)))
    variants.append(variant("operands exchanged", lambda: np.matmul(b().T, a().T, out=out.T)))
    if right_constant:
        right = _turned(b())
        variants.append(variant("weights turned", lambda: np.matmul(a(), right, out=out)))
    elif left_constant:
        left = _turned(a())
        variants.append(variant("weights turned", lambda: np.matmul(left, b(), out=out)))
    return variants


def _turned(matrix: Array) -> Array:
    """Return the same matrix in the other memory order."""
    return np.asfortranarray(matrix) if matrix.flags.c_contiguous else np.ascontiguousarray(matrix)


def _cast(x: Value, out: Array) -> Array:
    np.copyto(out, x(), casting="unsafe")
    return out


def _rsqrt(x: Value, out: Array) -> Array:
    return np.reciprocal(np.sqrt(x(), out=out), out=out)


def _sigmoid(x: Value, out: Array) -> Array:
    np.negative(x(), out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    return np.reciprocal(out, out=out)


def _softplus(x: Value, out: Array) -> Array:
    return np.logaddexp(x(), np.zeros(1, out.dtype), out=out)


# Functions without a ufunc, which an experienced user composes from a few ufuncs.
_SEQUENCES = {UnaryOp.RSQRT: _rsqrt, UnaryOp.SIGMOID: _sigmoid, UnaryOp.SOFTPLUS: _softplus}
