"""Loop unswitching: versions of a loop body for iterations in which conditions on indices are
decided.

A tile at the diagonal of a triangle computes with masks, but all others would compute them for
nothing: in most iterations of the reduction, the condition holds for the whole tile, or
`SkipBlocks` has skipped it. Likewise, most vectors of a concatenation are in one of its parts. One
test per iteration selects a version without masks, or with one formula only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, assert_never

from tilewright.schedules.algebra.affine import FloorDiv, Interval, Mod, Var
from tilewright.schedules.algebra.comparisons import Cond, Ge0, prove, substitute_cond
from tilewright.schedules.algebra.conditions import greatest, negated
from tilewright.schedules.algebra.scalar import (
    All,
    Const,
    Scalar,
    Select,
    calls_of,
    index_conds,
    loads,
    rewrite,
    walk,
)
from tilewright.schedules.nest.editing import map_values, map_writes
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    For,
    LoopKind,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    leaves,
    loops,
)

from .indices import Indices

MOST_FORMULAS = 4
"""Largest number of conditions between formulas that are decided in turn. Each may double the
number of versions."""

MOST_OPERATIONS = 8192
"""Most operations of all versions of a body that is not half as large itself. Fewer conditions are
decided if there would be more. LLVM takes about a second for this number."""

OPERATIONS_OF_CALL = 24
"""Operations of a math function, such as exp."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Two versions of a loop body."""

    tests: tuple[Cond, ...]
    """Resolved conditions that are equal for all iterations of the loops inside."""
    holds: Body
    """The version for iterations in which all tests hold."""
    fails: Body
    """The version for the other iterations."""


Body: TypeAlias = tuple[Stmt, ...] | Branch


def unswitched(body: tuple[Stmt, ...], indices: Indices) -> Body:
    """Return versions of `body`, the body of a serial loop, in which values have conditions on
    indices, or `body` itself.

    A loop has versions only if it contains no loops but unrolled and vectorised ones, and either
    updates or stores that read nothing of what they write.
    """
    kinds = {loop.kind for loop in loops(body)}
    found = [leaf for leaf in leaves(body) if not isinstance(leaf, PrefetchHint)]
    written = {leaf.buffer for leaf in found}
    alone = all(load.tensor not in written for leaf in found for load in loads(leaf.value))
    if not alone or not kinds <= {LoopKind.UNROLLED, LoopKind.VECTORIZED}:
        return body
    if all(isinstance(leaf, Update) for leaf in found):
        return _unmasked(body, indices)
    if not all(isinstance(leaf, StoreElement) for leaf in found):
        return body
    limit = max(MOST_OPERATIONS, 2 * _operations(body))
    versions = (_one_formula(body, indices, most) for most in range(MOST_FORMULAS, 0, -1))
    return next((found for found in versions if _operations(found) <= limit), body)


def _operations(body: Body) -> int:
    """Return the number of operations in the code of `body`, in which unrolled loops are copies."""
    if isinstance(body, Branch):
        return _operations(body.holds) + _operations(body.fails)
    total = 0
    for stmt in body:
        match stmt:
            case For():
                copies = stmt.extent if stmt.kind is LoopKind.UNROLLED else 1
                total += copies * _operations(stmt.body)
            case Allocate():
                total += _operations(stmt.body)
            case StoreElement() | Update():
                total += sum(1 + OPERATIONS_OF_CALL * calls_of(n) for n in walk(stmt.value))
            case PrefetchHint():
                total += 1
            case _:
                assert_never(stmt)
    return total


def _between_formulas(value: Scalar) -> Iterator[Cond]:
    """Yield the conditions that choose between two values that are both read or computed."""
    for node in walk(value):
        match node:
            case Select(All(conds), on_true, on_false) if any(loads(on_true)):
                yield from conds if any(loads(on_false)) else ()


def _one_formula(body: tuple[Stmt, ...], indices: Indices, most: int) -> Body:
    """Return versions of `body` in which up to `most` conditions are true, false, or undecided."""
    found = (leaf.value for leaf in leaves(body) if isinstance(leaf, StoreElement))
    conds = dict.fromkeys(cond for value in found for cond in _between_formulas(value))
    inside = _inside(body)
    for cond in conds if most else ():
        if not isinstance(cond, Ge0):
            continue
        holds, fails = (_test(each, inside, indices) for each in (cond, negated(cond)))
        if holds is None or fails is None:
            continue
        known = [prove(test, indices.ranges) for test in (holds, fails)]
        uniform = not cond.index.vars() & inside.keys()
        if True in known or (uniform and False in known):
            continue  # each leaf decides it
        if known == [False, False]:
            continue  # no iteration decides it
        true = map_values(body, partial(_without, conds=(cond,)))
        false = map_values(body, partial(_refuted, cond=cond))
        if_true, if_false = (_one_formula(each, indices, most - 1) for each in (true, false))
        if uniform:
            return Branch((holds,), if_true, if_false)
        undecided = body if known[1] is False else Branch((fails,), if_false, body)
        return undecided if known[0] is False else Branch((holds,), if_true, undecided)
    return body


def _unmasked(body: tuple[Stmt, ...], indices: Indices) -> Body:
    """Return `body`, which contains updates, without its conditions, and with them for iterations
    in which they do not all hold. There, conditions that are equal for all lanes are guards."""
    inside = _inside(body)
    conds = dict.fromkeys(
        cond
        for leaf in leaves(body)
        if isinstance(leaf, Update)
        for cond in index_conds(leaf.value)
    )
    found = {cond: _test(cond, inside, indices) for cond in conds}
    tests = {cond: test for cond, test in found.items() if test is not None}
    known = {test: prove(test, indices.ranges) for test in tests.values()}
    needed = tuple(test for test, holds in known.items() if holds is None)
    if not needed or False in known.values():
        return body
    lanes = {loop.var for loop in loops(body) if loop.kind is LoopKind.VECTORIZED}
    return Branch(
        needed,
        map_values(body, partial(_without, conds=tests)),
        map_writes(body, lambda leaf: _guarded(leaf, lanes)),
    )


def _inside(body: tuple[Stmt, ...]) -> dict[str, Interval]:
    """Return the values of the variables of all loops in `body`."""
    return {loop.var: Interval(0, loop.extent - 1) for loop in loops(body)}


def _without(node: Scalar, conds: Collection[Cond]) -> Scalar | None:
    """Return `node` without `conds`, which hold, if it is a Select that has some of them."""
    if not isinstance(node, Select) or not isinstance(node.cond, All):
        return None
    left = tuple(cond for cond in node.cond.conds if cond not in conds)
    if len(left) == len(node.cond.conds):
        return None
    on_true = rewrite(node.on_true, lambda inner: _without(inner, conds))
    if not left:
        return on_true
    return Select(All(left), on_true, rewrite(node.on_false, lambda inner: _without(inner, conds)))


def _refuted(node: Scalar, cond: Cond) -> Scalar | None:
    """Return the alternative that remains of `node` where `cond` fails, if it is a Select that has
    this condition."""
    if isinstance(node, Select) and isinstance(node.cond, All) and cond in node.cond.conds:
        return rewrite(node.on_false, lambda inner: _refuted(inner, cond))
    return None


def _guarded(leaf: StoreElement | Update, lanes: Set[str]) -> StoreElement | Update:
    """Return an update whose value is the identity where a condition fails, with the conditions
    that are equal for all `lanes` as guards: a branch is cheaper than a mask in each lane."""
    match leaf:
        case Update(value=Select(All(conds), _, Const(x)), first=None):
            if x != leaf.reducer.identity(leaf.value.dtype):
                return leaf
            uniform = tuple(cond for cond in conds if lanes.isdisjoint(cond.index.vars()))
            value = _without(leaf.value, uniform) if uniform else None
            return replace(leaf, value=value or leaf.value, guards=(*leaf.guards, *uniform))
        case _:
            return leaf


def _test(cond: Cond, inside: Mapping[str, Interval], indices: Indices) -> Cond | None:
    """Return the resolved condition under which `cond` holds in all iterations of the loops
    `inside`, or None if it is not a comparison that is linear in them, or depends on data."""
    used = cond.index.vars() & inside.keys()
    if not all(isinstance(atom, Var | FloorDiv | Mod) for atom, _ in cond.index.terms):
        return None
    test = cond
    if used:
        if not isinstance(cond, Ge0) or not all(cond.index.is_linear_in(name) for name in used):
            return None
        test = substitute_cond(cond, greatest(-cond.index, inside))
    return type(test)(indices.resolve(test.index))
