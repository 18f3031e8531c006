"""Prove that index conditions contradict each other, by Fourier-Motzkin elimination.

A quotient is treated as a variable: `q = x // d` is defined by `0 <= x - d*q <= d - 1`, and `x % d`
is `x - d*q`. A datum is a variable with a range. Each inequality (row) is tightened for integers
(W. Pugh, The Omega Test, 1991).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import gcd

from .affine import Affine, Atom, Datum, FloorDiv, Ranges, Var, affine, floor_div
from .comparisons import Cond, Eq0

MAX_ROWS = 300
"""Most inequalities of a proof: eliminating a variable may square their number. The proofs for
nests of the benchmark suite and of random traces use fewer than 100."""


def exclude_each_other(conds: Iterable[Cond], ranges: Ranges) -> bool:
    """Return whether it is proved that no integers in `ranges` satisfy all `conds`. False means
    "not proved"."""
    rows = _Rows()
    waiting = [index for cond in conds for index in _at_least_zero(cond)]
    known: set[Atom] = set()
    while waiting and not rows.contradict:
        row = _by_quotients(waiting.pop())
        rows.add(row)
        for atom, _ in row.terms:
            if atom not in known:
                known.add(atom)
                waiting += _definition(atom, ranges)
    while rows.sums and not rows.contradict and len(rows.sums) <= MAX_ROWS:
        rows = rows.without(rows.cheapest())
    return rows.contradict


class _Rows:
    """The known inequalities. `sums` maps a sum of atoms to the least constant c for which `sum + c
    >= 0` is known."""

    def __init__(self) -> None:
        self.sums: dict[tuple[tuple[Atom, int], ...], int] = {}
        self.contradict = False

    def __iter__(self) -> Iterator[Affine]:
        return (Affine(terms, const) for terms, const in self.sums.items())

    def add(self, row: Affine) -> None:
        common = gcd(*(c for _, c in row.terms))
        if not common:
            self.contradict |= row.const < 0
            return
        terms = tuple((a, c // common) for a, c in row.terms)
        const = min(row.const // common, self.sums.get(terms, row.const // common))
        self.sums[terms] = const
        opposite = self.sums.get(tuple((a, -c) for a, c in terms))
        self.contradict |= opposite is not None and opposite + const < 0

    def cheapest(self) -> Atom:
        """Return the atom whose elimination leaves the fewest rows. Quotients are eliminated after
        all plain variables, because tightening is stronger in that order."""
        below, above = Counter[Atom](), Counter[Atom]()
        for row in self:
            for atom, c in row.terms:
                (below if c > 0 else above)[atom] += 1

        def cost(atom: Atom) -> tuple[bool, int]:
            return isinstance(atom, FloorDiv), (below[atom] - 1) * (above[atom] - 1)

        return min(below | above, key=cost)

    def without(self, atom: Atom) -> _Rows:
        """Return the inequalities that follow for the other atoms if `atom` is eliminated."""
        rows = _Rows()
        below: list[tuple[int, Affine]] = []
        above: list[tuple[int, Affine]] = []
        for row in self:
            c = next((c for a, c in row.terms if a == atom), 0)
            if c:
                (below if c > 0 else above).append((abs(c), row))
            else:
                rows.add(row)
        for a, low in below:
            for b, high in above:
                rows.add(low * b + high * a)
                if rows.contradict or len(rows.sums) > MAX_ROWS:
                    return rows
        return rows


def _at_least_zero(cond: Cond) -> tuple[Affine, ...]:
    return (cond.index, -cond.index) if isinstance(cond, Eq0) else (cond.index,)


def _definition(atom: Atom, ranges: Ranges) -> tuple[Affine, ...]:
    """Return indices that are >= 0 by the definition of `atom`, which is no remainder."""
    value = Affine(((atom, 1),), 0)
    if isinstance(atom, Var):
        bounds = ranges[atom.name]
        return value - bounds.lo, bounds.hi - value
    if isinstance(atom, Datum):
        return value, atom.extent - 1 - value
    rest = atom.numerator - value * atom.divisor
    return rest, atom.divisor - 1 - rest


def _by_quotients(index: Affine) -> Affine:
    """Return `index` without remainders. Coefficients in quotients are reduced below the divisor.

    `(x + 7*y)//4` and `(x + 3*y)%4` then both use the quotient `(x + 3*y)//4`.
    """
    total = affine(index.const)
    for atom, c in index.terms:
        total = total + _atom_by_quotients(atom) * c
    return total


def _atom_by_quotients(atom: Atom) -> Affine:
    if isinstance(atom, Var | Datum):
        return Affine(((atom, 1),), 0)
    numerator, divisor = _by_quotients(atom.numerator), atom.divisor
    whole = tuple((a, c // divisor) for a, c in numerator.terms if c // divisor)
    rest = tuple((a, c % divisor) for a, c in numerator.terms if c % divisor)
    quotient = floor_div(Affine(rest, numerator.const % divisor), divisor)
    quotient = quotient + Affine(whole, numerator.const // divisor)
    return quotient if isinstance(atom, FloorDiv) else numerator - quotient * divisor
