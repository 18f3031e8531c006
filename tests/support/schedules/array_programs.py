"""Random programs of arrays, each with the same program in NumPy.

All values are small integers and multiples of 1/2, which every type computes exactly, so results
have to be equal to NumPy's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import tilewright as tw
from tilewright.schedules.frontend.array.arrays import LazyArray, TensorArray, is_array
from tilewright.schedules.frontend.array.node import Node

from .array_axis_operations import AXIS_OPERATIONS, QUOTIENTS

Array = npt.NDArray[Any]
Operation: TypeAlias = "Callable[[random.Random, list[Twin]], Twin | None]"

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 40)
MAX_ELEMENTS = 1 << 12
LONG = (1031, 1300, 2050, 3001)
"""Extents of rows that are so long that rules for long rows apply to them."""
LONG_ELEMENTS = 1 << 16
MAX_VALUE = 2.0**20
"""The largest magnitude of a value: sums of halves below are exact in f32."""


@dataclass(frozen=True)
class Twin:
    """An array of a program and its value in NumPy."""

    ours: LazyArray | TensorArray
    theirs: Array

    @property
    def is_bool(self) -> bool:
        return self.theirs.dtype == np.bool_

    @property
    def is_integer(self) -> bool:
        return self.theirs.dtype == np.int32


@dataclass(frozen=True)
class ArrayProgram:
    """A program with the values of its inputs and of its outputs."""

    workload: tw.Workload
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    steps: tuple[str, ...]


def array_program(rng: random.Random) -> ArrayProgram:
    """Draw a program of 1 to 7 operations on 1 to 3 inputs, with 1 or 2 outputs."""
    made = [_input(rng, n) for n in range(rng.randint(1, 3))]
    inputs = list(made)
    steps: list[str] = []
    while len(steps) < rng.randint(1, 7) or len(made) == len(inputs):
        steps += _tried(rng, rng.choice(OPERATIONS), made, MAX_ELEMENTS)
    outputs = [made[-1]]
    if rng.random() < 0.3:
        other = rng.choice(made[len(inputs) :])
        outputs += [other] if other is not made[-1] else []
    return _program(inputs, outputs, steps)


def row_program(rng: random.Random) -> ArrayProgram:
    """Draw a program of up to two views of long rows, and up to two operations along them."""
    made = [_long_rows(rng)]
    steps: list[str] = []
    for operations, most in ((VIEWS, 2), (ALONG_ROWS, 2)):
        for _ in range(rng.randint(0, most)):
            steps += _tried(rng, rng.choice(operations), made, LONG_ELEMENTS)
    while not steps:
        steps += _tried(rng, rng.choice(ALONG_ROWS), made, LONG_ELEMENTS)
    return _program(made[:1], made[-2:] if len(made) > 2 else made[1:], steps)


def quotient_program(rng: random.Random) -> ArrayProgram:
    """Draw the position of an extreme of rounded quotients, many of which are equal."""
    shape = [rng.choice((3, 17, 40, 133)) for _ in range(rng.choice((1, 2, 2, 3)))]
    while prod(shape) > LONG_ELEMENTS:
        shape.pop()
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    values = numbers.integers(1, 8, shape).astype(np.float32)
    made = [Twin(tw.placeholder("x0", tuple(shape), "f32"), values)]
    found: list[str] = []
    while not found:
        x, operation = made[0], rng.choice(QUOTIENTS)
        both = operation(rng, x.ours, x.theirs, rng.randrange(len(shape)))
        if both is not None:
            made.append(Twin(*both))
            found.append(operation.__name__)
    return _program(made[:1], made[1:], found)


def _tried(
    rng: random.Random, operation: Operation, made: list[Twin], most_elements: int
) -> list[str]:
    """Add the result of `operation` on some of the last arrays to `made`, if there is one of a size
    and of numbers that suit. Return the name of the operation then."""
    found = operation(rng, made[-4:])
    if found is None or not 0 < found.theirs.size <= most_elements:
        return []
    if not found.is_bool and np.abs(found.theirs.astype(np.float64)).max() > MAX_VALUE:
        return []
    made.append(found)
    return [operation.__name__]


def _program(inputs: list[Twin], outputs: list[Twin], steps: list[str]) -> ArrayProgram:
    read = {id(node) for twin in outputs for node in _nodes(twin.ours.node)}
    inputs = [twin for twin in inputs if id(twin.ours.node) in read]
    tensors = [twin.ours for twin in inputs if isinstance(twin.ours, TensorArray)]
    return ArrayProgram(
        tw.Workload.of(*(twin.ours for twin in outputs), inputs=tensors),
        tuple(twin.theirs for twin in inputs),
        tuple(twin.theirs for twin in outputs),
        tuple(steps),
    )


def _long_rows(rng: random.Random) -> Twin:
    shape = [rng.choice(LONG)]
    if rng.random() < 0.8:
        shape.insert(rng.choice((0, 0, 0, 1)), rng.choice((1, 4, 9, 16, 17)))
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    dtype = rng.choice(("f32", "f32", "i32"))
    values = numbers.integers(-30, 31, shape).astype({"f32": np.float32, "i32": np.int32}[dtype])
    return Twin(tw.placeholder("x0", tuple(shape), dtype), np.asarray(values))


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for operand in (*node.operands, *node.looked_up):
        yield from _nodes(operand)


def _input(rng: random.Random, number: int) -> Twin:
    rank = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
    shape = tuple(rng.choice(EXTENTS) for _ in range(rank))
    while prod(shape) > MAX_ELEMENTS:
        shape = shape[1:]
    dtype = rng.choice(("f32", "f32", "f32", "i32", "bool"))
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    if dtype == "bool":
        values = numbers.integers(0, 2, shape).astype(np.bool_)
    else:
        low = 0 if rng.random() < 0.3 else -3
        values = numbers.integers(low, 4, shape).astype(np.int32)
    if dtype == "f32":
        values = values.astype(np.float32)
    return Twin(tw.placeholder(f"x{number}", shape, dtype), np.asarray(values))


def _numbers(rng: random.Random, known: list[Twin]) -> Twin | None:
    found = [twin for twin in known if not twin.is_bool]
    return rng.choice(found) if found else None


def _broadcast(*twins: Twin) -> bool:
    try:
        np.broadcast_shapes(*(twin.theirs.shape for twin in twins))
    except ValueError:
        return False
    return True


def _pair(rng: random.Random, known: list[Twin]) -> tuple[Twin, Twin] | None:
    """Return two arrays of numbers of one type that broadcast, or None."""
    a, b = _numbers(rng, known), _numbers(rng, known)
    if a is None or b is None or a.theirs.dtype != b.theirs.dtype:
        return None
    if not _broadcast(a, b):
        return None
    return a, b


def _axis(rng: random.Random, twin: Twin) -> int | None:
    rank = twin.theirs.ndim
    return rng.randrange(-rank, rank) if rank else None


def arithmetic(rng: random.Random, known: list[Twin]) -> Twin | None:
    pair = _pair(rng, known)
    if pair is None:
        return None
    a, b = pair
    match rng.randrange(5):
        case 0:
            return Twin(a.ours + b.ours, a.theirs + b.theirs)
        case 1:
            return Twin(a.ours - b.ours, a.theirs - b.theirs)
        case 2:
            return Twin(a.ours * b.ours, a.theirs * b.theirs)
        case 3:
            return Twin(tw.maximum(a.ours, b.ours), np.maximum(a.theirs, b.theirs))
        case _:
            return Twin(tw.minimum(a.ours, b.ours), np.minimum(a.theirs, b.theirs))


def with_number(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    if x is None:
        return None
    number = rng.choice((-2, -1, 2, 3))
    match rng.randrange(5):
        case 0:
            return Twin(x.ours + number, x.theirs + x.theirs.dtype.type(number))
        case 1:
            return Twin(number - x.ours, x.theirs.dtype.type(number) - x.theirs)
        case 2:
            return Twin(tw.relu(x.ours), np.maximum(x.theirs, 0))
        case 3:
            return Twin(tw.abs(x.ours), np.abs(x.theirs))
        case _:
            return Twin(tw.minimum(tw.maximum(x.ours, -1), 2), np.clip(x.theirs, -1, 2))


def compared(rng: random.Random, known: list[Twin]) -> Twin | None:
    pair = _pair(rng, known)
    if pair is None:
        return None
    a, b = pair
    match rng.randrange(4):
        case 0:
            return Twin(a.ours < b.ours, np.asarray(a.theirs < b.theirs))
        case 1:
            return Twin(a.ours >= b.ours, np.asarray(a.theirs >= b.theirs))
        case 2:
            return Twin(tw.eq(a.ours, b.ours), np.asarray(a.theirs == b.theirs))
        case _:
            return Twin(tw.ne(a.ours, b.ours), np.asarray(a.theirs != b.theirs))


def logical(rng: random.Random, known: list[Twin]) -> Twin | None:
    found = [twin for twin in known if twin.is_bool]
    if not found:
        return None
    a, b = rng.choice(found), rng.choice(found)
    if not _broadcast(a, b):
        return None
    match rng.randrange(3):
        case 0:
            return Twin(a.ours & b.ours, a.theirs & b.theirs)
        case 1:
            return Twin(a.ours | b.ours, a.theirs | b.theirs)
        case _:
            return Twin(~a.ours, ~a.theirs)


def chosen(rng: random.Random, known: list[Twin]) -> Twin | None:
    masks = [twin for twin in known if twin.is_bool]
    pair = _pair(rng, known)
    if not masks or pair is None:
        return None
    mask, (a, b) = rng.choice(masks), pair
    if not _broadcast(mask, a, b):
        return None
    return Twin(tw.where(mask.ours, a.ours, b.ours), np.where(mask.theirs, a.theirs, b.theirs))


def cast_to_other(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = rng.choice(known)
    if x.is_bool:
        return Twin(x.ours.astype("f32"), x.theirs.astype(np.float32))
    if x.is_integer:
        return Twin(x.ours.astype("f32"), x.theirs.astype(np.float32))
    return Twin(x.ours.astype("i32"), x.theirs.astype(np.int32))


def reduced(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    if x is None or not x.theirs.ndim:
        return None
    axes = sorted(rng.sample(range(x.theirs.ndim), rng.randint(1, x.theirs.ndim)))
    axis: Any = tuple(axes) if rng.random() < 0.7 else None
    keep = rng.random() < 0.4
    kind = rng.choice(("sum", "max", "min"))
    theirs = getattr(np, kind)(x.theirs, axis=axis, keepdims=keep)
    theirs = np.asarray(theirs, x.theirs.dtype)
    return Twin(getattr(x.ours, kind)(axis=axis, keepdims=keep), theirs)


def row_values(rng: random.Random, known: list[Twin]) -> Twin | None:
    """Two reductions of the same rows, the second of data that depend on the first, as in softmax,
    and perhaps the rows again with both results."""
    found = [x for x in known if not x.is_bool and x.theirs.ndim and not x.is_integer]
    x = rng.choice(found) if found else None
    if x is None:
        return None
    first, second = rng.choice(("sum", "max", "min")), rng.choice(("sum", "max"))
    axis = rng.choice((-1, -1, rng.randrange(x.theirs.ndim)))

    def value(rows: Any) -> Any:
        apart = rows - getattr(rows, first)(axis=axis, keepdims=True)
        return getattr(apart, second)(axis=axis, keepdims=True)

    ours, theirs = value(x.ours), value(x.theirs)
    again = rng.choice(("none", "value", "rows"))
    if again == "value":
        ours, theirs = ours * 0.5 + 1.0, theirs * np.float32(0.5) + np.float32(1.0)
    elif again == "rows":
        ours, theirs = x.ours + ours, x.theirs + theirs
    return Twin(ours, np.asarray(theirs))


def decided(rng: random.Random, known: list[Twin]) -> Twin | None:
    found = [twin for twin in known if twin.is_bool and twin.theirs.ndim]
    if not found:
        return None
    x = rng.choice(found)
    axis, kind = rng.randrange(x.theirs.ndim), rng.choice(("any", "all"))
    return Twin(getattr(x.ours, kind)(axis=axis), np.asarray(getattr(x.theirs, kind)(axis=axis)))


def positioned(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    axis = None if x is None else _axis(rng, x)
    if x is None or axis is None:
        return None
    kind, last = rng.choice(("argmax", "argmin")), rng.random() < 0.3
    theirs = np.flip(x.theirs, axis) if last else x.theirs
    at = getattr(np, kind)(theirs, axis=axis)
    at = x.theirs.shape[axis] - 1 - at if last else at
    return Twin(getattr(x.ours, kind)(axis, last=last), np.asarray(at, np.int32))


def scanned(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    axis = None if x is None else _axis(rng, x)
    if x is None or axis is None:
        return None
    reverse, exclusive = rng.random() < 0.4, rng.random() < 0.4
    turned = np.flip(x.theirs, axis) if reverse else x.theirs
    sums = np.cumsum(turned, axis=axis, dtype=x.theirs.dtype)
    sums = sums - turned if exclusive else sums
    theirs = np.flip(sums, axis) if reverse else sums
    return Twin(x.ours.cumsum(axis, reverse=reverse, exclusive=exclusive), theirs)


def along_an_axis(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    axis = None if x is None else _axis(rng, x)
    if x is None or axis is None:
        return None
    found = rng.choice(AXIS_OPERATIONS)(rng, x.ours, x.theirs, axis % x.theirs.ndim)
    return None if found is None else Twin(*found)


def bitwise(rng: random.Random, known: list[Twin]) -> Twin | None:
    found = [twin for twin in known if twin.is_integer]
    pair = _pair(rng, found) if found else None
    if pair is None:
        return None
    a, b = pair
    match rng.randrange(5):
        case 0:
            return Twin(a.ours & b.ours, a.theirs & b.theirs)
        case 1:
            return Twin(a.ours | ~b.ours, a.theirs | ~b.theirs)
        case 2:
            return Twin(a.ours ^ b.ours, a.theirs ^ b.theirs)
        case 3:
            return Twin(a.ours >> 1, a.theirs >> 1)
        case _:
            by = rng.choice((-3, 2, 5))
            return Twin(a.ours // by + b.ours % by, a.theirs // by + b.theirs % by)


def viewed(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = rng.choice(known)
    rank = x.theirs.ndim
    if not rank:
        return None
    match rng.randrange(4):
        case 0:
            order = rng.sample(range(rank), rank)
            return Twin(x.ours.transpose(*order), x.theirs.transpose(order))
        case 1:
            shape = _reshaped(rng, x.theirs.shape)
            return Twin(x.ours.reshape(*shape), x.theirs.reshape(shape))
        case 2:
            axis = rng.randrange(rank)
            return Twin(tw.flip(x.ours, axis), np.flip(x.theirs, axis))
        case _:
            key = tuple(_slice(rng, n) for n in x.theirs.shape)
            found = x.ours[key]  # an element of a tensor is a value, not an array
            return Twin(found, x.theirs[key]) if is_array(found) else None


def _reshaped(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Merge two neighbouring dimensions, or split one, or add one."""
    at = rng.randrange(len(shape))
    if at + 1 < len(shape) and rng.random() < 0.5:
        return (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    factors = [n for n in range(1, shape[at] + 1) if shape[at] % n == 0]
    first = rng.choice(factors)
    return (*shape[:at], first, shape[at] // first, *shape[at + 1 :])


def _slice(rng: random.Random, extent: int) -> slice | int:
    if rng.random() < 0.15:
        return rng.randrange(-extent, extent)
    if rng.random() < 0.4:
        return slice(None)
    first = rng.randrange(extent)
    return slice(first, rng.randint(first + 1, extent), rng.choice((1, 1, 2, 3)))


def turned(rng: random.Random, known: list[Twin]) -> Twin | None:
    """The last array from the end, along its longest axis."""
    x = known[-1]
    axis = int(np.argmax(x.theirs.shape)) if x.theirs.ndim else None
    return None if axis is None else Twin(tw.flip(x.ours, axis), np.flip(x.theirs, axis))


def found_in_rows(rng: random.Random, known: list[Twin]) -> Twin | None:
    """Positions of extremes of the last array along its longest axis."""
    x = known[-1]
    if x.is_bool or not x.theirs.ndim:
        return None
    axis, last = int(np.argmax(x.theirs.shape)), rng.random() < 0.3
    kind = rng.choice(("argmax", "argmin"))
    at = getattr(np, kind)(np.flip(x.theirs, axis) if last else x.theirs, axis=axis)
    at = x.theirs.shape[axis] - 1 - at if last else at
    return Twin(getattr(x.ours, kind)(axis, last=last), np.asarray(at, np.int32))


def joined(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = rng.choice(known)
    alike = [
        twin
        for twin in known
        if twin.theirs.shape == x.theirs.shape and twin.theirs.dtype == x.theirs.dtype
    ]
    axis = _axis(rng, x)
    if axis is None:
        return None
    parts = [rng.choice(alike) for _ in range(rng.randint(2, 3))]
    join = rng.choice((tw.concat, tw.stack))
    numpy_join = np.concatenate if join is tw.concat else np.stack
    return Twin(
        join([part.ours for part in parts], axis), numpy_join([p.theirs for p in parts], axis)
    )


def rearranged(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    axis = None if x is None else _axis(rng, x)
    if x is None or axis is None:
        return None
    match rng.randrange(4):
        case 0:
            shift = rng.randint(-5, 5)
            return Twin(tw.roll(x.ours, shift, axis), np.roll(x.theirs, shift, axis))
        case 1:
            reps = tuple(rng.choice((1, 2, 3)) for _ in x.theirs.shape)
            return Twin(tw.tile(x.ours, reps), np.tile(x.theirs, reps))
        case 2:
            count = rng.randint(1, 3)
            return Twin(tw.repeat(x.ours, count, axis), np.repeat(x.theirs, count, axis))
        case _:
            mode = rng.choice(("constant", "edge", "reflect"))
            most = min(x.theirs.shape) - 1 if mode == "reflect" else 3
            widths = [(rng.randint(0, min(most, 3)), rng.randint(0, min(most, 3)))
                      for _ in x.theirs.shape]  # fmt: skip
            return Twin(tw.pad(x.ours, widths, mode), np.pad(x.theirs, widths, mode))  # type: ignore[call-overload]  # a mode of three


def taken(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    indices = [twin for twin in known if twin.is_integer]
    axis = None if x is None else _axis(rng, x)
    if x is None or axis is None or not indices:
        return None
    at, mode = rng.choice(indices), rng.choice(("clamp", "wrap", "zero"))
    extent = x.theirs.shape[axis]
    theirs = np.take(x.theirs, at.theirs, axis, mode="wrap" if mode == "wrap" else "clip")
    if mode == "zero":
        inside = (at.theirs >= 0) & (at.theirs < extent)
        after = x.theirs.ndim - 1 - axis % x.theirs.ndim
        theirs = np.where(inside.reshape((*inside.shape, *(1,) * after)), theirs, 0)
        theirs = theirs.astype(x.theirs.dtype)
    return Twin(tw.take(x.ours, at.ours, axis, mode), theirs)


def one_hot(rng: random.Random, known: list[Twin]) -> Twin | None:
    indices = [twin for twin in known if twin.is_integer]
    if not indices:
        return None
    x, depth = rng.choice(indices), rng.randint(1, 6)
    theirs = (x.theirs[..., None] == np.arange(depth)).astype(np.float32)
    return Twin(tw.one_hot(x.ours, depth), theirs)


def multiplied(rng: random.Random, known: list[Twin]) -> Twin | None:
    a, b = _numbers(rng, known), _numbers(rng, known)
    if a is None or b is None or a.theirs.dtype != b.theirs.dtype:
        return None
    letters: dict[int, str] = {}
    names = iter("abcdefghijkl")
    terms = []
    for twin in (a, b):
        own = []
        for extent in twin.theirs.shape:
            usual = letters.get(extent)
            if usual is None or usual in own or rng.random() < 0.3:
                usual = letters[extent] = next(names)
            own.append(usual)
        terms.append("".join(own))
    letters_used = sorted(set("".join(terms)))
    kept = "".join(x for x in letters_used if rng.random() < 0.5)
    text = f"{terms[0]},{terms[1]}->{kept}"
    theirs = np.asarray(np.einsum(text, a.theirs, b.theirs), a.theirs.dtype)
    return Twin(tw.einsum(text, a.ours, b.ours), theirs)


def pooled(rng: random.Random, known: list[Twin]) -> Twin | None:
    x = _numbers(rng, known)
    axis = None if x is None else _axis(rng, x)
    if x is None or axis is None:
        return None
    axis %= x.theirs.ndim
    size, step = rng.randint(1, 4), rng.choice((1, 1, 2, 3))
    if x.theirs.shape[axis] < size:
        return None
    views = np.lib.stride_tricks.sliding_window_view(x.theirs, size, axis)
    key = (*(slice(None),) * axis, slice(None, None, step))
    kind = rng.choice(("sum", "max"))
    theirs = np.asarray(getattr(np, kind)(views[key], axis=-1), x.theirs.dtype)
    taps = tw.windows(x.ours, size, axis, stride=step)
    return Twin(getattr(taps, kind)(-1), theirs)


OPERATIONS: tuple[Operation, ...] = (
    arithmetic,
    arithmetic,
    with_number,
    compared,
    logical,
    chosen,
    cast_to_other,
    reduced,
    row_values,
    decided,
    positioned,
    scanned,
    along_an_axis,
    along_an_axis,
    bitwise,
    viewed,
    viewed,
    joined,
    rearranged,
    taken,
    one_hot,
    multiplied,
    pooled,
)

VIEWS: tuple[Operation, ...] = (turned, turned, viewed, with_number, cast_to_other)
ALONG_ROWS: tuple[Operation, ...] = (found_in_rows, found_in_rows, positioned, scanned, row_values)
