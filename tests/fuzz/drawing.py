"""Random stages: what nobody would think of writing, at extents that divide nothing."""

from __future__ import annotations

import math
import random
from math import prod

from tilewright.schedules.algebra.functions import UnaryOp

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
    Tensor,
    Test,
    Un,
    Value,
    ValueTest,
    Where,
    ix_range,
    names_in,
    reads,
    wide,
)

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33)
SPATIAL_POINTS = 600
REDUCED_POINTS = 2400
"""Most points of a stage without and with its reduction: the evaluator is plain Python."""

DTYPES = ("f32", "f32", "f32", "f64", "i32", "i32", "i64", "bf16", "f16", "i8", "u8")
_FUNCTIONS = tuple(op.value for op in UnaryOp)
RELATIONS = ("<", "<=", ">", ">=", "==", "!=")
_SPECIAL = (math.inf, -math.inf, -0.0, 0.0, 0.0, 1.0, -1.0, 0.1, 1e-5, 3.5)
EXTREMES = (3e38, -3e38, 65504.0, 65519.0, 65520.0, 1e-40, 6e-8, 2.0**31, -(2.0**31), 2.0**63,
            2.0**24 + 2, 127.5, -128.5, 255.5, -0.5)  # fmt: skip
"""Where conversions begin to saturate, to round in another place, or to leave normal numbers."""


class Drawing:
    """Draws one stage after the other, each from what there is by then."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._inputs: list[Tensor] = []
        self._stages: list[Stage] = []
        self._extents: dict[str, int] = {}
        self._spatial: list[str] = []
        self._reduced: list[str] = []

    def computation(self) -> Computation:
        for _ in range(self._rng.choice((1, 1, 1, 2, 2, 3, 4))):
            self._draw()
        read = {r.tensor for s in self._stages for r in reads(s.body)}
        inputs = tuple(t for t in self._inputs if t.name in read)
        return Computation(inputs, tuple(self._stages))

    def _draw(self) -> None:
        """Add what comes next."""
        self._stages.append(self._stage())

    def _stage(self) -> Stage:
        rng, number = self._rng, len(self._stages)
        self._spatial = self._axes(f"x{number}", rng.choice((1, 1, 2, 2, 2, 3, 4)), SPATIAL_POINTS)
        space = prod(self._extents[n] for n in self._spatial)
        count = rng.choice((0, 0, 1, 1, 1, 2, 3))
        self._reduced = self._axes(f"k{number}", count, max(1, REDUCED_POINTS // space))
        dtype = rng.choice(DTYPES)
        reducer = rng.choice(("sum", "sum", "sum", "max", "min", "prod")) if self._reduced else ""
        if reducer in ("sum", "prod") or (reducer and dtype in NARROW):
            dtype = wide(dtype)
        body = self._value(dtype, rng.choice((1, 2, 2, 3, 4)))
        missing = [k for k in self._reduced if k not in names_in(body)]
        if missing:
            body = self._joined(dtype, body, self._plain_read(dtype, missing))
        if not reads(body):
            body = self._joined(dtype, body, self._read(dtype))
        axes = tuple((n, self._extents[n]) for n in self._spatial)
        reduce_axes = tuple((n, self._extents[n]) for n in self._reduced)
        return Stage(f"T{number}", dtype, axes, body, reducer, reduce_axes)

    def _joined(self, dtype: str, a: Value, b: Value) -> Value:
        if wide(dtype) == dtype:
            return Bin(self._rng.choice(("add", "mul", "max")), a, b, dtype)
        if dtype not in NARROW and self._rng.random() < 0.5:
            return Bin("max", a, b, dtype)
        return Cast(Bin("add", Cast(a, wide(dtype)), Cast(b, wide(dtype)), wide(dtype)), dtype)

    def _axes(self, prefix: str, count: int, most: int) -> list[str]:
        names = [f"{prefix}{'abcd'[n]}" for n in range(count)]
        total = 1
        for name in names:
            extent = self._rng.choice([e for e in EXTENTS if total * e <= most] or [1])
            self._extents[name] = extent
            total *= extent
        return names

    @property
    def _names(self) -> list[str]:
        return [*self._spatial, *self._reduced]

    # Values ---------------------------------------------------------------------------------

    def _value(self, dtype: str, depth: int) -> Value:
        rng = self._rng
        if depth <= 0:
            return self._leaf(dtype)
        kind = rng.random()
        if kind < 0.12:
            return self._leaf(dtype)
        if kind < 0.30:
            return self._guarded(dtype, depth)
        if kind < 0.42:
            return self._cast(dtype, depth)
        if wide(dtype) != dtype:
            if dtype not in NARROW and kind < 0.6:
                op = rng.choice(("min", "max"))
                return Bin(op, self._value(dtype, depth - 1), self._value(dtype, depth - 1), dtype)
            return Cast(self._value(wide(dtype), depth - 1), dtype)
        if kind < 0.55:
            op = rng.choice(_FUNCTIONS if dtype in ("f32", "f64") else ("neg", "abs"))
            return Un(op, self._value(dtype, depth - 1), dtype)
        ops = ("add", "add", "sub", "mul", "mul", "min", "max", "div", "pow", "atan2")
        op = rng.choice(ops if dtype in ("f32", "f64") else ops[:-3])
        if op == "pow":
            # A whole constant exponent makes a product in Python and notation only.
            exponent = Bin("add", self._read(dtype), self._value(dtype, depth - 2), dtype)
            return Bin(op, self._value(dtype, depth - 1), exponent, dtype)
        return Bin(op, self._value(dtype, depth - 1), self._value(dtype, depth - 1), dtype)

    def _leaf(self, dtype: str) -> Value:
        kind = self._rng.random()
        if kind < 0.15:
            return self._number(dtype)
        if kind < 0.27 and dtype in ("f32", "f64", "i32", "i64"):
            return IxValue(self._index(2), dtype)
        return self._read(dtype)

    def _number(self, dtype: str) -> Num:
        rng = self._rng
        if dtype in INTEGERS:
            signed, bits = INTEGERS[dtype]
            most = (1 << (bits - signed)) - 1
            least = -most - 1 if signed else 0
            return Num(rng.choice((0, 1, 2, 3, rng.randint(0, 9), least, most)), dtype)
        special = rng.choice(EXTREMES if rng.random() < 0.2 else _SPECIAL)
        if dtype == "f16" and 65504 < abs(special) < math.inf:  # no constant of that type
            special = 65504.0
        return Num(rng.choice((float(rng.randint(-3, 5)), special)), dtype)

    def _cast(self, dtype: str, depth: int) -> Value:
        """Casts from every type, of constants and indices too."""
        other = self._rng.choice(DTYPES)
        if self._rng.random() < 0.3 and dtype not in NARROW:
            index = self._index(2)
            return Cast(IxValue(index, self._rng.choice(("f32", "f64", "i32", "i64"))), dtype)
        return Cast(self._value(other, depth - 1), dtype)

    def _guarded(self, dtype: str, depth: int) -> Value:
        rng = self._rng
        kind = rng.random()
        if kind < 0.3:  # a read that only its guard keeps inside, or that never happens
            read, inside = self._bare_read(dtype)
            cond: Test = inside if rng.random() < 0.7 else And(self._test(1), inside)
            if rng.random() < 0.15:
                cond = self._never()
            return Where(cond, read, self._value(dtype, depth - 2), dtype)
        cond = self._test(depth - 1)
        a, b = self._value(dtype, depth - 1), self._value(dtype, depth - 2)
        return Where(cond, a, b, dtype)

    # Conditions -----------------------------------------------------------------------------

    def _test(self, depth: int) -> Test:
        rng = self._rng
        kind = rng.random()
        if depth > 0 and kind < 0.35:
            join = rng.choice((And, And, Or))
            return join(self._test(depth - 1), self._test(depth - 1))
        if depth > 0 and kind < 0.42:
            return Not(self._test(depth - 1))
        if kind < 0.8:
            a = self._index(2)
            low, high = ix_range(a, self._extents)
            edges = (low - 1, low, (low + high) // 2, high, high + 1, 0)
            b: Ix = self._index(1) if rng.random() < 0.4 else IxConst(rng.choice(edges))
            if not names_in(a) and not names_in(b):  # two numbers: nothing Python can compare
                a = IxVar(rng.choice(self._names))
            return IxTest(rng.choice(RELATIONS), a, b)
        dtype = rng.choice(("f32", "f64", "i32", "i64", "i8", "u8"))
        a_value, b_value = self._value(dtype, depth - 1), self._leaf(dtype)
        return ValueTest(rng.choice(RELATIONS), a_value, b_value)

    def _never(self) -> Test:
        """A condition that holds nowhere, more or less plainly."""
        rng = self._rng
        axis = rng.choice(self._names)
        extent, at = self._extents[axis], rng.randint(1, 5)
        return rng.choice(
            (
                IxTest(">=", IxVar(axis), IxConst(extent)),
                And(IxTest(">=", IxVar(axis), IxConst(at)), IxTest("<", IxVar(axis), IxConst(at))),
                IxTest("<", IxAdd(IxVar(axis), IxVar(rng.choice(self._names))), IxConst(0)),
                IxTest("==", IxMul(2, IxVar(axis)), IxConst(2 * at + 1)),
            )
        )

    # Reads ----------------------------------------------------------------------------------

    def _read(self, dtype: str) -> Read:
        rng = self._rng
        old = [(t.name, t.shape) for t in self._inputs if t.dtype == dtype]
        made = [(s.name, s.shape) for s in self._stages if s.dtype == dtype]
        if (old or made) and rng.random() < (0.8 if made else 0.35):
            name, shape = rng.choice(made or old)
            if rng.random() < 0.3 and sorted(shape) == sorted(
                self._extents[n] for n in self._spatial
            ):
                by_extent = sorted(self._spatial, key=lambda n: self._extents[n])
                places = sorted(range(len(shape)), key=lambda d: shape[d])
                plain = dict(zip(places, by_extent, strict=True))
                return Read(name, tuple(IxVar(plain[d]) for d in range(len(shape))), dtype)
            return Read(name, tuple(self._place() for _ in shape), dtype)
        kind = rng.random()
        pool = [n for n in self._names if rng.random() < 0.7][:4] or [rng.choice(self._names)]
        rng.shuffle(pool)
        if kind < 0.5:
            return self._plain_read(dtype, pool)
        index = tuple(self._place() for _ in pool[:3])
        shape = tuple(self._near(i) for i in index)
        return Read(self._input(dtype, shape), index, dtype)

    def _plain_read(self, dtype: str, pool: list[str]) -> Read:
        shape = tuple(self._extents[n] for n in pool)
        index = tuple(IxVar(n) for n in pool)
        return Read(self._input(dtype, shape), index, dtype, padded=self._rng.random() < 0.5)

    def _bare_read(self, dtype: str) -> tuple[Read, Test]:
        """A read without padding, and the conditions that keep it inside."""
        index = self._linear()
        shape = self._near(index)
        low, high = IxTest(">=", index, IxConst(0)), IxTest("<", index, IxConst(shape))
        bounds: Test = And(low, high) if self._rng.random() < 0.5 else And(high, low)
        return Read(self._input(dtype, (shape,)), (index,), dtype, padded=False), bounds

    def _place(self) -> Ix | IxData:
        """An index of one dimension: of index variables, or an integer that is read."""
        rng = self._rng
        if rng.random() > 0.12:
            return self._index(2)
        source = rng.choice(("i32", "i32", "i64", "u8", "i8"))
        pool = [n for n in self._names if rng.random() < 0.6][:2] or [rng.choice(self._names)]
        value: Value = self._plain_read(source, pool) if rng.random() < 0.8 else self._read(source)
        if wide(source) != source:
            value = Cast(value, wide(source))
        if rng.random() < 0.4:
            other: Value = IxValue(self._index(1), value.dtype)
            other = other if rng.random() < 0.5 else Num(rng.randint(0, 9), value.dtype)
            value = Bin(rng.choice(("add", "sub", "mul", "max")), value, other, value.dtype)
        return IxData(value, rng.choice(("zero", "zero", "clamp", "wrap")))

    def _near(self, index: Ix | IxData) -> int:
        """An extent that `index` fits, or nearly."""
        if isinstance(index, IxData):
            return self._rng.choice((1, 2, 3, 7, 10, 16, 33))
        _, high = ix_range(index, self._extents)
        return max(1, min(high + self._rng.choice((1, 1, 1, 0, -1, -2, 2)), 40))

    def _input(self, dtype: str, shape: tuple[int, ...]) -> str:
        name = f"A{len(self._inputs)}"
        self._inputs.append(Tensor(name, dtype, shape, self._rng.random() < 0.1))
        return name

    # Indices --------------------------------------------------------------------------------

    def _linear(self) -> Ix:
        rng = self._rng
        found: Ix = IxVar(rng.choice(self._names))
        if rng.random() < 0.4:
            found = IxMul(rng.choice((2, 3, -1, -2)), found)
        if rng.random() < 0.5:
            found = rng.choice((IxAdd, IxSub))(found, IxVar(rng.choice(self._names)))
        return IxAdd(found, IxConst(rng.randint(-4, 4))) if rng.random() < 0.6 else found

    def _index(self, depth: int) -> Ix:
        rng = self._rng
        kind = rng.random()
        if depth <= 0 or kind < 0.35:
            return IxVar(rng.choice(self._names))
        if kind < 0.42:
            return IxConst(rng.randint(-1, 3))
        below = self._index(depth - 1)
        if kind < 0.56:
            return IxAdd(below, IxConst(rng.choice((1, 2, 3, -1, -2, -5))))
        if kind < 0.66:
            return rng.choice((IxAdd, IxSub))(below, self._index(depth - 1))
        if kind < 0.76:
            return IxMul(rng.choice((2, 3, 4, -1, -2, 0, 1)), below)
        if kind < 0.82:
            return IxSub(IxConst(rng.randint(0, 9)), below)
        offset = IxSub(below, IxConst(rng.randint(-3, 3))) if rng.random() < 0.5 else below
        return rng.choice((IxDiv, IxMod))(offset, rng.choice((1, 2, 3, 4, 5, 8)))
