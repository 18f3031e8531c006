"""Find loops, leaves and buffers in a nest, and the ranges of its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ..algebra.affine import Index, Interval
from ..algebra.scalar import Load, loads
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
    leaves,
    loops,
    loops_named,
    root_of,
    writing,
)


def ranges_of(loops: Iterable[For]) -> dict[str, Interval]:
    return {loop.var: Interval(0, loop.extent - 1) for loop in loops}


def all_ranges(stmts: tuple[Stmt, ...]) -> dict[str, Interval]:
    """Return the range of every loop variable in `stmts`."""
    return ranges_of(loops(stmts))


def names_in(nest: Nest) -> set[str]:
    """Return every loop and buffer name in use."""
    names = {tensor.name for tensor in (*nest.inputs, *nest.outputs)}
    names |= loops_named(nest.body)
    names.update(buffer.name for buffer in buffers_allocated(nest.body))
    return names


def buffers_in(nest: Nest) -> dict[str, Buffer]:
    found = {b.name: b for b in nest.argument_buffers}
    found.update((buffer.name, buffer) for buffer in buffers_allocated(nest.body))
    return found


def reads_of(stmts: tuple[Stmt, ...], buffer: str) -> list[Load]:
    found: list[Load] = []
    for leaf in leaves(stmts):
        if not isinstance(leaf, PrefetchHint):
            found.extend(ld for ld in loads(leaf.value) if ld.tensor == buffer)
    return found


def writes_of(stmts: tuple[Stmt, ...], buffer: str) -> list[StoreElement | Update]:
    """Return every leaf in `stmts` that writes `buffer`."""
    return [w for w in writing(stmts, buffer) if not isinstance(w, PrefetchHint)]


def private_buffers(stmts: tuple[Stmt, ...]) -> set[str]:
    """Return the names of the buffers allocated in `stmts`."""
    return {buffer.name for buffer in buffers_allocated(stmts)}


def chain_to(stmts: tuple[Stmt, ...], wanted: Leaf) -> tuple[For, ...]:
    """Return the loops in `stmts` that enclose the leaf `wanted` (by identity), outermost first."""
    buffer = wanted.buffer
    chain = _around(stmts, lambda stmt: stmt is wanted, lambda loop: buffer in loop.inside.written)
    assert chain is not None, f"no such leaf writes {buffer}"
    return chain


def loops_around(stmts: tuple[Stmt, ...], wanted: For) -> tuple[For, ...]:
    """Return the loops in `stmts` that enclose the loop `wanted` (by identity), outermost first."""
    root = root_of(stmts, wanted.var)
    assert root is not None, f"there is no loop {wanted.var}"
    chain = _around((root,), lambda stmt: stmt is wanted, lambda loop: True)
    assert chain is not None, f"another loop is called {wanted.var}"
    return chain


def _around(
    stmts: tuple[Stmt, ...], is_it: Callable[[Stmt], bool], may_hold: Callable[[For], bool]
) -> tuple[For, ...] | None:
    for stmt in stmts:
        if is_it(stmt):
            return ()
        if isinstance(stmt, For) and may_hold(stmt):
            inner = _around(stmt.body, is_it, may_hold)
            if inner is not None:
                return (stmt, *inner)
        elif isinstance(stmt, Allocate):
            inner = _around(stmt.body, is_it, may_hold)
            if inner is not None:
                return inner
    return None


def perfect_chain(loop: For) -> tuple[For, ...]:
    """Return `loop` and the loops perfectly nested in it."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(inner := chain[-1].body[0], For):
        chain.append(inner)
    return tuple(chain)


def accesses_of(leaf: Leaf) -> list[tuple[str, Index]]:
    """Return the buffer and index of each access of `leaf`, the write or prefetch first."""
    own = [(leaf.buffer, leaf.index)]
    if isinstance(leaf, PrefetchHint):
        return own
    return own + [(ld.tensor, ld.index) for ld in loads(leaf.value)]


Accesses: TypeAlias = dict[str, list[tuple[Index, bool]]]
"""Map from a buffer to its accesses, each as an index and whether it is a write."""


def accesses_within(stmts: tuple[Stmt, ...]) -> Accesses:
    """Return the accesses of `stmts` to buffers that are allocated outside `stmts`."""
    private = private_buffers(stmts)
    found: Accesses = {}
    for leaf in leaves(stmts):
        if isinstance(leaf, PrefetchHint):
            continue
        for n, (buffer, index) in enumerate(accesses_of(leaf)):
            if buffer not in private:
                found.setdefault(buffer, []).append((index, n == 0))
    return found


def shared(one: tuple[Stmt, ...], other: tuple[Stmt, ...]) -> Iterator[str]:
    """Yield the buffers that both bodies access and that at least one of them writes."""
    mine, theirs = accesses_within(one), accesses_within(other)
    for buffer in sorted(mine.keys() & theirs.keys()):
        if any(writes for _, writes in (*mine[buffer], *theirs[buffer])):
            yield buffer


def leaf_sites(
    stmts: tuple[Stmt, ...], outer: tuple[For, ...] = ()
) -> Iterator[tuple[Leaf, tuple[For, ...]]]:
    """Yield every leaf with the loops that enclose it."""
    for stmt in stmts:
        match stmt:
            case For():
                yield from leaf_sites(stmt.body, (*outer, stmt))
            case Allocate():
                yield from leaf_sites(stmt.body, outer)
            case StoreElement() | Update() | PrefetchHint():
                yield stmt, outer


def write_sites(stmts: tuple[Stmt, ...]) -> Iterator[tuple[StoreElement | Update, tuple[For, ...]]]:
    """Yield every leaf that writes, with the loops that enclose it."""
    for leaf, around in leaf_sites(stmts):
        if not isinstance(leaf, PrefetchHint):
            yield leaf, around
