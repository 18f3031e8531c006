"""Inputs with a few NaN, infinities and zeros of both signs, and what a kernel must make of them.

What is promised is in `docs/math.md`, "Special values". The reference says what IEEE arithmetic
gives; what a right kernel may do otherwise is put into further readings of the same workload, and
an element is judged where all of them agree on its class: NaN, an infinity of either sign, finite.

- A maximum or minimum of two computed values may lose a NaN: what such a stage makes a NaN is one
  number in the second reading and another one in the third.
- Products with zeros nobody stored may be left out: they are, in both.
- What is zero by rounding or cancellation, or too small for the type, may be something else in
  another order: all finite inputs are changed a little in both, and the smallest values are zero.
- A rewritten kernel keeps what its form keeps: that form is one more reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from schedules.algebra.narrow import narrowed, widened
from schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    rewrite,
    walk,
)
from schedules.dtypes import DType
from schedules.reference.boxes import MAX_BOX_POINTS, over_boxes
from schedules.reference.evaluate import evaluate_stage, load_inputs, value_of
from schedules.reference.reads import Box, full_box, leading_tiles
from schedules.workload.tensors import Stage, Tensor
from schedules.workload.workload import Workload

from .inputs import tiled

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.uint8]
T = TypeVar("T")

NOT_PROMISED, FINITE, NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY = range(5)
_NAMES = ("anything", "a finite number", "NaN", "inf", "-inf")
MAX_POINTS = 1 << 31
"""Of the iteration spaces; beyond, each reading takes seconds."""
ZERO_SHARE = 0.1
"""Of elements that are zero, half of them -0.0."""
_DENSEST = 1 / 24
_FEWEST_ELEMENTS = 16
_TINY = 2.0**-60
_MODEST_EXPONENT = 60.0
_LOST = (1.0, -np.inf)  # what may be left of a NaN in a maximum
_MAX_OR_MIN = (BinaryOp.MAX, BinaryOp.MIN)


@dataclass(frozen=True, slots=True)
class Promised:
    """What one output must be, element by element: a class, and at zeros a sign.

    `signs` is -1 or 1 where a zero has that sign, 0 elsewhere; None where none is promised.
    """

    tensor: Tensor
    classes: Classes
    signs: npt.NDArray[np.int8] | None

    def wrong(self, output: Array) -> str | None:
        """None if every element of `output` is as promised, else the first that is not."""
        got = widened(output, self.tensor.dtype)
        flat, classes = got.reshape(-1), self.classes.reshape(-1)
        signs = None if self.signs is None else self.signs.reshape(-1)
        wrong = np.zeros(flat.size, np.bool_)
        for part in _parts(flat.size):
            found = _part_classes(flat[part], np.inf)
            wrong[part] = (classes[part] != found) & (classes[part] != NOT_PROMISED)
            if signs is not None:
                sign, number = signs[part], flat[part]
                wrong[part] |= (sign != 0) & ((number != 0) | (np.signbit(number) != (sign < 0)))
        return self._describe(got, wrong.reshape(got.shape)) if wrong.any() else None

    def _describe(self, got: Array, wrong: npt.NDArray[np.bool_]) -> str:
        where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        index = ", ".join(str(int(i)) for i in where)
        wanted = _NAMES[self.classes[where]]
        if self.signs is not None and self.signs[where]:
            wanted = "-0.0" if self.signs[where] < 0 else "0.0"
        return (
            f"{self.tensor.name}[{index}] is {float(got[where])!r}, expected {wanted}; "
            f"{int(wrong.sum())} of {wrong.size} elements are wrong"
        )


@dataclass(frozen=True, slots=True)
class SpecialCase:
    """Inputs with special values and what a kernel may answer, as the runner asks for it.

    Rounding is no business of this case, so runs that round differently are not compared.
    """

    seed: int
    inputs: tuple[Array, ...]
    promised: tuple[Promised | None, ...]
    exact: bool = False

    def check(self, outputs: Sequence[Array]) -> str | None:
        """None if `outputs` are as promised; else what is not."""
        for promised, output in zip(self.promised, outputs, strict=True):
            problem = None if promised is None else promised.wrong(output)
            if problem is not None:
                return f"{problem}; inputs: NaN, infinities and zeros, seed {self.seed}"
        return None

    def error(self, outputs: Sequence[Array]) -> float | None:
        """None: this case measures no error."""
        return None

    @property
    def judged_fraction(self) -> float:
        """Elements held to something, of the output where they are fewest."""
        return min(
            (float((p.classes != NOT_PROMISED).mean()) for p in self.promised if p is not None),
            default=0.0,
        )


@dataclass(frozen=True, slots=True)
class _Draw:
    """Which special values there are, and whether in the largest input only."""

    values: tuple[float, ...]
    largest_only: bool


_DRAWS = (
    _Draw((np.nan, np.inf, -np.inf), largest_only=False),
    _Draw((np.nan, np.inf, -np.inf), largest_only=True),
    _Draw((-np.inf,), largest_only=True),
    _Draw((np.inf,), largest_only=True),
)


def special_case(
    workload: Workload, rewritten: Workload | None, *, positive: bool, seed: int
) -> SpecialCase | None:
    """The case for kernels of `workload`, computed as `rewritten` if that is not None; None where
    nothing can be promised: no floats, or values that leave the range of the type by themselves.
    None, too, beyond `MAX_POINTS`.

    `positive`: other inputs than special ones must be.
    """
    floats = [t for t in workload.inputs if t.dtype.is_float]
    if not floats or not any(t.dtype.is_float for t in workload.output_tensors):
        return None
    if sum(prod(a.extent for a in (*s.axes, *s.reduce_axes)) for s in workload.stages) > MAX_POINTS:
        return None
    if any(_swallows_what_may_be_lost(stage) for stage in workload.stages):
        return None
    found: tuple[list[Array], list[Classes | None]] | None = None
    for draw in _DRAWS:
        inputs = _inputs(workload, draw, positive, np.random.Generator(np.random.PCG64(seed)))
        classes = _reading(workload, inputs)
        if classes is None:
            return None
        better = found is None or _nan_share(classes) < _nan_share(found[1])
        found = (inputs, classes) if found is None or better else found
        if _nan_share(found[1]) <= 0.5:
            break
    assert found is not None
    inputs, classes = found
    for number, form in _further_readings(workload, rewritten):
        changed = _changed(workload, inputs, seed + number)
        others = _reading(form, changed, _LOST[number % len(_LOST)])
        if others is None:
            return None
        for known, other in zip(classes, others, strict=True):
            if known is not None and other is not None:
                np.copyto(known, np.uint8(NOT_PROMISED), where=known != other)
    signs = _zero_signs(workload, inputs)
    promised = tuple(
        None if known is None else Promised(tensor, known, signs.get(tensor.name))
        for tensor, known in zip(workload.output_tensors, classes, strict=True)
    )
    return SpecialCase(seed, tuple(inputs), promised)


def _further_readings(
    workload: Workload, rewritten: Workload | None
) -> Iterator[tuple[int, Workload]]:
    """Numbers and forms of the readings after the first."""
    if not _has_one_reading(workload):
        yield 0, workload
        yield 1, workload
    if rewritten is not None:
        yield 2, rewritten
        yield 3, rewritten


def _nan_share(classes: Sequence[Classes | None]) -> float:
    return max(float((c == NOT_A_NUMBER).mean()) for c in classes if c is not None)


def classes_of(values: Array, largest: float) -> Classes:
    """The class of each element; finite ones beyond `largest` are not promised."""
    flat = values.reshape(-1)
    classes = np.empty(flat.size, np.uint8)

    def fill(part: slice) -> None:
        classes[part] = _part_classes(flat[part], largest)

    _over_parts(fill, flat.size)
    return classes.reshape(values.shape)


def _part_classes(values: Array, largest: float) -> Classes:
    classes = np.full(values.shape, FINITE, np.uint8)
    finite = np.isfinite(values)
    if not finite.all():
        classes[np.isnan(values)] = NOT_A_NUMBER
        classes[values == np.inf] = PLUS_INFINITY
        classes[values == -np.inf] = MINUS_INFINITY
    if np.isfinite(largest):
        classes[finite & (np.abs(values) > largest)] = NOT_PROMISED
    return classes


def _parts(size: int) -> Iterator[slice]:
    """Parts of a vector that stay in the cache."""
    return (slice(at, min(at + MAX_BOX_POINTS, size)) for at in range(0, size, MAX_BOX_POINTS))


def _over_parts(work: Callable[[slice], T], size: int) -> list[T]:
    """`work` of each part of a vector of `size` elements, on several threads where it is long."""
    boxes = [Box(("n",), (p.start,), (p.stop - p.start,)) for p in _parts(size)]
    return over_boxes(lambda box: work(box.slices[0]), boxes, apart=True)


# --- inputs --------------------------------------------------------------------------------------


def _inputs(
    workload: Workload, draw: _Draw, positive: bool, rng: np.random.Generator
) -> list[Array]:
    terms = max((prod(a.extent for a in s.reduce_axes) for s in workload.stages), default=1)
    share = min(_DENSEST, 0.25 / terms)
    floats = [t for t in workload.inputs if t.dtype.is_float]
    largest = max(floats, key=lambda t: t.elements)
    return [
        _drawn(
            t, draw.values if t is largest or not draw.largest_only else (), share, positive, rng
        )
        for t in workload.inputs
    ]


def _drawn(
    tensor: Tensor,
    values: tuple[float, ...],
    share: float,
    positive: bool,
    rng: np.random.Generator,
) -> Array:
    """Magnitudes of 1/4 to 1, so that no exponential of a sum of them leaves its type."""
    if not tensor.dtype.is_float:
        high = 1 if tensor.dtype is DType.BOOL else 4
        return rng.integers(0, high, tensor.shape, np.int8, endpoint=True).astype(
            tensor.dtype.numpy
        )
    kind = np.float64 if tensor.dtype is DType.F64 else np.float32

    def draw(count: int) -> Array:
        some: Array = rng.random(count, kind) * kind(0.75) + kind(0.25)
        if positive:
            return some
        some[rng.random(count, np.float32) < 0.5] *= kind(-1.0)
        some[rng.random(count, np.float32) < ZERO_SHARE] *= kind(0.0)
        return some

    drawn = tiled(tensor.shape, draw)
    if tensor.elements >= _FEWEST_ELEMENTS:
        flat = drawn.reshape(-1)
        for value in values:
            count = max(1, rng.binomial(flat.size, share))
            flat[rng.integers(0, flat.size, count)] = value
    return _stored(tensor, drawn)


def _stored(tensor: Tensor, values: Array) -> Array:
    return narrowed(values, tensor.dtype)


def _changed(workload: Workload, inputs: Sequence[Array], seed: int) -> list[Array]:
    """Every finite input off by up to 3 %; zeros and special values as they are."""
    rng = np.random.Generator(np.random.PCG64(seed))
    changed = []
    for tensor, array in zip(workload.inputs, inputs, strict=True):
        if not tensor.dtype.is_float:
            changed.append(array)
            continue
        values = widened(array, tensor.dtype)
        factors = tiled(
            tensor.shape,
            lambda n: rng.random(n, np.float32) * np.float32(0.06) + np.float32(0.97),
        )
        changed.append(_stored(tensor, np.multiply(values, factors, dtype=values.dtype)))
    return changed


# --- readings ------------------------------------------------------------------------------------


def _reading(
    workload: Workload, inputs: Sequence[Array], lost: float | None = None
) -> list[Classes | None] | None:
    """The classes of the outputs' elements, None for outputs that are no floats; None if values
    leave the range of their types. With `lost`, what else a right kernel may make of the inputs:
    that number instead of a NaN in a maximum, nothing instead of a product with padding."""
    tensors = load_inputs(workload, inputs)
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            read = stage if lost is None else replace(stage, body=_without_padding(stage))
            if not _exponents_are_modest(read, tensors):
                return None
            values = evaluate_stage(read, tensors)
            if values.dtype.kind == "f" and not _read_otherwise(stage, values, lost):
                return None
            tensors[stage.name] = values
    return [
        classes_of(tensors[t.name], _modest(t.dtype)) if t.dtype.is_float else None
        for t in workload.output_tensors
    ]


def _read_otherwise(stage: Stage, values: Array, lost: float | None) -> bool:
    """Change the `values` of a stage to what a right kernel may make of them, unless `lost` is
    None; whether all finite ones are of modest size."""
    flat, modest, may_lose = values.reshape(-1), _modest(stage.tensor.dtype), _may_lose_nan(stage)

    def change(part: slice) -> bool:
        some = flat[part]
        size = np.abs(some)
        if bool(((size > modest) & (size < np.inf)).any()):
            return False
        if lost is not None:
            some[size < _TINY] = 0.0
            if may_lose:
                some[np.isnan(some)] = lost
        return True

    return all(_over_parts(change, flat.size))


def _modest(dtype: DType) -> float:
    """The largest magnitude that is far from the end of the type."""
    if not dtype.is_float:
        return 2.0**30
    most = dtype.binary.max_exponent
    return 2.0 ** (200 if most > 200 else min(30, most - 4))


def _exponents_are_modest(stage: Stage, tensors: dict[str, Array]) -> bool:
    """Whether no exponential in the body of `stage` overflows or vanishes for a finite argument,
    which would show in no value of the stage."""
    exponents = [
        node.x
        for node in walk(stage.body)
        if isinstance(node, Unary)
        and node.op.function.may_leave_range
        and not isinstance(node.x, Load)
    ]
    boxes = list(leading_tiles(full_box((*stage.axes, *stage.reduce_axes)), MAX_BOX_POINTS))
    for exponent in exponents:

        def is_modest(box: Box, exponent: Scalar = exponent) -> bool:
            size = np.abs(value_of(exponent, box, tensors))
            return not bool(((size > _MODEST_EXPONENT) & np.isfinite(size)).any())

        if not all(over_boxes(is_modest, boxes, apart=True)):
            return False
    return True


def _without_padding(stage: Stage) -> Scalar:
    """The body of a sum with each product of a choice with zero made a choice with zero."""
    if stage.reducer is not Reducer.SUM:
        return stage.body

    def leaf(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Binary) and node.op is BinaryOp.MUL):
            return None
        sides = [rewrite(side, leaf) for side in (node.a, node.b)]
        for n, side in enumerate(sides):
            if _is_padded(side):
                assert isinstance(side, Select)
                factors = (side.on_true, sides[1]) if n == 0 else (sides[0], side.on_true)
                inner = Binary(BinaryOp.MUL, *factors)
                return Select(side.cond, rewrite(inner, leaf), side.on_false)
        return Binary(BinaryOp.MUL, *sides)

    return rewrite(stage.body, leaf)


def _is_padded(node: Scalar) -> bool:
    return (
        isinstance(node, Select) and isinstance(node.on_false, Const) and node.on_false.value == 0
    )


def _is_lossy(node: Scalar) -> bool:
    """Whether a NaN in one operand may be lost: beside a constant it is not."""
    if not (isinstance(node, Binary) and node.op in _MAX_OR_MIN and node.dtype.is_float):
        return False
    return not (isinstance(node.a, Const) or isinstance(node.b, Const))


def _may_lose_nan(stage: Stage) -> bool:
    if stage.reducer in (Reducer.MAX, Reducer.MIN):
        return stage.tensor.dtype.is_float
    return any(_is_lossy(node) for node in walk(stage.body))


def _swallows_what_may_be_lost(stage: Stage) -> bool:
    """Whether the body makes a number of what a maximum in it may have lost: no reading of whole
    stages shows that."""
    swallows = any(
        isinstance(node, Compare) or (isinstance(node, Cast) and not node.dtype.is_float)
        for node in walk(stage.body)
    )
    return swallows and any(_is_lossy(node) for node in walk(stage.body))


def _has_one_reading(workload: Workload) -> bool:
    """Whether there is nothing to disagree on: one stage whose terms are rounded once or are
    products of stored values, none of them with padding, no NaN to lose."""
    if len(workload.stages) != 1:
        return False
    (stage,) = workload.stages
    if _may_lose_nan(stage) or any(_is_padded(node) for node in walk(stage.body)):
        return False
    nodes = list(walk(stage.body))
    sums = [n for n in nodes if isinstance(n, Binary) and n.op in (BinaryOp.ADD, BinaryOp.SUB)]
    if len(sums) > (1 if stage.reducer is None else 0):
        return False
    allowed = {BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MAX, BinaryOp.MIN}
    return all(
        isinstance(node, Load | Const | Select | All)
        or (isinstance(node, Unary) and node.op in (UnaryOp.NEG, UnaryOp.ABS))
        or (isinstance(node, Binary) and node.op in allowed)
        for node in nodes
    )


# --- signs of zeros ------------------------------------------------------------------------------


def _zero_signs(workload: Workload, inputs: Sequence[Array]) -> dict[str, npt.NDArray[np.int8]]:
    """Outputs whose zeros keep their signs, and which signs: those that are made of inputs without
    any sum, maximum or reduction."""
    keeping = {t.name for t in workload.inputs if t.dtype.is_float}
    tensors = load_inputs(workload, inputs)
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            reads = {node.tensor for node in walk(stage.body) if isinstance(node, Load)}
            if stage.reducer is None and reads <= keeping and _keeps_signs(stage.body):
                tensors[stage.name] = evaluate_stage(stage, tensors)
                keeping.add(stage.name)
    signs = {}
    for tensor in workload.output_tensors:
        if tensor.name in keeping:
            values = tensors[tensor.name]
            sign = np.where(np.signbit(values), -1, 1).astype(np.int8)
            signs[tensor.name] = np.where(values == 0, sign, np.int8(0))
    return signs


def _keeps_signs(node: Scalar) -> bool:
    match node:
        case Load() | Const():
            return node.dtype.is_float
        case Unary(op, x):
            return op.function.keeps_zero_sign and _keeps_signs(x)
        case Binary(op, a, b):
            return op in (BinaryOp.MUL, BinaryOp.DIV) and _keeps_signs(a) and _keeps_signs(b)
        case Select(cond, on_true, on_false):
            return isinstance(cond, All) and _keeps_signs(on_true) and _keeps_signs(on_false)
        case Cast(x, dtype):
            return dtype.is_float and _keeps_signs(x)
        case Compare() | All() | IndexValue():
            return False
