"""Computations as the fuzzer sees them: a tree of its own, that shares no code with `schedules`.

Everything is explicit: every value has an element type by name, conversions are `Cast` nodes, an
index is the tree it was drawn as. `spell_json`, `spell_python` and `spell_notation` write one in
the product's three languages; `evaluate` says what its outputs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod
from typing import Any, TypeAlias

FLOATS = ("f32", "f64", "bf16", "f16")
NARROW = ("bf16", "f16")
"""Floats that are stored, and computed in f32."""

INTEGERS = {"i8": (True, 8), "u8": (False, 8), "i32": (True, 32), "i64": (True, 64)}
WIDE = {"bf16": "f32", "f16": "f32", "i8": "i32", "u8": "i32"}
"""What arithmetic of a narrow type is done in."""


def wide(dtype: str) -> str:
    return WIDE.get(dtype, dtype)


@dataclass(frozen=True, slots=True)
class IxVar:
    name: str


@dataclass(frozen=True, slots=True)
class IxConst:
    value: int


@dataclass(frozen=True, slots=True)
class IxAdd:
    a: Ix
    b: Ix


@dataclass(frozen=True, slots=True)
class IxSub:
    a: Ix
    b: Ix


@dataclass(frozen=True, slots=True)
class IxMul:
    factor: int
    a: Ix


@dataclass(frozen=True, slots=True)
class IxDiv:
    a: Ix
    divisor: int


@dataclass(frozen=True, slots=True)
class IxMod:
    a: Ix
    divisor: int


Ix: TypeAlias = IxVar | IxConst | IxAdd | IxSub | IxMul | IxDiv | IxMod


@dataclass(frozen=True, slots=True)
class Num:
    """A constant: a whole number, or a float that may be -0.0 or infinite."""

    value: int | float
    dtype: str


@dataclass(frozen=True, slots=True)
class IxData:
    """An integer as the whole index of a dimension. `outside` is what happens to one that is not
    inside: `zero` (the read is zero), `clamp` or `wrap`."""

    value: Value
    outside: str


@dataclass(frozen=True, slots=True)
class Read:
    """`tensor[index]`; `padded`: zero outside, otherwise it is never evaluated outside."""

    tensor: str
    index: tuple[Ix | IxData, ...]
    dtype: str
    padded: bool = True


@dataclass(frozen=True, slots=True)
class IxValue:
    """An index as a number."""

    index: Ix
    dtype: str


@dataclass(frozen=True, slots=True)
class Un:
    op: str
    x: Value
    dtype: str


@dataclass(frozen=True, slots=True)
class Bin:
    op: str
    a: Value
    b: Value
    dtype: str


@dataclass(frozen=True, slots=True)
class Cast:
    x: Value
    dtype: str


@dataclass(frozen=True, slots=True)
class Where:
    cond: Test
    a: Value
    b: Value
    dtype: str


Value: TypeAlias = Num | Read | IxValue | Un | Bin | Cast | Where


@dataclass(frozen=True, slots=True)
class IxTest:
    """`a op b` of indices, `op` one of < <= > >= == !=."""

    op: str
    a: Ix
    b: Ix


@dataclass(frozen=True, slots=True)
class ValueTest:
    op: str
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class And:
    a: Test
    b: Test


@dataclass(frozen=True, slots=True)
class Or:
    a: Test
    b: Test


@dataclass(frozen=True, slots=True)
class Not:
    a: Test


Test: TypeAlias = IxTest | ValueTest | And | Or | Not


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """`name[axes] = body`, or combined by `reducer` (sum, prod, max, min) over `reduce_axes`."""

    name: str
    dtype: str
    axes: tuple[tuple[str, int], ...]
    body: Value
    reducer: str = ""
    reduce_axes: tuple[tuple[str, int], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, extent in self.axes)

    @property
    def extents(self) -> dict[str, int]:
        return dict((*self.axes, *self.reduce_axes))

    @property
    def points(self) -> int:
        return prod(self.extents.values())


@dataclass(frozen=True, slots=True)
class Computation:
    """Inputs and stages in order; the outputs are the stages nobody reads, in order."""

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        read = {r.tensor for s in self.stages for r in reads(s.body)}
        return tuple(s.name for s in self.stages if s.name not in read)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        found = {t.name: t.shape for t in self.inputs}
        return found | {s.name: s.shape for s in self.stages}

    @property
    def points(self) -> int:
        return sum(s.points for s in self.stages)


def parts(node: object) -> Iterator[object]:
    """`node` and all below it, values, conditions and indices alike, parents first."""
    yield node
    for child in children(node):
        yield from parts(child)


def children(node: object) -> list[Any]:
    found: list[Any] = []
    for f in fields(node):  # type: ignore[arg-type]  # every node is a dataclass
        value = getattr(node, f.name)
        if isinstance(value, tuple):
            found.extend(value)
        elif hasattr(value, "__dataclass_fields__"):
            found.append(value)
    return found


def with_child(node: Any, old: object, new: object) -> Any:
    """`node` with the child that is `old` replaced."""
    changes: dict[str, Any] = {}
    for f in fields(node):
        value = getattr(node, f.name)
        if value is old:
            changes[f.name] = new
        elif isinstance(value, tuple) and any(v is old for v in value):
            changes[f.name] = tuple(new if v is old else v for v in value)
    return replace(node, **changes)


def indexing_tensors(stages: tuple[Stage, ...]) -> set[str]:
    """The tensors whose elements are in indices."""
    data = (p for s in stages for p in parts(s.body) if isinstance(p, IxData))
    return {r.tensor for datum in data for r in reads(datum.value)}


def reads(value: Value) -> list[Read]:
    return [n for n in parts(value) if isinstance(n, Read)]


def names_in(node: object) -> list[str]:
    """Index variables of `node`, in order of appearance."""
    return list(dict.fromkeys(n.name for n in parts(node) if isinstance(n, IxVar)))


def ix_value(index: Ix, env: Mapping[str, int]) -> int:
    """Floor division and remainders are Python's: towards minus infinity."""
    match index:
        case IxVar(name):
            return env[name]
        case IxConst(value):
            return value
        case IxAdd(a, b):
            return ix_value(a, env) + ix_value(b, env)
        case IxSub(a, b):
            return ix_value(a, env) - ix_value(b, env)
        case IxMul(factor, a):
            return factor * ix_value(a, env)
        case IxDiv(a, divisor):
            return ix_value(a, env) // divisor
        case IxMod(a, divisor):
            return ix_value(a, env) % divisor


def ix_range(index: Ix, extents: Mapping[str, int]) -> tuple[int, int]:
    """Least and greatest value of `index`, by trying every point."""
    names = names_in(index)
    points = product(*(range(extents[n]) for n in names))
    values = [ix_value(index, dict(zip(names, p, strict=True))) for p in points]
    return min(values), max(values)
