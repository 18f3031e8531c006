"""A computation as index notation: what is read outside is zero without being written."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.tensors import Tensor as ProductTensor
from tilewright.schedules.workload.workload import Workload

from .computation import (
    NARROW,
    And,
    Bin,
    Cast,
    Computation,
    Ix,
    IxData,
    IxTest,
    IxValue,
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
    wide,
)
from .spell_json import ix_text

_ASSIGN = {"": "=", "sum": "+=", "prod": "*=", "max": "max=", "min": "min="}
_OPS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


@dataclass(frozen=True, slots=True)
class Notation:
    """What a user gives: the text, `NAME=dtype[...]` of the inputs, ranges of every index."""

    text: str
    tensors: tuple[str, ...]
    ranges: dict[str, int] = field(default_factory=dict)

    def workload(self) -> Workload:
        from tilewright.schedules.frontend.notation import parse_tensor_spec

        tensors: list[ProductTensor] = [parse_tensor_spec(t) for t in self.tensors]
        return from_notation(self.text, tensors, self.ranges)


def to_notation(computation: Computation, rng: random.Random) -> Notation:
    """The text; `rng` chooses which conversions and types of constants are left to the rules."""
    writer = _Writer(rng)
    text = "; ".join(writer.statement(s) for s in computation.stages)
    tensors = tuple(
        f"{t.name}={'const ' * t.constant}{t.dtype}[{','.join(map(str, t.shape))}]"
        for t in computation.inputs
    )
    ranges = {n: e for s in computation.stages for n, e in s.extents.items()}
    return Notation(text, tensors, ranges)


def implied(value: Value, op: str, beside: Value) -> Value | None:
    """What may be written for operand `value` of `op` so that the type rules convert it, or None.

    Arithmetic of narrow types is done wide; min, max and comparisons of integers stay narrow.
    """
    if not isinstance(value, Cast) or wide(value.x.dtype) != value.dtype:
        return None
    if value.x.dtype == value.dtype:
        return None
    keeps = op in ("min", "max", "compare")
    return None if keeps and value.x.dtype not in NARROW else value.x


def plain_number(value: Value, beside: Value) -> int | float | None:
    """The number that takes the type of `value` by what it stands beside, or None."""
    if not isinstance(value, Num) or isinstance(beside, Num | IxValue):
        return None
    if value.dtype != beside.dtype or wide(value.dtype) != value.dtype:
        return None
    return value.value


@dataclass
class _Writer:
    rng: random.Random

    def statement(self, stage: Stage) -> str:
        body = self._value(stage.body)
        target = ",".join(n for n, _ in stage.axes)
        return f"{stage.name}[{target}] {_ASSIGN[stage.reducer]} {body}"

    def _value(self, value: Value) -> str:
        match value:
            case Num(number, dtype):
                return f"{dtype}({_number(number)})"
            case Read():
                return f"{value.tensor}[{', '.join(map(self._place, value.index))}]"
            case IxValue(index, dtype):
                return f"{dtype}({ix_text(index, {})})"
            case Un("neg", x, _):
                return f"(-{self._value(x)})"
            case Un(op, x, _):
                return f"{op}({self._value(x)})"
            case Bin(op, a, b, _):
                left, right = self._pair(a, b, op)
                return f"({left} {_OPS[op]} {right})" if op in _OPS else f"{op}({left}, {right})"
            case Cast(x, dtype):
                return f"{dtype}({self._value(x)})"
            case Where(cond, a, b, _):
                return f"where({self._test(cond)}, {self._value(a)}, {self._value(b)})"

    def _place(self, index: Ix | IxData) -> str:
        if not isinstance(index, IxData):
            return ix_text(index, {})
        inner = implied(index.value, "add", index.value)
        value = self._value(index.value if inner is None or self.rng.random() < 0.5 else inner)
        plain = index.outside == "zero" and self.rng.random() < 0.5
        return value if plain else f"{index.outside}({value})"

    def _pair(self, a: Value, b: Value, op: str) -> tuple[str, str]:
        return self._operand(a, b, op), self._operand(b, a, op)

    def _operand(self, value: Value, beside: Value, op: str) -> str:
        number = plain_number(value, beside)
        if number is not None and self.rng.random() < 0.5:
            return f"({_number(number)})"
        inner = implied(value, op, beside)
        return self._value(value if inner is None or self.rng.random() < 0.5 else inner)

    def _test(self, test: Test) -> str:
        match test:
            case IxTest(op, a, b):
                return f"({ix_text(a, {})} {op} {ix_text(b, {})})"
            case ValueTest(op, a, b):
                left, right = self._pair(a, b, "compare")
                return f"({left} {op} {right})"
            case And(a, b):
                return f"({self._test(a)} && {self._test(b)})"
            case Or(a, b):
                return f"({self._test(a)} or {self._test(b)})"
            case Not(a):
                return f"(!{self._test(a)})"


def _number(value: float) -> str:
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)
