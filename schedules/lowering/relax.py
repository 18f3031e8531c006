"""Remove guards on writes to private buffers whose excess elements are never read.

    if j < N: acc[j] += A[k] * B[k, j]        ->    acc[j] += A[k] * (B[k, j] if j < N else 0)
    if j < N: C[j] = acc[j]                         if j < N: C[j] = acc[j]

The elements of `acc` for which the guard is false are then computed but never read. Arithmetic on
whole vectors is cheaper than on masked vectors. Removing the guard is legal if every reader of the
buffer has the same guard. A read that is in bounds only under the guard gets it as a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeAlias

from ..algebra.affine import Affine, Interval, Var, interval, var
from ..algebra.comparisons import Cond, Eq0, prove, substitute_cond, tighten
from ..algebra.conditions import greatest, in_bounds
from ..algebra.scalar import All, Const, Load, Scalar, Select, loads, rewrite, with_data
from ..algebra.scalar import walk as walk_scalar
from ..nest.finding import ranges_of, write_sites
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    Leaf,
    Stmt,
    StoreElement,
    Update,
    buffers_allocated,
    transform,
)

Guards: TypeAlias = tuple[Cond, ...]
Sites: TypeAlias = Sequence[tuple[StoreElement | Update, tuple[For, ...]]]
"""Leaves that write, each with its enclosing loops."""


def relax_guards(stmts: tuple[Stmt, ...], arguments: tuple[Buffer, ...]) -> tuple[Stmt, ...]:
    """Return `stmts` without the guards on writes to private buffers that affect no reader."""
    private = {b.name: b for b in buffers_allocated(stmts)}
    buffers = {b.name: b for b in arguments} | private
    sites = list(write_sites(stmts))
    around = dict(_loops_around_allocations(stmts, frozenset()))
    droppable: dict[int, tuple[Cond, ...]] = {}
    writers: dict[str, Sites] = {}
    for name in private:
        writers[name] = [(leaf, chain) for leaf, chain in sites if leaf.buffer == name]
        if any(w.guards for w, _ in writers[name]):
            droppable |= _droppable(name, writers[name], sites, buffers, around[name])
    if not droppable:
        return stmts
    replaced: dict[int, Leaf] = {}
    for writer, chain in (site for own in writers.values() for site in own):
        gone = droppable.get(id(writer))
        if gone is None:
            continue
        ranges = ranges_of(chain)
        kept = tuple(g for g in writer.guards if g not in gone)

        def unless_written(
            load: Load,
            ranges: dict[str, Interval] = ranges,
            gone: Guards = gone,
            kept: Guards = kept,
        ) -> Guards:
            if (
                load.tensor not in private
                or _fill(writers[load.tensor], private[load.tensor], droppable)
                or any(
                    _writes(w, c, load, ranges, droppable.get(id(w), ()), kept)
                    for w, c in writers[load.tensor]
                )
            ):
                return ()
            fixed = around[load.tensor].union(*(i.vars() for i in load.index))
            return _that_matter(gone, ranges, fixed)

        value = guard_reads(writer.value, gone, kept, buffers, ranges, unless_written)
        replaced[id(writer)] = replace(writer, value=value, guards=kept)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replaced[id(stmt)],) if id(stmt) in replaced else None

    return transform(stmts, change)


def _loops_around_allocations(
    stmts: tuple[Stmt, ...], around: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name of every allocated buffer, and the variables of the loops around its
    allocation."""
    for stmt in stmts:
        if isinstance(stmt, For):
            yield from _loops_around_allocations(stmt.body, around | {stmt.var})
        elif isinstance(stmt, Allocate):
            yield stmt.buffer.name, around
            yield from _loops_around_allocations(stmt.body, around)


def _that_matter(
    guards: tuple[Cond, ...], ranges: dict[str, Interval], fixed: Set[str]
) -> tuple[Cond, ...]:
    """Return the guards that a read must keep as conditions.

    The others are omitted together: one choice of values of the variables that are not `fixed`
    makes all of them true, whatever the fixed variables are. The iteration with these values writes
    the element that is read.
    """
    free = {name: values for name, values in ranges.items() if name not in fixed}
    best = dict[str, Affine]()
    matter: list[Cond] = []
    for guard in guards:
        chosen = greatest(guard.index, free)
        agree = all(best.get(name, value) == value for name, value in chosen.items())
        if agree and prove(substitute_cond(guard, chosen), ranges) is True:
            best |= chosen
        else:
            matter.append(guard)
    # If the chosen value of a variable would violate a remaining guard, the variable becomes fixed.
    torn = {
        name
        for guard in matter
        for name in guard.index.vars().intersection(best)
        if isinstance(guard, Eq0)
        or not guard.index.is_linear_in(name)
        or greatest(guard.index, free)[name] != best[name]
    }
    return _that_matter(guards, ranges, fixed | torn) if torn else tuple(matter)


def _droppable(
    name: str,
    writers: Sites,
    sites: Sites,
    buffers: Mapping[str, Buffer],
    around: Set[str],
) -> dict[int, tuple[Cond, ...]]:
    """Return the removable guards of each writer of buffer `name`, by `id(writer)`. The result is
    empty if removing guards is not legal for one of the writers."""
    readers = [
        (read.index, leaf.guards)
        for leaf, _ in sites
        for read in loads(leaf.value)
        if read.tensor == name
    ]
    result: dict[int, tuple[Cond, ...]] = {}
    for writer, chain in writers:
        reduced = {loop.var for loop in chain if loop.reduce}
        # Guards on loops around the allocation become bounds of these loops and cost nothing.
        ending = [g for g in writer.guards if g.index.vars() <= around]
        droppable = tuple(
            g for g in writer.guards if g not in ending and not g.index.vars() & reduced
        )
        own = {loop.var for loop in chain}
        for index, guards in readers:
            renaming = _same_element(writer.index, index, own)
            if renaming is None:
                return {}
            wanted = {substitute_cond(g, renaming) for g in droppable}
            if not wanted <= set(guards):
                return {}
        ranges = ranges_of(chain)
        if in_bounds(writer.index, buffers[name].shape, ranges):
            return {}  # without its guards the write would be out of bounds
        if droppable and not _is_one_to_one(writer.index, ranges, around):
            return {}  # without its guards the write would overwrite other elements
        result[id(writer)] = droppable
    return result if all(_is_started(w, c, writers, result) for w, c in writers) else {}


def _is_started(
    writer: StoreElement | Update,
    chain: tuple[For, ...],
    writers: Sites,
    dropped: Mapping[int, Guards],
) -> bool:
    """Return whether the old values that `writer` reads are still defined if the guards `dropped`
    are removed.

    This holds if `writer` reads no old value or loses no guard. Otherwise, one writer that reads no
    old value must write all elements that `writer` then updates.
    """
    gone = dropped[id(writer)]
    if isinstance(writer, StoreElement) or writer.first is not None or not gone:
        return True
    own = Load(writer.buffer, writer.index, writer.value.dtype)
    ranges = ranges_of(chain)
    kept = tuple(g for g in writer.guards if g not in gone)
    return any(
        _writes(w, c, own, ranges, dropped[id(w)], kept)
        for w, c in writers
        if isinstance(w, StoreElement) or w.first is not None
    )


def _is_one_to_one(index: tuple[Affine, ...], ranges: dict[str, Interval], fixed: Set[str]) -> bool:
    """Return whether different values of the variables that are not `fixed` give different
    elements. In each dimension, each stride must exceed the sum of the ranges of all smaller
    strides."""
    for dimension in index:
        reach = 0
        for atom, step in sorted(dimension.terms, key=lambda term: abs(term[1])):
            if not isinstance(atom, Var):
                return False
            if atom.name in fixed:
                continue
            if abs(step) <= reach:
                return False
            bounds = ranges[atom.name]
            reach += abs(step) * (bounds.hi - bounds.lo)
    return True


def _fill(writers: Sites, buffer: Buffer, dropped: Mapping[int, Guards]) -> bool:
    """Return whether `writers`, without the guards `dropped`, write every element of `buffer`: one
    of them, or several whose boxes follow each other along one dimension, as those of a partitioned
    loop."""
    boxes = [_box(w, c, buffer, dropped.get(id(w), ())) for w, c in writers]
    found = [box for box in boxes if box is not None]
    whole = [(0, extent) for extent in buffer.shape]
    if whole in found:
        return True
    for dim, extent in enumerate(buffer.shape):
        others = [n for n in range(len(whole)) if n != dim]
        spans = [box[dim] for box in found if all(box[n] == whole[n] for n in others)]
        reached = 0
        for begin, end in sorted(spans):
            reached = max(reached, end) if begin <= reached else reached
        if reached >= extent:
            return True
    return False


def _box(
    writer: StoreElement | Update, chain: tuple[For, ...], buffer: Buffer, dropped: Guards
) -> list[tuple[int, int]] | None:
    """Return the begin and end, in each dimension of `buffer`, of the elements that `writer` writes
    without the guards `dropped`. Return None if its index does not enumerate a box, or if its other
    guards exclude elements inside the buffer."""
    ranges = ranges_of(chain)
    ends = {tighten(c, ranges) for c in in_bounds(writer.index, buffer.shape, ranges)}
    if any(g not in dropped and g not in ends for g in writer.guards):
        return None
    extents = {loop.var: loop.extent for loop in chain}
    found = []
    for index, extent in zip(writer.index, buffer.shape, strict=True):
        counted = 1
        for atom, step in sorted(index.terms, key=lambda term: term[1]):
            if not isinstance(atom, Var) or step != counted or atom.name not in extents:
                return None
            counted *= extents.pop(atom.name)
        found.append((index.const, min(index.const + counted, extent)))
    return found


def _writes(
    writer: StoreElement | Update,
    chain: tuple[For, ...],
    load: Load,
    ranges: Mapping[str, Interval],
    dropped: Guards,
    held: Guards,
) -> bool:
    """Return whether `writer`, without the guards `dropped`, writes the element of `load` if the
    conditions `held` hold.

    Both indices must be the same function of their loops. The ranges of the writer's loops `chain`
    must include the ranges of the reader's loops. `held` must include the writer's other guards.
    """
    own = {loop.var: loop.extent for loop in chain}
    renaming = _same_element(writer.index, load.index, own.keys())
    if renaming is None:
        return False
    left = {substitute_cond(g, renaming) for g in writer.guards if g not in dropped}
    return left <= set(held) and all(
        interval(read, ranges).hi < own[name] for name, read in renaming.items()
    )


def _same_element(
    written: tuple[Affine, ...], read: tuple[Affine, ...], own: Set[str]
) -> dict[str, Affine] | None:
    """Return the reader's variable for each variable of the writer. Return None if the indices are
    not the same function. Variables are matched by their coefficients, which must differ within a
    dimension."""
    renaming: dict[str, Affine] = {}
    for w, r in zip(written, read, strict=True):
        by_coefficient = {c: a for a, c in r.terms}
        if w.const != r.const or len(w.terms) != len(r.terms):
            return None
        if len(by_coefficient) != len(r.terms):
            return None
        for atom, c in w.terms:
            other = by_coefficient.get(c)
            if not isinstance(atom, Var) or not isinstance(other, Var) or atom.name not in own:
                return None
            if renaming.setdefault(atom.name, var(other.name)) != var(other.name):
                return None
    return renaming


def guard_reads(
    value: Scalar,
    guards: tuple[Cond, ...],
    kept: tuple[Cond, ...],
    buffers: Mapping[str, Buffer],
    ranges: dict[str, Interval],
    unless_written: Callable[[Load], tuple[Cond, ...]],
) -> Scalar:
    """Return `value` with conditions on reads, so that it can be evaluated in iterations in which
    `guards` are false.

    The conditions `kept` still hold. A read may need guards to be in bounds. It also needs the
    guards `unless_written(load)`, without which its element is not written. If one of the needed
    guards is false, the read gives zero.
    """
    if not guards:
        return value

    # A read may be in bounds only if a guard and another condition hold together. The variables of
    # other conditions are therefore fixed.
    spoken_of = _variables((*kept, *_outer_conds(value)))

    def missing(load: Load, known: tuple[Cond, ...]) -> tuple[Cond, ...]:
        needed = unless_written(load)
        conds = in_bounds(load.index, buffers[load.tensor].shape, ranges)
        if any(c not in known for c in conds):
            # Guards needed for bounds are added to guards needed for defined values.
            fixed = spoken_of.union(_variables(known), *(i.vars() for i in load.index))
            inside = _that_matter(guards, ranges, fixed)
            needed = tuple(g for g in guards if g in needed or g in inside)
        return needed

    def leaf(node: Scalar) -> Scalar | None:
        match node:
            case Select(All(conds), Load() as read, on_false) if not loads(on_false):
                load = with_data(read, lambda value: rewrite(value, leaf))
                more = missing(load, conds)
                same = not more and load is read
                return node if same else Select(All((*conds, *more)), load, on_false)
            case Load() as load:
                more = missing(load, ())
                return Select(All(more), load, Const(0, load.dtype)) if more else load
            case _:
                return None

    return rewrite(value, leaf)


def _outer_conds(value: Scalar) -> Iterator[Cond]:
    """Yield the conditions of selects, except selects between a load and a value without loads."""
    for node in walk_scalar(value):
        if isinstance(node, Select) and isinstance(node.cond, All):
            alone = isinstance(node.on_true, Load) and not loads(node.on_false)
            yield from () if alone else node.cond.conds


def _variables(conds: Iterable[Cond]) -> frozenset[str]:
    return frozenset[str]().union(*(c.index.vars() for c in conds))
