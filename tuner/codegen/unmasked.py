"""Loop unswitching: code without masks for iterations in which all lanes satisfy a condition.

A tile at the diagonal of a triangle computes with masks, but all others would compute them for
nothing: in most iterations of the reduction, the condition holds for the whole tile, or
`SkipBlocks` has skipped it. One test per iteration selects the code without masks.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, replace

from tilewright.schedules.algebra.affine import FloorDiv, Interval, Mod, Var
from tilewright.schedules.algebra.comparisons import Cond, Ge0, prove, substitute_cond
from tilewright.schedules.algebra.conditions import greatest
from tilewright.schedules.algebra.scalar import All, Const, Scalar, Select, index_conds, rewrite
from tilewright.schedules.nest.editing import map_values, map_writes
from tilewright.schedules.nest.loop_ir import (
    LoopKind,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    leaves,
    loops,
)

from .indices import Indices


@dataclass(frozen=True, slots=True)
class Unmasked:
    """The body of a serial loop in two versions."""

    tests: tuple[Cond, ...]
    """Resolved conditions that are equal for all iterations of the loops inside."""
    body: tuple[Stmt, ...]
    """The body without conditions, for iterations in which all tests hold."""
    masked: tuple[Stmt, ...]
    """The body for the other iterations: conditions that are equal for all lanes are guards."""


def unmasked(body: tuple[Stmt, ...], indices: Indices) -> Unmasked | None:
    """Return two versions of `body`, the body of a serial loop, in which updates have conditions on
    indices.

    Return None if the conditions never hold in all iterations of the loops inside, or if `body` has
    other loops than unrolled and vectorised ones, or other statements than updates and prefetches.
    """
    kinds = {loop.kind for loop in loops(body)}
    plain = all(isinstance(leaf, Update | PrefetchHint) for leaf in leaves(body))
    if not plain or not kinds <= {LoopKind.UNROLLED, LoopKind.VECTORIZED}:
        return None
    inside = {loop.var: Interval(0, loop.extent - 1) for loop in loops(body)}
    found = {
        cond: _in_all_iterations(cond, inside)
        for leaf in leaves(body)
        if isinstance(leaf, Update)
        for cond in index_conds(leaf.value)
    }
    tests = {
        cond: type(test)(indices.resolve(test.index))
        for cond, test in found.items()
        if test is not None
    }
    known = {test: prove(test, indices.ranges) for test in tests.values()}
    needed = tuple(test for test, holds in known.items() if holds is None)
    if not needed or False in known.values():
        return None
    lanes = {loop.var for loop in loops(body) if loop.kind is LoopKind.VECTORIZED}
    return Unmasked(
        needed,
        map_values(body, lambda node: _without(node, tests)),
        map_writes(body, lambda leaf: _guarded(leaf, lanes)),
    )


def _without(node: Scalar, conds: Collection[Cond]) -> Scalar | None:
    """Return `node` without `conds`, which hold, if it is a Select that has some of them."""
    if not isinstance(node, Select) or not isinstance(node.cond, All):
        return None
    on_true, on_false = (
        rewrite(value, lambda inner: _without(inner, conds))
        for value in (node.on_true, node.on_false)
    )
    left = tuple(cond for cond in node.cond.conds if cond not in conds)
    return Select(All(left), on_true, on_false) if left else on_true


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


def _in_all_iterations(cond: Cond, inside: dict[str, Interval]) -> Cond | None:
    """Return the condition under which `cond` holds in all iterations of the loops `inside`, or
    None if it is not a comparison that is linear in them, or depends on data."""
    used = cond.index.vars() & inside.keys()
    if not all(isinstance(atom, Var | FloorDiv | Mod) for atom, _ in cond.index.terms):
        return None
    if not used:
        return cond
    if not isinstance(cond, Ge0) or not all(cond.index.is_linear_in(name) for name in used):
        return None
    return substitute_cond(cond, greatest(-cond.index, inside))
