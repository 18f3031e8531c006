"""Proving that index conditions exclude each other, by Fourier-Motzkin elimination.

A quotient is a variable here: `q = x // d` is known by `0 <= x - d*q <= d - 1`, and `x % d` is
`x - d*q`. Each row is tightened to what integers allow (W. Pugh, The Omega Test, 1991).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import gcd

from .affine import Affine, Atom, Cond, Eq0, FloorDiv, Mod, Ranges, Var, affine, floor_div

MAX_ROWS = 300
"""Rows at which a proof is given up: each variable may square their number. Proofs that are found
in nests of the suite and of random traces need fewer than 100."""


def exclude_each_other(conds: Iterable[Cond], ranges: Ranges) -> bool:
    """Whether no integers within `ranges` make all `conds` hold. False means "not found"."""
    rows: dict[tuple[tuple[Atom, int], ...], int] = {}
    waiting = [index for cond in conds for index in _at_least_zero(cond)]
    known: set[Atom] = set()
    while waiting:
        row = _tightened(_without_remainders(waiting.pop()))
        if not row.terms and row.const < 0:
            return True
        if row.terms:
            rows[row.terms] = min(row.const, rows.get(row.terms, row.const))
        for atom, _ in row.terms:
            if atom not in known:
                known.add(atom)
                waiting += _definition(atom, ranges)
    return _have_no_solution([Affine(terms, const) for terms, const in rows.items()])


def _have_no_solution(rows: list[Affine]) -> bool:
    """Whether `row >= 0` cannot hold for all `rows`, found by taking out an atom at a time."""
    while rows and len(rows) <= MAX_ROWS:
        atom = _cheapest(rows)
        found: dict[tuple[tuple[Atom, int], ...], int] = {}
        below, above = [], []
        for row in rows:
            c = next((c for a, c in row.terms if a == atom), 0)
            if c:
                (below if c > 0 else above).append((abs(c), row))
            else:
                found[row.terms] = row.const
        for a, low in below:
            for b, high in above:
                row = _tightened(low * b + high * a)
                if not row.terms and row.const < 0:
                    return True
                found[row.terms] = min(row.const, found.get(row.terms, row.const))
        found.pop((), None)
        rows = [Affine(terms, const) for terms, const in found.items()]
    return False


def _cheapest(rows: list[Affine]) -> Atom:
    """The atom without which fewest rows are left."""
    below, above = Counter[Atom](), Counter[Atom]()
    for row in rows:
        for atom, c in row.terms:
            (below if c > 0 else above)[atom] += 1
    return min(
        below | above,
        key=lambda a: (isinstance(a, FloorDiv), below[a] * above[a] - below[a] - above[a]),
    )


def _at_least_zero(cond: Cond) -> tuple[Affine, ...]:
    return (cond.index, -cond.index) if isinstance(cond, Eq0) else (cond.index,)


def _definition(atom: Atom, ranges: Ranges) -> tuple[Affine, ...]:
    """What is >= 0 of a variable or a quotient, whatever the others are."""
    value = Affine(((atom, 1),), 0)
    if isinstance(atom, Var):
        bounds = ranges[atom.name]
        return value - bounds.lo, bounds.hi - value
    rest = atom.numerator - value * atom.divisor
    return rest, atom.divisor - 1 - rest


def _without_remainders(index: Affine) -> Affine:
    while any(isinstance(atom, Mod) for atom, _ in index.terms):
        total = affine(index.const)
        for atom, c in index.terms:
            if isinstance(atom, Mod):
                quotient = floor_div(atom.numerator, atom.divisor)
                total = total + (atom.numerator - quotient * atom.divisor) * c
            else:
                total = total + Affine(((atom, c),), 0)
        index = total
    return index


def _tightened(row: Affine) -> Affine:
    """An equivalent row for integers, without common factors."""
    common = gcd(*(c for _, c in row.terms))
    if common < 2:
        return row
    return Affine(tuple((a, c // common) for a, c in row.terms), row.const // common)
