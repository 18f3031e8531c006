"""Changing what a nest is made of: indices, conditions, names, and what stands around what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..algebra.affine import (
    Affine,
    Cond,
    Interval,
    Var,
    affine,
    prove,
    simplify,
    substitute_cond,
    tighten,
    var,
)
from ..algebra.scalar import Scalar, rename_tensors
from ..algebra.scalar import map_index as map_scalar_index
from ..algebra.scalar import substitute as substitute_scalar
from .loop_ir import (
    Allocate,
    Buffer,
    For,
    Leaf,
    Prefetch,
    Stmt,
    Store,
    Update,
    transform,
)


def map_leaf(
    leaf: Leaf,
    index: Callable[[Affine], Affine],
    scalar: Callable[[Scalar], Scalar],
    cond: Callable[[Cond], Cond],
) -> Leaf:
    """`leaf` with its index, value and conditions changed."""
    new_index = tuple(index(i) for i in leaf.index)
    if isinstance(leaf, Prefetch):
        return replace(leaf, index=new_index)
    guards = tuple(cond(g) for g in leaf.guards)
    value = scalar(leaf.value)
    if isinstance(leaf, Store):
        return Store(leaf.buffer, new_index, value, guards)
    first = None if leaf.first is None else tuple(cond(c) for c in leaf.first)
    return Update(leaf.buffer, new_index, value, leaf.reducer, first, guards)


def substitute_leaf(leaf: Leaf, mapping: Mapping[str, Affine]) -> Leaf:
    return map_leaf(
        leaf,
        lambda i: i.substitute(mapping),
        lambda s: substitute_scalar(s, mapping),
        lambda c: substitute_cond(c, mapping),
    )


def substitute_body(stmts: tuple[Stmt, ...], mapping: Mapping[str, Affine]) -> tuple[Stmt, ...]:
    """`stmts` with loop variables that are free in it replaced."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Store | Update | Prefetch):
            return (substitute_leaf(stmt, mapping),)
        return None

    return transform(stmts, change)


def divide_out(stmts: tuple[Stmt, ...], known: Mapping[str, Interval]) -> tuple[Stmt, ...]:
    """`stmts` with divisions and remainders by these variables' own strides resolved.

    `(17*o + i) // 17` with i in 0..16 is `o`, and stays so when i is split further.
    """

    def index(i: Affine) -> Affine:
        if all(isinstance(atom, Var) for atom, _ in i.terms):
            return i
        total = affine(i.const)
        for atom, c in i.terms:
            term = Affine(((atom, 1),), 0)
            inside = () if isinstance(atom, Var) else atom.numerator.vars()
            if inside and known.keys() >= set(inside):
                term = simplify(term, known)
            total = total + term * c
        return total

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case Store() | Update() | Prefetch():
                leaf = map_leaf(
                    stmt,
                    index,
                    lambda s: map_scalar_index(s, index),
                    lambda c: type(c)(index(c.index)),
                )
                return (leaf,)
            case _:
                return None

    return transform(stmts, change)


def add_guards(stmts: tuple[Stmt, ...], guards: tuple[Cond, ...]) -> tuple[Stmt, ...]:
    """`stmts` with `guards` on every leaf."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Store | Update):
            return (replace(stmt, guards=(*stmt.guards, *guards)),)
        return None

    return transform(stmts, change)


def rename_all(
    stmts: tuple[Stmt, ...], loop_names: Mapping[str, str], buffer_names: Mapping[str, str]
) -> tuple[Stmt, ...]:
    """`stmts` with its own loops and buffers renamed, definitions and uses alike."""
    variables = {old: var(new) for old, new in loop_names.items()}

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case For():
                name = loop_names.get(stmt.var, stmt.var)
                bounds = tuple(substitute_cond(c, variables) for c in stmt.bounds)
                return (replace(stmt, var=name, bounds=bounds, body=transform(stmt.body, change)),)
            case Allocate():
                new = buffer_names.get(stmt.buffer.name, stmt.buffer.name)
                body = transform(stmt.body, change)
                return (Allocate(replace(stmt.buffer, name=new), body),)
            case Store() | Update() | Prefetch():
                leaf = substitute_leaf(stmt, variables)
                name = buffer_names.get(leaf.buffer, leaf.buffer)
                if isinstance(leaf, Prefetch):
                    return (replace(leaf, buffer=name),)
                value = rename_tensors(leaf.value, buffer_names)
                if isinstance(leaf, Store):
                    return (Store(name, leaf.index, value, leaf.guards),)
                return (Update(name, leaf.index, value, leaf.reducer, leaf.first, leaf.guards),)

    return transform(stmts, change)


def nest_loops(chain: tuple[For, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` inside fresh copies of the loops of `chain`."""
    for loop in reversed(chain):
        body = (replace(loop, body=body),)
    return body


def simplify_conds(
    conds: tuple[Cond, ...], ranges: Mapping[str, Interval]
) -> tuple[Cond, ...] | None:
    """`conds` without those that always hold, the rest tightened; None if one never holds."""
    kept: dict[Cond, None] = {}
    for cond in conds:
        known = prove(cond, ranges)
        if known is False:
            return None
        if known is None:
            kept.setdefault(tighten(cond, ranges))
    return tuple(kept)


def flattened(stmts: tuple[Stmt, ...]) -> tuple[list[Buffer], list[Stmt]]:
    """What a body allocates outside of its loops, and its statements without that."""
    buffers: list[Buffer] = []
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            inner, below = flattened(stmt.body)
            buffers += [stmt.buffer, *inner]
            flat += below
        else:
            flat.append(stmt)
    return buffers, flat


def allocated(buffers: list[Buffer], stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`stmts` inside allocations of `buffers`."""
    for buffer in reversed(buffers):
        stmts = (Allocate(buffer, stmts),)
    return stmts
