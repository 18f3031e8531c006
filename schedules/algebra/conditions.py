"""Index conditions: normal form, implication, and simplification of guards.

A guard is `Select(All(conditions), value, elsewhere)`. `tidy` gives a computation the same guards
in every notation. `workload/settle.py` applies `tidy` to the output of every front end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import gcd
from typing import TypeAlias, TypeVar

from .affine import ZERO, Affine, FloorDiv, Ranges, Var, affine
from .comparisons import Cond, Eq0, Ge0, at_least, less, prove, substitute_cond
from .scalar import (
    All,
    Binary,
    Cast,
    Compare,
    Components,
    Load,
    Scalar,
    Select,
    Unary,
    children,
    rewrite,
)

C = TypeVar("C", bound=Cond)

NEVER = Eq0(ZERO + 1)
"""A condition that never holds."""

# Most given conditions that a proof tries. Pairs of them are tried if there are at most
# `_PROOF_CONDS_FOR_TWO`, because the time of a proof grows with the square of their number.
_PROOF_CONDS = 12
_PROOF_CONDS_FOR_TWO = 6


def normal_cond(cond: Cond) -> Cond:
    """Return the normal form of a condition. Divisions are expanded, common factors are removed,
    and equations have a positive leading coefficient.

    `x//d >= c` becomes `x >= c*d`, which later analyses can split and partition.
    """
    return _normal_equal(cond) if isinstance(cond, Eq0) else _normal_at_least(cond)


def _normal_equal(cond: Eq0) -> Cond:
    index = cond.index
    if not index.terms:
        return cond if index.const == 0 else NEVER
    common = gcd(*(c for _, c in index.terms))
    if index.const % common:
        return NEVER
    sign = common if index.terms[0][1] > 0 else -common
    if sign == 1:
        return cond
    return Eq0(Affine(tuple((a, c // sign) for a, c in index.terms), index.const // sign))


def _normal_at_least(cond: Ge0) -> Cond:
    index = cond.index
    while index.terms:
        common = gcd(*(c for _, c in index.terms))
        if common > 1:
            index = Affine(tuple((a, c // common) for a, c in index.terms), index.const // common)
        atom, coefficient = index.terms[0]
        if len(index.terms) > 1 or not isinstance(atom, FloorDiv):
            break
        if coefficient > 0:
            index = atom.numerator + index.const * atom.divisor
        else:
            index = (index.const + 1) * atom.divisor - 1 - atom.numerator
    return cond if index is cond.index else Ge0(index)


def negated(cond: Ge0) -> Ge0:
    """Return the condition `index < 0`."""
    return Ge0(-cond.index - 1)


def easiest(cond: Cond, inside: Ranges) -> Cond:
    """Return the condition under which at least one iteration of the loops `inside` satisfies
    `cond`. Return `cond` itself if it is an equation, or if a division in it depends on these
    loops."""
    if not isinstance(cond, Ge0):
        return cond
    used = cond.index.vars() & inside.keys()
    if not all(cond.index.is_linear_in(name) for name in used):
        return cond
    return substitute_cond(cond, greatest(cond.index, inside))


def greatest(index: Affine, free: Ranges) -> dict[str, Affine]:
    """Return the values of the `free` variables that maximise `index`. Variables inside divisions
    are omitted."""
    return {
        atom.name: affine(free[atom.name].hi if step > 0 else free[atom.name].lo)
        for atom, step in index.terms
        if isinstance(atom, Var) and atom.name in free
    }


def within(index: Affine, extent: int) -> tuple[Cond, Cond]:
    """Return `0 <= index < extent` as two conditions in normal form."""
    return normal_cond(Ge0(index)), normal_cond(Ge0(extent - 1 - index))


def in_bounds(
    index: tuple[Affine, ...], shape: tuple[int, ...], ranges: Ranges
) -> tuple[Cond, ...]:
    """Return the conditions under which `index` is inside `shape`, except conditions that always
    hold over `ranges`."""
    conds: list[Cond] = []
    for i, extent in zip(index, shape, strict=True):
        both = (at_least(i, 0), less(i, extent))
        conds.extend(cond for cond in both if prove(cond, ranges) is not True)
    return tuple(conds)


def follows(cond: Cond, given: tuple[Cond, ...], ranges: Ranges) -> bool:
    """Return whether `ranges` and the conditions `given` prove `cond`; False means "not proved".

    The proof tries `cond` without `given`. Then it subtracts multiples of one or two of the given
    conditions from `cond`.
    """
    if cond in given:
        return True
    found = related(cond, given)[:_PROOF_CONDS]
    return _follows(cond, found, ranges, 2 if len(found) <= _PROOF_CONDS_FOR_TWO else 1)


def related(cond: Cond, given: tuple[C, ...]) -> tuple[C, ...]:
    """Return the conditions of `given` that are connected to `cond` by shared variables, directly
    or through other conditions."""
    used = set(cond.index.vars())
    before = 0
    while True:
        found = tuple(c for c in given if not used.isdisjoint(c.index.vars()))
        if len(found) == before:
            return found
        before = len(found)
        used.update(*(c.index.vars() for c in found))


def _follows(cond: Cond, given: tuple[Cond, ...], ranges: Ranges, depth: int) -> bool:
    if prove(cond, ranges):
        return True
    if isinstance(cond, Eq0) or depth == 0:
        return False
    for known in given:
        rest = tuple(c for c in given if c is not known)
        for factor in _factors(cond.index, known):
            if _follows(Ge0(cond.index - known.index * factor), rest, ranges, depth - 1):
                return True
    return False


def _factors(index: Affine, known: Cond) -> Iterator[int]:
    """Yield the multiples of `known` that cancel a term of `index`."""
    wanted = dict(index.terms)
    seen: set[int] = set()
    for atom, coefficient in known.index.terms:
        factor, remainder = divmod(wanted.get(atom, 0), coefficient)
        useful = factor > 0 or (factor < 0 and isinstance(known, Eq0))
        if useful and not remainder and factor not in seen:
            seen.add(factor)
            yield factor


def excluded(cond: Cond, given: tuple[Cond, ...], ranges: Ranges) -> bool:
    """Return whether `ranges` and the conditions `given` prove that `cond` never holds."""
    if isinstance(cond, Ge0):
        return follows(negated(cond), given, ranges)
    if prove(cond, ranges) is False:
        return True
    above, below = Ge0(cond.index - 1), Ge0(-cond.index - 1)
    return bool(given) and (follows(above, given, ranges) or follows(below, given, ranges))


Labels: TypeAlias = Mapping[str, Affine]
"""Map from a variable to the index that replaces it when equivalent conditions are compared, so
that the choice of one does not depend on the names of variables. Two variables may have the same
label."""


def needed(
    conds: Iterable[Cond],
    ranges: Ranges,
    given: tuple[Cond, ...] = (),
    labels: Labels | None = None,
) -> tuple[Cond, ...] | None:
    """Remove redundant conditions, and return the others sorted by text. Return None if the
    conditions are proved to contradict each other.

    A condition is redundant if the others, `ranges` and the conditions `given` imply it. Of several
    equivalent conditions, the last by text is kept; for this choice, variables are replaced by
    their `labels`.
    """
    ordered = sorted({normal_cond(c) for c in conds}, key=str)
    if any(excluded(c, given, ranges) for c in ordered):
        return None
    kept = [c for c in ordered if not follows(c, given, ranges)]
    for cond in sorted(kept, key=lambda c: str(substitute_cond(c, labels))) if labels else [*kept]:
        others = tuple(c for c in kept if c is not cond)
        if follows(cond, given + others, ranges):
            kept.remove(cond)
    if len(kept) > 1:
        for cond in kept:
            if excluded(cond, given + tuple(c for c in kept if c is not cond), ranges):
                return None
    return tuple(kept)


def tidy(
    node: Scalar, ranges: Ranges, given: tuple[Cond, ...] = (), labels: Labels | None = None
) -> Scalar:
    """Return `node` with nested guards merged, and without redundant conditions and dead branches.

    The conditions `given` are known to hold. `labels` replace variables when one of several
    equivalent conditions is chosen. Unchanged nodes keep their identity.
    """
    if not _has_guard(node):
        return node

    def leaf(n: Scalar) -> Scalar | None:
        if isinstance(n, Select) and isinstance(n.cond, All):
            return _tidy_guard(n, n.cond, ranges, given, labels)
        return None

    return rewrite(node, leaf)


def _has_guard(node: Scalar) -> bool:
    match node:
        case All():
            return True
        case Unary() | Cast():
            return _has_guard(node.x)
        case Binary() | Compare():
            return _has_guard(node.a) or _has_guard(node.b)
        case Select():
            return _has_guard(node.cond) or _has_guard(node.on_true) or _has_guard(node.on_false)
        case Load() | Components():
            return any(map(_has_guard, children(node)))
        case _:
            return False


def _tidy_guard(
    node: Select, cond: All, ranges: Ranges, given: tuple[Cond, ...], labels: Labels | None
) -> Scalar:
    conds, on_true = cond.conds, node.on_true
    while (
        isinstance(on_true, Select)
        and isinstance(on_true.cond, All)
        and on_true.on_false == node.on_false
    ):
        conds, on_true = conds + on_true.cond.conds, on_true.on_true
    kept = needed(conds, ranges, given, labels)
    if kept is None:
        return tidy(node.on_false, ranges, given, labels)
    if not kept:
        return tidy(on_true, ranges, given, labels)
    on_true = tidy(on_true, ranges, given + kept, labels)
    only = kept[0]
    otherwise = (negated(only),) if len(kept) == 1 and isinstance(only, Ge0) else ()
    on_false = tidy(node.on_false, ranges, given + otherwise, labels)
    inner_merges = isinstance(on_true, Select) and on_true.on_false == on_false
    if inner_merges and isinstance(on_true, Select) and isinstance(on_true.cond, All):
        merged = Select(All(kept + on_true.cond.conds), on_true.on_true, on_false)
        return _tidy_guard(merged, All(kept + on_true.cond.conds), ranges, given, labels)
    same = kept == cond.conds and on_true is node.on_true and on_false is node.on_false
    return node if same else Select(All(kept), on_true, on_false)
