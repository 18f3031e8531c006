"""Value ranges of a workload by abstract interpretation, and inputs for which no value is rounded.

A `ValueRange` has the least and greatest value of a node and a power of two (the step) that divides
all its values. A float whose magnitude is at most 2**precision steps is exactly representable, so
sums of small integers are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import assert_never

import numpy as np

from ..algebra.affine import Interval, interval
from ..algebra.scalar import (
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
    data_of,
    walk,
)
from ..algebra.tuples import may_round, only_selects, reducer_of
from ..dtypes import DType
from ..workload.tensors import Elementwise, Reduction, Scan, Stage, Tensor, TupleReduction
from ..workload.workload import Workload
from .math import cast as cast_array
from .math import constant

MAX_INPUT = 4
"""The largest magnitude of integer inputs. With larger inputs, fewer workloads are exact in f32."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Values in `lo..hi` that are multiples of 2**step and computed without rounding. If `step` is
    None, the values may be rounded."""

    lo: float
    hi: float
    step: int | None

    @property
    def magnitude(self) -> float:
        return max(abs(self.lo), abs(self.hi))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Properties of a workload for given ranges of its inputs."""

    tensors: Mapping[str, ValueRange]
    """The value ranges of inputs and stages."""
    defined: bool
    """Whether all functions and divisions have finite values for their arguments."""
    bounded: bool
    """Whether the magnitude of every float is at most a quarter of the largest number of its
    type."""
    exact: bool
    """Whether no output depends on a rounded value."""

    @property
    def exact_tensors(self) -> frozenset[str]:
        """The tensors whose elements are all computed without rounding."""
        return frozenset(name for name, span in self.tensors.items() if span.step is not None)


def exact_inputs_range(workload: Workload) -> int | None:
    """Return the largest a <= 4 such that integer inputs in [-a, a] make every result exact, or
    None if there is none.

    Exact means that each intermediate value is representable in its type for every order of
    summation, so every legal schedule gives the same bits. Unsigned inputs are in [0, a].
    """
    for limit in range(MAX_INPUT, 0, -1):
        spans = {t.name: integer_span(t, limit) for t in workload.inputs}
        if value_ranges(workload, spans).exact:
            return limit
    return None


def integer_span(tensor: Tensor, limit: int) -> ValueRange:
    low = -limit if tensor.dtype.is_signed else 0
    return ValueRange(low, min(limit, 1) if tensor.dtype is DType.BOOL else limit, 0)


def full_span(dtype: DType) -> ValueRange:
    """Return the range of all values of an integer type."""
    low, high = dtype.integer_range
    return ValueRange(low, high, 0)


def value_ranges(workload: Workload, inputs: Mapping[str, ValueRange]) -> Ranges:
    """Return the ranges of all tensors of `workload` if its inputs have the ranges `inputs`."""
    analysis = _Analysis(dict(inputs))
    for stage in workload.stages:
        analysis.add_stage(stage)
    exact = all(analysis.tensors[name].step is not None for name in workload.outputs)
    return Ranges(analysis.tensors, analysis.defined, analysis.bounded, exact)


class _Analysis:
    def __init__(self, tensors: dict[str, ValueRange]) -> None:
        self.tensors = tensors
        self.defined = True
        self.bounded = True
        self._axes: dict[str, Interval] = {}

    def add_stage(self, stage: Stage) -> None:
        axes = stage.all_axes
        self._axes = {a.name: Interval(0, a.extent - 1) for a in axes}
        match stage.kind:
            case Elementwise():
                value = self._span(stage.body)
            case Reduction(reducer, reduced):
                terms = prod(a.extent for a in reduced)
                value = self._reduced(self._span(stage.body), reducer, terms, stage.tensor.dtype)
            case TupleReduction():
                value = self._combined(stage, stage.kind)
            case Scan(reducer, dim):
                value, extent = self._span(stage.body), stage.axes[dim].extent
                ends = (self._reduced(value, reducer, n, stage.tensor.dtype) for n in (1, extent))
                value = _hull(*ends)
            case _:
                assert_never(stage.kind)
        self.tensors[stage.name] = value

    def _combined(self, stage: Stage, kind: TupleReduction) -> ValueRange:
        """Return the range of a reduction of tuples in any grouping. Infinite identities are
        left out: they are exact, and remain only if they are the result."""
        assert isinstance(stage.body, Components)
        number, dtype = kind.position, stage.tensor.dtype
        spans = [self._span(value) for value in stage.body.values]
        reducer = reducer_of(kind.combine[number], number)
        known = all(span.step is not None for span in spans)
        if reducer is not None:
            terms = prod(a.extent for a in kind.axes)
            found = self._reduced(spans[number], reducer, terms, dtype)
            return _hull(found, _const_span(float(kind.identities[number].value)))
        nodes = [node for root in kind.combine for node in walk(root)]
        if only_selects(kind.combine[number]) and not any(map(may_round, kind.combine)):
            constants = [*kind.identities, *(n for n in nodes if isinstance(n, Const))]
            finite = (float(c.value) for c in constants if math.isfinite(c.value))
            for span in (*spans, *map(_const_span, finite)):
                spans[number] = _hull(spans[number], span)
            found = spans[number]
            return found if known else ValueRange(found.lo, found.hi, None)
        if dtype.is_float:
            self.bounded = False
            return ValueRange(-math.inf, math.inf, None)
        whole = full_span(dtype)
        exact = known and not any(map(may_round, kind.combine))
        return whole if exact else ValueRange(whole.lo, whole.hi, None)

    def _reduced(self, value: ValueRange, reducer: Reducer, terms: int, dtype: DType) -> ValueRange:
        match reducer:
            case Reducer.SUM:
                total = ValueRange(value.lo * terms, value.hi * terms, value.step)
                return self._result(total, dtype)
            case Reducer.PROD:
                return self._product(value, terms, dtype)
            case Reducer.MAX | Reducer.MIN:
                return value
            case _:
                assert_never(reducer)

    def _product(self, value: ValueRange, terms: int, dtype: DType) -> ValueRange:
        greatest = _or_inf(lambda: value.magnitude**terms)
        least = _or_inf(lambda: value.lo**terms) if value.lo >= 0 else -greatest
        step = None if value.step is None else min(value.step * terms, value.step)
        # If factors are below one, partial products are larger than the full product.
        partial = self._result(ValueRange(-max(greatest, 1), max(greatest, 1), step), dtype)
        return ValueRange(max(least, partial.lo), min(greatest, partial.hi), partial.step)

    def _result(self, exact: ValueRange, dtype: DType) -> ValueRange:
        """Return the range of type `dtype` for a result with the range `exact` before rounding or
        wrapping."""
        if not dtype.is_float:
            low, high = dtype.integer_range
            if exact.lo < low or exact.hi > high:
                return ValueRange(low, high, exact.step)
            return exact
        if not exact.magnitude <= dtype.binary.largest / 4:
            self.bounded = False
            exact = ValueRange(_or_inf_beyond(exact.lo), _or_inf_beyond(exact.hi), exact.step)
        return exact if fits(exact, dtype) else ValueRange(exact.lo, exact.hi, None)

    def _span(self, node: Scalar) -> ValueRange:
        match node:
            case Const(value, dtype):
                return _const_span(float(constant(value, dtype)))
            case Load(tensor, _, _):
                known = all(self._span(d.value).step is not None for d in data_of(node))
                span = self.tensors[tensor]
                return span if known else ValueRange(span.lo, span.hi, None)
            case IndexValue(index, dtype):
                bounds = interval(index, self._axes)
                return self._result(ValueRange(bounds.lo, bounds.hi, 0), dtype)
            case All():
                return ValueRange(0, 1, 0)
            case Unary(op, x):
                return self._unary(op, self._span(x), node.dtype)
            case Binary(op, a, b):
                return self._binary(node, op, self._span(a), self._span(b))
            case Compare(_, a, b):
                known = self._span(a).step is not None and self._span(b).step is not None
                return ValueRange(0, 1, 0 if known else None)
            case Cast(x, dtype):
                return self._cast(self._span(x), x.dtype, dtype)
            case Select(cond, on_true, on_false):
                sides = _hull(self._span(on_true), self._span(on_false))
                known = self._span(cond).step is not None
                return sides if known else ValueRange(sides.lo, sides.hi, None)
            case Components():
                raise AssertionError("the components of a tuple are analysed one by one")
            case _:
                assert_never(node)

    def _unary(self, op: UnaryOp, x: ValueRange, dtype: DType) -> ValueRange:
        match op:
            case UnaryOp.NEG:
                return self._result(ValueRange(-x.hi, -x.lo, x.step), dtype)
            case UnaryOp.ABS:
                return self._result(ValueRange(*op.function.image(x.lo, x.hi), x.step), dtype)
            case _ if op.function.rounds_to_integer:
                if not dtype.is_float:
                    return x
                step = None if x.step is None else max(x.step, 0)
                return ValueRange(*op.function.image(x.lo, x.hi), step)
            case _:
                self.defined = self.defined and op.function.defined(x.lo, x.hi)
                return self._result(ValueRange(*op.function.image(x.lo, x.hi), None), dtype)

    def _binary(self, node: Binary, op: BinaryOp, a: ValueRange, b: ValueRange) -> ValueRange:
        step = None if a.step is None or b.step is None else min(a.step, b.step)
        match op:
            case BinaryOp.MAX:
                return ValueRange(max(a.lo, b.lo), max(a.hi, b.hi), step)
            case BinaryOp.MIN:
                return ValueRange(min(a.lo, b.lo), min(a.hi, b.hi), step)
            case _:
                pass
        if not (math.isfinite(a.magnitude) and math.isfinite(b.magnitude)):
            self.bounded = False
            return ValueRange(-math.inf, math.inf, None)
        match op:
            case BinaryOp.ADD:
                exact = ValueRange(a.lo + b.lo, a.hi + b.hi, step)
            case BinaryOp.SUB:
                exact = ValueRange(a.lo - b.hi, a.hi - b.lo, step)
            case BinaryOp.MUL:
                ends = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
                low = 0.0 if node.a == node.b and a.lo < 0 < a.hi else min(ends)  # node is a square
                both = None if a.step is None or b.step is None else a.step + b.step
                exact = ValueRange(low, max(ends), both)
            case BinaryOp.DIV:
                exact = self._quotient(a, b)
            case BinaryOp.POW | BinaryOp.ATAN2:
                assert op.function is not None
                first, second = (a.lo, a.hi), (b.lo, b.hi)
                self.defined = self.defined and op.function.defined(first, second)
                exact = ValueRange(*op.function.image(first, second), None)
            case (
                BinaryOp.BIT_AND | BinaryOp.BIT_OR | BinaryOp.BIT_XOR | BinaryOp.SHIFT_LEFT
                | BinaryOp.SHIFT_RIGHT | BinaryOp.FLOOR_DIV | BinaryOp.FLOOR_MOD
            ):  # fmt: skip
                exact = _of_integers(op, a, b) or ValueRange(*node.dtype.integer_range, 0)
            case _:
                assert_never(op)
        return self._result(exact, node.dtype)

    def _quotient(self, a: ValueRange, b: ValueRange) -> ValueRange:
        if b.lo <= 0 <= b.hi:
            self.defined = False
            return ValueRange(-math.inf, math.inf, None)
        ends = [x / y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        power = math.frexp(b.lo)[0] in (0.5, -0.5) and b.lo == b.hi
        step = a.step - math.frexp(b.lo)[1] + 1 if power and a.step is not None else None
        return ValueRange(min(ends), max(ends), step)

    def _cast(self, x: ValueRange, source: DType, target: DType) -> ValueRange:
        if target is DType.BOOL:
            return ValueRange(0, 1, None if x.step is None else 0)
        if not target.is_float:
            if not source.is_float:
                return self._result(x, target)
            ends = [float(cast_array(np.asarray(e, np.float64), target)) for e in (x.lo, x.hi)]
            return ValueRange(ends[0], ends[1], None if x.step is None else 0)
        if not target.is_narrow_float:
            return self._result(x, target)
        # The rounded value is equal in all schedules, so it counts as exact.
        wide = self._result(x, DType.F64)
        if not wide.magnitude <= target.binary.largest / 4:
            self.bounded = False
        room = 1 + 2.0 ** (1 - target.binary.precision)
        return ValueRange(min(wide.lo * room, wide.lo), max(wide.hi * room, wide.hi), wide.step)


def fits(span: ValueRange, dtype: DType) -> bool:
    """Return whether every value of `span` is representable in the float type `dtype`."""
    if span.step is None or not span.magnitude <= dtype.binary.largest:
        return False
    return span.step >= dtype.binary.step_exponent and span.magnitude <= math.ldexp(
        1.0, min(span.step + dtype.binary.precision, 1023)
    )


def _of_integers(op: BinaryOp, a: ValueRange, b: ValueRange) -> ValueRange | None:
    """Return the range of `op` on integers before wrapping, or None if any integer may result."""
    low, high, least, most = int(a.lo), int(a.hi), int(b.lo), int(b.hi)
    bits = 64
    match op:
        case BinaryOp.BIT_AND if low >= 0 or least >= 0:
            return ValueRange(0, min(n for n, m in ((high, low), (most, least)) if m >= 0), 0)
        case BinaryOp.BIT_OR | BinaryOp.BIT_XOR if low >= 0 and least >= 0:
            return ValueRange(0, (1 << max(high, most).bit_length()) - 1, 0)
        case BinaryOp.FLOOR_MOD if least > 0:
            return ValueRange(0, most - 1, 0)
        case BinaryOp.FLOOR_DIV if least > 0:
            ends = [x // y for x in (low, high) for y in (least, most)]
            return ValueRange(min(ends), max(ends), 0)
        case BinaryOp.SHIFT_RIGHT if 0 <= least == most < bits:
            return ValueRange(low >> least, high >> least, 0)
        case BinaryOp.SHIFT_LEFT if 0 <= least == most < bits:
            return ValueRange(low << least, high << least, 0)
        case _:
            return None


def _const_span(value: float) -> ValueRange:
    if not math.isfinite(value):
        return ValueRange(value, value, 0)
    numerator, denominator = value.as_integer_ratio()
    step = 1 - denominator.bit_length()
    if numerator and denominator == 1:
        step = (numerator & -numerator).bit_length() - 1
    return ValueRange(value, value, step)


def _hull(a: ValueRange, b: ValueRange) -> ValueRange:
    step = None if a.step is None or b.step is None else min(a.step, b.step)
    return ValueRange(min(a.lo, b.lo), max(a.hi, b.hi), step)


def _or_inf(compute: Callable[[], float]) -> float:
    try:
        return float(compute())
    except OverflowError:
        return math.inf


def _or_inf_beyond(x: float) -> float:
    """Return `x`, or infinity if it is beyond the largest f64. `x` may be a long integer: repeated
    squaring would give integers of 2**n digits."""
    return x if abs(x) <= DType.F64.binary.largest else math.copysign(math.inf, 1 if x > 0 else -1)
