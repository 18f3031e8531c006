"""NaN and infinities among the values that errors are bounded for: which of them are sure.

A value that is no finite number has an error of 0 where every right kernel gives the same (an
infinity of that sign, any NaN), and an infinite one where a right kernel may give something else,
finite numbers included. An infinite or missing (NaN) error says so of any value: it may be a NaN
that a maximum lost, a product with padding, a sum that overflows in one order, or what follows from
any of these. An operation has a sure result where no such difference can reach it: a NaN stays one
whatever else is added to it, an infinity keeps its sign times a factor of a known sign.
`docs/math.md`, "Special values", says what is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from ..workload.tensors import Stage
from .contract import Contraction, contract, output_slices
from .error_rounding import Errors, as_array, plus
from .evaluate import value_of
from .extended import Mask
from .math import Array, unary
from .padding import needed
from .reads import IterationBox, Stored

Bounded = tuple[Array, Errors]
_Terms = list[tuple[Array, Array]]


# --- what is known of one value ------------------------------------------------------------------


def is_open(errors: Errors) -> Array:
    """Where nothing is known of a value."""
    return ~np.isfinite(as_array(errors))


def is_sure_nan(bounded: Bounded) -> Array:
    value, errors = bounded
    return np.asarray(np.isnan(value) & (as_array(errors) == 0))


def is_nonzero(bounded: Bounded) -> Array:
    """Where a value, finite or not, has a known sign."""
    value, errors = bounded
    return np.asarray(np.abs(value) > as_array(errors))


def is_zero(bounded: Bounded) -> Array:
    value, errors = bounded
    return np.asarray((value == 0) & (as_array(errors) == 0))


def finite_size(values: Array) -> Array:
    """Magnitudes of finite values, 0 of others: what roundings and overflow depend on."""
    sizes = np.abs(values.astype(np.float64, copy=False))
    return sizes if np.isfinite(sizes).all() else np.where(np.isfinite(sizes), sizes, 0.0)


def same(a: Array, b: Array) -> Array:
    """Where two values are equal, or both NaN."""
    equal = np.asarray(a == b)
    return equal if a.dtype.kind != "f" else equal | (np.isnan(a) & np.isnan(b))


def at_specials(
    values: Array, errors: Errors, sure: Callable[..., Array], *operands: Bounded
) -> Errors:
    """`errors` of finite values; of others 0 where they are `sure`, infinite elsewhere. `sure` is
    asked about the others alone: with vectors of what the `operands` are there."""
    special = ~np.isfinite(values)
    if not special.any():
        return errors
    shape = values.shape
    there = [
        (np.broadcast_to(v, shape)[special], np.broadcast_to(as_array(e), shape)[special])
        for v, e in operands
    ]
    found = np.array(np.broadcast_to(as_array(errors), shape))
    found[special] = np.where(sure(*there), 0.0, np.inf)
    return found


def joint(own: Sequence[Bounded], other: Sequence[Bounded]) -> list[Bounded]:
    """The values of `own` with room for what both of two forms of a workload may be off.

    The distance of the two forms' reference values is within the sum of their bounds; where one is
    no finite number and the other not the same, either may be right.
    """
    found = []
    for (values, a), (others, b) in zip(own, other, strict=True):
        errors = plus(a, b)
        special = ~(np.isfinite(values) & np.isfinite(others))
        differ = special & ~same(values, others)
        found.append(
            (values, np.where(differ, np.inf, as_array(errors)) if differ.any() else errors)
        )
    return found


# --- operations ------------------------------------------------------------------------------


def sure_product(a: Bounded, b: Bounded) -> Array:
    """Where a product that is no finite number is surely what it is."""
    (x, ex), (y, ey) = a, b
    known = ~is_open(ex) & ~is_open(ey) & (np.isinf(x) | np.isinf(y))
    clear = (is_nonzero(a) | is_zero(a)) & (is_nonzero(b) | is_zero(b))
    return np.asarray(is_sure_nan(a) | is_sure_nan(b) | (known & clear))


def sure_quotient(a: Bounded, b: Bounded, *, signed_zeros: bool) -> Array:
    """The same for a / b, which a kernel may compute as a * (1 / b). `signed_zeros`: a zero that b
    is has a sure sign."""
    (x, ex), (y, ey) = a, b
    known = ~is_open(ex) & ~is_open(ey)
    by_zero = is_zero(b) & (is_zero(a) | (is_nonzero(a) & signed_zeros))
    of_infinity = np.isinf(x) & (np.isinf(y) | is_nonzero(b) | (is_zero(b) & signed_zeros))
    return np.asarray(is_sure_nan(a) | is_sure_nan(b) | (known & (by_zero | of_infinity)))


def sure_function(op: UnaryOp, x: Bounded, low: Array, high: Array, *, signed_zero: bool) -> Array:
    """Where a function's value that is no finite number is sure: of NaN and infinities, where there
    is no value between `low` and `high`, the ends of the argument's neighbourhood, and at a pole.
    `signed_zero`: an argument that is zero has a sure sign."""
    value, errors = x
    exact = as_array(errors) == 0
    ends = np.isnan(unary(op, value)) & np.isnan(unary(op, low)) & np.isnan(unary(op, high))
    poles = np.asarray(False)
    if not op.function.may_leave_range:
        above, below = (unary(op, np.asarray(zero)) for zero in (0.0, -0.0))
        poles = exact & np.isfinite(value) & ((value != 0) | signed_zero | same(above, below))
        poles = poles & np.isinf(unary(op, value))
    return np.asarray((exact & ~np.isfinite(value)) | (ends & ~is_open(errors)) | poles)


def special_total(terms: Sequence[tuple[int, Bounded]]) -> Array:
    """The sum of those terms that are surely no finite numbers, with their signs: NaN where it is
    sure, whatever the others are, that the whole sum is."""
    total = np.asarray(0.0)
    for sign, (value, errors) in terms:
        if not np.isfinite(value).all():
            given = ~np.isfinite(value) & (as_array(errors) == 0)
            total = total + np.where(given, sign * value, 0.0)
    return total


def keeps_zero_sign(node: Scalar, tensors: frozenset[str]) -> bool:
    """Whether zeros that `node` is have the signs IEEE arithmetic gives, if those of `tensors`
    have: nothing is added, and no maximum is taken."""
    match node:
        case Const():
            return node.dtype.is_float
        case Load(tensor):
            return tensor in tensors
        case Unary(op, x):
            return op.function.keeps_zero_sign and keeps_zero_sign(x, tensors)
        case Binary(BinaryOp.MUL | BinaryOp.DIV, a, b):
            return keeps_zero_sign(a, tensors) and keeps_zero_sign(b, tensors)
        case Select(All(), on_true, on_false):
            return keeps_zero_sign(on_true, tensors) and keeps_zero_sign(on_false, tensors)
        case Cast(x, dtype):
            return dtype.is_float and keeps_zero_sign(x, tensors)
        case Binary() | Select() | Compare() | All() | IndexValue():
            return False


def stage_keeps_zero_sign(stage: Stage, tensors: frozenset[str]) -> bool:
    return (
        stage.is_elementwise
        and stage.tensor.dtype.is_float
        and keeps_zero_sign(stage.body, tensors)
    )


# --- sums of products by matrix multiplication -------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marked:
    """A factor over its `box`, for the sums it is in.

    `bounded` are its values, zero where a condition says so, and their errors. `there` is where its
    products are no zeros by a condition of the other factor, None for everywhere, and `doubtful`
    where they are and it may not be finite: products that a kernel may compute or leave out.
    """

    box: IterationBox
    bounded: Bounded
    there: Mask | None
    doubtful: Mask | None

    @property
    def is_clear(self) -> bool:
        values, errors = self.bounded
        unsure = self.doubtful is not None and self.doubtful.any()
        return bool(np.isfinite(values).all() and not is_open(errors).any() and not unsure)


class ProductTerms:
    """Which sums of products of two factors are surely NaN or infinite, piece by piece of a
    contraction of `shape`."""

    def __init__(
        self, plan: Contraction, shape: tuple[int, ...], tensors: Mapping[str, Stored]
    ) -> None:
        self._plan = plan
        self._tensors = tensors
        # What conditions of the product or of the other factor leave out is no padding of this one.
        self._padding = (needed(plan.left_factor.node), needed(plan.right_factor.node))
        self._nan = np.zeros(shape, np.float32)
        self._open = np.zeros(shape, np.float32)
        self._any = False

    def add(self, piece: IterationBox, left: Marked, right: Marked) -> None:
        """The terms of `piece`."""
        if left.is_clear and right.is_clear:
            return
        self._any = True
        boxes = left.box, right.box
        padded_left, padded_right = (
            self._outside(conds, box) for conds, box in zip(self._padding, boxes, strict=True)
        )
        marks = (left.bounded, right.bounded, padded_left, padded_right)
        opened = [_among(pair, left, right) for pair in _open_terms(*marks)]
        if left.doubtful is not None:
            opened.append((left.doubtful, _everywhere(right)))
        if right.doubtful is not None:
            opened.append((_everywhere(left), right.doubtful))
        if self._count(self._open, opened, piece, boxes):
            sure = [_among(pair, left, right) for pair in _nan_terms(*marks)]
            self._count(self._nan, sure, piece, boxes)

    def _count(
        self,
        total: Array,
        terms: _Terms,
        piece: IterationBox,
        boxes: tuple[IterationBox, IterationBox],
    ) -> bool:
        """Add the number of the marked products to `total`; whether there is any."""
        found = False
        for pair in terms:
            a, b = (np.broadcast_to(m, box.extents) for m, box in zip(pair, boxes, strict=True))
            if a.any() and b.any():
                counted = (np.ascontiguousarray(m, np.float32) for m in (a, b))
                total[output_slices(self._plan, piece)] += contract(self._plan, piece, *counted)
                found = True
        return found

    def _outside(self, conds: tuple[Scalar, ...], box: IterationBox) -> Array:
        """Where a factor is padding: one of its conditions fails."""
        outside = np.asarray(False)
        for cond in conds:
            outside = outside | ~value_of(cond, box, self._tensors)
        return outside

    def bound(self, values: Array, errors: Array) -> Array:
        """The `errors` of the sums `values`, an infinite one where a term may be anything."""
        if not self._any:
            return errors
        errors = np.where(self._open > 0, np.inf, errors)
        return as_array(
            at_specials(
                values, errors, lambda n: np.isfinite(n[1]) | (n[0] > 0), (self._nan, errors)
            )
        )


def _everywhere(factor: Marked) -> Array:
    return np.asarray(True) if factor.there is None else factor.there


def _among(pair: tuple[Array, Array], left: Marked, right: Marked) -> tuple[Array, Array]:
    """A pair of marks where both factors have products."""
    return pair[0] & _everywhere(left), pair[1] & _everywhere(right)


def _open_terms(left: Bounded, right: Bounded, out_left: Array, out_right: Array) -> _Terms:
    """Pairs of marks of factors whose products may be anything, but for a NaN in one of them."""
    found = []
    pairs = ((left, right, out_left, out_right, False), (right, left, out_right, out_left, True))
    for one, other, out_one, out_other, turned in pairs:
        anything = is_open(one[1]) & ~out_one
        special = ~np.isfinite(one[0]) | is_open(one[1])
        unclear = ~(is_nonzero(other) | is_zero(other) | is_sure_nan(other))
        whole = np.ones_like(other[0], np.bool_)
        terms = [(anything, whole), (special, out_other), (np.isinf(one[0]), unclear)]
        found += [(b, a) if turned else (a, b) for a, b in terms]
    return found


def _nan_terms(left: Bounded, right: Bounded, out_left: Array, out_right: Array) -> _Terms:
    """Pairs of marks of factors whose products are surely NaN, padding left out."""
    found = []
    pairs = ((left, right, out_left, out_right, False), (right, left, out_right, out_left, True))
    for one, other, out_one, out_other, turned in pairs:
        infinite = np.isinf(one[0]) & (as_array(one[1]) == 0) & ~out_one
        terms = [
            (is_sure_nan(one) & ~out_one, ~out_other),
            (infinite, is_zero(other) & ~out_other),
        ]
        found += [(b, a) if turned else (a, b) for a, b in terms]
    return found


# --- products of all terms -------------------------------------------------------------------


def sure_factors(bounded: Bounded) -> tuple[Array, Array]:
    """Of the terms of a product: those that are surely 0 or no finite number, 1 for others, whose
    product is NaN where the whole surely is; and whether a term has a known sign or is zero."""
    value, errors = bounded
    given = (~np.isfinite(value) & (as_array(errors) == 0)) | is_zero(bounded)
    clear = (is_nonzero(bounded) | is_zero(bounded) | is_sure_nan(bounded)) & ~is_open(errors)
    return np.where(given, value, 1.0), clear.astype(np.float64)


__all__ = [
    "Bounded", "Marked", "ProductTerms", "at_specials", "finite_size", "is_open", "is_sure_nan",
    "joint", "keeps_zero_sign", "same", "special_total", "stage_keeps_zero_sign", "sure_factors",
    "sure_function", "sure_product", "sure_quotient",
]  # fmt: skip
