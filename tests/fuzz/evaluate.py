"""What the outputs of a computation are: plain Python, element by element.

A value is `(v, e)`: a number `v` (floats as Python's) and how far a right kernel may be off it.
`e` is 0 while everything is exact, as it is on small integers whatever the order of summation.
`None` stands for what nothing is promised about: NaN, overflow, a decision between two sides that
an error may turn.
"""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tests.support import scalar_oracles

from .computation import (
    INTEGERS,
    NARROW,
    And,
    Bin,
    Cast,
    Computation,
    Ix,
    IxAdd,
    IxConst,
    IxData,
    IxDiv,
    IxMod,
    IxMul,
    IxSub,
    IxTest,
    IxValue,
    IxVar,
    Not,
    Num,
    Or,
    Read,
    Stage,
    Test,
    Un,
    Value,
    ValueTest,
    Where,
)

Number: TypeAlias = tuple[int | float, float] | None
Env: TypeAlias = dict[str, int]
Evaluator: TypeAlias = Callable[[Env], Number]
Array: TypeAlias = npt.NDArray[Any]

_EPS = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-8, "f16": 2.0**-10}
_WHOLE = {"f32": 2**24, "f64": 2**53, "bf16": 2**8, "f16": 2**11}
_LARGEST = {"f32": 3.4e38, "f64": 1.7e308, "bf16": 3.38e38, "f16": 65504.0}
_TINY = {"f32": 2e-38, "f64": 1e-307, "bf16": 2e-38, "f16": 6e-8}
"""Below this denormal numbers begin, and a kernel may be off by as much."""

_ULPS = 8.0
"""What a function of one value is taken to be off by, in units of the last place."""
_OF_TWO = {"pow": math.pow, "atan2": math.atan2}
_NOWHERE = -1
"""The position of an integer outside, if a read there is zero."""
_STEPS = 8
"""Places on each side of an argument with an error, where its function is looked at."""


def evaluate(computation: Computation, inputs: Mapping[str, Array]) -> dict[str, list[Number]]:
    """The values of every stage, flat and row-major. Narrow floats are given as f32 values."""
    data: dict[str, list[Number]] = {}
    for tensor in computation.inputs:
        plain = inputs[tensor.name].reshape(-1).tolist()
        data[tensor.name] = [(v, 0.0) for v in plain]
    for stage in computation.stages:
        data[stage.name] = _stage(stage, computation.shapes, data)
    return {s.name: data[s.name] for s in computation.stages}


def _stage(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]], data: Mapping[str, list[Number]]
) -> list[Number]:
    body = _Compiler(shapes, data).value(stage.body)
    axes = [n for n, _ in stage.axes]
    reduced = [n for n, _ in stage.reduce_axes]
    found: list[Number] = []
    for point in product(*(range(e) for _, e in stage.axes)):
        env: Env = dict(zip(axes, point, strict=True))
        if not stage.reducer:
            found.append(body(env))
            continue
        terms: list[Number] = []
        for inner in product(*(range(e) for _, e in stage.reduce_axes)):
            env.update(zip(reduced, inner, strict=True))
            terms.append(body(env))
        found.append(_combined(stage.reducer, terms, stage.dtype))
    return found


def _combined(reducer: str, terms: list[Number], dtype: str) -> Number:
    """All terms together, in any order and grouping."""
    if reducer in ("max", "min"):
        total = terms[0]
        for term in terms[1:]:
            total = _extreme(reducer, total, term)
        return total
    known = [t for t in terms if t is not None]
    if len(known) < len(terms):
        return None
    values = [v for v, _ in known]
    if dtype in INTEGERS:
        whole = [int(v) for v in values]
        return _wrapped(sum(whole) if reducer == "sum" else math.prod(whole), dtype), 0.0
    if not all(map(math.isfinite, values)):
        return None
    count = len(values) + 1
    if reducer == "sum":
        size = math.fsum(abs(v) for v in values)
        error = math.fsum(e for _, e in known)
        exact = not error and size <= _WHOLE[dtype] and all(v == int(v) for v in values)
        error = 0.0 if exact else error + count * _EPS[dtype] * size + _TINY[dtype]
        return _float(math.fsum(values), error, dtype)
    # Every partial product is at most the product of what is greater than 1.
    size = math.exp2(min(sum(math.log2(abs(v)) for v in values if abs(v) > 1), 1020.0))
    exact = all(e == 0 and v == int(v) for v, e in known) and size <= _WHOLE[dtype]
    if exact:
        return float(math.prod(int(v) for v in values)), 0.0
    # In another order the small factors may meet first, and vanish.
    small = sum(math.log2(abs(v)) for v in values if 0 < abs(v) < 1)
    if size > _LARGEST[dtype] / 4 or small < math.log2(_TINY[dtype]):
        return None
    relative = sum(e / abs(v) if v else (math.inf if e else 0.0) for v, e in known)
    if relative > 0.1:
        return None
    value = math.prod(values)
    error = abs(value) * (2 * relative + count * _EPS[dtype] * 2) + _TINY[dtype]
    return _float(value, error, dtype)


def _extreme(op: str, a: Number, b: Number) -> Number:
    if a is None or b is None:
        return None
    best = max if op == "max" else min
    return best(a[0], b[0]), max(a[1], b[1])


def _wrapped(value: int, dtype: str) -> int:
    signed, bits = INTEGERS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def to_f32(value: float) -> float:
    """`value` rounded to f32; infinite beyond its range."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def to_f16(value: float) -> float:
    """`value` rounded to f16; infinite beyond its range."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def to_bf16(value: float) -> float:
    """An f32 value rounded to bf16, ties to even."""
    if not math.isfinite(value) or value == 0:
        return value
    bits = int(np.float32(value).view(np.uint32))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(np.uint32(bits).view(np.float32))


def _float(value: float, error: float, dtype: str) -> Number:
    """A float result of `dtype`: rounded if exact until now, or with the rounding in its error."""
    if math.isnan(value) or math.isnan(error) or math.isinf(error):
        return None
    if math.isinf(value):
        return (value, 0.0) if error == 0 else None
    if abs(value) > _LARGEST[dtype] * 0.999:
        return None
    rounded = value if dtype == "f64" else to_f32(value)
    if dtype in NARROW:
        rounded = to_bf16(rounded) if dtype == "bf16" else to_f16(value)
    if rounded == value and error == 0:
        return rounded, 0.0
    return rounded, error + abs(value) * _EPS[dtype] + _TINY[dtype]


class _Compiler:
    """Values and conditions as Python functions of the index variables."""

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], data: Mapping[str, list[Number]]
    ) -> None:
        self._shapes = shapes
        self._data = data

    def index(self, index: Ix) -> Callable[[Env], int]:
        match index:
            case IxVar(name):
                return lambda env: env[name]
            case IxConst(value):
                return lambda env: value
            case IxAdd(a, b):
                left, right = self.index(a), self.index(b)
                return lambda env: left(env) + right(env)
            case IxSub(a, b):
                left, right = self.index(a), self.index(b)
                return lambda env: left(env) - right(env)
            case IxMul(factor, a):
                inner = self.index(a)
                return lambda env: factor * inner(env)
            case IxDiv(a, divisor):
                inner = self.index(a)
                return lambda env: inner(env) // divisor
            case IxMod(a, divisor):
                inner = self.index(a)
                return lambda env: inner(env) % divisor

    def data(self, datum: IxData, extent: int) -> Callable[[Env], int | None]:
        """The position that an integer selects: None if it is not known, `_NOWHERE` for zero."""
        inner = self.value(datum.value)

        def position(env: Env) -> int | None:
            found = inner(env)
            if found is None:
                return None
            i = int(found[0])
            if 0 <= i < extent:
                return i
            if datum.outside == "zero":
                return _NOWHERE
            if datum.outside == "wrap":
                return i - extent * math.floor(fractions.Fraction(i, extent))
            return 0 if i < 0 else extent - 1

        return position

    def value(self, value: Value) -> Evaluator:
        match value:
            case Num(number, dtype):
                known = _float(number, 0.0, dtype) if dtype not in INTEGERS else (number, 0.0)
                # A constant is the nearest value of its type, everywhere.
                fixed: Number = None if known is None else (known[0], 0.0)
                return lambda env: fixed
            case Read():
                return self._read(value)
            case IxValue(index, dtype):
                number_of = self.index(index)
                if dtype in INTEGERS:
                    return lambda env: (number_of(env), 0.0)
                return lambda env: (float(number_of(env)), 0.0)
            case Un(op, x, dtype):
                inner = self.value(x)
                return lambda env: unary(op, inner(env), dtype)
            case Bin(op, a, b, dtype):
                left, right = self.value(a), self.value(b)
                return lambda env: binary(op, left(env), right(env), dtype)
            case Cast(x, dtype):
                inner, source = self.value(x), x.dtype
                return lambda env: cast(inner(env), source, dtype)
            case Where(cond, a, b, _):
                test, left, right = self.test(cond), self.value(a), self.value(b)

                def choose(env: Env) -> Number:
                    taken = test(env)
                    return None if taken is None else (left(env) if taken else right(env))

                return choose

    def _read(self, read: Read) -> Evaluator:
        shape, data = self._shapes[read.tensor], self._data[read.tensor]
        index = [
            self.data(i, extent) if isinstance(i, IxData) else self.index(i)
            for i, extent in zip(read.index, shape, strict=True)
        ]
        zero: Number = (0 if read.dtype in INTEGERS else 0.0, 0.0)

        def at(env: Env) -> Number:
            place = 0
            for one, extent in zip(index, shape, strict=True):
                i = one(env)
                if i is None:
                    return None
                if i == _NOWHERE:
                    return zero
                if not 0 <= i < extent:
                    if read.padded:
                        return zero
                    raise IndexError(f"{read} at {env}")
                place = place * extent + i
            return data[place]

        return at

    def test(self, test: Test) -> Callable[[Env], bool | None]:
        match test:
            case IxTest(op, a, b):
                a_index, b_index, compare = self.index(a), self.index(b), _COMPARE[op]
                return lambda env: compare(a_index(env), b_index(env))
            case ValueTest(op, a, b):
                a_value, b_value = self.value(a), self.value(b)
                return lambda env: compared(op, a_value(env), b_value(env))
            case And(a, b):
                left, right = self.test(a), self.test(b)
                return lambda env: _and(left(env), right(env))
            case Or(a, b):
                left, right = self.test(a), self.test(b)
                return lambda env: _not(_and(_not(left(env)), _not(right(env))))
            case Not(a):
                inner = self.test(a)
                return lambda env: _not(inner(env))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _not(a: bool | None) -> bool | None:
    return None if a is None else not a


def compared(op: str, a: Number, b: Number) -> bool | None:
    if a is None or b is None:
        return None
    if (a[1] or b[1]) and not abs(a[0] - b[0]) > a[1] + b[1]:
        return None
    return _COMPARE[op](a[0], b[0])


def unary(op: str, x: Number, dtype: str) -> Number:
    if x is None:
        return None
    value, error = x
    if dtype in INTEGERS:
        found = -value if op == "neg" or (op == "abs" and value < 0) else value
        return _wrapped(int(found), dtype), 0.0
    if op == "neg":
        return -value, error
    if op == "abs":
        return abs(value), error
    if op == "floor":
        low, high = _floor(value - error), _floor(value + error)
        return (low, 0.0) if low == high else None
    function = scalar_oracles.of_number(op)
    try:
        middle = function(value)
        others = [function(value + error * k / _STEPS) for k in range(-_STEPS, _STEPS + 1) if error]
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    if not all(map(math.isfinite, (middle, *others))):
        return None
    low, high = (min(others[0], others[-1]), max(others[0], others[-1])) if error else (middle,) * 2
    if any(not low <= other <= high for other in others):
        return None  # it turns in between, where nobody looked
    spread = max(abs(low - middle), abs(high - middle))
    return _float(middle, spread + _ULPS * abs(middle) * _EPS[dtype] + _TINY[dtype], dtype)


def _floor(value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


def binary(op: str, a: Number, b: Number, dtype: str) -> Number:
    if a is None or b is None:
        return None
    if op in ("min", "max"):
        return _extreme(op, a, b)
    (x, ex), (y, ey) = a, b
    if dtype in INTEGERS:
        p, q = int(x), int(y)
        return _wrapped({"add": p + q, "sub": p - q, "mul": p * q}[op], dtype), 0.0
    if op in _OF_TWO:
        return _function_of_two(op, a, b, dtype)
    try:
        if op == "div":
            return _quotient(x, ex, y, ey, dtype)
        value = {"add": x + y, "sub": x - y, "mul": x * y}[op]
    except OverflowError:
        return None
    if math.isinf(x) or math.isinf(y):
        # An infinity times what may be zero, or minus another one, is NaN.
        return _float(value, 0.0 if not ex + ey or op != "mul" else math.inf, dtype)
    error = abs(x) * ey + abs(y) * ex + ex * ey if op == "mul" else ex + ey
    return _float(value, error, dtype)


def _function_of_two(op: str, a: tuple[float, float], b: tuple[float, float], dtype: str) -> Number:
    """pow and atan2, unless a zero, a cut or the domain's end is within reach of the errors."""
    (x, ex), (y, ey) = a, b
    if abs(x) <= ex or (op == "atan2" and abs(y) <= ey) or (x - ex <= 0 and (ex or ey)):
        return None
    try:
        middle = _OF_TWO[op](x, y)
        others = [_OF_TWO[op](x + i * ex, y + j * ey) for i in (-1, 1) for j in (-1, 1)]
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    if not all(map(math.isfinite, (middle, *others))):
        return None
    spread = max(abs(other - middle) for other in others)
    return _float(middle, spread + _ULPS * abs(middle) * _EPS[dtype] + _TINY[dtype], dtype)


def _quotient(x: float, ex: float, y: float, ey: float, dtype: str) -> Number:
    if not (math.isfinite(x) and math.isfinite(y)) or abs(y) <= 2 * ey or y == 0:
        return None
    value = x / y
    error = (ex + abs(value) * ey) / (abs(y) - ey)
    # A quotient may be a product with a reciprocal: off by more than its own rounding.
    found = _float(value, error, dtype)
    slack = 2 * abs(value) * _EPS[dtype] + _TINY[dtype]
    exact = found is not None and found[1] == 0 and math.frexp(y)[0] in (0.5, -0.5)
    return found if found is None or exact else (found[0], found[1] + slack)


def cast(x: Number, source: str, dtype: str) -> Number:
    if x is None:
        return None
    value, error = x
    if dtype not in INTEGERS:
        return _float(float(value), error, dtype)
    if source in INTEGERS:
        return _wrapped(int(value), dtype), 0.0
    low, high = _saturated(value - error, dtype), _saturated(value + error, dtype)
    return (low, 0.0) if low == high else None


def _saturated(value: float, dtype: str) -> int:
    signed, bits = INTEGERS[dtype]
    most = (1 << (bits - signed)) - 1
    least = -most - 1 if signed else 0
    if math.isinf(value):
        return most if value > 0 else least
    return max(least, min(most, math.trunc(value)))
