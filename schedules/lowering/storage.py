"""Storage of the buffers of a lowered nest, and its limits.

Storage is part of legality: the search checks it before it proposes a schedule, and code generation
uses the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ..algebra.affine import Affine, Var
from ..algebra.scalar import loads
from ..errors import ScheduleError
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    RunByInstruction,
    Stmt,
    StoreElement,
    Update,
    leaves,
    walk,
)
from ..nest.prepacking import PrepackParts

ALIGN_BYTES = 64
"""Alignment of the workspace, of each buffer in it, and of the packed constants: a cache line."""

MAX_STACK_BYTES = 16384
"""Size limit of an array of a nest that is stored on the stack because it cannot be stored in
registers."""

MAX_WORKSPACE_BYTES = 1 << 33
"""Size limit of the workspace, and of the copy of packed constants, that a caller must provide."""


@dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """Offsets of the workspace buffers in bytes.

    `shared` buffers are relative to the workspace pointer. `private` buffers are relative to the
    part of each thread, which starts at shared_bytes + thread * private_bytes.
    """

    shared: dict[str, int]
    private: dict[str, int]
    shared_bytes: int
    private_bytes: int

    def total_bytes(self, threads: int) -> int:
        return self.shared_bytes + threads * self.private_bytes


def plan_workspace(nest: Nest, in_memory: set[str]) -> WorkspacePlan:
    """Return the offsets of every workspace buffer; buffers with disjoint lifetimes share bytes.

    `in_memory` names register buffers that the workspace must hold instead. Raise ScheduleError if
    the total exceeds MAX_WORKSPACE_BYTES.
    """
    shared: dict[str, int] = {}
    private: dict[str, int] = {}
    peak = {False: 0, True: 0}

    def place(stmts: tuple[Stmt, ...], top: dict[bool, int], inside: bool) -> None:
        for stmt in stmts:
            match stmt:
                case For():
                    place(stmt.body, top, inside or stmt.kind is LoopKind.PARALLEL)
                case Allocate(buffer, body):
                    inner = dict(top)
                    if buffer.scope is BufferScope.WORKSPACE or buffer.name in in_memory:
                        (private if inside else shared)[buffer.name] = top[inside]
                        inner[inside] = top[inside] + _rounded(buffer.bytes)
                        peak[inside] = max(peak[inside], inner[inside])
                    place(body, inner, inside)
                case _:
                    pass

    place(nest.body, {False: 0, True: 0}, False)
    if peak[False] + peak[True] > MAX_WORKSPACE_BYTES:
        raise ScheduleError(
            "workspace",
            f"needs {peak[False] + peak[True]} bytes, at most {MAX_WORKSPACE_BYTES} are allowed",
        )
    return WorkspacePlan(shared, private, peak[False], peak[True])


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """Offsets in bytes relative to the pointer to the packed constants.

    `buffers` are the prepacked buffers, which come first and occupy `buffer_bytes`. `copies` are
    constant inputs that a call reads unchanged: with a copy of each, a call needs no constant
    input.
    """

    buffers: dict[str, int]
    copies: dict[str, int]
    buffer_bytes: int
    total_bytes: int


def plan_packed(nest: Nest, parts: PrepackParts) -> PackedPlan:
    """Return the offsets of the prepacked buffers of `parts` and of copies of constant inputs.

    The constant inputs that the rest of the nest reads are copied. Raise ScheduleError if the total
    exceeds MAX_WORKSPACE_BYTES.
    """
    read: set[str] = set()
    for leaf in leaves(parts.rest):
        if isinstance(leaf, PrefetchHint):
            read.add(leaf.buffer)
        else:
            read.update(load.tensor for load in loads(leaf.value))
    buffers: dict[str, int] = {}
    copies: dict[str, int] = {}
    buffer_bytes = at = 0
    for buffer in parts.buffers:
        buffers[buffer.name] = at
        buffer_bytes = at = at + _rounded(buffer.bytes)
    for tensor in nest.inputs:
        if tensor.constant and tensor.name in read:
            copies[tensor.name] = at
            at += _rounded(tensor.bytes)
    if at > MAX_WORKSPACE_BYTES:
        raise ScheduleError(
            "prepacking", f"needs {at} bytes, at most {MAX_WORKSPACE_BYTES} are allowed"
        )
    return PackedPlan(buffers, copies, buffer_bytes, at)


def _rounded(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage of every buffer of one nest.

    `lanes` is the number of elements of a register buffer that share a register, or None for a
    buffer on the stack. `in_memory` names register buffers that the workspace holds. `prepacked`
    lists the prepacked buffers with their offsets relative to the packed pointer; it is None in a
    kernel without constants.
    """

    workspace: WorkspacePlan
    lanes: dict[str, int | None]
    in_memory: set[str]
    prepacked: tuple[tuple[Buffer, int], ...] | None = None


def plan_storage(nest: Nest, prepacked: tuple[tuple[Buffer, int], ...] | None = None) -> Storage:
    """Return the storage of every buffer of `nest`.

    Raise ScheduleError if the workspace or a stack array is too large.
    """
    in_memory = around_parallel(nest)
    lanes = register_lanes(nest)
    return Storage(plan_workspace(nest, in_memory), lanes, in_memory, prepacked)


def around_parallel(nest: Nest) -> set[str]:
    """Return the register buffers whose allocation contains a parallel loop.

    Threads cannot share registers.
    """
    found: set[str] = set()
    for stmt in walk(nest.body):
        if isinstance(stmt, Allocate) and stmt.buffer.scope is BufferScope.REGISTER:
            inner = (s for s in walk(stmt.body) if isinstance(s, For))
            if any(loop.kind is LoopKind.PARALLEL for loop in inner):
                found.add(stmt.buffer.name)
    return found


def register_lanes(nest: Nest) -> dict[str, int | None]:
    """Return the number of elements of each register buffer that share a register.

    The number is None for a buffer on the stack. A buffer that is read and written in vectors of
    one width, at multiples of that width, is a set of vector registers. A buffer that no vector
    loop accesses is a set of scalars. Code generation transposes reads of one lane of several
    registers, so such reads do not affect the result. Raise ScheduleError if a buffer that must be
    on the stack is larger than MAX_STACK_BYTES.
    """
    buffers = {
        s.buffer.name: s.buffer
        for s in walk(nest.body)
        if isinstance(s, Allocate) and s.buffer.scope is BufferScope.REGISTER
    }
    widths: dict[str, set[int]] = {name: set() for name in buffers}
    odd: set[str] = set()
    transposed: dict[str, int] = {}
    for name, index, axis, is_read in _register_accesses(nest.body, buffers, None):
        offset = buffers[name].flat_offset(index)
        if axis is None or axis.var not in offset.vars():
            continue
        step = offset.coefficient(axis.var)
        if is_read and step > 1 and offset.is_linear_in(axis.var):
            transposed[name] = gcd(transposed.get(name, 0), step)
            continue
        rest = offset - Affine(((Var(axis.var), 1),), 0)
        aligned = all(c % axis.extent == 0 for _, c in rest.terms) and (
            rest.const % axis.extent == 0
        )
        if axis.var in rest.vars() or not aligned or not offset.is_linear_in(axis.var):
            odd.add(name)
        widths[name].add(axis.extent)
    for name, step in transposed.items():
        if len(widths[name]) != 1 or step % max(widths[name]):
            odd.add(name)
    result: dict[str, int | None] = {}
    for name, buffer in buffers.items():
        if name in odd or len(widths[name]) > 1:
            if buffer.bytes > MAX_STACK_BYTES:
                raise ScheduleError(
                    f"registers of {name!r}",
                    f"its vectors do not line up, and {buffer.bytes} bytes are too many for the"
                    f" stack ({MAX_STACK_BYTES})",
                )
            result[name] = None
        else:
            result[name] = next(iter(widths[name]), 1)
    return result


def _register_accesses(
    stmts: tuple[Stmt, ...], buffers: dict[str, Buffer], axis: For | None
) -> Iterator[tuple[str, tuple[Affine, ...], For | None, bool]]:
    """Yield each access: register buffer, index, the enclosing vector loop, and whether it is a
    read."""
    for stmt in stmts:
        match stmt:
            case For():
                lanes = stmt.kind is LoopKind.VECTORIZED or isinstance(stmt.kind, RunByInstruction)
                inner = stmt if lanes else axis
                yield from _register_accesses(stmt.body, buffers, inner)
            case Allocate():
                yield from _register_accesses(stmt.body, buffers, axis)
            case StoreElement() | Update():
                if stmt.buffer in buffers:
                    yield stmt.buffer, stmt.index, axis, False
                for read in loads(stmt.value):
                    if read.tensor in buffers:
                        yield read.tensor, read.index, axis, True
            case PrefetchHint():
                pass
