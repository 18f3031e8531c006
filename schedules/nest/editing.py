"""Edit nests: substitute indices, add conditions, rename, and move statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ..algebra.affine import ZERO, Affine, Index, Interval, Var, affine, fresh, simplify, var
from ..algebra.comparisons import Cond, prove, substitute_cond, tighten
from ..algebra.scalar import Load, Scalar, rename_tensors
from ..algebra.scalar import map_index as map_scalar_index
from ..algebra.scalar import rewrite as rewrite_scalar
from ..algebra.scalar import substitute as substitute_scalar
from .finding import accesses_of, reads_of
from .loop_ir import (
    Allocate,
    Buffer,
    For,
    Leaf,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    buffers_allocated,
    loops,
    transform,
)


def map_leaf(
    leaf: Leaf,
    index: Callable[[Affine], Affine],
    scalar: Callable[[Scalar], Scalar],
    cond: Callable[[Cond], Cond],
) -> Leaf:
    """Return `leaf` with the functions applied to its index, value and conditions."""
    new_index = tuple(index(i) for i in leaf.index)
    if isinstance(leaf, PrefetchHint):
        return replace(leaf, index=new_index)
    guards = tuple(cond(g) for g in leaf.guards)
    value = scalar(leaf.value)
    if isinstance(leaf, StoreElement):
        return StoreElement(leaf.buffer, new_index, value, guards)
    first = None if leaf.first is None else tuple(cond(c) for c in leaf.first)
    return Update(leaf.buffer, new_index, value, leaf.reducer, first, guards)


def substitute_leaf(leaf: Leaf, mapping: Mapping[str, Affine]) -> Leaf:
    return map_leaf(
        leaf,
        lambda i: i.substitute(mapping),
        lambda s: substitute_scalar(s, mapping),
        lambda c: substitute_cond(c, mapping),
    )


def substitute_body(
    stmts: tuple[Stmt, ...],
    mapping: Mapping[str, Affine],
    known: Mapping[str, Interval] | None = None,
) -> tuple[Stmt, ...]:
    """Return `stmts` with the variables in `mapping` replaced.

    Divisions and remainders are simplified under the ranges `known`. With i in 0..16, `(17*o + i)
    // 17` becomes `o`.
    """

    def index(i: Affine) -> Affine:
        new = i.substitute(mapping)
        return new if known is None else _divided_out(new, known)

    def cond(c: Cond) -> Cond:
        new = index(c.index)
        return c if new is c.index else type(c)(new)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, StoreElement | Update | PrefetchHint):
            return (map_leaf(stmt, index, lambda s: map_scalar_index(s, index), cond),)
        return None

    return transform(stmts, change)


def _divided_out(index: Affine, known: Mapping[str, Interval]) -> Affine:
    if all(isinstance(atom, Var) for atom, _ in index.terms):
        return index
    total = affine(index.const)
    for atom, c in index.terms:
        term = Affine(((atom, c),), 0)
        inside = frozenset() if isinstance(atom, Var) else term.vars()
        total = total + (simplify(term, known) if inside and known.keys() >= inside else term)
    return total


def map_writes(
    stmts: tuple[Stmt, ...], change: Callable[[StoreElement | Update], StoreElement | Update]
) -> tuple[Stmt, ...]:
    return transform(
        stmts, lambda s: (change(s),) if isinstance(s, StoreElement | Update) else None
    )


def map_values(
    stmts: tuple[Stmt, ...], change: Callable[[Scalar], Scalar | None]
) -> tuple[Stmt, ...]:
    """Return `stmts` with each subexpression replaced by the result of `change`, if that is not
    None."""

    def rewritten(leaf: StoreElement | Update) -> StoreElement | Update:
        value = rewrite_scalar(leaf.value, change)
        return leaf if value is leaf.value else replace(leaf, value=value)

    return map_writes(stmts, rewritten)


def map_loads(
    stmts: tuple[Stmt, ...], tensor: str, change: Callable[[Load], Scalar]
) -> tuple[Stmt, ...]:
    return map_values(
        stmts,
        lambda node: change(node) if isinstance(node, Load) and node.tensor == tensor else None,
    )


def move_loads(
    stmts: tuple[Stmt, ...], tensor: str, index: Callable[[Index], Index]
) -> tuple[Stmt, ...]:
    """Return `stmts` with `index` applied to the index of each load of `tensor`."""
    return map_loads(stmts, tensor, lambda load: replace(load, index=index(load.index)))


def add_guards(stmts: tuple[Stmt, ...], guards: tuple[Cond, ...]) -> tuple[Stmt, ...]:
    """Return `stmts` with `guards` added to every leaf that writes."""
    return map_writes(stmts, lambda leaf: replace(leaf, guards=(*leaf.guards, *guards)))


def replaced(stmts: tuple[Stmt, ...], old: Stmt, new: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `stmts` with the statement `old`, compared by identity at any depth, replaced by
    `new`."""
    return transform(stmts, lambda stmt: new if stmt is old else None)


def rename_all(
    stmts: tuple[Stmt, ...], loop_names: Mapping[str, str], buffer_names: Mapping[str, str]
) -> tuple[Stmt, ...]:
    """Return `stmts` with loops and buffers renamed in definitions and uses."""
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
            case StoreElement() | Update() | PrefetchHint():
                leaf = substitute_leaf(stmt, variables)
                name = buffer_names.get(leaf.buffer, leaf.buffer)
                if isinstance(leaf, PrefetchHint):
                    return (replace(leaf, buffer=name),)
                value = rename_tensors(leaf.value, buffer_names)
                if isinstance(leaf, StoreElement):
                    return (StoreElement(name, leaf.index, value, leaf.guards),)
                return (Update(name, leaf.index, value, leaf.reducer, leaf.first, leaf.guards),)

    return transform(stmts, change)


def fresh_names(names: Iterable[str], suffix: str, taken: set[str]) -> dict[str, str]:
    """Return a new name for each of `names`, and add the new names to `taken`. A new name is the
    old one with `suffix`. If the result is `taken`, a number is appended."""
    found: dict[str, str] = {}
    for name in names:
        found[name] = fresh(f"{name}{suffix}", taken)
        taken.add(found[name])
    return found


def renamed_copy(
    stmts: tuple[Stmt, ...], suffix: str, taken: set[str]
) -> tuple[tuple[Stmt, ...], dict[str, str]]:
    """Return a copy of `stmts` with loops and buffers renamed by `fresh_names`. Also return the old
    name of each new loop."""
    loop_names = fresh_names((loop.var for loop in loops(stmts)), suffix, taken)
    buffer_names = fresh_names((b.name for b in buffers_allocated(stmts)), suffix, taken)
    copy = rename_all(stmts, loop_names, buffer_names)
    return copy, {new: old for old, new in loop_names.items()}


def nest_loops(chain: tuple[For, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `body` nested in copies of the loops of `chain`."""
    for loop in reversed(chain):
        body = (replace(loop, body=body),)
    return body


def simplify_conds(
    conds: tuple[Cond, ...], ranges: Mapping[str, Interval]
) -> tuple[Cond, ...] | None:
    """Return `conds` without conditions that always hold, and with the others tightened. Return
    None if a condition never holds."""
    kept: dict[Cond, None] = {}
    for cond in conds:
        known = prove(cond, ranges)
        if known is False:
            return None
        if known is None:
            kept.setdefault(tighten(cond, ranges))
    return tuple(kept)


def map_allocation(
    stmts: tuple[Stmt, ...], name: str, change: Callable[[Allocate], tuple[Stmt, ...]]
) -> tuple[Stmt, ...]:
    """Return `stmts` with `change` applied to the allocation of the buffer `name`."""

    def allocation(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Allocate) and stmt.buffer.name == name:
            return change(stmt)
        return None

    return transform(stmts, allocation)


def first_without(conds: tuple[Cond, ...], loops: Iterable[str]) -> tuple[Cond, ...]:
    """Return `conds` with the variables of `loops` set to zero: the conditions of a first update in
    the first iteration of these loops.

    Conditions that then always hold are omitted. A condition that never holds is kept, because then
    no update is the first.
    """
    at_start = dict.fromkeys(loops, ZERO)
    found = (substitute_cond(cond, at_start) for cond in conds)
    return tuple(cond for cond in found if cond.index.terms or not prove(cond, {}))


def flattened(stmts: tuple[Stmt, ...]) -> tuple[list[Buffer], list[Stmt]]:
    """Return the buffers that `stmts` allocate outside all loops, and `stmts` without these
    allocations."""
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
    for buffer in reversed(buffers):
        stmts = (Allocate(buffer, stmts),)
    return stmts


def before_reader(stmts: tuple[Stmt, ...], buffer: str, new: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `stmts` with `new` inserted before the first statement that reads `buffer`."""

    def changed(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...] | None:
        for n, stmt in enumerate(stmts):
            if isinstance(stmt, Allocate):
                body = changed(stmt.body)
                if body is not None:
                    return (*stmts[:n], replace(stmt, body=body), *stmts[n + 1 :])
            elif reads_of((stmt,), buffer):
                return (*stmts[:n], *new, *stmts[n:])
        return None

    found = changed(stmts)
    if found is None:
        raise AssertionError(f"nothing reads {buffer}")
    return found


def outlived(nest: Nest) -> Nest:
    """Return `nest` in which every use of a buffer is inside its allocation again.

    If a statement was moved out of the allocation of a buffer that it uses, the allocation is moved
    to the root of the nest.
    """
    made = {buffer.name: buffer for buffer in buffers_allocated(nest.body)}

    def lost(stmts: tuple[Stmt, ...], alive: frozenset[str]) -> Iterator[str]:
        for stmt in stmts:
            match stmt:
                case Allocate(buffer, body):
                    yield from lost(body, alive | {buffer.name})
                case For():
                    yield from lost(stmt.body, alive)
                case _:
                    yield from (name for name, _ in accesses_of(stmt) if name not in alive)

    outside = made.keys() & set(lost(nest.body, frozenset()))
    if not outside:
        return nest

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Allocate) and stmt.buffer.name in outside:
            return transform(stmt.body, change)
        return None

    body = transform(nest.body, change)
    return replace(nest, body=allocated([b for n, b in made.items() if n in outside], body))
