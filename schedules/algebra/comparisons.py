"""Conditions on affine indices: at least zero, or equal to zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .affine import Affine, IndexLike, Ranges, affine, interval, simplify, split_by_step


@dataclass(frozen=True, slots=True)
class Ge0:
    """The condition `index >= 0`."""

    index: Affine

    def __str__(self) -> str:
        return _relation(self.index, "<=", ">=")


@dataclass(frozen=True, slots=True)
class Eq0:
    """The condition `index == 0`."""

    index: Affine

    def __str__(self) -> str:
        return _relation(self.index, "==", "==")


Cond: TypeAlias = Ge0 | Eq0
"""An index condition; a tuple of conditions is their conjunction."""


def less(left: IndexLike, right: IndexLike) -> Ge0:
    """Return the condition `left < right`."""
    return Ge0(affine(right) - left - 1)


def at_least(left: IndexLike, right: IndexLike) -> Ge0:
    """Return the condition `left >= right`."""
    return Ge0(affine(left) - right)


def equal(left: IndexLike, right: IndexLike) -> Eq0:
    """Return the condition `left == right`."""
    return Eq0(affine(left) - right)


def holds(cond: Cond, env: Mapping[str, int]) -> bool:
    """Return whether `cond` is true for the variables' values in `env`."""
    value = cond.index.evaluate(env)
    return value >= 0 if isinstance(cond, Ge0) else value == 0


def substitute_cond(cond: Cond, mapping: Mapping[str, Affine]) -> Cond:
    index = cond.index.substitute(mapping)
    return cond if index is cond.index else type(cond)(index)


def prove(cond: Cond, ranges: Ranges) -> bool | None:
    """Return True if `cond` is proved to hold everywhere in `ranges`, False if it is proved to hold
    nowhere, else None."""
    if isinstance(cond, Ge0):  # most conditions are proved without the slower `tighten`
        bounds = interval(cond.index, ranges)
        if bounds.lo >= 0 or bounds.hi < 0:
            return bounds.lo >= 0
    tight = tighten(cond, ranges)
    bounds = interval(tight.index, ranges)
    if isinstance(tight, Ge0):
        return True if bounds.lo >= 0 else (False if bounds.hi < 0 else None)
    if bounds.lo == bounds.hi == 0:
        return True
    return False if bounds.lo > 0 or bounds.hi < 0 else None


def tighten(cond: Cond, ranges: Ranges) -> Cond:
    """Return a condition equivalent to `cond` over `ranges`, with fewer variables if possible.

    `g*X + r >= 0` depends on `r` only through `r // g`. If `r // g` is constant, `r` is removed:
    `8*i_o + i_i < 1000` with `0 <= i_i < 8` is `i_o < 125`.
    """
    index = simplify(cond.index, ranges)
    if isinstance(cond, Eq0):
        return Eq0(index)
    changed = True
    while changed and index.terms:
        changed = False
        for step in sorted({abs(c) for _, c in index.terms} - {1}, reverse=True):
            coarse, fine = split_by_step(index, step)
            bounds = interval(fine, ranges)
            if coarse.terms and bounds.lo // step == bounds.hi // step:
                index = coarse + bounds.lo // step
                changed = True
                break
    return Ge0(index)


def _relation(index: Affine, flipped: str, plain: str) -> str:
    """Return the text of `index >= 0` or `index == 0` with negative terms moved to the other side.

    `plain` is the operator between left and right side, `flipped` the operator if the sides are
    exchanged.
    """
    left = Affine(tuple((a, c) for a, c in index.terms if c > 0), 0)
    right = Affine(tuple((a, -c) for a, c in index.terms if c < 0), 0)
    if not left.terms:
        return f"{right} {flipped} {index.const}"
    return f"{left} {plain} {right - index.const}"
