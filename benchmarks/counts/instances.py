"""Which iterations of a lowered nest run what: exact numbers, from loops, bounds and guards alone.

A leaf runs for the values of the loops around it for which every bound of these loops and every
guard of its own holds. Conditions tie some of the loops together; loops that no condition speaks of
multiply the count. So only the values of loops that share a condition are enumerated, as one grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.affine import Affine
from tilewright.schedules.algebra.comparisons import Cond, Ge0
from tilewright.schedules.nest.loop_ir import Allocate, For, Leaf, LoopKind, PrefetchHint, Stmt

MOST_POINTS = 1 << 26
"""Values that are enumerated at once, at most: workloads here are small."""

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Never:
    """Holds where not all of `conds` do: the other side of a choice."""

    conds: tuple[Cond, ...]


Rule: TypeAlias = Cond | Never


@dataclass(frozen=True, slots=True)
class Placed:
    """A leaf and the loops around it, outermost first."""

    leaf: Leaf
    loops: tuple[For, ...]

    @property
    def lanes(self) -> For | None:
        """The vectorised loop around the leaf, if there is one: nothing but leaves is inside it."""
        last = self.loops[-1] if self.loops else None
        return last if last is not None and last.kind is LoopKind.VECTORIZED else None

    @property
    def running(self) -> tuple[For, ...]:
        """The loops up to the innermost that is neither written out nor lanes."""
        kinds = [loop.kind in (LoopKind.SERIAL, LoopKind.PARALLEL) for loop in self.loops]
        return self.loops[: len(kinds) - kinds[::-1].index(True)] if any(kinds) else ()

    @property
    def unrolled_inside(self) -> tuple[For, ...]:
        """The unrolled loops inside of these: their copies are code that runs in a row."""
        inside = self.loops[len(self.running) :]
        return inside if self.lanes is None else inside[:-1]

    @property
    def decided(self) -> set[str]:
        """All unrolled loops: what their values decide is decided when code is written."""
        return {loop.var for loop in self.loops if loop.kind is LoopKind.UNROLLED}

    @property
    def steps(self) -> tuple[str, ...]:
        """All loops but the lanes: their values number the instructions."""
        loops = self.loops if self.lanes is None else self.loops[:-1]
        return tuple(loop.var for loop in loops)

    @property
    def conds(self) -> tuple[Cond, ...]:
        """What must hold for the leaf to run."""
        guards = () if isinstance(self.leaf, PrefetchHint) else self.leaf.guards
        return (*bounds_of(self.loops), *guards)

    def within(self, loop: For) -> bool:
        return any(each is loop for each in self.loops)


def placed(stmts: tuple[Stmt, ...], around: tuple[For, ...] = ()) -> Iterator[Placed]:
    """Every leaf in `stmts`, in program order."""
    for stmt in stmts:
        match stmt:
            case For():
                yield from placed(stmt.body, (*around, stmt))
            case Allocate():
                yield from placed(stmt.body, around)
            case _:
                yield Placed(stmt, around)


def bounds_of(loops: Iterable[For]) -> tuple[Cond, ...]:
    """The bounds of all `loops`: an iteration runs where its own bounds and those outside hold."""
    return tuple(bound for loop in loops for bound in loop.bounds)


def count(loops: Sequence[For], conds: Iterable[Rule], keep: Iterable[str]) -> int:
    """For how many values of the loops `keep` some values of the others satisfy all `conds`."""
    kept = set(keep)
    total = 1
    for names, found in _components(loops, conds):
        dropped = tuple(n for n, name in enumerate(names) if name not in kept)
        total *= int(np.count_nonzero(found.any(axis=dropped) if dropped else found))
    return total


def count_by(
    loops: Sequence[For], conds: Iterable[Rule], keep: Iterable[str], by: Sequence[str]
) -> IntArray:
    """(extents of `by`) the same for each value of the loops `by`, beside those of `keep`."""
    kept = {*keep, *by}
    counts = np.ones((1,) * len(by), np.int64)
    for names, holding in _components(loops, conds):
        dropped = tuple(n for n, name in enumerate(names) if name not in kept)
        found = np.asarray(holding.any(axis=dropped)) if dropped else holding
        left = [name for name in names if name in kept]
        found = found.sum(axis=tuple(n for n, name in enumerate(left) if name not in by))
        left = [name for name in left if name in by]
        order = sorted(left, key=by.index)
        found = np.transpose(found, [left.index(name) for name in order])
        where = tuple(slice(None) if name in order else None for name in by)
        counts = counts * found[where]
    extents = {loop.var: loop.extent for loop in loops}
    return np.broadcast_to(counts, tuple(extents[name] for name in by))


def iterations(loops: Sequence[For]) -> int:
    """How often the body of the last of `loops` runs."""
    return count(loops, bounds_of(loops), [loop.var for loop in loops])


def truth(conds: Iterable[Rule], names: Sequence[str], extents: Sequence[int]) -> BoolArray:
    """(*extents,) where all `conds`, which speak of `names` alone, hold."""
    if prod(extents) > MOST_POINTS:
        raise ValueError(f"{prod(extents)} values of {', '.join(names)} are too many to enumerate")
    env = grid(names, extents)
    found = np.ones((1,) * len(names), np.bool_)
    for cond in conds:
        found = found & _holds(cond, env)
    return np.broadcast_to(found, tuple(extents))


def grid(names: Sequence[str], extents: Sequence[int]) -> dict[str, IntArray]:
    """The values of each loop, along an axis of its own."""
    axes = np.ogrid[tuple(slice(extent) for extent in extents)] if names else []
    return dict(zip(names, axes, strict=True))


def names_in(rule: Rule) -> frozenset[str]:
    """The loops that a rule speaks of."""
    if isinstance(rule, Never):
        return frozenset().union(*(cond.index.vars() for cond in rule.conds))
    return rule.index.vars()


def evaluated(index: Affine, env: Mapping[str, IntArray]) -> IntArray:
    """`index` where loops have these values: arrays do what numbers do."""
    return np.asarray(index.evaluate(env))  # type: ignore[arg-type]


def _holds(rule: Rule, env: dict[str, IntArray]) -> BoolArray:
    if isinstance(rule, Never):
        found = np.ones((), np.bool_)
        for cond in rule.conds:
            found = found & _holds(cond, env)
        return ~found
    value = evaluated(rule.index, env)
    return value >= 0 if isinstance(rule, Ge0) else value == 0


def _components(
    loops: Sequence[For], conds: Iterable[Rule]
) -> Iterator[tuple[tuple[str, ...], BoolArray]]:
    """Groups of loops that conditions tie together, each with where its conditions hold; a loop
    that nothing speaks of is a group of its own."""
    extents = {loop.var: loop.extent for loop in loops}
    groups: list[tuple[set[str], list[Rule]]] = [({name}, []) for name in extents]
    for cond in dict.fromkeys(conds):
        names = set(names_in(cond))
        if not names:
            groups.append((set(), [cond]))
            continue
        tied = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        together = [*(each for group in tied for each in group[1]), cond]
        groups.append((set().union(*(group[0] for group in tied)), together))
    for tied_names, ruling in groups:
        order = tuple(name for name in extents if name in tied_names)
        yield order, truth(ruling, order, [extents[name] for name in order])
