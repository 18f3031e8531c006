"""Dropping guards on private results that nobody looks at.

    if j < N: acc[j] += A[k] * B[k, j]        ->    acc[j] += A[k] * (B[k, j] if j < N else 0)
    if j < N: C[j] = acc[j]                         if j < N: C[j] = acc[j]

Elements of `acc` beyond the guard are computed and thrown away: arithmetic on whole vectors is
cheaper than on masked ones. Legal where every reader of the buffer stands under the same guard
for the element it reads; reads that the guard kept in bounds get it as a condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .affine import Affine, Cond, Interval, Var, substitute_cond, var
from .loop_ir import Allocate, Buffer, For, Leaf, Prefetch, Stmt, Store, Update, transform, walk
from .primitives.nest_edit import leaf_sites
from .primitives.region import in_bounds
from .scalar import All, Const, Load, Scalar, Select, loads, rewrite


def relax_guards(stmts: tuple[Stmt, ...], arguments: tuple[Buffer, ...]) -> tuple[Stmt, ...]:
    """`stmts` with guards of writes to private buffers dropped where no reader can tell."""
    buffers = {b.name: b for b in arguments}
    private: dict[str, Buffer] = {}
    for stmt in walk(stmts):
        if isinstance(stmt, Allocate):
            buffers[stmt.buffer.name] = private[stmt.buffer.name] = stmt.buffer
    sites = list(leaf_sites(stmts))
    replaced: dict[int, Leaf] = {}
    for name in private:
        writers = [
            (leaf, chain)
            for leaf, chain in sites
            if not isinstance(leaf, Prefetch) and leaf.buffer == name
        ]
        if not any(w.guards for w, _ in writers):
            continue
        for writer, new in _relaxed(name, writers, sites, buffers):
            replaced[id(writer)] = new
    if not replaced:
        return stmts

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replaced[id(stmt)],) if id(stmt) in replaced else None

    return transform(stmts, change)


def _relaxed(
    name: str,
    writers: Sequence[tuple[Store | Update, tuple[For, ...]]],
    sites: list[tuple[Leaf, tuple[For, ...]]],
    buffers: Mapping[str, Buffer],
) -> list[tuple[Leaf, Leaf]]:
    """The writers of buffer `name` with their droppable guards dropped; none if one must stay."""
    readers = [
        (read.index, leaf.guards)
        for leaf, _ in sites
        if not isinstance(leaf, Prefetch)
        for read in loads(leaf.value)
        if read.tensor == name
    ]
    result: list[tuple[Leaf, Leaf]] = []
    for writer, chain in writers:
        reduced = {loop.var for loop in chain if loop.reduce}
        droppable = tuple(g for g in writer.guards if not g.index.vars() & reduced)
        own = {loop.var for loop in chain}
        for index, guards in readers:
            renaming = _same_element(writer.index, index, own)
            if renaming is None:
                return []
            wanted = {substitute_cond(g, renaming) for g in droppable}
            if not wanted <= set(guards):
                return []
        kept = tuple(g for g in writer.guards if g not in droppable)
        ranges = {loop.var: Interval(0, loop.extent - 1) for loop in chain}
        if in_bounds(writer.index, buffers[name].shape, ranges):
            return []  # without its guards the write would leave the buffer
        value = guard_reads(writer.value, droppable, buffers, ranges)
        result.append((writer, replace(writer, value=value, guards=kept)))
    return result


def _same_element(
    written: tuple[Affine, ...], read: tuple[Affine, ...], own: set[str]
) -> dict[str, Affine] | None:
    """How the writer's loops are called in the reader if both indices are the same function.

    Variables are matched by their coefficients, which must be different within a dimension.
    """
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
    buffers: Mapping[str, Buffer],
    ranges: dict[str, Interval],
) -> Scalar:
    """`value` computed even where `guards` fail: reads that need a guard give zero there."""
    if not guards:
        return value

    def needs(load: Load, known: tuple[Cond, ...]) -> bool:
        conds = in_bounds(load.index, buffers[load.tensor].shape, ranges)
        return any(c not in known for c in conds)

    def leaf(node: Scalar) -> Scalar | None:
        match node:
            case Select(All(conds), Load() as load, on_false):
                if not needs(load, conds):
                    return node
                return Select(All((*conds, *guards)), load, on_false)
            case Load() as load:
                return Select(All(guards), load, Const(0, load.dtype)) if needs(load, ()) else load
            case _:
                return None

    return rewrite(value, leaf)
