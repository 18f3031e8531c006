"""Whether indices are different elements: for different values of one variable, or in blocks.

Every question of whether two iterations of a loop can meet in an element is decided here.
"""

from __future__ import annotations

from .affine import (
    Affine,
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
    interval,
    recombine,
    simplify,
    var,
)


def separates(
    index: tuple[Affine, ...],
    name: str,
    ranges: Ranges,
    guards: tuple[Cond, ...] = (),
    fixed: Ranges | None = None,
) -> bool:
    """Whether different values of variable `name` always give different index tuples.

    `ranges` has `name` and the variables that may differ between two iterations; all others are
    fixed, somewhere in `fixed` if that says so. `guards` hold in every iteration that counts. The
    proof: an atom whose coefficient exceeds the spread of its dimension's other terms that are
    still open is determined by the index; a division and a remainder determine what they divide,
    which is one more known sum.
    """
    guards = tuple(type(g)(_settled(g.index, ranges)) for g in guards)
    # A quotient that is settled may no longer fit the remainder beside it, one that is not may be
    # written in other terms than that: any form that proves it will do.
    every = {**(fixed or {}), **ranges}
    forms = (_known_sums(index, decided, every) for decided in (every, ranges, {}))
    return any(_determines(form, name, ranges, guards) for form in forms)


def _known_sums(index: Index, decided: Ranges, every: Ranges) -> Index:
    """The index without what ranges `decided` settle, as it is and with dimensions joined: what is
    joined says more or less than its parts, so both count."""
    settled = tuple(_settled(i, decided) for i in index)
    return tuple(dict.fromkeys((*_merged(settled, decided, every), *settled)))


def _determines(known: Index, name: str, ranges: Ranges, guards: tuple[Cond, ...]) -> bool:
    """`separates` for sums that are `known`."""
    known_sums = list(known)
    determined: set[object] = set()
    changed = True
    while changed:
        changed = False
        for one in known_sums:
            for atom, coefficient in one.terms:
                if atom in determined or not _varies(Affine(((atom, 1),), 0), ranges):
                    continue
                open_terms = (t for t in one.terms if t[0] != atom and t[0] not in determined)
                rest = Affine(tuple(open_terms), 0)
                if abs(coefficient) > _guarded_spread(rest, ranges, guards):
                    determined.add(atom)
                    changed = True
        found = [w for atom in determined for w in _wholes(atom, determined)]
        new = [w for w in dict.fromkeys(found) if w not in known_sums]
        known_sums += new
        changed = changed or bool(new)
    return Var(name) in determined


def settled(index: Index, ranges: Ranges) -> Index:
    """The index without what `ranges` decide: a loop of one iteration only seems to move it."""
    return tuple(simplify(i, ranges) if i.vars() <= ranges.keys() else i for i in index)


def _settled(index: Affine, ranges: Ranges) -> Affine:
    """`index` without the divisions and remainders that `ranges` decide."""
    total = affine(index.const)
    for atom, c in index.terms:
        term = Affine(((atom, 1),), 0)
        known = not isinstance(atom, Var) and all(n in ranges for n in term.vars())
        total = total + (simplify(term, ranges) if known else term) * c
    return total


def _merged(index: Index, decided: Ranges, every: Ranges) -> list[Affine]:
    """The index with neighbouring dimensions that are quotient and remainder made one, and settled
    again; one that nothing moves stands between no others."""
    result: list[Affine] = []
    for dimension in reversed([i for i in index if i.terms]):
        merged = _joined(dimension, result[0], every) if result else None
        if merged is None:
            result.insert(0, dimension)
        else:
            result[0] = _settled(merged, decided)
    return result


def _joined(dimension: Affine, last: Affine, every: Ranges) -> Affine | None:
    """`dimension` and the one behind it as one, where that one is a remainder, perhaps in pieces:
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
    """Whether `index`, which has a term c*(x % m) with c*m = `size`, surely lies in 0..size-1."""
    if len(index.terms) == 1 and not index.const:
        return True
    if not all(name in ranges for name in index.vars()):
        return False
    bounds = interval(index, ranges)
    return bounds.lo >= 0 and bounds.hi < size


def _wholes(atom: object, determined: set[object]) -> list[Affine]:
    """Numerators known because both their quotient and their remainder are."""
    if not isinstance(atom, Mod):
        return []
    quotient = floor_div(atom.numerator, atom.divisor)
    if all(a in determined for a, _ in quotient.terms) and len(quotient.terms) <= 1:
        return [atom.numerator]
    return []


def _varies(index: Affine, ranges: Ranges) -> bool:
    return any(name in ranges for name in index.vars())


def _spread(index: Affine, ranges: Ranges) -> int:
    """Largest difference of two values of `index`, variables outside `ranges` being fixed."""
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
    """`_spread`, where a guard may end a part of `index` before its loops do: tiles that reach
    beyond the end of an axis are as wide as the axis."""
    best = _spread(index, ranges)
    for guard in guards:
        ended = _ended_part(index, guard) if isinstance(guard, Ge0) else None
        if ended is None or not all(n in ranges for n in ended.vars()):
            continue
        # guard: const - part/scale >= 0, so the part is at most scale * const.
        scale = abs(ended.terms[0][1] // dict(guard.index.terms)[ended.terms[0][0]])
        width = max(scale * guard.index.const - interval(ended, ranges).lo, 0)
        best = min(best, width + _spread(index - ended, ranges))
    return best


def _ended_part(index: Affine, guard: Ge0) -> Affine | None:
    """The terms of `index` that are a positive multiple of what `guard` bounds from above."""
    terms = dict(index.terms)
    scales = {-terms[atom] / c if atom in terms else 0.0 for atom, c in guard.index.terms}
    if len(scales) != 1 or not (scale := scales.pop()) > 0 or scale != int(scale):
        return None
    return Affine(tuple((a, -c * int(scale)) for a, c in guard.index.terms), 0)


def are_apart(
    indices: list[tuple[Affine, ...]], name: str, ranges: Ranges, around: frozenset[str]
) -> bool:
    """Whether all `indices` lie in a block of elements of their own for each value of `name`.

    The proof: in some dimension all of them are `c * name`, plus the same sum of variables of
    loops `around`, plus something that stays within an interval shorter than c.
    """
    return any(
        _blocks(tuple(index[d] for index in indices), name, ranges, around)
        for d in range(len(indices[0]))
    )


def _blocks(entries: tuple[Affine, ...], name: str, ranges: Ranges, around: frozenset[str]) -> bool:
    if not all(entry.is_linear_in(name) for entry in entries):
        return False
    steps = {entry.coefficient(name) for entry in entries}
    rests = [entry - var(name) * entry.coefficient(name) for entry in entries]
    fixed = {_part(rest, around) for rest in rests}
    if len(steps) != 1 or len(fixed) != 1:
        return False
    bounds = [_bounds(rest - _part(rest, around), ranges) for rest in rests]
    inside = [b for b in bounds if b is not None]
    if len(inside) != len(bounds):
        return False
    return max(b.hi for b in inside) - min(b.lo for b in inside) < abs(steps.pop())


def _part(index: Affine, names: frozenset[str]) -> Affine:
    """The terms of `index` that are plain multiples of variables in `names`."""
    total = affine(0)
    for atom, c in index.terms:
        if isinstance(atom, Var) and atom.name in names:
            total = total + Affine(((atom, c),), 0)
    return total


def _bounds(index: Affine, ranges: Ranges) -> Interval | None:
    """The interval of `index`; None where a variable in it is not one of the loops' own."""
    return interval(index, ranges) if all(name in ranges for name in index.vars()) else None
