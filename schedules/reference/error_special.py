"""NaN and infinities in the error analysis: detect those that every correct kernel returns.

A NaN or infinity is certain, and has error 0, if every correct kernel returns it (or any NaN). Else
it has an infinite error. A value with an infinite or NaN error is undetermined: a NaN may have been
lost in a maximum, a product with padding may have been omitted, or a sum may overflow in only one
order. A result is certain if no undetermined operand can change it: NaN plus any value is NaN, and
an infinity times a factor of known sign is an infinity of known sign. `docs/math.md`, "Special
values", states the guarantees.
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
    Components,
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


# --- classes of values ---------------------------------------------------------------------------


def is_open(errors: Errors) -> Array:
    """Return a mask of the undetermined values."""
    return ~np.isfinite(as_array(errors))


def is_sure_nan(bounded: Bounded) -> Array:
    value, errors = bounded
    return np.asarray(np.isnan(value) & (as_array(errors) == 0))


def is_nonzero(bounded: Bounded) -> Array:
    """Return a mask of the nonzero values, finite or infinite, with a known sign."""
    value, errors = bounded
    return np.asarray(np.abs(value) > as_array(errors))


def is_zero(bounded: Bounded) -> Array:
    value, errors = bounded
    return np.asarray((value == 0) & (as_array(errors) == 0))


def finite_size(values: Array) -> Array:
    """Return the magnitudes of finite values, and 0 for other values."""
    sizes = np.abs(values.astype(np.float64, copy=False))
    return sizes if np.isfinite(sizes).all() else np.where(np.isfinite(sizes), sizes, 0.0)


def same(a: Array, b: Array) -> Array:
    """Return a mask of the points at which two values are equal or both NaN."""
    equal = np.asarray(a == b)
    return equal if a.dtype.kind != "f" else equal | (np.isnan(a) & np.isnan(b))


def at_specials(
    values: Array, errors: Errors, sure: Callable[..., Array], *operands: Bounded
) -> Errors:
    """Return `errors` with new errors at NaN and infinite values: 0 if `sure` is true, else
    infinity. `sure` is called with vectors of the `operands` at these points."""
    finite = np.isfinite(values)
    if finite.all():
        return errors
    special = ~finite
    shape = values.shape
    there = [
        (np.broadcast_to(v, shape)[special], np.broadcast_to(as_array(e), shape)[special])
        for v, e in operands
    ]
    found = np.array(np.broadcast_to(as_array(errors), shape))
    found[special] = np.where(sure(*there), 0.0, np.inf)
    return found


def joint(own: Sequence[Bounded], other: Sequence[Bounded]) -> list[Bounded]:
    """Return the values of `own` with bounds that also accept the results of another form of the
    workload. `own` and `other` are the outputs of the two forms.

    The reference values of the two forms differ by at most the sum of their bounds. If they differ
    and one of them is NaN or infinite, every value is accepted.
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
    """Return a mask of the products that are certainly NaN or infinite."""
    (x, ex), (y, ey) = a, b
    known = ~is_open(ex) & ~is_open(ey) & (np.isinf(x) | np.isinf(y))
    clear = (is_nonzero(a) | is_zero(a)) & (is_nonzero(b) | is_zero(b))
    return np.asarray(is_sure_nan(a) | is_sure_nan(b) | (known & clear))


def sure_quotient(a: Bounded, b: Bounded, *, signed_zeros: bool) -> Array:
    """Return a mask of the quotients a / b that are certainly NaN or infinite, even if a kernel
    computes a * (1 / b). `signed_zeros` states that zeros of b have a certain sign."""
    (x, ex), (y, ey) = a, b
    known = ~is_open(ex) & ~is_open(ey)
    by_zero = is_zero(b) & (is_zero(a) | (is_nonzero(a) & signed_zeros))
    of_infinity = np.isinf(x) & (np.isinf(y) | is_nonzero(b) | (is_zero(b) & signed_zeros))
    return np.asarray(is_sure_nan(a) | is_sure_nan(b) | (known & (by_zero | of_infinity)))


def sure_function(op: UnaryOp, x: Bounded, low: Array, high: Array, *, signed_zero: bool) -> Array:
    """Return a mask of the function values that are certainly NaN or infinite.

    A value is certain in three cases: (1) the argument is certainly NaN or infinite; (2) the
    argument is exact and at a pole; (3) the function is NaN at the argument and at `low` and
    `high`, the ends of the argument's range. `signed_zero` states that a zero argument has a
    certain sign.
    """
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
    """Return the sum of the terms that are certainly NaN or infinite."""
    total = np.asarray(0.0)
    for sign, (value, errors) in terms:
        if not np.isfinite(value).all():
            given = ~np.isfinite(value) & (as_array(errors) == 0)
            total = total + np.where(given, sign * value, 0.0)
    return total


def keeps_zero_sign(node: Scalar, tensors: frozenset[str]) -> bool:
    """Return whether every zero result of `node` has its IEEE sign in every correct kernel.
    `tensors` are the tensors whose zeros have their IEEE signs. Additions and maxima do not
    preserve the sign."""
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
        case Binary() | Select() | Compare() | All() | IndexValue() | Components():
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
    """The data of a factor over `box` that is needed to find NaN and infinite sums."""

    box: IterationBox
    bounded: Bounded
    """The factor's values and errors."""
    there: Mask | None
    """Mask of the points with a product that no condition makes zero. None means all points."""
    doubtful: Mask | None
    """Mask of the points at which this factor may be NaN or infinite, and a condition makes the
    other factor zero. A kernel may compute or omit these products. None means no points."""

    @property
    def is_clear(self) -> bool:
        values, errors = self.bounded
        unsure = self.doubtful is not None and self.doubtful.any()
        return bool(np.isfinite(values).all() and not is_open(errors).any() and not unsure)


class ProductTerms:
    """Finds the sums of a contraction that are certainly NaN or infinite, and the undetermined
    sums. `add` is called for each piece, then `bound` returns the errors. `shape` is the shape of
    the sums."""

    def __init__(
        self, plan: Contraction, shape: tuple[int, ...], tensors: Mapping[str, Stored]
    ) -> None:
        self._plan = plan
        self._tensors = tensors
        # Terms excluded by conditions of the product or of the other factor are not padding.
        self._padding = (needed(plan.left_factor.node), needed(plan.right_factor.node))
        self._nan = np.zeros(shape, np.float32)
        self._open = np.zeros(shape, np.float32)
        self._any = False

    def add(self, piece: IterationBox, left: Marked, right: Marked) -> None:
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
        """Count the products of each sum whose factors are in a pair of masks of `terms`. Add the
        counts to `total`, and return whether there is any such product."""
        found = False
        for pair in terms:
            a, b = (np.broadcast_to(m, box.extents) for m, box in zip(pair, boxes, strict=True))
            if a.any() and b.any():
                counted = (np.ascontiguousarray(m, np.float32) for m in (a, b))
                total[output_slices(self._plan, piece)] += contract(self._plan, piece, *counted)
                found = True
        return found

    def _outside(self, conds: tuple[Scalar, ...], box: IterationBox) -> Array:
        """Return a mask of the points of `box` at which one of `conds` fails (padding)."""
        outside = np.asarray(False)
        for cond in conds:
            outside = outside | ~value_of(cond, box, self._tensors)
        return outside

    def bound(self, values: Array, errors: Array) -> Array:
        """Return the errors of the sums `values`. The error of a NaN or infinite sum is 0 if the
        sum is certain, else infinity. The error of another sum is infinity if a term is
        undetermined, else its element of `errors`."""
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
    """Return `pair`: its first mask restricted to the points `left.there`, its second mask to the
    points `right.there`. None means all points."""
    return pair[0] & _everywhere(left), pair[1] & _everywhere(right)


def _open_terms(left: Bounded, right: Bounded, out_left: Array, out_right: Array) -> _Terms:
    """Return pairs (mask of `left`, mask of `right`). The product of a factor in the first mask and
    a factor in the second mask is undetermined. `out_left` and `out_right` are masks of padding."""
    found = []
    pairs = ((left, right, out_left, out_right, False), (right, left, out_right, out_left, True))
    for one, other, out_one, out_other, swapped in pairs:
        anything = is_open(one[1]) & ~out_one
        special = ~np.isfinite(one[0]) | is_open(one[1])
        unclear = ~(is_nonzero(other) | is_zero(other) | is_sure_nan(other))
        whole = np.ones_like(other[0], np.bool_)
        terms = [(anything, whole), (special, out_other), (np.isinf(one[0]), unclear)]
        found += [(b, a) if swapped else (a, b) for a, b in terms]
    return found


def _nan_terms(left: Bounded, right: Bounded, out_left: Array, out_right: Array) -> _Terms:
    """Return pairs (mask of `left`, mask of `right`). The product of a factor in the first mask and
    a factor in the second mask is certainly NaN. `out_left` and `out_right` are masks of padding,
    which are excluded."""
    found = []
    pairs = ((left, right, out_left, out_right, False), (right, left, out_right, out_left, True))
    for one, other, out_one, out_other, swapped in pairs:
        infinite = np.isinf(one[0]) & (as_array(one[1]) == 0) & ~out_one
        terms = [
            (is_sure_nan(one) & ~out_one, ~out_other),
            (infinite, is_zero(other) & ~out_other),
        ]
        found += [(b, a) if swapped else (a, b) for a, b in terms]
    return found


# --- products of all terms -------------------------------------------------------------------


def sure_factors(bounded: Bounded) -> tuple[Array, Array]:
    """Return two arrays for the factors of a product reduction.

    The first has the factors that are certainly 0, NaN or infinite, and 1 for others. The second is
    1.0 for each factor that is certainly zero, certainly NaN or of known sign, else 0.0.
    """
    value, errors = bounded
    given = (~np.isfinite(value) & (as_array(errors) == 0)) | is_zero(bounded)
    clear = (is_nonzero(bounded) | is_zero(bounded) | is_sure_nan(bounded)) & ~is_open(errors)
    return np.where(given, value, 1.0), clear.astype(np.float64)


__all__ = [
    "Bounded", "Marked", "ProductTerms", "at_specials", "finite_size", "is_open", "is_sure_nan",
    "joint", "keeps_zero_sign", "same", "special_total", "stage_keeps_zero_sign", "sure_factors",
    "sure_function", "sure_product", "sure_quotient",
]  # fmt: skip
