"""A computation by the functions of `schedules`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tilewright import schedules
from tilewright.schedules import Workload
from tilewright.schedules.frontend import expr, functions

from .computation import (
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
    reads,
)
from .spell_notation import implied, plain_number

_REDUCERS: dict[str, Callable[..., Any]] = {
    "sum": expr.sum, "prod": expr.prod, "max": expr.max, "min": expr.min,
}  # fmt: skip
_PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": expr.minimum,
    "max": expr.maximum,
}
_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": expr.eq,
    "!=": expr.ne,
}


def by_python(computation: Computation, rng: random.Random, *, inline: bool = True) -> Workload:
    """The workload; `rng` chooses what is left to the type rules, and (with `inline`) whether a
    reduction is written inside the only expression that reads it."""
    return _Builder(computation, rng, inline).workload()


class _Builder:
    def __init__(self, computation: Computation, rng: random.Random, inline: bool) -> None:
        self._computation = computation
        self._rng = rng
        self._inline = inline
        self._tensors: dict[str, Any] = {}
        self._inlined: dict[str, Stage] = {}
        self._scope: dict[str, Any] = {}

    def workload(self) -> Workload:
        computation = self._computation
        inputs = [
            schedules.placeholder(t.name, t.shape, t.dtype, t.constant) for t in computation.inputs
        ]
        self._tensors = {t.name: p for t, p in zip(computation.inputs, inputs, strict=True)}
        for stage in computation.stages:
            if self._inline and self._rng.random() < 0.5 and self._may_inline(stage):
                self._inlined[stage.name] = stage
            else:
                self._tensors[stage.name] = self._compute(stage)
        outputs = [self._tensors[name] for name in computation.outputs]
        return Workload.of(*outputs, inputs=inputs)

    def _may_inline(self, stage: Stage) -> bool:
        """A sum that one other stage reads once, at its own axes in order and without padding."""
        readers = [
            (s, r)
            for s in self._computation.stages
            for r in reads(s.body)
            if r.tensor == stage.name
        ]
        if not stage.reducer or len(readers) != 1:
            return False
        user, read = readers[0]
        if user.reducer or not isinstance(user.body, Bin | Un | Cast):
            return False
        order = [n for n, _ in user.axes]
        names = [i.name for i in read.index if isinstance(i, IxVar)]
        if len(names) != len(read.index) or len(set(names)) != len(names):
            return False
        used = {i.name for r in reads(stage.body) if not r.padded for i in r.index
                if isinstance(i, IxVar)}  # fmt: skip
        return (
            names == [n for n in order if n in names]
            and tuple(dict(user.axes)[n] for n in names) == stage.shape
            and {n for n, _ in stage.axes} <= used
        )

    def _compute(self, stage: Stage) -> Any:
        def element(*axes: Any) -> Any:
            self._scope = dict(zip((n for n, _ in stage.axes), axes, strict=True))
            return self._element(stage)

        body = stage.body
        if not stage.reducer and isinstance(body, Cast) and self._rng.random() < 0.3:
            inner = Stage(stage.name, body.x.dtype, stage.axes, body.x)

            def uncast(*axes: Any) -> Any:
                self._scope = dict(zip((n for n, _ in stage.axes), axes, strict=True))
                return self._element(inner)

            return schedules.compute(stage.name, stage.shape, uncast, dtype=stage.dtype)
        return schedules.compute(stage.name, stage.shape, element)

    def _element(self, stage: Stage) -> Any:
        if not stage.reducer:
            return self._value(stage.body)
        axes = {n: schedules.reduce_axis(e) for n, e in stage.reduce_axes}
        self._scope |= axes
        body = stage.body
        if isinstance(body, Cast) and self._rng.random() < 0.5:
            body = implied(body, "add" if stage.reducer in ("sum", "prod") else "max", body) or body
        order = list(axes.values())
        self._rng.shuffle(order)
        return _REDUCERS[stage.reducer](self._value(body), axis=tuple(order))

    def _ix(self, index: Ix) -> Any:
        match index:
            case IxVar(name):
                return self._scope[name]
            case IxConst(value):
                return value
            case IxAdd(a, b):
                return self._ix(a) + self._ix(b)
            case IxSub(a, b):
                return self._ix(a) - self._ix(b)
            case IxMul(factor, a):
                return factor * self._ix(a)
            case IxDiv(a, divisor):
                return self._ix(a) // divisor
            case IxMod(a, divisor):
                return self._ix(a) % divisor

    def _value(self, value: Value) -> Any:
        match value:
            case Num(number, dtype):
                return schedules.const(number, dtype)
            case Read():
                return self._read(value)
            case IxValue(index, dtype):
                return schedules.cast(self._ix(index), dtype)
            case Un("neg", x, _):
                return -self._value(x)
            case Un(op, x, _):
                return functions.FUNCTIONS[op](self._value(x))
            case Bin(op, a, b, _) if op in functions.PAIR_FUNCTIONS:
                return functions.PAIR_FUNCTIONS[op](self._value(a), self._value(b))
            case Bin(op, a, b, _):
                return _PAIRS[op](*self._pair(a, b, op))
            case Cast(x, dtype):
                return schedules.cast(self._value(x), dtype)
            case Where(cond, a, b, _):
                return schedules.select(self._test(cond), self._value(a), self._value(b))

    def _read(self, read: Read) -> Any:
        index = tuple(self._place(i) for i in read.index)
        inlined = self._inlined.get(read.tensor)
        if inlined is not None:
            outer = self._scope
            names = (n for n, _ in inlined.axes)
            self._scope = dict(zip(names, index, strict=True))
            found = self._element(inlined)
            self._scope = outer
            return found
        tensor = self._tensors[read.tensor]
        return schedules.padded(tensor, *index) if read.padded else tensor[index]

    def _place(self, index: Ix | IxData) -> Any:
        if not isinstance(index, IxData):
            return self._ix(index)
        inner = implied(index.value, "add", index.value)
        value = self._value(index.value if inner is None or self._rng.random() < 0.5 else inner)
        plain = index.outside == "zero" and self._rng.random() < 0.5
        return value if plain else getattr(expr, index.outside)(value)

    def _pair(self, a: Value, b: Value, op: str) -> tuple[Any, Any]:
        return self._operand(a, b, op), self._operand(b, a, op)

    def _operand(self, value: Value, beside: Value, op: str) -> Any:
        number = plain_number(value, beside)
        if number is not None and self._rng.random() < 0.5:
            return number
        inner = implied(value, op, beside)
        return self._value(value if inner is None or self._rng.random() < 0.5 else inner)

    def _test(self, test: Test) -> Any:
        match test:
            case IxTest(op, a, b):
                return _TESTS[op](self._ix(a), self._ix(b))
            case ValueTest(op, a, b):
                return _TESTS[op](*self._pair(a, b, "compare"))
            case And(a, b):
                return schedules.all_of(self._test(a), self._test(b))
            case Or(a, b):
                return schedules.any_of(self._test(a), self._test(b))
            case Not(a):
                return schedules.not_(self._test(a))
