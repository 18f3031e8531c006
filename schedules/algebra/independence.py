"""Prove that accesses in different iterations of a loop refer to different elements.

All dependence questions between iterations are decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from .affine import (
    Affine,
    Atom,
    Cond,
    FloorDiv,
    Ge0,
    Index,
    Interval,
    Mod,
    Ranges,
    Var,
    affine,
    floor_div,
    fresh,
    interval,
    recombine,
    simplify,
    var,
)


@dataclass(frozen=True, slots=True)
class ElementAccess:
    """An access to an element of a buffer, and the conditions under which it is executed."""

    index: Index
    guards: tuple[Cond, ...] = ()


def separates(
    index: Index,
    name: str,
    ranges: Ranges,
    guards: tuple[Cond, ...] = (),
    fixed: Ranges | None = None,
) -> bool:
    """Whether different values of variable `name` give different index tuples where `guards` hold:
    `meet_only_within` of an access and itself."""
    access = ElementAccess(index, guards)
    return meet_only_within(access, access, name, ranges, fixed)


def meet_only_within(
    one: ElementAccess, other: ElementAccess, name: str, ranges: Ranges, fixed: Ranges | None = None
) -> bool:
    """Whether two accesses to a buffer refer to the same element only in iterations with the same
    value of `name`, so that a dependence between them has distance 0 in that loop.

    `ranges` has `name` and the variables that may differ between the two iterations; all other
    variables are equal in both, with values in `fixed` if given. Proof 1: an atom of both indices
    is determined by the element if its coefficient exceeds the largest difference of all other
    terms of its dimension; a quotient and a remainder determine their numerator, which is a further
    known sum. Proof 2: the difference of the two indices is nonzero for all positive and for all
    negative distances in `name`.
    """
    # A simplified quotient may no longer match the remainder next to it, an unsimplified one may be
    # in terms of other variables: a proof by any form is enough.
    every = {**(fixed or {}), **ranges}
    mine, theirs = _settled_guards(one, ranges), _settled_guards(other, ranges)
    pairs = tuple(zip(one.index, other.index, strict=True))
    equal = tuple(a for a, b in pairs if a == b)
    different = [(a, b) for a, b in pairs if a != b]
    both = _Meeting(ranges, every, mine, theirs)
    for decided in (every, ranges, {}):
        sums = ((i, i) for i in _known_sums(equal, decided, every))
        if both.determines(name, [*sums, *different, *both.remainders(different)]):
            return True
    return bool(different) and _are_distant(different, name, ranges, every)


def _settled_guards(access: ElementAccess, ranges: Ranges) -> tuple[Cond, ...]:
    return tuple(type(g)(_settled(g.index, ranges)) for g in access.guards)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Two iterations that access the same element; the guards `mine` hold in one, `theirs` in the
    other. `ranges` are of the variables that may differ, `every` of all known variables."""

    ranges: Ranges
    every: Ranges
    mine: tuple[Cond, ...]
    theirs: tuple[Cond, ...]

    def determines(self, name: str, sums: list[tuple[Affine, Affine]]) -> bool:
        """Whether the equality of each pair of `sums`, one from each iteration, implies that `name`
        is equal in both."""
        determined: set[object] = set()
        changed = True
        while changed:
            changed = False
            for a, b in sums:
                others = dict(b.terms)
                for atom, c in a.terms:
                    if atom in determined or others.get(atom) != c:
                        continue
                    if not _varies(Affine(((atom, 1),), 0), self.ranges):
                        continue
                    if self._differ_by_less(abs(c), a, b, {atom, *determined}):
                        determined.add(atom)
                        changed = True
            found = [(w, w) for atom in determined for w in _wholes(atom, determined)]
            new = [pair for pair in dict.fromkeys(found) if pair not in sums]
            sums += new
            changed = changed or bool(new)
        return Var(name) in determined

    def remainders(self, pairs: Sequence[tuple[Affine, Affine]]) -> Iterator[tuple[Affine, Affine]]:
        """The terms of each pair of equal sums that some coefficient c does not divide. They are
        equal modulo c, and equal if they differ by less than c. (Phases of interleaved tiles need
        this.)"""
        for a, b in pairs:
            for step in dict.fromkeys(abs(c) for _, c in (*a.terms, *b.terms) if abs(c) > 1):
                mine, theirs = _remainder(a, step), _remainder(b, step) + (b.const - a.const) % step
                if mine.terms and self._differ_by_less(step, mine, theirs, set()):
                    yield mine, theirs

    def _differ_by_less(self, most: int, a: Affine, b: Affine, same: set[object]) -> bool:
        """Whether `a` and `b` differ by less than `most`, given that the atoms `same` are equal in
        both."""
        others = dict(b.terms)
        shared = Affine(tuple(t for t in a.terms if others.get(t[0]) == t[1]), 0)
        common = Affine(tuple(t for t in shared.terms if t[0] not in same), 0)
        spread = _guarded_spread(
            common, self.ranges, tuple(g for g in self.mine if g in self.theirs)
        )
        if a == b:
            if spread < most:
                return True
            if self.mine == self.theirs:
                return False
        one, other = _bounds(a - shared, self.every), _bounds(b - shared, self.every)
        if one is None or other is None:
            return False
        if spread + max(other.hi - one.lo, one.hi - other.lo) < most:
            return True
        # Tiles may overhang an axis: the guards of each access bound it.
        moving = Affine(tuple(t for t in common.terms if self._moves(t[0])), 0)
        one = _guarded_bounds(a - shared + moving, self.every, self.mine)
        other = _guarded_bounds(b - shared + moving, self.every, self.theirs)
        if one is None or other is None:
            return False
        return max(other.hi - one.lo, one.hi - other.lo) < most

    def _moves(self, atom: Atom) -> bool:
        return _varies(Affine(((atom, 1),), 0), self.ranges)


def _remainder(index: Affine, step: int) -> Affine:
    """The terms of `index` whose coefficients `step` does not divide."""
    return Affine(tuple((atom, c) for atom, c in index.terms if c % step), 0)


def _are_distant(
    different: Sequence[tuple[Affine, Affine]], name: str, ranges: Ranges, every: Ranges
) -> bool:
    """Whether some pair of indices is never equal at a positive, and some pair never at a negative,
    distance in `name`."""
    # Variables that are not fixed are renamed in the other iteration.
    taken, values = set(every), dict(every)
    later = dict[str, Affine]()
    for moved in ranges:
        copy = fresh(moved, taken)
        taken.add(copy)
        later[moved] = var(copy)
        values[copy] = ranges[moved]
    step, most = str(later[name]), ranges[name].hi - ranges[name].lo
    later[name] = var(name) + later[name]
    differences = [b.substitute(later) - a for a, b in different]
    signs = (Interval(1, most), Interval(-most, -1)) if most else ()
    return all(
        any(_is_never_zero(difference, {**values, step: sign}) for difference in differences)
        for sign in signs
    )


def _is_never_zero(index: Affine, ranges: Ranges) -> bool:
    """Whether `index` is proved nonzero, by its interval or by the GCD test."""
    step = gcd(*(c for _, c in index.terms))
    if step and index.const % step:
        return True
    bounds = _bounds(index, ranges)
    return bounds is not None and not bounds.lo <= 0 <= bounds.hi


def _known_sums(index: Index, decided: Ranges, every: Ranges) -> Index:
    """The dimensions of the index simplified under `decided`, and also joined where possible: a
    joined dimension may determine more or fewer atoms than its parts, so both are used."""
    settled = tuple(_settled(i, decided) for i in index)
    return tuple(dict.fromkeys((*_merged(settled, decided, every), *settled)))


def settled(index: Index, ranges: Ranges) -> Index:
    """The index simplified under `ranges`, so that it does not depend on loops of one iteration."""
    return tuple(simplify(i, ranges) if i.vars() <= ranges.keys() else i for i in index)


def _settled(index: Affine, ranges: Ranges) -> Affine:
    """`index` with divisions and remainders simplified under `ranges`."""
    total = affine(index.const)
    for atom, c in index.terms:
        term = Affine(((atom, 1),), 0)
        known = not isinstance(atom, Var) and all(n in ranges for n in term.vars())
        total = total + (simplify(term, ranges) if known else term) * c
    return total


def _merged(index: Index, decided: Ranges, every: Ranges) -> list[Affine]:
    """The index with neighbouring dimensions that are quotient and remainder joined and simplified
    again; constant dimensions are skipped."""
    result: list[Affine] = []
    for dimension in reversed([i for i in index if i.terms]):
        merged = _joined(dimension, result[0], every) if result else None
        if merged is None:
            result.insert(0, dimension)
        else:
            result[0] = _settled(merged, decided)
    return result


def _joined(dimension: Affine, last: Affine, every: Ranges) -> Affine | None:
    """`dimension` joined with the next one, `last`, if that has a remainder of the same expression:
    `(x // 19, i + 16*(x % 19))` is `16*x + i` for i in 0..15.

    If `last` lies in 0..n-1, `(a, last)` and `n*a + last` determine each other.
    """
    for atom, coefficient in last.terms:
        if not isinstance(atom, Mod) or coefficient < 1:
            continue
        size = coefficient * atom.divisor
        if not _lies_below(last, size, every):
            continue
        joined = dimension * size + last
        merged = recombine(joined)
        if merged != joined:
            return merged
    return None


def _lies_below(index: Affine, size: int, ranges: Ranges) -> bool:
    """Whether `index`, which has a term c*(x % m) with c*m = `size`, is proved to be in
    0..size-1."""
    if len(index.terms) == 1 and not index.const:
        return True
    if not all(name in ranges for name in index.vars()):
        return False
    bounds = interval(index, ranges)
    return bounds.lo >= 0 and bounds.hi < size


def _wholes(atom: object, determined: set[object]) -> list[Affine]:
    """The numerator of a determined remainder whose quotient is determined too."""
    if not isinstance(atom, Mod):
        return []
    quotient = floor_div(atom.numerator, atom.divisor)
    if all(a in determined for a, _ in quotient.terms) and len(quotient.terms) <= 1:
        return [atom.numerator]
    return []


def _varies(index: Affine, ranges: Ranges) -> bool:
    return any(name in ranges for name in index.vars())


def _spread(index: Affine, ranges: Ranges) -> int:
    """The largest difference of two values of `index` while variables outside of `ranges` are
    fixed."""
    total = 0
    for atom, coefficient in index.terms:
        term = Affine(((atom, 1),), 0)
        if not _varies(term, ranges):
            continue
        if all(n in ranges for n in term.vars()):
            bounds = interval(term, ranges)
            width = bounds.hi - bounds.lo
        elif isinstance(atom, Mod):
            width = atom.divisor - 1
        elif isinstance(atom, FloorDiv):
            width = _spread(atom.numerator, ranges) // atom.divisor + 1
        else:
            raise AssertionError(f"a variable is fixed or it has a range: {atom}")
        total += abs(coefficient) * width
    return total


def _guarded_spread(index: Affine, ranges: Ranges, guards: tuple[Cond, ...]) -> int:
    """`_spread` under `guards`, which may bound a part of `index` more tightly than its loops:
    tiles that overhang an axis are only as wide as the axis."""
    best = _spread(index, ranges)
    for ended, most in _ended_parts(index, guards):
        if all(n in ranges for n in ended.vars()):
            width = max(most - interval(ended, ranges).lo, 0)
            best = min(best, width + _spread(index - ended, ranges))
    return best


def _guarded_bounds(index: Affine, ranges: Ranges, guards: tuple[Cond, ...]) -> Interval | None:
    """`_bounds` under `guards`, which may bound a part of `index` more tightly than its loops."""
    bounds = _bounds(index, ranges)
    if bounds is None:
        return None
    ends = (most + interval(index - part, ranges).hi for part, most in _ended_parts(index, guards))
    return Interval(bounds.lo, max(min(ends, default=bounds.hi), bounds.lo))


def _ended_parts(index: Affine, guards: tuple[Cond, ...]) -> Iterator[tuple[Affine, int]]:
    """Parts of `index` that a guard bounds from above, and these bounds."""
    for guard in guards:
        ended = _ended_part(index, guard) if isinstance(guard, Ge0) else None
        if ended is not None:
            # guard: const - part/scale >= 0, so the part is at most scale * const.
            scale = abs(ended.terms[0][1] // dict(guard.index.terms)[ended.terms[0][0]])
            yield ended, scale * guard.index.const


def _ended_part(index: Affine, guard: Ge0) -> Affine | None:
    """The terms of `index` that are a positive multiple of what `guard` bounds from above."""
    terms = dict(index.terms)
    scales = {-terms[atom] / c if atom in terms else 0.0 for atom, c in guard.index.terms}
    if len(scales) != 1 or not (scale := scales.pop()) > 0 or scale != int(scale):
        return None
    return Affine(tuple((a, -c * int(scale)) for a, c in guard.index.terms), 0)


def _bounds(index: Affine, ranges: Ranges) -> Interval | None:
    """The interval of `index`; None if a variable has no range."""
    return interval(index, ranges) if all(name in ranges for name in index.vars()) else None
