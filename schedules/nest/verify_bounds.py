"""Prove accesses of a nest in bounds, from loop ranges and index conditions.

The assumptions for an access are the ranges and bounds of the loops that enclose it, the guards of
its leaf, and the conditions of the selects that enclose it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias, assert_never

import numpy as np

from ..algebra.affine import Affine, Interval, Var, interval
from ..algebra.comparisons import Cond, Eq0, Ge0, at_least, holds, less
from ..algebra.conditions import follows, negated, normal_cond, related
from ..algebra.elimination import exclude_each_other
from ..algebra.scalar import All, Load, Scalar, Select, children
from .loop_ir import Allocate, For, LoopKind, Nest, PrefetchHint, Stmt, StoreElement, Update
from .printer import access_text
from .selected import selected_iteration

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The shapes of the buffers in scope."""

MOST_POINTS = 1 << 16
"""Most points that are enumerated if no rule proves a condition. They take about a millisecond."""


@dataclass(frozen=True, slots=True)
class BoundedAccess:
    """An access `buffer[index]` whose index number `axis` is not proved to be in 0..extent-1."""

    buffer: str
    index: tuple[Affine, ...]
    axis: int
    extent: int

    def __str__(self) -> str:
        text = access_text(self.buffer, self.index)
        return f"{text}: index {self.axis}, {self.index[self.axis]}, may leave 0..{self.extent - 1}"


@dataclass(frozen=True, slots=True)
class Facts:
    """Ranges and conditions that hold at one position in the nest. `reachable` is False if they
    contradict each other. Every condition is then proved."""

    ranges: Mapping[str, Interval]
    conds: tuple[Ge0, ...] = ()
    reachable: bool = True

    def with_var(self, name: str, extent: int) -> Facts:
        return replace(self, ranges={**self.ranges, name: Interval(0, extent - 1)})

    def with_conds(self, conds: tuple[Cond, ...]) -> Facts:
        if not conds:
            return self
        found = (*self.conds, *(g for c in conds for g in _inequalities(c)))
        ranges = _narrowed(self.ranges, found)
        if ranges is None:
            return replace(self, reachable=False)
        # A condition on one variable is subsumed by its range.
        kept = tuple(c for c in found if len(c.index.terms) > 1 or not _is_plain(c.index))
        return Facts(ranges, kept, self.reachable)

    def proves(self, cond: Ge0) -> bool:
        """Return whether the facts prove `cond`. False means "not proved"."""
        if not self.reachable or follows(cond, self.conds, self.ranges):
            return True
        goal = negated(cond)
        return exclude_each_other((goal, *related(goal, self.conds)), self.ranges)


def unproven_accesses(nest: Nest) -> tuple[BoundedAccess, ...]:
    """Return the reads and writes that are not proved in bounds, in program order.

    Proofs use intervals, sums of known conditions, elimination (`elimination.py`) and enumeration.
    They are incomplete, but no case is known in which they fail. The nest must be well formed.
    """
    return tuple(dict.fromkeys(_unproven(nest)))


def first_unproven(nest: Nest) -> BoundedAccess | None:
    """Return the first of `unproven_accesses`, or None if all accesses are proved."""
    return next(_unproven(nest), None)


def _unproven(nest: Nest) -> Iterator[BoundedAccess]:
    shapes = {b.name: b.shape for b in nest.argument_buffers}
    return _in_block(nest.body, Facts({}), shapes)


def _in_block(stmts: tuple[Stmt, ...], facts: Facts, shapes: Shapes) -> Iterator[BoundedAccess]:
    for stmt in stmts:
        match stmt:
            case For():
                if stmt.kind is LoopKind.SELECTED:
                    yield from _in_place(stmt, facts, shapes)
                inside = facts.with_var(stmt.var, stmt.extent).with_conds(stmt.bounds)
                yield from _in_block(stmt.body, inside, shapes)
            case Allocate():
                buffer = stmt.buffer
                yield from _in_block(stmt.body, facts, {**shapes, buffer.name: buffer.shape})
            case StoreElement() | Update():
                inside = facts.with_conds(stmt.guards)
                yield from _in_scalar(stmt.value, inside, shapes)
                yield from _in_access(stmt.buffer, stmt.index, inside, shapes)
            case PrefetchHint():
                pass
            case _:
                assert_never(stmt)


def _in_place(loop: For, facts: Facts, shapes: Shapes) -> Iterator[BoundedAccess]:
    """Yield accesses of the integer that selects an iteration of `loop`. It is read before the
    loop."""
    selected = selected_iteration(loop)
    if selected is not None:
        yield from _in_scalar(selected.place, facts.with_conds(selected.guards), shapes)


def _in_scalar(node: Scalar, facts: Facts, shapes: Shapes) -> Iterator[BoundedAccess]:
    match node:
        case Load(name, index, _):
            for value in children(node):
                yield from _in_scalar(value, facts, shapes)
            yield from _in_access(name, index, facts, shapes)
        case Select(cond, on_true, on_false):
            conds = cond.conds if isinstance(cond, All) else ()
            yield from _in_scalar(cond, facts, shapes)
            yield from _in_scalar(on_true, facts.with_conds(conds), shapes)
            yield from _in_scalar(on_false, facts.with_conds(_opposite(conds)), shapes)
        case _:
            for child in children(node):
                yield from _in_scalar(child, facts, shapes)


def _in_access(
    name: str, index: tuple[Affine, ...], facts: Facts, shapes: Shapes
) -> Iterator[BoundedAccess]:
    for axis, (i, extent) in enumerate(zip(index, shapes[name], strict=True)):
        bounds = interval(i, facts.ranges)
        sides = [at_least(i, 0)] if bounds.lo < 0 else []
        sides += [less(i, extent)] if bounds.hi >= extent else []
        if not all(facts.proves(side) or _holds_everywhere(side, facts) for side in sides):
            yield BoundedAccess(name, index, axis, extent)


def _holds_everywhere(cond: Ge0, facts: Facts) -> bool:
    """Return whether `cond` holds at every point that satisfies the known conditions.

    The variables that are related to `cond` are enumerated. Return False if they have too many
    points. Some quotients and remainders of fused loops need this, because no rule is strong enough
    for them.
    """
    names, conds = set(cond.index.vars()), list[Ge0]()
    while True:
        met = [c for c in facts.conds if c not in conds and names & c.index.vars()]
        if not met:
            break
        conds += met
        names |= {name for c in met for name in c.index.vars()}
    spans = {name: facts.ranges[name] for name in sorted(names)}
    extents = [span.hi - span.lo + 1 for span in spans.values()]
    if prod(extents) > MOST_POINTS:
        return False
    grid = np.indices(extents)  # arrays instead of integers
    env = {name: at + span.lo for (name, span), at in zip(spans.items(), grid, strict=True)}
    excluded = np.zeros(extents, np.bool_)
    for known in conds:
        excluded |= ~np.asarray(holds(known, env))
    return bool((excluded | np.asarray(holds(cond, env))).all())


def _opposite(conds: tuple[Cond, ...]) -> tuple[Cond, ...]:
    """Return the negation of `conds` if it is a single inequality, else ()."""
    if len(conds) == 1 and isinstance(conds[0], Ge0):
        return (Ge0(-conds[0].index - 1),)
    return ()


def _inequalities(cond: Cond) -> tuple[Ge0, ...]:
    sides = (cond.index, -cond.index) if isinstance(cond, Eq0) else (cond.index,)
    return tuple(c for c in map(normal_cond, map(Ge0, sides)) if isinstance(c, Ge0))


def _is_plain(index: Affine) -> bool:
    return all(isinstance(atom, Var) for atom, _ in index.terms)


def _narrowed(ranges: Mapping[str, Interval], conds: tuple[Ge0, ...]) -> dict[str, Interval] | None:
    """Return `ranges` tightened by one pass over `conds`, or None if they contradict each other. In
    `c*v + rest >= 0`, the greatest value of `rest` gives a bound of v."""
    narrow = dict(ranges)
    for cond in conds:
        if interval(cond.index, narrow).hi < 0:
            return None
        for atom, c in cond.index.terms:
            if not isinstance(atom, Var):
                continue
            rest = interval(cond.index - Affine(((atom, c),), 0), narrow).hi
            now = narrow[atom.name]
            lo = max(now.lo, -(rest // c)) if c > 0 else now.lo
            hi = min(now.hi, rest // -c) if c < 0 else now.hi
            if lo > hi:
                return None
            narrow[atom.name] = Interval(lo, hi)
    return narrow
