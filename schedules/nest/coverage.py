"""Prove that a nest writes every element of a buffer, so that reads of it need no guards.

Guards that only restrict writes to the bounds of the buffer are ignored. If there are other guards
(the end of a block, or of a fused loop), the written elements are enumerated in the dimensions on
which these guards depend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from typing import TypeAlias

import numpy as np

from ..algebra.affine import (
    ZERO,
    Affine,
    Datum,
    FloorDiv,
    Index,
    Interval,
    Mod,
    Var,
    recombine,
    simplify,
    var,
)
from ..algebra.comparisons import Cond, at_least, holds, less
from .finding import chain_to, writes_of
from .loop_ir import Allocate, Buffer, For, Nest, StoreElement, Update, walk

MOST_POINTS = 1 << 20
"""Most iterations that are enumerated: 8 MB per index, and about 10 ms."""

Extents: TypeAlias = dict[str, int]
"""Number of iterations of each loop, by the name of its variable."""


def is_written_whole(nest: Nest, buffer: Buffer) -> bool:
    """Return whether the writes to `buffer` cover all its elements. An input is never written and
    counts as covered. Updates of elements that were written before add nothing.

    A padded layout has elements that are never written. If software pipelining copied a write, the
    copies count once: they write the same elements.
    """
    writes = writes_of(nest.body, buffer.name)
    if not writes:
        return True
    found: dict[tuple[object, ...], int] = {}
    own = {loop.var for loop in _loops_inside(nest, buffer)}
    for write in writes:
        if isinstance(write, Update) and write.first is None:
            continue
        around = chain_to(nest.body, write)
        moving = [x for x in around if any(x.var in i.vars() for i in write.index)]
        renamed = {loop.var: var(f"#{n}") for n, loop in enumerate(moving)}
        # A guard that depends only on loops that do not index the buffer (a reduction) excludes no
        # element if it holds in some iteration.
        guarded = {name for guard in write.guards for name in guard.index.vars()}
        extents = {x.var: x.extent for x in around if x in moving or x.var in guarded}
        count = _elements(write, extents, own, buffer)
        key = (*(x.extent for x in moving), *(i.substitute(renamed) for i in write.index))
        found[key] = max(found.get(key, 0), count)
        if not count:
            return False
    return sum(found.values()) >= buffer.elements


def _loops_inside(nest: Nest, buffer: Buffer) -> Iterator[For]:
    """Yield the loops inside the allocation of `buffer`."""
    makes = (s for s in walk(nest.body) if isinstance(s, Allocate) and s.buffer == buffer)
    made = next(makes, None)
    return (s for s in walk(made.body if made else nest.body) if isinstance(s, For))


def _elements(write: StoreElement | Update, extents: Extents, own: set[str], buffer: Buffer) -> int:
    """Return the number of elements that `write` writes in loops with the given `extents`.

    The number is 0 if a guard that may exclude elements cannot be evaluated by enumeration. This is
    so if it depends on a loop that is not in `own`, or on too many iterations.
    """
    guards = [guard for guard in write.guards if guard not in _inside(write.index, buffer)]
    index, total = write.index, 1
    if guards:
        index, guards, extents, own = _in_digits(index, guards, extents, own)
    for loops, dims, ending in _related(index, guards):
        sizes = [buffer.shape[d] for d in dims]
        if not ending:  # tiles may extend beyond the end of the axis
            total *= min(_points(loops, extents), prod(sizes))
        elif loops <= extents.keys() & own and _points(loops, extents) <= MOST_POINTS:
            total *= _reached([index[d] for d in dims], sizes, ending, loops, extents)
        else:
            return 0
    return total


def _in_digits(
    index: Index, guards: Sequence[Cond], extents: Extents, own: set[str]
) -> tuple[Index, list[Cond], Extents, set[str]]:
    """Return the four arguments with each fused loop replaced by one loop per digit of its
    variable.

    A loop is replaced if all its divisors form one mixed-radix system. Dimensions that are related
    only by the fused loop become independent.
    """
    mapping, found, kept = dict[str, Affine](), dict[str, int](), set(own)
    for name, extent in extents.items():
        steps = _steps(name, index)
        ends = (*steps[1:], extent)
        if len(steps) == 1 or any(end % step for step, end in zip(steps, ends, strict=True)):
            found[name] = extent
            continue
        digits = {f"{name}/{step}": end // step for step, end in zip(steps, ends, strict=True)}
        mapping[name] = sum((var(n) * s for n, s in zip(digits, steps, strict=True)), ZERO)
        found |= digits
        kept |= digits.keys() if name in own else set()
    ranges = {name: Interval(0, extent - 1) for name, extent in found.items()}

    def simplified(i: Affine) -> Affine:
        return simplify(i.substitute(mapping), ranges)

    return (
        tuple(map(simplified, index)),
        [type(g)(simplified(g.index)) for g in guards],
        found,
        kept,
    )


def _steps(name: str, index: Index) -> list[int]:
    """Return the place values of the digits of a variable: 1 and its divisors, in ascending
    order."""
    found, atoms = {1}, [atom for i in index for atom, _ in i.terms]
    while atoms:
        atom = atoms.pop()
        if isinstance(atom, Var | Datum):
            continue
        atoms += [inner for inner, _ in atom.numerator.terms]
        step = 1
        if isinstance(atom, Mod) and len(atom.numerator.terms) == 1:
            (inner, _), *_ = atom.numerator.terms
            step = inner.divisor if isinstance(inner, FloorDiv) else 1
        if atom.numerator.vars() == {name}:
            found.add(atom.divisor * step)
    return sorted(found)


def _inside(index: Index, buffer: Buffer) -> set[Cond]:
    """Return the guards that only exclude elements outside `buffer`: the bounds of each dimension,
    and the bounds of the flat offset (a fused loop has them at its end)."""
    sizes = [prod(buffer.shape[d + 1 :]) for d in range(len(index))]
    flat = recombine(sum((i * size for i, size in zip(index, sizes, strict=True)), ZERO))
    ends = [*zip(index, buffer.shape, strict=True), (flat, buffer.elements)]
    return {cond for i, extent in ends for cond in (at_least(i, 0), less(i, extent))}


def _points(loops: set[str], extents: Extents) -> int:
    return prod(extents[name] for name in loops)


def _related(
    index: Index, guards: Sequence[Cond]
) -> Iterator[tuple[set[str], list[int], list[Cond]]]:
    """Yield groups of loops such that no dimension or guard depends on two groups. Each group comes
    with the dimensions and guards that depend on it."""
    groups: list[set[str]] = []
    for names in (set(x.vars()) for x in (*index, *(guard.index for guard in guards))):
        met = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names]
        groups += [reduce(set.union, met, names)] if names else []
    for group in groups:
        dims = [d for d, i in enumerate(index) if i.vars() & group]
        yield group, dims, [guard for guard in guards if guard.index.vars() & group]


def _reached(
    index: Sequence[Affine],
    sizes: Sequence[int],
    guards: Sequence[Cond],
    loops: set[str],
    extents: Extents,
) -> int:
    """Return the number of positions in a box of `sizes` that are reached in iterations in which
    all guards hold."""
    names = sorted(loops)
    grid = np.indices([extents[name] for name in names]).reshape(len(names), -1)
    env: dict[str, int] = dict(zip(names, grid, strict=True))  # arrays instead of integers
    at = [np.broadcast_to(i.evaluate(env), grid.shape[1:]) for i in index]
    there = [(place >= 0) & (place < size) for place, size in zip(at, sizes, strict=True)]
    there += [np.asarray(holds(guard, env)) for guard in guards]
    kept = np.all(there, axis=0)
    places = np.ravel_multi_index([place[kept] for place in at], tuple(sizes)) if at else kept[:0]
    return len(np.unique(places))
