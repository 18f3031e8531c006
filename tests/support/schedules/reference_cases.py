"""Small workloads written node by node, and a slow evaluator that shares no code with ours."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.support import scalar_oracles
from tilewright.schedules.algebra.affine import Affine, FloorDiv, Mod, Var, var
from tilewright.schedules.algebra.comparisons import Cond, Eq0, Ge0
from tilewright.schedules.algebra.scalar import (
    ON_BOOLS,
    ON_FLOATS_ONLY,
    ON_INTEGERS_ONLY,
    All,
    Binary,
    BinaryOp,
    Cast,
    Clamped,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.workload.tensors import Axis, Elementwise, Reduction, Stage, Tensor
from tilewright.schedules.workload.workload import Workload

F32 = DType.F32


def axes(**extents: int) -> tuple[Axis, ...]:
    return tuple(Axis(name, extent) for name, extent in extents.items())


def load(tensor: Tensor, *index: Affine | str) -> Load:
    indices = tuple(var(i) if isinstance(i, str) else i for i in index)
    return Load(tensor.name, indices, tensor.dtype)


def mul(a: Scalar, b: Scalar) -> Scalar:
    return Binary(BinaryOp.MUL, a, b)


def add(a: Scalar, b: Scalar) -> Scalar:
    return Binary(BinaryOp.ADD, a, b)


def stage(
    name: str,
    out: tuple[Axis, ...],
    body: Scalar,
    reducer: Reducer | None = None,
    reduced: tuple[Axis, ...] = (),
) -> Stage:
    tensor = Tensor(name, tuple(a.extent for a in out), body.dtype)
    kind = Elementwise() if reducer is None else Reduction(reducer, reduced)
    return Stage(tensor, out, body, kind)


def matmul(m: int, n: int, k: int, dtype: DType = F32, accumulate: DType | None = None) -> Workload:
    a, b = Tensor("A", (m, k), dtype), Tensor("B", (k, n), dtype)
    x: Scalar = load(a, "i", "k")
    y: Scalar = load(b, "k", "j")
    if accumulate is not None:
        x, y = Cast(x, accumulate), Cast(y, accumulate)
    c = stage("C", axes(i=m, j=n), mul(x, y), Reducer.SUM, axes(k=k))
    return Workload((a, b), (c,), ("C",), "matmul")


def padded(x: Tensor, index: Sequence[Affine], fill: float = 0.0) -> Scalar:
    """`x[index]`, `fill` outside."""
    if not x.shape:
        return load(x)
    conds: list[Cond] = []
    for i, extent in zip(index, x.shape, strict=True):
        conds += [Ge0(i), Ge0(extent - 1 - i)]
    return Select(All(tuple(conds)), load(x, *index), Const(fill, x.dtype))


def conv2d(h: int, ci: int, co: int, k: int, *, pad: int, stride: int = 1) -> Workload:
    o = (h + 2 * pad - k) // stride + 1
    x, w = Tensor("X", (1, h, h, ci), F32), Tensor("W", (k, k, ci, co), F32)
    rows, columns = (var(p) * stride + var(r) - pad for p, r in (("oh", "r"), ("ow", "s")))
    body = mul(padded(x, (var("n"), rows, columns, var("c"))), load(w, "r", "s", "c", "f"))
    out = axes(n=1, oh=o, ow=o, f=co)
    y = stage("Y", out, body, Reducer.SUM, axes(r=k, s=k, c=ci))
    return Workload((x, w), (y,), ("Y",), "conv2d")


def conv2d_transposed(h: int, ci: int, co: int, k: int, *, pad: int, stride: int) -> Workload:
    """The mask stands around the product, and the index is a floor division."""
    o = (h - 1) * stride - 2 * pad + k
    x, w = Tensor("X", (h, h, ci), F32), Tensor("W", (k, k, ci, co), F32)
    conds: list[Cond] = []
    index: list[Affine] = []
    for p, r in (("oh", "r"), ("ow", "s")):
        at = var(p) + pad - var(r)
        index.append(at // stride)
        conds += [Eq0(at % stride), Ge0(at // stride), Ge0(h - 1 - at // stride)]
    product = mul(load(x, *index, "c"), load(w, "r", "s", "c", "f"))
    body = Select(All(tuple(conds)), product, Const(0.0, F32))
    y = stage("Y", axes(oh=o, ow=o, f=co), body, Reducer.SUM, axes(r=k, s=k, c=ci))
    return Workload((x, w), (y,), ("Y",), "conv2d_transposed")


def grouped_conv1d(length: int, groups: int, ci: int, co: int, k: int) -> Workload:
    """`ci` and `co` channels a group; the input's channel is found by a floor division."""
    x = Tensor("X", (length, groups * ci), F32)
    w = Tensor("W", (k, ci, groups * co), F32)
    at = var("o") + var("r")
    body = mul(load(x, at, var("f") // co * ci + var("c")), load(w, "r", "c", "f"))
    out = axes(o=length - k + 1, f=groups * co)
    y = stage("Y", out, body, Reducer.SUM, axes(r=k, c=ci))
    return Workload((x, w), (y,), ("Y",), "grouped_conv1d")


def softmax(m: int, n: int, dtype: DType = F32) -> Workload:
    x = Tensor("X", (m, n), dtype)
    rows, columns = axes(i=m), axes(j=n)
    top = stage("top", rows, load(x, "i", "j"), Reducer.MAX, columns)
    shifted = Binary(BinaryOp.SUB, load(x, "i", "j"), load(top.tensor, "i"))
    e = stage("e", rows + columns, Unary(UnaryOp.EXP, shifted))
    total = stage("total", rows, load(e.tensor, "i", "j"), Reducer.SUM, columns)
    quotient = Binary(BinaryOp.DIV, load(e.tensor, "i", "j"), load(total.tensor, "i"))
    y = stage("Y", rows + columns, quotient)
    return Workload((x,), (top, e, total, y), ("Y",), "softmax")


def layernorm(m: int, n: int) -> Workload:
    x, gamma = Tensor("X", (m, n), F32), Tensor("gamma", (n,), F32)
    rows, columns = axes(i=m), axes(j=n)
    count = Const(float(n), F32)
    total = stage("total", rows, load(x, "i", "j"), Reducer.SUM, columns)
    mean = Binary(BinaryOp.DIV, load(total.tensor, "i"), count)
    centred = stage("centred", rows + columns, Binary(BinaryOp.SUB, load(x, "i", "j"), mean))
    square = mul(load(centred.tensor, "i", "j"), load(centred.tensor, "i", "j"))
    squares = stage("squares", rows, square, Reducer.SUM, columns)
    variance = Binary(BinaryOp.DIV, load(squares.tensor, "i"), count)
    root = Unary(UnaryOp.RSQRT, add(variance, Const(1e-5, F32)))
    body = mul(mul(load(centred.tensor, "i", "j"), root), load(gamma, "j"))
    y = stage("Y", rows + columns, body)
    return Workload((x, gamma), (total, centred, squares, y), ("Y",), "layernorm")


def norm(m: int, n: int) -> Workload:
    x = Tensor("X", (m, n), F32)
    squares = stage(
        "S", axes(i=m), mul(load(x, "i", "j"), load(x, "i", "j")), Reducer.SUM, axes(j=n)
    )
    y = stage("Y", axes(i=m), Unary(UnaryOp.SQRT, load(squares.tensor, "i")))
    return Workload((x,), (squares, y), ("Y",), "norm")


def map_workload(body: Scalar, inputs: tuple[Tensor, ...], **extents: int) -> Workload:
    """One stage without a reduction."""
    return Workload(inputs, (stage("Y", axes(**extents), body),), ("Y",), "map")


def vector(dtype: DType, n: int = 8, name: str = "X") -> Tensor:
    return Tensor(name, (n,), dtype)


# --- the slow evaluator -------------------------------------------------------------------------


def slow_evaluate(workload: Workload, inputs: Sequence[np.ndarray[Any, Any]]) -> list[list[Any]]:
    """Flat outputs, element by element in Python numbers: floats are doubles, integers wrap."""
    tensors: dict[str, dict[tuple[int, ...], Any]] = {}
    for tensor, array in zip(workload.inputs, inputs, strict=True):
        every = itertools.product(*map(range, tensor.shape))
        tensors[tensor.name] = {at: array[at].item() for at in every}
    for s in workload.stages:
        tensors[s.name] = _slow_stage(s, tensors)
    return [list(tensors[name].values()) for name in workload.outputs]


def _slow_stage(s: Stage, tensors: Mapping[str, Any]) -> dict[tuple[int, ...], Any]:
    result = {}
    names = [a.name for a in s.axes] + [a.name for a in s.reduce_axes]
    for at in itertools.product(*(range(a.extent) for a in s.axes)):
        terms = [
            _slow(s.body, dict(zip(names, at + inner, strict=True)), tensors)
            for inner in itertools.product(*(range(a.extent) for a in s.reduce_axes))
        ]
        value = terms[0]
        for term in terms[1:]:
            assert isinstance(s.kind, Reduction)
            value = _slow_binary(s.kind.reducer.op, value, term, s.tensor.dtype)
        result[at] = value
    return result


def wrapped(value: int, dtype: DType) -> int:
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return (value - low) % (1 << dtype.bits) + low


def _slow_index(index: Affine, env: Mapping[str, int], tensors: Mapping[str, Any]) -> int:
    total = index.const
    for atom, coefficient in index.terms:
        match atom:
            case Var():
                value = env[atom.name]
            case FloorDiv():
                value = math.floor(_slow_index(atom.numerator, env, tensors) / atom.divisor)
            case Mod():
                value = _slow_index(atom.numerator, env, tensors) % atom.divisor
            case Clamped():
                read = int(_slow(atom.value, env, tensors))
                value = 0 if read < 0 else read if read < atom.extent else atom.extent - 1
            case _:
                raise AssertionError(atom)
        total += coefficient * value
    return total


def _slow_binary(op: BinaryOp, a: Any, b: Any, dtype: DType) -> Any:
    match op:
        case BinaryOp.ADD:
            value = a + b
        case BinaryOp.SUB:
            value = a - b
        case BinaryOp.MUL:
            value = a * b
        case BinaryOp.DIV:
            value = a / b
        case BinaryOp.MIN:
            value = min(a, b)
        case BinaryOp.MAX:
            value = max(a, b)
        case BinaryOp.BIT_AND:
            value = a & b
        case BinaryOp.BIT_OR:
            value = a | b
        case BinaryOp.BIT_XOR:
            value = a ^ b
        case BinaryOp.SHIFT_LEFT:
            value = a << b if 0 <= b < dtype.bits else 0
        case BinaryOp.SHIFT_RIGHT:
            value = a >> (b if 0 <= b < dtype.bits else dtype.bits)
        case BinaryOp.FLOOR_DIV:
            value = a // b if b else 0
        case BinaryOp.FLOOR_MOD:
            value = a % b if b else 0
    return value if dtype.is_float else wrapped(value, dtype)


def _slow_cast(x: Any, source: DType, target: DType) -> Any:
    if target is DType.BOOL:
        return int(x != 0)
    if target.is_float:
        return float(x)
    if not source.is_float:
        return wrapped(x, target)
    if math.isnan(x):
        return 0
    low = -(1 << (target.bits - 1)) if target.is_signed else 0
    high = low + (1 << target.bits) - 1
    return low if x <= low else high if x >= high else math.trunc(x)


def _slow(node: Scalar, env: Mapping[str, int], tensors: Mapping[str, Any]) -> Any:
    def value(x: Scalar) -> Any:
        return _slow(x, env, tensors)

    match node:
        case Const(number, dtype):
            return float(np.float32(number)) if dtype is F32 else number
        case Load(tensor, index, dtype):
            found = tensors[tensor][tuple(_slow_index(i, env, tensors) for i in index)]
            return float(found) if dtype.is_float else int(found)
        case IndexValue(index, dtype):
            at = _slow_index(index, env, tensors)
            return float(at) if dtype.is_float else wrapped(at, dtype)
        case All(conds):
            at_all = [(c, _slow_index(c.index, env, tensors)) for c in conds]
            return all(i >= 0 if isinstance(c, Ge0) else i == 0 for c, i in at_all)
        case Unary(op, x):
            return _slow_unary(op, value(x), node.dtype)
        case Binary(op, a, b):
            return _slow_binary(op, value(a), value(b), node.dtype)
        case Compare(op, a, b):
            x, y = value(a), value(b)
            return {
                CompareOp.LT: x < y,
                CompareOp.LE: x <= y,
                CompareOp.EQ: x == y,
                CompareOp.NE: x != y,
            }[op]
        case Cast(x, dtype):
            return _slow_cast(value(x), x.dtype, dtype)
        case Select(cond, on_true, on_false):
            return value(on_true if value(cond) else on_false)


def _slow_unary(op: UnaryOp, x: Any, dtype: DType) -> Any:
    if op is UnaryOp.NEG:
        return -x if dtype.is_float else wrapped(-x, dtype)
    if op is UnaryOp.ABS:
        return abs(x) if dtype.is_float else wrapped(abs(x), dtype)
    return scalar_oracles.of_number(op)(x)


# --- random workloads ---------------------------------------------------------------------------

EXTENTS = (1, 2, 3, 7)
NUMBERS = (DType.F32, DType.F64, DType.I64, DType.I32, DType.I8, DType.U8)
TYPES = (*NUMBERS, DType.BOOL)


def random_workload(rng: random.Random) -> Workload:
    """One to three stages over random indices, all reads in bounds or guarded."""
    inputs = tuple(
        Tensor(f"T{i}", tuple(rng.choice(EXTENTS) for _ in range(rng.randint(0, 3))), dtype)
        for i, dtype in enumerate(rng.choices(TYPES, k=rng.randint(1, 3)))
    )
    known, stages = list(inputs), list[Stage]()
    for number in range(rng.randint(1, 3)):
        rank = rng.choice((0, 1, 1, 2, 2, 2))
        out = axes(**{n: rng.choice(EXTENTS) for n in "ij"[:rank]})
        reduced = axes(**{n: rng.choice(EXTENTS) for n in "kl"[: rng.randint(rank == 0, 2)]})
        dtype = rng.choice(TYPES)
        reducers = (Reducer.MAX, Reducer.MIN) if dtype is DType.BOOL else tuple(Reducer)
        reducer = rng.choice(reducers) if reduced else None
        maker = _Maker(rng, known, out + reduced)
        if reducer is Reducer.SUM and rng.random() < 0.6:
            body = mul(maker.scalar(dtype, 1), maker.scalar(dtype, 1))
        elif reducer is Reducer.PROD:
            body = maker.read(dtype)
        else:
            body = maker.scalar(dtype, 3)
        stages.append(stage(f"S{number}", out, body, reducer, reduced))
        known.append(stages[-1].tensor)
    return Workload(inputs, tuple(stages), tuple(s.name for s in stages), "random")


class _Maker:
    def __init__(self, rng: random.Random, known: list[Tensor], over: tuple[Axis, ...]) -> None:
        self._rng = rng
        self._known = known
        self._axes = over

    def index(self) -> Affine:
        total = var(self._rng.choice(self._axes).name) * self._rng.choice([1, 1, 1, 2, -1])
        if self._rng.random() < 0.4:
            total = total + var(self._rng.choice(self._axes).name)
        total = total + self._rng.choice([0, 0, 1, -1, 3])
        choice = self._rng.random()
        divisor = self._rng.choice([2, 3])
        return total // divisor if choice < 0.15 else total % divisor if choice < 0.3 else total

    def read(self, dtype: DType, depth: int = 1) -> Scalar:
        tensor = self._rng.choice(self._known)
        if depth and self._rng.random() < 0.25:
            return self.gather(tensor, dtype)
        index = tuple(self.index() for _ in tensor.shape)
        fill = self._rng.choice([0, 0, 0, 1 if tensor.dtype is DType.BOOL else 2])
        value = padded(tensor, index, fill)
        return value if tensor.dtype is dtype else Cast(value, dtype)

    def gather(self, tensor: Tensor, dtype: DType) -> Scalar:
        """A read at data of any tensor, saturated, beside indices that are inside."""
        index: list[Affine] = []
        for extent in tensor.shape:
            if self._rng.random() < 0.7:
                datum = Clamped(self.scalar(self._rng.choice([DType.I32, DType.I64]), 0), extent)
                index.append(Affine(((datum, 1),), 0))
            else:
                index.append(self.index() % extent)
        value = load(tensor, *index)
        return value if tensor.dtype is dtype else Cast(value, dtype)

    def scalar(self, dtype: DType, depth: int) -> Scalar:
        choice = self._rng.random()
        if depth == 0 or choice < 0.25:
            if self._rng.random() < 0.2 and dtype is not DType.BOOL:
                if dtype in (DType.I8, DType.U8):
                    return Const(self._rng.randint(0, 9), dtype)
                return IndexValue(self.index(), dtype)
            return self.read(dtype)
        a = self.scalar(dtype, depth - 1)
        if dtype is DType.BOOL:
            return self._bool(a, depth)
        if choice < 0.75:
            left_out = ON_INTEGERS_ONLY if dtype.is_float else frozenset[BinaryOp]()
            ops = [o for o in BinaryOp if o not in ON_FLOATS_ONLY and o not in left_out]
            return Binary(self._rng.choice(ops), a, self.scalar(dtype, depth - 1))
        if choice < 0.85:
            return Unary(self._rng.choice([UnaryOp.NEG, UnaryOp.ABS]), a)
        b = self.scalar(dtype, depth - 1)
        compared = Compare(self._rng.choice(list(CompareOp)), a, b)
        return Select(compared, self.scalar(dtype, depth - 1), self.scalar(dtype, depth - 1))

    def _bool(self, a: Scalar, depth: int) -> Scalar:
        if self._rng.random() < 0.4:
            of = self._rng.choice(NUMBERS)
            left, right = (self.scalar(of, depth - 1) for _ in range(2))
            return Compare(self._rng.choice(list(CompareOp)), left, right)
        if self._rng.random() < 0.3:
            return Select(a, self.scalar(DType.BOOL, depth - 1), Const(1, DType.BOOL))
        return Binary(self._rng.choice(sorted(ON_BOOLS)), a, self.scalar(DType.BOOL, depth - 1))


def small_integers(workload: Workload, rng: random.Random) -> list[np.ndarray[Any, Any]]:
    """Integer-valued inputs: sums and products of a few are exact in float64."""
    arrays = []
    for t in workload.inputs:
        low = -3 if t.dtype.is_signed else 0
        flat = [rng.randint(low, 3) for _ in range(t.elements)]
        arrays.append(np.array(flat).reshape(t.shape).astype(t.dtype.numpy))
    return arrays
