"""Sums of products by matrix multiplication if some factors are NaN or infinite.

A sum of IEEE products is NaN if one of them is or if two are infinities of different signs,
whatever the order, and else the sum of the finite ones and the infinities. Which products are NaN
or infinite follows from the classes of their factors, so those are counted by multiplying matrices
of zeros and ones, of the few summed indices at which anything is not finite.
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
    """One factor at every point of a piece.

    `given` marks where there is a product, `met` where the conditions of the other factor that are
    evaluated here hold (`Factor.lent`); None is everywhere. `raw` is the factor where `given`, else
    zero.
    """

    raw: Array
    given: Mask | None = None
    met: Mask | None = None

    @property
    def values(self) -> Array:
        """The factor, zero where there is no product or a condition makes the product zero."""
        return (
            self.raw if self.met is None else np.where(self.met, self.raw, self.raw.dtype.type(0))
        )

    @property
    def meets_zero(self) -> Mask | None:
        """Where this factor is not finite and a condition makes the other one zero; None for
        nowhere."""
        if self.met is None or self.raw.dtype.kind != "f":
            return None
        found = ~self.met & ~np.isfinite(self.raw)
        return found if found.any() else None


def contract_sides(
    plan: Contraction, piece: IterationBox, left: FactorValues, right: FactorValues
) -> Array:
    """`sum(left * right)` over `piece` as IEEE arithmetic has it, see `contract`."""
    result = contract(plan, piece, left.values, right.values)
    if result.dtype.kind != "f":
        return result
    if left.meets_zero is None and right.meets_zero is None:
        # 0 * inf where there is no product, or inf * (1 - 1) for inf - inf, or no difference.
        masks = (left.given, left.met, right.given, right.met)
        regroups = any(m is not None for m in masks) or plan.left_sums or plan.right_sums
        if not regroups or np.isfinite(result).all():
            return result
    return _by_classes(plan, piece, left, right)


def _by_classes(
    plan: Contraction, piece: IterationBox, left: FactorValues, right: FactorValues
) -> Array:
    """`contract_sides` by the sum of the finite products and counts of the others."""
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
    """Masks of the classes of one factor; `meets_zero` as in `FactorValues`, and `present` where no
    condition makes the factor zero."""

    finite: Array
    present: Mask
    zero: Mask
    not_a_number: Mask
    signs: dict[int, Mask]
    infinities: dict[int, Mask]
    meets_zero: Mask

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
    """Classes of factors whose products are infinities of this sign."""
    for own in (1, -1):
        yield a.infinities[own], b.signs[own * sign]
        yield a.signs[own], b.infinities[own * sign]


def _not_a_number(a: _SpecialPoints, b: _SpecialPoints) -> Iterator[tuple[Mask, Mask]]:
    """Classes of factors whose products are NaN."""
    yield a.not_a_number, b.present
    yield a.present, b.not_a_number
    yield a.infinities[1] | a.infinities[-1], b.zero
    yield a.zero, b.infinities[1] | b.infinities[-1]
    yield a.meets_zero, b.present
    yield a.present, b.meets_zero


def _or_meet(total: Mask, left: Mask, right: Mask) -> None:
    """Set `total` [batch, rows, columns] where a product of the sum has factors in the classes
    `left` [batch, rows, inner, sums] and `right` [batch, inner, columns, sums]."""
    a, b = np.asarray(left.any(axis=-1)), np.asarray(right.any(axis=-1))
    inner = np.flatnonzero(a.any(axis=(0, 1)) & b.any(axis=(0, 2)))
    if inner.size:
        # Sums of non-negative numbers: a positive one cannot round to zero.
        some, others = (x.astype(np.float32) for x in (a[:, :, inner], b[:, inner, :]))
        total |= np.matmul(some, others) > 0
