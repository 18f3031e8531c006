"""A right kernel of no schedule in particular: every freedom of docs/math.md drawn at random.

Each element is computed in its type, with products and sums fused or not; sums run in any order; a
maximum keeps either of its operands where one is NaN; products with padding are computed or left
out; a zero that is a sum has any sign; a division by what rows share is a product with the
reciprocal. A stage that is read may be computed again, with other roundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.narrow import narrowed, round_to
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
    rewrite,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference.error_exact import exact_function
from tilewright.schedules.reference.error_rounding import unit_roundoff
from tilewright.schedules.reference.evaluate import load_inputs, value_of
from tilewright.schedules.reference.math import binary, cast, combiner, compare, unary
from tilewright.schedules.reference.padding import without_padding
from tilewright.schedules.reference.reads import IterationBox, full_box, read
from tilewright.schedules.workload.tensors import (
    Elementwise,
    Reduction,
    Scan,
    Stage,
    TupleReduction,
)
from tilewright.schedules.workload.workload import Workload

Array = npt.NDArray[Any]


def liberal_outputs(
    workload: Workload, inputs: Sequence[Array], rng: np.random.Generator
) -> list[Array]:
    """Outputs in their buffers' types, as some right kernel might give them."""
    kernel = _Kernel(rng, dict(load_inputs(workload, inputs)))
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            kernel.stages[stage.name] = stage
            kernel.tensors[stage.name] = kernel.stage(stage)
        return [
            narrowed(np.asarray(kernel.tensors[t.name], np.float64), t.dtype)
            if t.dtype.is_float
            else kernel.tensors[t.name]
            for t in workload.output_tensors
        ]


class _Kernel:
    """Values of floats are numbers of their types, held in float64."""

    def __init__(self, rng: np.random.Generator, tensors: dict[str, Array]) -> None:
        self.rng = rng
        self.tensors = tensors
        self.stages: dict[str, Stage] = {}

    def stage(self, stage: Stage) -> Array:
        box = full_box(stage.all_axes)
        dims = len(stage.axes)
        match stage.kind:
            case Elementwise():
                return np.broadcast_to(self._value(stage.body, box), box.extents).copy()
            case Reduction(reducer):
                pass
            case Scan():
                return self._scan(stage, stage.kind, self._value(stage.body, box), box.extents)
            case TupleReduction():
                return self._tuples(stage, stage.kind, box)
            case _:
                assert_never(stage.kind)
        value = self._value(stage.body, box)
        if reducer is Reducer.SUM and self.rng.random() < 0.5:
            value = self._value(without_padding(stage.body), box)
        elif reducer is Reducer.SUM:
            other = np.broadcast_to(self._value(without_padding(stage.body), box), box.extents)
            value = self._either(np.broadcast_to(value, box.extents), other)
        terms = np.broadcast_to(value, box.extents).reshape(*box.extents[:dims], -1)
        order = self.rng.permutation(terms.shape[-1])
        total = terms[..., order[0]]
        for at in order[1:]:
            total = self._combined(reducer.op, total, terms[..., at], stage.tensor.dtype)
        return np.ascontiguousarray(total)

    def _scan(self, stage: Stage, kind: Scan, value: Array, shape: tuple[int, ...]) -> Array:
        """Running results in blocks of a random length: those of a block, each with the last
        result before the block."""
        terms = np.moveaxis(np.broadcast_to(value, shape), kind.dim, 0).copy()
        terms = terms[::-1] if kind.reverse else terms
        length, dtype = int(self.rng.integers(1, len(terms) + 1)), stage.tensor.dtype
        for start in range(0, len(terms), length):
            block = terms[start : start + length]
            for at in range(1, len(block)):
                block[at] = self._combined(kind.reducer.op, block[at - 1], block[at], dtype)
            if start:
                block[:] = self._combined(kind.reducer.op, terms[start - 1], block, dtype)
        return np.moveaxis(terms[::-1] if kind.reverse else terms, 0, kind.dim).copy()

    def _tuples(self, stage: Stage, kind: TupleReduction, box: IterationBox) -> Array:
        """Neighbours combined at random places until one tuple is left."""
        assert isinstance(stage.body, Components)
        shape = (*box.extents[: len(stage.axes)], -1)
        values = (self._value(node, box) for node in stage.body.values)
        terms = [np.broadcast_to(v, box.extents).reshape(shape) for v in values]
        tuples = [[v[..., n] for v in terms] for n in range(terms[0].shape[-1])]
        identity = [
            np.full(v.shape[:-1], c.value, v.dtype)
            for v, c in zip(terms, kind.identities, strict=True)
        ]
        if self.rng.random() < 0.5:
            tuples.insert(0, identity)
        if kind.commutative:
            tuples = [tuples[n] for n in self.rng.permutation(len(tuples))]
        while len(tuples) > 1:
            at = int(self.rng.integers(len(tuples) - 1)) if self.rng.random() < 0.7 else 0
            tuples[at : at + 2] = [self._joined(kind, tuples[at], tuples[at + 1])]
        return np.ascontiguousarray(tuples[0][kind.position])

    def _joined(self, kind: TupleReduction, left: list[Array], right: list[Array]) -> list[Array]:
        shape = left[0].shape
        given = {f"left{n}": v.reshape(-1) for n, v in enumerate(left)}
        given |= {f"right{n}": v.reshape(-1) for n, v in enumerate(right)}
        inside = _Kernel(self.rng, given)
        box = IterationBox(("point",), (0,), (left[0].size,))

        def at_point(node: Scalar) -> Scalar | None:
            return replace(node, index=(var("point"),)) if isinstance(node, Load) else None

        found = (inside._value(rewrite(node, at_point), box) for node in kind.combine)
        return [np.broadcast_to(v, (left[0].size,)).reshape(shape) for v in found]

    def _either(self, a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        return np.where(self.rng.random(a.shape) < 0.5, a, b)

    def _combined(self, op: BinaryOp, a: Array, b: Array, dtype: DType) -> Array:
        if op in (BinaryOp.MAX, BinaryOp.MIN) and dtype.is_float:
            nan = np.isnan(a) | np.isnan(b)
            return np.where(nan, self._either(a, b), combiner(op, a.dtype)(a, b))
        return self._rounded(combiner(op, a.dtype)(a, b), dtype)

    def _rounded(self, values: Array, dtype: DType) -> Array:
        """Float64 `values` as numbers of `dtype`; now and then still as they are, to be rounded
        with what follows. Zeros of either sign, where there is a choice, are of a sum."""
        if not dtype.is_float or dtype is DType.F64 or self.rng.random() < 0.1:
            return values
        if dtype is DType.F32:
            return np.asarray(values.astype(np.float32).astype(np.float64))
        return round_to(values, dtype)

    def _value(self, node: Scalar, box: IterationBox) -> Array:
        match node:
            case Const() | All() | IndexValue():
                return value_of(node, box, self.tensors)
            case Load(tensor, index, dtype):
                values = self.tensors[tensor]
                if tensor in self.stages and self.rng.random() < 0.3:  # inlined
                    values = self.stage(self.stages[tensor])
                kind = np.float64 if dtype.is_float else dtype.numpy
                return np.asarray(read(values, index, box), kind)
            case Unary(op, x):
                return self._function(op, self._value(x, box), node.dtype)
            case Binary(op, a, b):
                constant = any(isinstance(side, Const) for side in (a, b))
                return self._binary(op, self._value(a, box), self._value(b, box), node, constant)
            case Compare(op, a, b):
                return compare(op, self._value(a, box), self._value(b, box))
            case Cast(x, dtype):
                return self._cast(self._value(x, box), dtype)
            case Select(cond, on_true, on_false):
                chosen = self._value(cond, box)
                return np.where(chosen, self._value(on_true, box), self._value(on_false, box))
            case Components():
                raise AssertionError("the components of a tuple are evaluated one by one")

    def _binary(self, op: BinaryOp, x: Array, y: Array, node: Binary, constant: bool) -> Array:
        dtype = node.dtype
        if op is BinaryOp.DIV and self.rng.random() < 0.5:
            size = 2.0 ** -np.floor(np.log2(np.abs(y)))
            power = np.where(np.isfinite(size) & (size > 0), size, 1.0)
            inverse = self._rounded(np.asarray(1.0 / (y * power)), dtype)
            return self._rounded(np.asarray((x * power) * inverse), dtype)
        if op in (BinaryOp.MAX, BinaryOp.MIN) and dtype.is_float and not constant:
            return self._combined(op, x, y, dtype)
        return self._rounded(binary(op, x, y), dtype)

    def _function(self, op: UnaryOp, x: Array, dtype: DType) -> Array:
        values = unary(op, x)
        if op.function.allowed_ulps:
            exact = exact_function(op, x, values, dtype)
            ulps = max(op.function.stated_ulps) - 0.5  # and half of one to be stored
            off = self.rng.uniform(-ulps, ulps, values.shape) * unit_roundoff(dtype)
            off = np.where(np.isfinite(values), off, 0.0)
            values = np.where(False if exact is None else exact, values, values * (1 + off))
        return self._rounded(values, dtype)

    def _cast(self, values: Array, dtype: DType) -> Array:
        found = cast(values, dtype)
        return np.asarray(found.astype(np.float32), np.float64) if dtype is DType.F32 else found
