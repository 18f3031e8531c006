"""Solve equations and congruences in index conditions for one variable, and simplify the results.

`(x + 1 - r) % 2 == 0` implies that `r` is `(x + 1) % 2` if `r` is 0 or 1. `2*y + r == x` implies
that `y` is `(x - r) // 2` and that `x - r` is even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import assert_never

from .affine import Affine, Datum, FloorDiv, Interval, Mod, Var, affine, floor_div, modulo, simplify
from .comparisons import Cond, Eq0, at_least, less, prove
from .conditions import normal_cond


@dataclass(frozen=True, slots=True)
class Congruence:
    """The congruence `index % modulus == 0`, or the equation `index == 0` if `modulus` is 0. The
    index of an equation may contain quotients of variables."""

    index: Affine
    modulus: int


def congruence_of(cond: Cond) -> Congruence | None:
    """Return `cond` as a congruence of a plain sum of variables, or as an equation of variables and
    their quotients. Return None if it is neither."""
    if not isinstance(cond, Eq0) or not cond.index.terms:
        return None
    atom, c = cond.index.terms[0]
    if len(cond.index.terms) == 1 and isinstance(atom, Mod):
        rest, uneven = divmod(-cond.index.const, c)
        if uneven or not 0 <= rest < atom.divisor:
            return None
        found = Congruence(atom.numerator - rest, atom.divisor)
    else:
        found = Congruence(cond.index, 0)
    atoms = Var | FloorDiv if found.modulus == 0 else Var
    return found if all(isinstance(a, atoms) for a, _ in found.index.terms) else None


def solved(
    congruence: Congruence, name: str, ranges: Mapping[str, Interval]
) -> tuple[Affine, tuple[Cond, ...]] | None:
    """Solve `congruence` for the variable `name`. Return None if several values may be solutions.

    Return two results: the value of `name` as a function of the other variables, and the conditions
    under which it is a solution in the range 0..n-1 of `name`.
    """
    c, extent = congruence.index.coefficient(name), ranges[name].hi + 1
    rest = congruence.index - Affine(((Var(name), c),), 0) if c else congruence.index
    modulus = congruence.modulus
    if name in rest.vars():
        return None
    conds: tuple[Cond, ...]
    if modulus == 0:
        if c == 0:
            return None
        value = floor_div(-rest if c > 0 else rest, abs(c))
        whole = Eq0(modulo(rest, abs(c)))
        conds = (whole, at_least(value, 0), less(value, extent))
    else:
        if gcd(c, modulus) != 1 or extent > modulus:
            return None
        value = modulo(rest * -pow(c, -1, modulus), modulus)
        conds = (less(value, extent),)
    value = simplify(value, ranges)
    needed = (normal_cond(c) for c in conds if prove(c, ranges) is not True)
    return value, tuple(needed)


def collected(index: Affine) -> Affine:
    """Return `index` with `x - x % n` rewritten as `n * (x // n)`, also inside divisions.

    Nested remainders by a divisor are expanded: with `r = x % 2`, `(x - r) // 2` becomes `x // 2`.
    """
    total = affine(index.const)
    for atom, c in index.terms:
        match atom:
            case FloorDiv(numerator, divisor):
                total = total + floor_div(collected(numerator), divisor) * c
            case Mod(numerator, divisor):
                total = total + modulo(collected(_opened(numerator, divisor)), divisor) * c
            case Datum():
                total = total + Affine(((atom.map_index(collected), c),), 0)
            case Var():
                total = total + Affine(((atom, c),), 0)
            case _:
                assert_never(atom)
    shorter = _with_quotient(total)
    while shorter is not None:
        total, shorter = shorter, _with_quotient(shorter)
    return total


def _opened(index: Affine, divisor: int) -> Affine:
    """Return an index that is congruent to `index` modulo `divisor` and has fewer remainders."""
    total = index
    for atom, c in index.terms:
        if isinstance(atom, Mod) and atom.divisor % divisor == 0:
            total = total + (atom.numerator - Affine(((atom, 1),), 0)) * c
    return total


def _with_quotient(index: Affine) -> Affine | None:
    """Return `index` with one remainder rewritten as a quotient. Return None if no such rewrite
    reduces the number of terms.

    The normal form reduces the coefficients in a remainder modulo the divisor. Before the rewrite,
    coefficients are replaced by congruent ones that cancel terms of `index`.
    """
    own = dict(index.terms)
    for atom, c in index.terms:
        if not isinstance(atom, Mod):
            continue
        n, whole = atom.divisor, affine(atom.numerator.const)
        for inner, k in atom.numerator.terms:
            wanted, uneven = divmod(-own.get(inner, 0), c)
            fits = not uneven and (wanted - k) % n == 0
            whole = whole + Affine(((inner, 1),), 0) * (wanted if fits else k)
        # x % n == x - n * (x // n)
        candidate = index - Affine(((atom, c),), 0) + whole * c - floor_div(whole, n) * (c * n)
        if len(candidate.terms) < len(index.terms):
            return candidate
    return None
