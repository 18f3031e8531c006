"""Looking for loops, leaves and buffers in a nest, and what values its variables take."""

from __future__ import annotations

from collections.abc import Iterator

from ..algebra.affine import (
    Interval,
)
from ..algebra.scalar import Load, loads
from .loop_ir import (
    Allocate,
    Buffer,
    For,
    Leaf,
    Nest,
    Prefetch,
    Stmt,
    Store,
    Update,
    buffers_allocated,
    leaves,
    loops,
    loops_named,
    writing,
)


def ranges_of(chain: tuple[For, ...]) -> dict[str, Interval]:
    """The values of each loop variable of `chain`."""
    return {loop.var: Interval(0, loop.extent - 1) for loop in chain}


def all_ranges(stmts: tuple[Stmt, ...]) -> dict[str, Interval]:
    return {loop.var: Interval(0, loop.extent - 1) for loop in loops(stmts)}


def names_in(nest: Nest) -> set[str]:
    """Every loop and buffer name in use."""
    names = {tensor.name for tensor in (*nest.inputs, *nest.outputs)}
    names |= loops_named(nest.body)
    names.update(buffer.name for buffer in buffers_allocated(nest.body))
    return names


def buffers_in(nest: Nest) -> dict[str, Buffer]:
    """Every buffer by name."""
    found = {b.name: b for b in nest.argument_buffers}
    found.update((buffer.name, buffer) for buffer in buffers_allocated(nest.body))
    return found


def reads_of(stmts: tuple[Stmt, ...], buffer: str) -> list[Load]:
    """Every load of `buffer` below `stmts`."""
    found: list[Load] = []
    for leaf in leaves(stmts):
        if not isinstance(leaf, Prefetch):
            found.extend(ld for ld in loads(leaf.value) if ld.tensor == buffer)
    return found


def writes_of(stmts: tuple[Stmt, ...], buffer: str) -> list[Store | Update]:
    """Every leaf below `stmts` that writes `buffer`."""
    return [w for w in writing(stmts, buffer) if not isinstance(w, Prefetch)]


def private_buffers(stmts: tuple[Stmt, ...]) -> set[str]:
    """Buffers allocated below `stmts`."""
    return {buffer.name for buffer in buffers_allocated(stmts)}


def chain_to(stmts: tuple[Stmt, ...], wanted: Leaf) -> tuple[For, ...] | None:
    """The loops below `stmts` around the leaf that is `wanted`, outermost first."""
    for stmt in stmts:
        if stmt is wanted:
            return ()
        if isinstance(stmt, For):
            if wanted.buffer not in stmt.inside.written:
                continue
            inner = chain_to(stmt.body, wanted)
            if inner is not None:
                return (stmt, *inner)
        elif isinstance(stmt, Allocate):
            inner = chain_to(stmt.body, wanted)
            if inner is not None:
                return inner
    return None


def leaf_sites(
    stmts: tuple[Stmt, ...], outer: tuple[For, ...] = ()
) -> Iterator[tuple[Leaf, tuple[For, ...]]]:
    """Every leaf with the loops around it."""
    for stmt in stmts:
        match stmt:
            case For():
                yield from leaf_sites(stmt.body, (*outer, stmt))
            case Allocate():
                yield from leaf_sites(stmt.body, outer)
            case Store() | Update() | Prefetch():
                yield stmt, outer
