"""Prepacking: buffers of scope PREPACKED are filled from constant inputs once, before all calls.

    alloc P                      # prepacked
    for x: P[x] = W[f(x)]        -> `copies`: run once, read constant inputs only
    for i: ... P[g(i)] ...       -> `rest`: run in every call, reads the packed buffers

One nest represents both parts; only code generation splits it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..algebra.scalar import loads
from .finding import private_buffers
from .loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    buffers_allocated,
    leaves,
    loops,
    walk,
    with_body,
)


@dataclass(frozen=True, slots=True)
class PrepackParts:
    """The two parts of a nest with prepacking: the PREPACKED `buffers` with the statements that
    fill them, and the other statements."""

    buffers: tuple[Buffer, ...]
    copies: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]


def split_prepack(nest: Nest) -> PrepackParts:
    """Split `nest`, for which `prepack_problem` must return None."""
    buffers: list[Buffer] = []
    copies: list[Stmt] = []

    def rest(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        kept: list[Stmt] = []
        for stmt in stmts:
            if not isinstance(stmt, Allocate):
                kept.append(stmt)
            elif stmt.buffer.scope is BufferScope.PREPACKED:
                first = _fillers(stmt)
                buffers.append(stmt.buffer)
                copies.extend(stmt.body[:first])
                kept.extend(rest(stmt.body[first:]))
            else:
                kept.append(with_body(stmt, rest(stmt.body)))
        return tuple(kept)

    remaining = rest(nest.body)
    return PrepackParts(tuple(buffers), tuple(copies), remaining)


def _fillers(stmt: Allocate) -> int:
    """Return the number of statements at the start of the body of `stmt` that only fill its
    buffer."""
    count = 0
    for inner in stmt.body:
        written = {leaf.buffer for leaf in leaves((inner,)) if not isinstance(leaf, PrefetchHint)}
        if written - private_buffers((inner,)) != {stmt.buffer.name}:
            break
        count += 1
    return count


def prepack_problem(nest: Nest) -> str | None:
    """Return the reason why a PREPACKED buffer of `nest` cannot be prepacked, or None if all can.

    Such a buffer must be allocated outside all loops. It must be filled at the start of its block,
    from constant inputs and through register buffers only, and must not be written again. The nest
    must have a constant input.
    """
    marked = [b.name for b in buffers_allocated(nest.body) if b.scope is BufferScope.PREPACKED]
    if not marked:
        return None
    parts = split_prepack(nest)
    outside = {b.name for b in parts.buffers}
    for name in marked:
        if name not in outside:
            return f"{name!r} is allocated inside a loop"
    problem = _filling_problem(nest, parts, outside) or _writing_problem(parts, outside)
    if problem is None and not any(tensor.constant for tensor in nest.inputs):
        return f"{marked[0]!r}: no input is constant, so the kernel has no entry that prepacks"
    return problem


def _filling_problem(nest: Nest, parts: PrepackParts, packed: set[str]) -> str | None:
    constants = {t.name for t in nest.inputs if t.constant}
    filled = set()
    registers = set()
    for stmt in walk(parts.copies):
        if isinstance(stmt, Allocate):
            shared = any(loop.kind is LoopKind.PARALLEL for loop in loops(stmt.body))
            if (
                stmt.buffer.scope is not BufferScope.REGISTER or shared
            ):  # threads do not share registers
                return f"filling it needs another buffer, {stmt.buffer.name!r}"
            registers.add(stmt.buffer.name)
    for leaf in leaves(parts.copies):
        if isinstance(leaf, PrefetchHint):
            seen = {leaf.buffer} - packed
        else:
            filled.add(leaf.buffer)
            seen = {load.tensor for load in loads(leaf.value)}
        for name in sorted(seen - constants - registers):
            known = ", ".join(sorted(constants)) or "none"
            return f"it depends on {name!r}, which is not a constant input; these are: {known}"
    for name in sorted(packed - filled):
        return f"{name!r} is not filled at the start of its block"
    return None


def _writing_problem(parts: PrepackParts, packed: set[str]) -> str | None:
    for leaf in leaves(parts.rest):
        if not isinstance(leaf, PrefetchHint) and leaf.buffer in packed:
            return f"{leaf.buffer!r} is written again after it was filled"
    return None
