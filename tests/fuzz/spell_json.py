"""A computation as a document, every guard and conversion written out."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from .computation import (
    INTEGERS,
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

_VALUE_OPS = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne"}
_TURNED = {">": "<", ">=": "<="}


def ix_text(index: Ix, names: dict[str, str]) -> str:
    """The index with all its parentheses: what is simple is for the product to see."""
    match index:
        case IxVar(name):
            return names.get(name, name)
        case IxConst(value):
            return str(value) if value >= 0 else f"({value})"
        case IxAdd(a, b):
            return f"({ix_text(a, names)} + {ix_text(b, names)})"
        case IxSub(a, b):
            return f"({ix_text(a, names)} - {ix_text(b, names)})"
        case IxMul(factor, a):
            return f"(({factor}) * {ix_text(a, names)})"
        case IxDiv(a, divisor):
            return f"({ix_text(a, names)} // {divisor})"
        case IxMod(a, divisor):
            return f"({ix_text(a, names)} % {divisor})"


def to_document(computation: Computation, rng: random.Random) -> dict[str, Any]:
    """The document; `rng` chooses names, the order of conditions and how guards are nested."""
    return _Writer(computation, rng).document()


@dataclass
class _Writer:
    computation: Computation
    rng: random.Random

    def document(self) -> dict[str, Any]:
        computation = self.computation
        self.names: dict[str, str] = {}
        inputs: list[dict[str, Any]] = []
        for t in computation.inputs:
            entry: dict[str, Any] = {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)}
            inputs.append({**entry, "constant": True} if t.constant else entry)
        return {
            "version": 1,
            "inputs": inputs,
            "stages": [self._stage(s) for s in computation.stages],
            "outputs": list(computation.outputs),
        }

    def _stage(self, stage: Stage) -> dict[str, Any]:
        labels = [f"v{n}" for n in range(len(stage.extents))]
        self.rng.shuffle(labels)
        self.names = dict(zip(stage.extents, labels, strict=True))
        found: dict[str, Any] = {
            "name": stage.name,
            "dtype": stage.dtype,
            "axes": [[self.names[n], e] for n, e in stage.axes],
            "body": self._value(stage.body),
        }
        if stage.reducer:
            order = list(stage.reduce_axes)
            self.rng.shuffle(order)
            found["reducer"] = stage.reducer
            found["reduce_axes"] = [[self.names[n], e] for n, e in order]
        return found

    def _ix(self, index: Ix) -> str:
        return ix_text(index, self.names)

    def _value(self, value: Value) -> dict[str, Any]:
        match value:
            case Num(number, dtype):
                plain = number if math.isfinite(number) else str(number)
                return {"op": "const", "value": plain, "dtype": dtype}
            case Read():
                return self._read(value)
            case IxValue(index, dtype):
                return {"op": "index", "index": self._ix(index), "dtype": dtype}
            case Un(op, x, _):
                return {"op": op, "x": self._value(x)}
            case Bin(op, a, b, _):
                return {"op": op, "a": self._value(a), "b": self._value(b)}
            case Cast(x, dtype):
                return {"op": "cast", "x": self._value(x), "dtype": dtype}
            case Where(cond, a, b, _):
                return self._choose(cond, self._value(a), self._value(b))

    def _read(self, read: Read) -> dict[str, Any]:
        shape = self.computation.shapes[read.tensor]
        index: list[Any] = [
            {"clamp": self._datum(i, extent)} if isinstance(i, IxData) else self._ix(i)
            for i, extent in zip(read.index, shape, strict=True)
        ]
        load: dict[str, Any] = {"op": "load", "tensor": read.tensor, "index": index}
        zero = {"op": "const", "value": 0, "dtype": read.dtype}
        for datum, extent in reversed([*zip(read.index, shape, strict=True)]):
            if isinstance(datum, IxData) and datum.outside == "zero":
                load = self._inside(datum.value, extent, load, zero)
        if not read.padded:
            return load
        conds: list[str] = []
        for text, extent in zip(index, shape, strict=True):
            if isinstance(text, dict):
                continue
            conds.append(self.rng.choice((f"{text} >= 0", f"0 <= {text}", f"{text} + 1 > 0")))
            conds.append(self.rng.choice((f"{text} < {extent}", f"{extent - 1} >= {text}")))
        self.rng.shuffle(conds)
        if not conds:
            return load
        if self.rng.random() < 0.7:
            return _select({"op": "all", "conds": conds}, load, zero)
        found = load
        for cond in conds:
            found = _select({"op": "all", "conds": [cond]}, found, zero)
        return found

    def _datum(self, datum: IxData, extent: int) -> dict[str, Any]:
        value = self._value(datum.value)
        if datum.outside != "wrap":
            return value
        dtype = datum.value.dtype
        return {
            "op": "floor_mod",
            "a": value,
            "b": {"op": "const", "value": extent, "dtype": dtype},
        }

    def _inside(
        self, value: Value, extent: int, inner: dict[str, Any], zero: dict[str, Any]
    ) -> dict[str, Any]:
        """`inner` where `value` is inside, else zero, without tests that its type decides."""
        low, high = _type_range(value)
        if high >= extent:
            most = {"op": "const", "value": extent, "dtype": value.dtype}
            inner = _select({"op": "lt", "a": self._value(value), "b": most}, inner, zero)
        if low < 0:
            least = {"op": "const", "value": 0, "dtype": value.dtype}
            inner = _select({"op": "le", "a": least, "b": self._value(value)}, inner, zero)
        return inner

    def _choose(self, cond: Test, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        match cond:
            case IxTest("!=", left, right):
                return self._choose(IxTest("==", left, right), b, a)
            case IxTest(op, left, right):
                text = f"{self._ix(left)} {op} {self._ix(right)}"
                return _select({"op": "all", "conds": [text]}, a, b)
            case ValueTest(op, left, right) if op in _TURNED:
                return self._choose(ValueTest(_TURNED[op], right, left), a, b)
            case ValueTest(op, left, right):
                test = {"op": _VALUE_OPS[op], "a": self._value(left), "b": self._value(right)}
                return _select(test, a, b)
            case And(IxTest() as first, IxTest() as second) if (
                "!=" not in (first.op, second.op) and self.rng.random() < 0.6
            ):
                texts = [f"{self._ix(t.a)} {t.op} {self._ix(t.b)}" for t in (first, second)]
                self.rng.shuffle(texts)
                return _select({"op": "all", "conds": texts}, a, b)
            case And(first, second):
                return self._choose(first, self._choose(second, a, b), b)
            case Or(first, second):
                return self._choose(first, a, self._choose(second, a, b))
            case Not(inner):
                return self._choose(inner, b, a)


def _type_range(value: Value) -> tuple[int, int]:
    if isinstance(value, Num):
        return int(value.value), int(value.value)
    source = value.x if isinstance(value, Cast) else value
    if isinstance(value, Cast) and isinstance(source, Num) and source.dtype in ("i8", "u8"):
        return int(source.value), int(source.value)
    signed, bits = INTEGERS[source.dtype if source.dtype in ("i8", "u8") else value.dtype]
    most = (1 << (bits - signed)) - 1
    return (-most - 1 if signed else 0), most


def _select(cond: dict[str, Any], a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {"op": "select", "cond": cond, "on_true": a, "on_false": b}
