"""Compute sums of products by matrix multiplication. This is the fast path of the reference.

`recognise` matches a stage that sums products. It splits the product into two factors, each of
which depends on a part of the axes. `pieces` divides the iteration space into boxes whose factors
fit in memory. `contract` multiplies and sums the factors of one piece with `np.matmul`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from ..algebra.affine import Affine, Datum, Interval, Var, fresh, simplify, var
from ..algebra.comparisons import Cond
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Reducer,
    Scalar,
    Select,
    map_index,
    substitute,
    vars_of,
)
from ..dtypes import DType
from ..workload.tensors import Axis, Stage
from .math import Array
from .reads import AxisCoordinates, IterationBox, full_box, tiles

MAX_FACTOR_POINTS = 1 << 23
"""Largest number of elements of both factors of a piece together: 64 MB of float64."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of the summed products, with conditions that are evaluated together with it."""

    node: Scalar
    given: tuple[Cond, ...] = ()
    """Conditions of the whole product. If one fails, the expression selects zero instead of the
    product."""
    lent: tuple[Cond, ...] = ()
    """Conditions of the other factor. If one fails, the other factor is zero; the product is then
    NaN if this factor is NaN or infinite."""

    @property
    def value(self) -> Scalar:
        """`node`, or zero if a condition fails. For NaN or infinite operands, the product may be
        wrong."""
        return masked(self.node, (*self.given, *self.lent))


def masked(node: Scalar, conds: tuple[Cond, ...]) -> Scalar:
    """Return an expression that is `node` if all `conds` hold, else zero."""
    return Select(All(conds), node, Const(0, node.dtype)) if conds else node


@dataclass(frozen=True, slots=True)
class Contraction:
    """A stage that computes `sum(left * right)`, with its axes grouped by the factors that they
    index."""

    stage: Stage
    """The matched stage. Some of its axes may be split in two. The elements of its tensor and their
    order are unchanged."""
    left_factor: Factor
    right_factor: Factor
    batch: tuple[Axis, ...]
    """Output axes that index both factors."""
    rows: tuple[Axis, ...]
    """Output axes that index only the left factor."""
    columns: tuple[Axis, ...]
    """Output axes that index only the right factor."""
    inner: tuple[Axis, ...]
    """Summed axes that index both factors."""
    left_sums: tuple[Axis, ...]
    """Summed axes that index only the left factor."""
    right_sums: tuple[Axis, ...]
    """Summed axes that index only the right factor."""
    repeats: int
    """Number of times that each term is added: the iterations of the summed axes that index no
    factor."""

    @property
    def left(self) -> Scalar:
        return self.left_factor.value

    @property
    def right(self) -> Scalar:
        return self.right_factor.value

    @property
    def left_axes(self) -> tuple[Axis, ...]:
        return (*self.batch, *self.rows, *self.inner, *self.left_sums)

    @property
    def right_axes(self) -> tuple[Axis, ...]:
        return (*self.batch, *self.inner, *self.columns, *self.right_sums)


def recognise(
    stage: Stage, gain: int = 4, whole: Collection[str] = frozenset()
) -> Contraction | None:
    """Return `stage` as a contraction, or None if it is not one or this is not profitable.

    A contraction is profitable if each factor has at most 1 / `gain` of the points of the iteration
    space. With `gain` 1, this includes matrix-vector products. Axes in `whole` are not split.
    """
    if not stage.reduces_by(Reducer.SUM) or stage.tensor.dtype is DType.BOOL:
        return None
    stage = _without_divisions(stage, whole)
    extents = {a.name: a.extent for a in stage.all_axes}
    body, given = _unconditional(stage.body)
    pair = _merged(_factors(body), extents)
    if pair is None:
        return None
    left, right = _placed(*pair, given, extents)
    limit = prod(extents.values()) // gain
    if max(_points(f.value, extents) for f in (left, right)) > limit:
        return None
    return _with_roles(stage, left, right)


def _without_divisions(stage: Stage, whole: Collection[str]) -> Stage:
    """Split axes that occur in divisions, and return the new stage.

    An axis i that occurs in i // q or i % q becomes i_o * q + i_i. It is not split if it is in
    `whole`, if it occurs with several divisors, or if q is not a proper divisor of its extent. A
    factor X[f // q * n + c] of a grouped convolution then depends on f_o only.
    """
    body, cut = stage.body, dict[str, tuple[Axis, Axis]]()
    taken = {a.name for a in stage.all_axes}
    for axis in stage.all_axes:
        divisors = _divisors(body, axis.name)
        uneven = len(divisors) != 1 or axis.extent % min(divisors)
        if axis.name in whole or uneven or axis.extent == min(divisors):
            continue
        inner = Axis(fresh(f"{axis.name}_i", taken), min(divisors))
        outer = Axis(fresh(f"{axis.name}_o", taken), axis.extent // inner.extent)
        taken |= {inner.name, outer.name}
        cut[axis.name] = outer, inner
        whole = {axis.name: var(outer.name) * inner.extent + var(inner.name)}
        ranges = {a.name: Interval(0, a.extent - 1) for a in stage.all_axes}
        ranges |= {a.name: Interval(0, a.extent - 1) for pair in cut.values() for a in pair}
        body = map_index(substitute(body, whole), partial(simplify, ranges=ranges))
    if not cut:
        return stage

    def both(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(part for a in axes for part in cut.get(a.name, (a,)))

    axes = both(stage.axes)
    tensor = replace(stage.tensor, shape=tuple(a.extent for a in axes))
    cut_stage = replace(stage, tensor=tensor, axes=axes, body=body)
    return cut_stage.reducing_over(both(stage.reduce_axes))


def _divisors(body: Scalar, axis: str) -> set[int]:
    """Return each q for which `axis // q` or `axis % q` occurs in `body`."""
    found = set[int]()

    def look(index: Affine) -> Affine:
        for atom, _ in index.terms:
            if isinstance(atom, Datum):
                atom.map_index(look)
            elif not isinstance(atom, Var) and atom.numerator == var(axis):
                found.add(atom.divisor)
        return index

    map_index(body, look)
    return found


def _unconditional(node: Scalar) -> tuple[Scalar, tuple[Cond, ...]]:
    """Remove the outer Selects that return zero if an index condition fails. Return the inner
    expression and the conditions."""
    match node:
        case Cast(x, DType.F32 | DType.F64) if x.dtype.is_float:
            return _unconditional(x)  # the reference does not round: the cast is the identity
        case Select(All(conds), on_true, Const(0, _)):
            body, more = _unconditional(on_true)
            return body, (*conds, *more)
        case _:
            return node, ()


_Masked: TypeAlias = tuple[Scalar, tuple[Cond, ...]]
"""A factor and its conditions; the factor is zero if one of them fails."""


def _factors(node: Scalar) -> list[_Masked]:
    """Return the factors of a product, each with its conditions."""
    match node:
        case Binary(BinaryOp.MUL, a, b):
            return _factors(a) + _factors(b)
        case Cast(x, DType.F32 | DType.F64) if x.dtype.is_float:
            return _factors(x)
        case Select(All(conds), on_true, Const(0, _)):
            inner, more = _unconditional(on_true)
            return [(inner, (*conds, *more))]
        case _:
            return [(node, ())]


def _points(node: Scalar, extents: Mapping[str, int]) -> int:
    return prod(extents[name] for name in vars_of(node))


def _merged(factors: list[_Masked], extents: Mapping[str, int]) -> tuple[_Masked, _Masked] | None:
    """Multiply the pair of factors whose product has the fewest points until two factors remain.
    Return None if there are fewer than two."""
    factors = list(factors)
    while len(factors) > 2:
        pairs = [(i, j) for j in range(len(factors)) for i in range(j)]
        joined = {(i, j): _multiply(masked(*factors[i]), masked(*factors[j])) for i, j in pairs}
        i, j = min(pairs, key=lambda pair: _points(joined[pair], extents))
        factors = [f for k, f in enumerate(factors) if k not in (i, j)] + [(joined[i, j], ())]
    return (factors[0], factors[1]) if len(factors) == 2 else None


def _placed(
    left: _Masked, right: _Masked, given: tuple[Cond, ...], extents: Mapping[str, int]
) -> tuple[Factor, Factor]:
    """Return both factors with all conditions: their own, and those of the product (`given`). Each
    condition is evaluated together with the factor that has fewer points afterwards."""
    raw = (left[0], right[0])
    own: list[list[Cond]] = [[], []]
    lent: list[list[Cond]] = [[], []]
    moved: list[list[Cond]] = [[], []]

    def cost(side: int, *more: Cond) -> int:
        kept = (*own[side], *lent[side], *moved[side], *more)
        return _points(masked(raw[side], kept), extents)

    for side, (_, conds) in enumerate((left, right)):
        for cond in conds:
            is_free = cost(side, cond) == cost(side)
            stays = is_free or cost(side, cond) <= cost(1 - side, cond)
            (own[side] if stays else lent[1 - side]).append(cond)
    for cond in given:
        side = min((0, 1), key=lambda s: (cost(s, cond), -len(cond.index.vars() & vars_of(raw[s]))))
        moved[side].append(cond)
    first, second = (
        Factor(masked(raw[n], tuple(own[n])), tuple(moved[n]), tuple(lent[n])) for n in (0, 1)
    )
    return first, second


def _multiply(a: Scalar, b: Scalar) -> Scalar:
    # Types differ only if both are floats, and every float is float64 here.
    wide = max(a.dtype, b.dtype, key=lambda t: t.bits)
    return Binary(BinaryOp.MUL, *(x if x.dtype is wide else Cast(x, wide) for x in (a, b)))


def _with_roles(stage: Stage, left: Factor, right: Factor) -> Contraction:
    in_left, in_right = vars_of(left.value), vars_of(right.value)

    def pick(axes: tuple[Axis, ...], by_left: bool, by_right: bool) -> tuple[Axis, ...]:
        wanted = (by_left, by_right)
        return tuple(a for a in axes if (a.name in in_left, a.name in in_right) == wanted)

    return Contraction(
        stage,
        left,
        right,
        batch=pick(stage.axes, True, True),
        rows=pick(stage.axes, True, False),
        columns=pick(stage.axes, False, True),
        inner=pick(stage.reduce_axes, True, True),
        left_sums=pick(stage.reduce_axes, True, False),
        right_sums=pick(stage.reduce_axes, False, True),
        repeats=prod(a.extent for a in pick(stage.reduce_axes, False, False)),
    )


def pieces(plan: Contraction, places: Mapping[str, AxisCoordinates]) -> Iterator[IterationBox]:
    """Yield boxes (pieces) that divide the iteration space. The two factors of a piece have at most
    `MAX_FACTOR_POINTS` elements together. `places` has the coordinates of sampled axes. Axes that
    index no factor are omitted."""
    used = {a.name for a in (*plan.left_axes, *plan.right_axes)}
    every = plan.stage.all_axes
    axes = [a for a in every if a.name in used]
    reduced = {a.name for a in plan.stage.reduce_axes}
    extents = {a.name: a.extent for a in axes}
    sides = [tuple(a.name for a in s) for s in (plan.left_axes, plan.right_axes)]
    batch = {a.name for a in plan.batch}

    def preference(name: str) -> tuple[bool, bool, int]:
        # Splitting a batch axis repeats no work; splitting a summed axis adds partial results.
        return name in batch, name not in reduced, extents[name]

    while sum(prod(extents[n] for n in side) for side in sides) > MAX_FACTOR_POINTS:
        side = max(sides, key=lambda names: prod(extents[n] for n in names))
        name = max((n for n in side if extents[n] > 1), key=preference)
        extents[name] = -(-extents[name] // 2)
    return tiles(full_box(axes, places), [extents[a.name] for a in axes])


def side_box(axes: Sequence[Axis], piece: IterationBox) -> IterationBox:
    """Return `piece` restricted to `axes`, the axes of one factor."""
    return piece.restricted([a.name for a in axes])


def contract(plan: Contraction, piece: IterationBox, left: Array, right: Array) -> Array:
    """Return `sum(left * right)` over `piece`, an array with one dimension per output axis.

    The dimensions of `left` and `right` are the axes `plan.left_axes` and `plan.right_axes` of
    `piece`. Output axes that index no factor have extent 1. Integers wrap modulo 2**bits.
    """
    result = matmul(flat_left(plan, piece, left), flat_right(plan, piece, right))
    if plan.repeats > 1:
        result = result * np.asarray(plan.repeats).astype(result.dtype)
    return unflattened(plan, piece, result)


def _size(axes: tuple[Axis, ...], piece: IterationBox) -> int:
    return prod(piece.restricted([a.name for a in axes]).extents)


def flat_left(plan: Contraction, piece: IterationBox, left: Array) -> Array:
    """Return `left` reshaped to [batch, rows, inner, left_sums]."""
    roles = (plan.batch, plan.rows, plan.inner, plan.left_sums)
    return left.reshape([_size(axes, piece) for axes in roles])


def flat_right(plan: Contraction, piece: IterationBox, right: Array) -> Array:
    """Return `right` reshaped to [batch, inner, columns, right_sums]."""
    roles = (plan.batch, plan.inner, plan.columns, plan.right_sums)
    return right.reshape([_size(axes, piece) for axes in roles])


def matmul(left: Array, right: Array) -> Array:
    """Multiply the reshaped factors of `flat_left` and `flat_right`, and sum over all summed axes.
    Return an array of shape [batch, rows, columns]."""
    a, b = (x[..., 0] if x.shape[-1] == 1 else x.sum(axis=-1, dtype=x.dtype) for x in (left, right))
    return np.asarray(np.matmul(a, b) if a.dtype.kind == "f" else _integer_matmul(a, b))


def unflattened(plan: Contraction, piece: IterationBox, result: Array) -> Array:
    """Return `result`, shape [batch, rows, columns], with one dimension per output axis."""
    order = [*plan.batch, *plan.rows, *plan.columns]
    result = result.reshape(piece.restricted([a.name for a in order]).extents)
    present = [a for a in plan.stage.axes if a in order]
    result = result.transpose([order.index(a) for a in present])
    return result.reshape(
        [result.shape[present.index(a)] if a in present else 1 for a in plan.stage.axes]
    )


def output_slices(plan: Contraction, piece: IterationBox) -> tuple[slice, ...]:
    """Return the part of the output to which the result of `contract` is added, as one slice per
    output axis. The slice is full for axes that are not in `piece`."""
    by_name = dict(zip(piece.names, piece.slices, strict=True))
    return tuple(by_name.get(a.name, slice(None)) for a in plan.stage.axes)


def _integer_matmul(a: Array, b: Array) -> Array:
    """Return `a @ b` modulo 2**bits, computed in float64, which is a hundred times as fast in
    NumPy.

    Sums below 2**53 are exact in float64, in any order. Factors with larger sums are split into
    16-bit limbs.
    """
    depth = a.shape[-1]
    if depth * _magnitude(a) * _magnitude(b) < 1 << 53:
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return np.asarray(exact.astype(np.int64).astype(a.dtype))
    if depth > 1 << 21:
        half = depth // 2
        low = _integer_matmul(a[..., :half], b[..., :half, :])
        return np.asarray(low + _integer_matmul(a[..., half:], b[..., half:, :]))
    limbs = max(a.itemsize // 2, 1)
    lefts, rights = _limbs(a, limbs), _limbs(b, limbs)
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.uint64)
    for i, left in enumerate(lefts):
        for j, right in enumerate(rights[: limbs - i]):
            total += np.matmul(left, right).astype(np.uint64) << np.uint64(16 * (i + j))
    return total.astype(a.dtype)


def _magnitude(a: Array) -> int:
    return max(abs(int(a.min())), abs(int(a.max())))


def _limbs(a: Array, count: int) -> list[Array]:
    unsigned = a.astype(np.uint64)  # two's complement: these are the limbs of a mod 2**64
    mask = np.uint64(0xFFFF)
    return [((unsigned >> np.uint64(16 * i)) & mask).astype(np.float64) for i in range(count)]
