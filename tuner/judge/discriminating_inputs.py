"""Inputs with a few distinct values, at positions that kernels may treat differently.

With these values, inexact operations give exact results, which the error analysis proves
(`tilewright.schedules.reference.error_exact`). The positions are those that blocks, lanes,
remainders and threads often treat differently. They do not depend on a schedule. If there are
enough rows, all positions of a row are used. Otherwise the most important positions are used first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from math import prod
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.affine import Interval, interval
from tilewright.schedules.algebra.scalar import (
    ON_FLOATS_ONLY,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Unary,
    UnaryOp,
    loads,
    walk,
)
from tilewright.schedules.algebra.tuples import may_round
from tilewright.schedules.dtypes import DType
from tilewright.schedules.workload.tensors import (
    Elementwise,
    Reduction,
    Scan,
    Stage,
    Tensor,
    TupleReduction,
)
from tilewright.schedules.workload.validate import stage_ranges
from tilewright.schedules.workload.workload import Workload

Array = npt.NDArray[Any]

ANCHOR = 2.0**14
"""A power of two at which functions have exact values. exp(-ANCHOR / 16) is zero in every type,
tanh and erf of ANCHOR are 1, and sigmoid of ANCHOR or -ANCHOR is 1 or 0. Its eighth power is finite
in f32."""
FAR_BELOW_BITS = 19
"""Long sums have at most about 2**19 ones, so that one more or one less changes a quotient of the
sum."""
BALANCED_BITS = 15
MIDDLING_BITS = (12, 10)
"""Binary exponents: magnitudes from 2**-12 to 2**10 are common for arguments and divisors."""
_BELOW_END = 0.01  # in binary exponents, so that narrow types do not round values to infinity
_R2 = (0.7548776662466927, 0.5698402909980532)
LANES = 64
"""Positions are distinguished modulo this number: the lanes of the widest vectors, times four
chains."""
_REST = 4096
SPARSE_PLACES = 4
_VANISHING = (UnaryOp.EXP, UnaryOp.SIGMOID)


# --- reductions and their dimensions ---------------------------------------------------------


def with_axis(tensor: Tensor) -> Tensor:
    """Return `tensor`, with one axis if it has no dimensions, so that values are drawn alike."""
    return tensor if tensor.shape else replace(tensor, shape=(1,))


def combiners_of(stage: Stage) -> frozenset[Reducer]:
    """Return the reducers whose mistakes `stage` may have: that of a reduction or scan, none of an
    elementwise stage.

    A reduction of tuples may find extremes and their positions. It may also sum if its combination
    rounds.
    """
    match stage.kind:
        case Elementwise():
            return frozenset()
        case Reduction(reducer) | Scan(reducer):
            return frozenset({reducer})
        case TupleReduction(combine=combine):
            sums = {Reducer.SUM} if any(map(may_round, combine)) else set[Reducer]()
            return frozenset({Reducer.MAX, Reducer.MIN, *sums})
        case _:
            assert_never(stage.kind)


def expressions_of(stage: Stage) -> tuple[Scalar, ...]:
    """Return the body of `stage`, and the combination of a reduction of tuples."""
    combine = stage.kind.combine if isinstance(stage.kind, TupleReduction) else ()
    return (stage.body, *combine)


def combined_values(stage: Stage) -> int:
    """Return the largest number of body values that are combined for an element of `stage`."""
    return prod(a.extent for a in stage.combined_axes)


def reduced_dims(workload: Workload) -> Mapping[str, tuple[int, ...]]:
    """Return the dimensions of each input along which a reduction of any stage runs. For an input
    without such dimensions, return its last dimension."""
    found = summed_dims(workload)
    return {t.name: found[t.name] or tuple(range(len(t.shape)))[-1:] for t in workload.inputs}


def summed_dims(workload: Workload) -> Mapping[str, tuple[int, ...]]:
    """Return the dimensions of each input along which a reduction of any stage runs."""
    found: dict[str, set[int]] = {t.name: set() for t in workload.inputs}
    found |= {s.name: set() for s in workload.stages}
    for stage in reversed(workload.stages):
        summed = {a.name for a in stage.combined_axes}
        summed |= {a.name for n, a in enumerate(stage.axes) if n in found[stage.name]}
        for read in loads(stage.body):
            found[read.tensor] |= _indexed_by(read, summed)
    return {t.name: tuple(sorted(found[t.name])) for t in workload.inputs}


def _indexed_by(read: Load, names: set[str]) -> set[int]:
    return {n for n, index in enumerate(read.index) if index.vars() & names}


def subtracts_sums(workload: Workload) -> bool:
    """Return whether a value that depends on a sum, such as a mean, is subtracted from or added to
    another."""
    sums = set[str]()
    for stage in workload.stages:
        for node in walk(stage.body):
            if isinstance(node, Binary) and node.op in (BinaryOp.SUB, BinaryOp.ADD):
                sides = [{read.tensor for read in loads(side)} for side in (node.a, node.b)]
                if any(side & sums for side in sides) and all(sides):
                    return True
        if Reducer.SUM in combiners_of(stage) or any(r.tensor in sums for r in loads(stage.body)):
            sums.add(stage.name)
    return False


def sums_of_vanishing(workload: Workload) -> bool:
    """Return whether a sum depends on a function that is zero far below zero, such as exp."""
    inexact = set[str]()
    for stage in workload.stages:
        nodes = (n for root in expressions_of(stage) for n in walk(root))
        vanishes = any(isinstance(n, Unary) and n.op in _VANISHING for n in nodes)
        if vanishes or any(read.tensor in inexact for read in loads(stage.body)):
            if Reducer.SUM in combiners_of(stage):
                return True
            inexact.add(stage.name)
    return False


def size_dependent_inputs(workload: Workload) -> list[int]:
    """Return the indices of the float inputs on whose magnitude the code of some operation depends.

    Such operations are functions, quotients, and conversions to a smaller range.
    """
    wanted = set[str]()
    for stage in reversed(workload.stages):
        if stage.name in wanted:
            wanted |= {read.tensor for read in loads(stage.body)}
        if any(_by_size(n) for root in expressions_of(stage)[1:] for n in walk(root)):
            wanted |= {read.tensor for read in loads(stage.body)}
        for node in walk(stage.body):
            if _by_size(node):
                wanted |= {read.tensor for read in walk(node) if isinstance(read, Load)}
    return [n for n, t in enumerate(workload.inputs) if t.dtype.is_float and t.name in wanted]


def compared_positions(workload: Workload) -> Mapping[str, Interval]:
    """Return, for each integer input that is only compared with indices, the range of the indices.

    Such an input selects elements by their position: `select(eq(target[i], k), x[i, k], 0)`.
    """
    found: dict[str, Interval] = {}
    others = Counter(read.tensor for stage in workload.stages for read in loads(stage.body))
    for stage in workload.stages:
        for node in walk(stage.body):
            if not isinstance(node, Compare):
                continue
            for side, index in ((node.a, node.b), (node.b, node.a)):
                read = side.x if isinstance(side, Cast) else side
                if isinstance(read, Load) and isinstance(index, IndexValue):
                    others[read.tensor] -= 1
                    span = interval(index.index, stage_ranges(stage))
                    known = found.get(read.tensor, span)
                    found[read.tensor] = Interval(min(known.lo, span.lo), max(known.hi, span.hi))
    integers = (t.name for t in workload.inputs if not t.dtype.is_float)
    return {name: found[name] for name in integers if name in found and not others[name]}


def _by_size(node: Scalar) -> bool:
    match node:
        case Unary(op):
            return op not in (UnaryOp.NEG, UnaryOp.ABS)
        case Binary(op):
            return op in ON_FLOATS_ONLY
        case Cast(x, dtype) if x.dtype.is_float:
            return not dtype.is_float or dtype.binary.max_exponent < x.dtype.binary.max_exponent
        case _:
            return False


# --- places ------------------------------------------------------------------------------------


@cache
def discriminating_places(length: int) -> tuple[int, ...]:
    """Return the positions of a line of `length` elements, most important first.

    The first positions alternate between the ends, one position per residue modulo the lanes, and
    both sides of powers of two and of even divisions. Random positions follow.
    """
    ends = [p for n in range(LANES // 2) for p in (length - 1 - n, n)]
    steps = max(length // LANES, 1)
    residues = [n + LANES * (n * 37 % steps) for n in range(LANES)]
    powers = [1 << n for n in range(length.bit_length())]
    shares = [length * k // t for t in range(2, 9) for k in range(1, t)]
    sides = [q for p in [*powers, *shares] for q in (p, p - 1)]
    chance = np.random.default_rng(length)
    rest = chance.choice(length, min(length, _REST), replace=False).tolist()
    mixed = [p for group in zip_longest(ends, residues, sides) for p in group if p is not None]
    inside = (p for p in [*mixed, *rest] if 0 <= p < length)
    return tuple(dict.fromkeys(inside))


def discriminating_place_count(length: int) -> int:
    """Return the number of positions that kernels are likely to treat differently, in a line of
    `length` elements."""
    return min(length, 4 * LANES)


def one_place_per_line(
    shape: tuple[int, ...], dims: tuple[int, ...], first: int
) -> tuple[Array, ...]:
    """Return an index with one position in each line along `dims`. The position differs from line
    to line.

    The positions are those of `discriminating_places`, in its order. `first` is the number of sets
    of lines that were drawn before. If there are several dimensions, the position along each
    dimension advances separately.
    """
    others = [d for d in range(len(shape)) if d not in dims]
    lines = prod(shape[d] for d in others)
    number = np.arange(lines) + first * lines
    index: dict[int, Array] = dict(
        zip(others, np.unravel_index(np.arange(lines), [shape[d] for d in others]), strict=True)
        if others
        else ()
    )
    for nth, d in enumerate(dims):
        wanted = np.asarray(discriminating_places(shape[d]))
        # The start advances by one after each round through the positions. So lines with a common
        # period, such as one row of each tile, reach every position. The start of the next
        # dimension advances by two, so that pairs of positions differ as well.
        rounds = number // len(wanted)
        index[d] = wanted[(number + rounds + nth * (rounds + nth)) % len(wanted)]
    return tuple(index[d] for d in range(len(shape)))


# --- draws ---------------------------------------------------------------------------------------


def positions(values: Array, span: Interval, turn: int, rng: np.random.Generator) -> Array:
    """Return integers `values` with all but about an eighth replaced by numbers in `span`.

    Half of the elements are the next `discriminating_places`, in random order. `turn` is the number
    of arrays that were drawn before. The others are random. Half of the last eighth are next to the
    ends of `span`, or the ends of the type.
    """
    limits = np.iinfo(values.dtype)
    low, high = max(span.lo, int(limits.min)), min(span.hi, int(limits.max))
    if low > high:
        return values
    length, found = high - low + 1, values.copy().reshape(-1)
    order = rng.permutation(found.size)
    half, most = (found.size + 1) // 2, found.size - found.size // 8
    places = np.asarray(discriminating_places(length)[: discriminating_place_count(length)])
    found[order[:half]] = low + places[(np.arange(half) + turn * half) % len(places)]
    found[order[half:most]] = low + rng.integers(0, length, most - half)
    outside = order[most : most + (found.size - most + 1) // 2]
    ends = np.clip((low - 1, high + 1, limits.min, limits.max), limits.min, limits.max)
    found[outside] = ends[(np.arange(outside.size) + turn * outside.size) % ends.size]
    return found.reshape(values.shape)


def lone_zero(shape: tuple[int, ...], dims: tuple[int, ...], turn: int, sign: float) -> Array:
    """Return `sign` * ANCHOR everywhere, except for a 0 at one position of each line."""
    values = np.full(shape, sign * ANCHOR, np.float32)
    values[one_place_per_line(shape, dims, turn)] = 0.0
    return values


def sparse(
    shape: tuple[int, ...], dims: tuple[int, ...], turn: int, rng: np.random.Generator
) -> Array:
    """Return -ANCHOR everywhere, except for N(0, 1) at `SPARSE_PLACES` positions of each line."""
    values = np.full(shape, -ANCHOR, np.float32)
    for nth in range(SPARSE_PLACES):
        where = one_place_per_line(shape, dims, SPARSE_PLACES * turn + nth)
        values[where] = rng.standard_normal(len(where[0]) if where else 1, np.float32)
    return values


def singles(
    shape: tuple[int, ...], dims: tuple[int, ...], turn: int, rng: np.random.Generator
) -> Array:
    """Return 0 everywhere, except for one power of two of magnitude 1/4 to 4 in each line.

    If there are few lines, powers of two are also at random positions, about one per 1024 elements.
    """
    values = np.zeros(shape, np.float32)
    where = one_place_per_line(shape, dims, turn)
    values[where] = _powers(len(where[0]) if where else 1, rng)
    length = prod(shape[d] for d in dims)
    if len(dims) > 1 and values.size <= 4 * length:
        count = max(values.size // 1024, 1)
        values.reshape(-1)[rng.integers(0, values.size, count)] = _powers(count, rng)
    return values


def _powers(count: int, rng: np.random.Generator) -> Array:
    sizes = np.ldexp(np.float32(1), rng.integers(-2, 3, count, np.int32))
    return np.asarray(sizes * rng.choice(np.array([-1, 1], np.float32), count))


def spread(dtype: DType, count: int, first: int, positive: bool) -> Array:
    """Return `count` numbers of all magnitudes of the type.

    The magnitudes are of three kinds, a third each: over the whole range of the type, between
    2**-12 and 2**10, and evenly between 0 and about the largest number whose exponential is finite.
    Half of the numbers are negative, or a quarter if `positive`. They are the elements from `first`
    on of a low-discrepancy sequence over magnitude and sign (R2 of M. Roberts, "The unreasonable
    effectiveness of quasirandom sequences", 2018).
    """
    number = np.arange(first, first + count, dtype=np.float64)
    share, sign = (number * _R2[0]) % 1.0, (number * _R2[1]) % 1.0
    third = np.arange(first, first + count) % 3
    least = dtype.binary.step_exponent
    low = np.array([least, -MIDDLING_BITS[0], 0])[third]
    high = np.array([dtype.binary.max_exponent - _BELOW_END, MIDDLING_BITS[1], 0])[third]
    ends = np.log(2.0) * (1024 if dtype is DType.F64 else 128)
    sizes = np.where(third == 2, ends * (1.0 - share), np.exp2(low + (high - low) * share))
    return np.asarray(np.where(sign < (0.25 if positive else 0.5), -sizes, sizes))


def balanced(shape: tuple[int, ...], terms: int, rng: np.random.Generator) -> Array:
    """Return integers of magnitude 1 to 4 whose mean along each axis is zero.

    Along each axis, every two neighbours have sum zero, or three at the end of an odd axis. In sums
    of more than 2**15 terms, most of these groups are zero, except at the ends.
    """
    groups = [max(n // 2, 1) for n in shape]
    high = 4 if len(shape) < 3 else 2
    values = rng.integers(1, high, groups, np.int8, endpoint=True).astype(np.float32)
    density = min(1.0, 2.0**BALANCED_BITS / terms)
    if density < 1.0:
        kept = rng.random(groups, np.float32) < density
        for axis, count in enumerate(groups):
            if count > 2 * LANES:
                kept[(slice(None),) * axis + (slice(0, 8),)] = True
                kept[(slice(None),) * axis + (slice(count - 8, None),)] = True
        values *= kept
    for axis, extent in enumerate(shape):
        group = np.minimum(np.arange(extent) // 2, groups[axis] - 1)
        weights = np.where(np.arange(extent) % 2, -1, 1).astype(np.float32)
        if extent % 2 and extent > 1:
            weights[-3:] = 1, 1, -2
        along = [1] * len(shape)
        along[axis] = extent
        values = values.take(group, axis=axis) * weights.reshape(along)
    return values
