"""Solve an inequality of indices for one variable."""

from __future__ import annotations

from dataclasses import dataclass

from .affine import Affine, FloorDiv, Var
from .comparisons import Ge0


@dataclass(frozen=True, slots=True)
class AxisLimit:
    """The condition `name <= limit` if `upper`, else `name >= limit`. `limit` does not depend on
    `name`."""

    name: str
    limit: Affine
    upper: bool


def solved_for(name: str, cond: Ge0) -> AxisLimit | None:
    """Return `cond` solved for the variable `name`: both hold for the same integers.

    Return None if `name` occurs in more than one term, or in a remainder or in data.

        i - 2*k + 1 >= 0    ->    k <= (i + 1)//2
        i//4 - k//4 >= 0    ->    k <= 4*(i//4) + 3
    """
    terms = [(atom, c) for atom, c in cond.index.terms if Affine(((atom, c),), 0).mentions(name)]
    if len(terms) != 1:
        return None
    ((atom, coefficient),) = terms
    rest = cond.index - Affine(((atom, coefficient),), 0)
    upper = coefficient < 0
    limit = rest // -coefficient if upper else (coefficient - 1 - rest) // coefficient
    match atom:
        case Var():
            return AxisLimit(name, limit, upper)
        case FloorDiv(numerator, divisor):
            last = limit * divisor + (divisor - 1)
            inner = last - numerator if upper else numerator - limit * divisor
            return solved_for(name, Ge0(inner))
        case _:
            return None
