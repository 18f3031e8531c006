"""Prove that accesses in different iterations of a loop refer to different elements.

This module contains all dependence tests between iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from .affine import (
    Affine,
    Atom,
    FloorDiv,
    Index,
    Interval,
    Mod,
    Ranges,
    Var,
    affine,
    floor_div,
    fresh,
    interval,
    modulo,
    recombine,
    simplify,
    var,
)
from .comparisons import Cond, Ge0


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
    """Return whether an access under `guards` has a different index for every value of the variable
    `name`.

    `ranges` has `name` and the other variables that may differ between two accesses. The remaining
    variables are equal, with values in `fixed` if given.
    """
    access = ElementAccess(index, guards)
    return meet_only_within(access, access, name, ranges, fixed)


def meet_only_within(
    one: ElementAccess, other: ElementAccess, name: str, ranges: Ranges, fixed: Ranges | None = None
) -> bool:
    """Return whether two accesses to a buffer refer to the same element only in iterations with the
    same value of `name`. A dependence between them then has distance 0 in that loop.

    `ranges` has `name` and the variables that may differ between the two iterations. All other
    variables are equal in both iterations, with values in `fixed` if given.

    Proof 1: if a dimension has the same atom with the same coefficient in both indices, and its
    other terms differ by less than the coefficient, the atom is equal in both iterations. If a
    quotient and its remainder are equal, so is their numerator. Proof 2: the difference of the two
    indices is nonzero for all positive and for all negative distances in `name`. A dimension whose
    index contains data proves nothing, because the data may change between the iterations.
    """
    if ranges[name].is_point:
        return True
    # A simplified quotient may no longer match its remainder. Without simplification, it may have
    # variables that its remainder does not have. Three ranges are tried, and one proof suffices.
    every = {**(fixed or {}), **ranges}
    mine, theirs = _settled_guards(one, ranges), _settled_guards(other, ranges)
    dimensions = zip(one.index, other.index, strict=True)
    pairs = tuple((a, b) for a, b in dimensions if not (a.has_data or b.has_data))
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
    """Two iterations that access the same element."""

    ranges: Ranges
    """The variables that may differ between the iterations."""
    every: Ranges
    """All variables with known ranges."""
    mine: tuple[Cond, ...]
    """The guards that hold in the first iteration."""
    theirs: tuple[Cond, ...]
    """The guards that hold in the second iteration."""

    def determines(self, name: str, sums: list[tuple[Affine, Affine]]) -> bool:
        """Return whether `name` must have the same value in both iterations.

        Each pair in `sums` has an index of the first iteration and an index of the second
        iteration. The caller knows that the two are equal.
        """
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
        """Yield further pairs of sums that are equal in both iterations. The caller knows that the
        two sums of each of `pairs` are equal.

        For each coefficient c of a pair, the terms that c does not divide are equal modulo c. They
        are equal if they differ by less than c. Tiles whose iterations are interleaved need this
        proof.
        """
        for a, b in pairs:
            for step in dict.fromkeys(abs(c) for _, c in (*a.terms, *b.terms) if abs(c) > 1):
                mine, theirs = _remainder(a, step), _remainder(b, step) + (b.const - a.const) % step
                if mine.terms and self._differ_by_less(step, mine, theirs, set()):
                    yield mine, theirs

    def _differ_by_less(self, most: int, a: Affine, b: Affine, same: set[object]) -> bool:
        """Return whether `a` and `b` are proved to differ by less than `most`. The atoms `same` are
        equal in both."""
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
        # If a tile extends beyond the end of an axis, only the guards of each access bound the
        # index.
        moving = Affine(tuple(t for t in common.terms if self._moves(t[0])), 0)
        one = _guarded_bounds(a - shared + moving, self.every, self.mine)
        other = _guarded_bounds(b - shared + moving, self.every, self.theirs)
        if one is None or other is None:
            return False
        return max(other.hi - one.lo, one.hi - other.lo) < most

    def _moves(self, atom: Atom) -> bool:
        return _varies(Affine(((atom, 1),), 0), self.ranges)


def _remainder(index: Affine, step: int) -> Affine:
    """Return the terms of `index` whose coefficients `step` does not divide."""
    return Affine(tuple((atom, c) for atom, c in index.terms if c % step), 0)


def _are_distant(
    different: Sequence[tuple[Affine, Affine]], name: str, ranges: Ranges, every: Ranges
) -> bool:
    """Return whether two iterations with different values of `name` are proved to access different
    elements.

    Of the index pairs `different`, one must be unequal at all positive distances in `name`, and one
    at all negative distances.
    """
    # The variables that may differ are renamed in the second iteration.
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
    """Return whether `index` is proved nonzero, by its interval or by the GCD test."""
    step = gcd(*(c for _, c in index.terms))
    if step and index.const % step:
        return True
    bounds = _bounds(index, ranges)
    return bounds is not None and not bounds.lo <= 0 <= bounds.hi


def _known_sums(index: Index, decided: Ranges, every: Ranges) -> Index:
    """Return the dimensions of `index` simplified under `decided`, and the results of joining
    adjacent dimensions, and quotients with remainders of one dimension.

    A joined dimension may determine more or fewer atoms than its parts, so both are used.
    """
    settled = tuple(_settled(i, decided) for i in index)
    own = (recombine(i) for i in settled)
    return tuple(dict.fromkeys((*_merged(settled, decided, every), *own, *settled)))


def settled(index: Index, ranges: Ranges) -> Index:
    """Simplify each dimension of the index whose variables all have a range in `ranges`.

    Loops with a single iteration then no longer occur in these dimensions.
    """
    return tuple(simplify(i, ranges) if i.vars() <= ranges.keys() else i for i in index)


def _settled(index: Affine, ranges: Ranges) -> Affine:
    """Return `index` with divisions and remainders simplified under `ranges`."""
    total = affine(index.const)
    for atom, c in index.terms:
        term = Affine(((atom, 1),), 0)
        known = not isinstance(atom, Var) and all(n in ranges for n in term.vars())
        total = total + (simplify(term, ranges) if known else term) * c
    return total


def _merged(index: Index, decided: Ranges, every: Ranges) -> list[Affine]:
    """Return the dimensions of `index` after joining adjacent quotients and remainders. The results
    are simplified, and constant dimensions are skipped."""
    result: list[Affine] = []
    for dimension in map(_with_outer_remainders, reversed([i for i in index if i.terms])):
        merged = _joined(dimension, result[0], every) if result else None
        if merged is None:
            result.insert(0, dimension)
        else:
            result[0] = _settled(merged, decided)
    return result


def _with_outer_remainders(index: Affine) -> Affine:
    """Return `index` with `(x % 24) // 3` written as `(x // 3) % 8`, which remainders of `x` by 3
    can be joined with."""
    total = affine(index.const)
    for atom, c in index.terms:
        term = Affine(((atom, 1),), 0)
        if isinstance(atom, FloorDiv) and len(atom.numerator.terms) == 1:
            ((inner, k),) = atom.numerator.terms
            if isinstance(inner, Mod) and k == 1 and not atom.numerator.const:
                rows, uneven = divmod(inner.divisor, atom.divisor)
                if not uneven:
                    term = modulo(floor_div(inner.numerator, atom.divisor), rows)
        total = total + term * c
    return total


def _joined(dimension: Affine, last: Affine, every: Ranges) -> Affine | None:
    """Join `dimension` with the next dimension `last`. Return None if `last` has no remainder of an
    expression whose quotient is in `dimension`.

    `(x // 19, i + 16*(x % 19))` becomes `16*x + i` for i in 0..15. If `last` is in 0..n-1, the pair
    `(a, last)` and the sum `n*a + last` determine each other.
    """
    last = _with_the_numerator_of_quotients(last, dimension)
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


def _with_the_numerator_of_quotients(last: Affine, dimension: Affine) -> Affine:
    """Return `last` with each remainder written with the numerator of a quotient in `dimension` by
    the same divisor, if the two are congruent.

    Simplifying the remainder and the quotient of one expression gives different numerators: the
    quotient has `16*(x % 25)` for 0 <= x < 25, where the remainder by 20 has `16*x`.
    """
    found = last
    for atom, c in last.terms:
        if not isinstance(atom, Mod):
            continue
        for quotient in _quotients(dimension):
            if quotient.divisor != atom.divisor:
                continue
            difference = _opened(quotient.numerator - atom.numerator, atom.divisor)
            if modulo(difference, atom.divisor) == affine(0):
                same = modulo(quotient.numerator, atom.divisor)
                found = found - Affine(((atom, c),), 0) + same * c
                break
    return found


def _quotients(index: Affine) -> Iterator[FloorDiv]:
    """Yield the quotients in a sum, and those in its remainders: `(x // 3) % 8` has one."""
    for atom, _ in index.terms:
        if isinstance(atom, FloorDiv):
            yield atom
        elif isinstance(atom, Mod):
            yield from _quotients(atom.numerator)


def _opened(index: Affine, divisor: int) -> Affine:
    """Return an index without remainders that is congruent to `index` modulo `divisor`, as far as
    the coefficients of its remainders permit: `c*(x % n)` is congruent to `c*x` if `divisor`
    divides `c*n`."""
    total = affine(index.const)
    for atom, c in index.terms:
        inner = Affine(((atom, 1),), 0)
        if isinstance(atom, Mod) and c * atom.divisor % divisor == 0:
            inner = _opened(atom.numerator, divisor // gcd(c, divisor))
        total = total + inner * c
    return total


def _lies_below(index: Affine, size: int, ranges: Ranges) -> bool:
    """Return whether `index` is proved to be in 0..size-1. It has a term c*(x % m) with c*m =
    `size`."""
    if len(index.terms) == 1 and not index.const:
        return True
    if not all(name in ranges for name in index.vars()):
        return False
    bounds = interval(index, ranges)
    return bounds.lo >= 0 and bounds.hi < size


def _wholes(atom: object, determined: set[object]) -> list[Affine]:
    """Return the numerator of the remainder `atom` in a list if its quotient is in `determined`.
    Otherwise, or if `atom` is not a remainder, return an empty list."""
    if not isinstance(atom, Mod):
        return []
    quotient = floor_div(atom.numerator, atom.divisor)
    if all(a in determined for a, _ in quotient.terms) and len(quotient.terms) <= 1:
        return [atom.numerator]
    return []


def _varies(index: Affine, ranges: Ranges) -> bool:
    return any(name in ranges for name in index.vars())


def _spread(index: Affine, ranges: Ranges) -> int:
    """Return the largest difference of two values of `index` if all variables outside `ranges` are
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
    """Return the largest difference of two values of `index` under `guards` if all variables
    outside `ranges` are fixed.

    A guard may bound a part of `index` more tightly than the loops do, for example at the end of an
    axis.
    """
    best = _spread(index, ranges)
    for ended, most in _ended_parts(index, guards):
        if all(n in ranges for n in ended.vars()):
            width = max(most - interval(ended, ranges).lo, 0)
            best = min(best, width + _spread(index - ended, ranges))
    return best


def _guarded_bounds(index: Affine, ranges: Ranges, guards: tuple[Cond, ...]) -> Interval | None:
    """Return the interval of `index` under `guards`, which may raise its lower end and lower its
    upper end. Return None if a variable has no range."""
    bounds = _bounds(index, ranges)
    if bounds is None:
        return None
    ends = (most + interval(index - part, ranges).hi for part, most in _ended_parts(index, guards))
    starts = (
        interval(index - part, ranges).lo - most for part, most in _ended_parts(-index, guards, -1)
    )
    high = max(min(ends, default=bounds.hi), bounds.lo)
    return Interval(min(max(starts, default=bounds.lo), high), high)


def _ended_parts(
    index: Affine, guards: tuple[Cond, ...], sign: int = 1
) -> Iterator[tuple[Affine, int]]:
    """Yield each part of `index` that a guard bounds from above, and the upper bound. If `sign` is
    -1, yield the negated parts."""
    for guard in guards:
        ended = _ended_part(index, guard) if isinstance(guard, Ge0) else None
        if ended is not None:
            # guard: const - part/scale >= 0, so the part is at most scale * const.
            scale = abs(ended.terms[0][1] // dict(guard.index.terms)[ended.terms[0][0]])
            yield ended * sign, scale * guard.index.const


def _ended_part(index: Affine, guard: Ge0) -> Affine | None:
    """Return the terms of `index` that are a positive multiple of the sum that `guard` bounds from
    above. Return None if no multiple of this sum is part of `index`."""
    terms = dict(index.terms)
    scales = {-terms[atom] / c if atom in terms else 0.0 for atom, c in guard.index.terms}
    if len(scales) != 1 or not (scale := scales.pop()) > 0 or scale != int(scale):
        return None
    return Affine(tuple((a, -c * int(scale)) for a, c in guard.index.terms), 0)


def _bounds(index: Affine, ranges: Ranges) -> Interval | None:
    """Return the interval of `index`, or None if a variable has no range."""
    return interval(index, ranges) if all(name in ranges for name in index.vars()) else None
