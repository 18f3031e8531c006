"""Sums of products by matrix multiplication if some factors are NaN or infinite.

A sum of IEEE products, in any order, is NaN if one product is NaN or if two are infinities of
different signs. The classes of the two factors (zero, positive, infinite, NaN, ...) determine
whether a product is NaN or infinite. Sums with such a product are found by multiplying matrices of
zeros and ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .contract import Contraction, contract, flat_left, flat_right, matmul, unflattened
from .math import Array
from .reads import IterationBox

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FactorValues:
    """One factor of a contraction at every point of a piece. A mask None means all points."""

    raw: Array
    """The values, with zeros at points at which `given` is false."""
    given: Mask | None = None
    """Mask of the points at which all conditions of the whole product hold (`Factor.given`)."""
    met: Mask | None = None
    """Mask of the points at which all conditions of the other factor hold (`Factor.lent`)."""

    @property
    def values(self) -> Array:
        """The values, with zeros at points at which a condition makes the product zero."""
        if self.met is None:
            return self.raw
        return np.where(self.met, self.raw, self.raw.dtype.type(0))

    @property
    def meets_zero(self) -> Mask | None:
        """A mask of the points at which this factor is NaN or infinite, and a condition makes the
        other factor zero. None means no points."""
        if self.met is None or self.raw.dtype.kind != "f":
            return None
        found = ~self.met & ~np.isfinite(self.raw)
        return found if found.any() else None


def contract_sides(
    plan: Contraction, piece: IterationBox, left: FactorValues, right: FactorValues
) -> Array:
    """Return `sum(left * right)` over `piece`, an array with one dimension per output axis. NaN and
    infinities follow the rules of IEEE arithmetic."""
    result = contract(plan, piece, left.values, right.values)
    if result.dtype.kind != "f":
        return result
    if left.meets_zero is None and right.meets_zero is None:
        # A matrix product can differ from the IEEE sum only by 0 * inf at a point without a
        # product, or by inf * (1 - 1) in place of inf - inf.
        masks = (left.given, left.met, right.given, right.met)
        regroups = any(m is not None for m in masks) or plan.left_sums or plan.right_sums
        if not regroups or np.isfinite(result).all():
            return result
    return _by_classes(plan, piece, left, right)


def _by_classes(
    plan: Contraction, piece: IterationBox, left: FactorValues, right: FactorValues
) -> Array:
    """Return the result of `contract_sides`. It is the sum of the products of finite factors. NaN
    and infinite sums are then set, as the classes of their factors determine."""
    ours, theirs = _SpecialPoints.of(left), _SpecialPoints.of(right)

    finite = matmul(flat_left(plan, piece, ours.finite), flat_right(plan, piece, theirs.finite))

    def found(pairs: Iterator[tuple[Mask, Mask]]) -> Mask:
        total = np.zeros(finite.shape, np.bool_)
        for a, b in pairs:
            _or_meet(total, flat_left(plan, piece, a), flat_right(plan, piece, b))
        return total

    if plan.repeats > 1:
        finite = finite * plan.repeats
    above, below = (found(_infinite(ours, theirs, sign)) for sign in (1, -1))
    none = found(_not_a_number(ours, theirs))
    finite[above] = np.inf
    finite[below] = -np.inf
    finite[none | (above & below)] = np.nan
    return unflattened(plan, piece, finite)


@dataclass(frozen=True, slots=True)
class _SpecialPoints:
    """The classes of one factor's values, as masks of points."""

    finite: Array
    """The values, with zeros in place of NaN and infinities."""
    present: Mask
    """The points at which no condition makes the product zero."""
    zero: Mask
    not_a_number: Mask
    signs: dict[int, Mask]
    infinities: dict[int, Mask]
    meets_zero: Mask
    """The points at which this factor is NaN or infinite and a condition makes the other factor
    zero."""

    @classmethod
    def of(cls, side: FactorValues) -> _SpecialPoints:
        values = side.values
        everywhere = np.ones(values.shape, np.bool_)
        given = everywhere if side.given is None else np.broadcast_to(side.given, values.shape)
        present = given if side.met is None else given & side.met
        meets_zero = side.meets_zero
        return cls(
            finite=np.where(np.isfinite(values), values, 0.0),
            present=present,
            zero=present & (values == 0),
            not_a_number=np.isnan(values),
            signs={1: values > 0, -1: values < 0},
            infinities={1: values == np.inf, -1: values == -np.inf},
            meets_zero=~everywhere if meets_zero is None else meets_zero,
        )


def _infinite(a: _SpecialPoints, b: _SpecialPoints, sign: int) -> Iterator[tuple[Mask, Mask]]:
    """Yield pairs (mask of `a`, mask of `b`). The product of a factor in the first mask and a
    factor in the second mask is an infinity of sign `sign`."""
    for own in (1, -1):
        yield a.infinities[own], b.signs[own * sign]
        yield a.signs[own], b.infinities[own * sign]


def _not_a_number(a: _SpecialPoints, b: _SpecialPoints) -> Iterator[tuple[Mask, Mask]]:
    """Yield pairs (mask of `a`, mask of `b`). The product of a factor in the first mask and a
    factor in the second mask is NaN."""
    yield a.not_a_number, b.present
    yield a.present, b.not_a_number
    yield a.infinities[1] | a.infinities[-1], b.zero
    yield a.zero, b.infinities[1] | b.infinities[-1]
    yield a.meets_zero, b.present
    yield a.present, b.meets_zero


def _or_meet(total: Mask, left: Mask, right: Mask) -> None:
    """Set each element of `total` whose sum has a product of a factor in the mask `left` and a
    factor in the mask `right`.

    The shapes are [batch, rows, columns] of `total`, [batch, rows, inner, left_sums] of `left`, and
    [batch, inner, columns, right_sums] of `right`.
    """
    a, b = np.asarray(left.any(axis=-1)), np.asarray(right.any(axis=-1))
    inner = np.flatnonzero(a.any(axis=(0, 1)) & b.any(axis=(0, 2)))
    if inner.size:
        # All terms are non-negative, so a positive sum cannot round to zero.
        some, others = (x.astype(np.float32) for x in (a[:, :, inner], b[:, inner, :]))
        total |= np.matmul(some, others) > 0
