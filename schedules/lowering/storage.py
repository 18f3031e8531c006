"""Storage of the buffers of a lowered nest, and its limits.

It is part of legality: the search consults it before it proposes a schedule, and code generation
follows the plan.
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
"""Of the workspace, of each buffer in it, and of the packed constants: a cache line."""

MAX_STACK_BYTES = 16384
"""Largest array of a nest that is kept on the stack because it does not fit the register form."""

MAX_WORKSPACE_BYTES = 1 << 33
"""Largest workspace, and largest copy of packed constants, that a kernel may ask its caller for."""


@dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """Where each workspace buffer lies: `shared` ones behind the workspace pointer, `private`
    ones behind each thread's own part, which starts at shared_bytes + thread * private_bytes."""

    shared: dict[str, int]
    private: dict[str, int]
    shared_bytes: int
    private_bytes: int

    def total_bytes(self, threads: int) -> int:
        return self.shared_bytes + threads * self.private_bytes


def plan_workspace(nest: Nest, in_memory: set[str]) -> WorkspacePlan:
    """Offsets of every workspace buffer; buffers whose lifetimes do not overlap share bytes.

    `in_memory` names register buffers that the workspace must hold instead.
    ScheduleError if the total exceeds MAX_WORKSPACE_BYTES.
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
    """Offsets in bytes behind the pointer to the packed constants.

    `buffers` are the prepacked buffers, which lie first and take `buffer_bytes`. `copies` are
    constant inputs that a call reads unchanged: with a copy of each, a call needs no such input.
    """

    buffers: dict[str, int]
    copies: dict[str, int]
    buffer_bytes: int
    total_bytes: int


def plan_packed(nest: Nest, parts: PrepackParts) -> PackedPlan:
    """Offsets of the prepacked buffers of `parts`, and of copies of the constant inputs that the
    rest of the nest reads. ScheduleError if they exceed MAX_WORKSPACE_BYTES."""
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
    """Where every buffer of one nest lives.

    `lanes` is how many elements of a register buffer share a register, None for one kept on the
    stack; `in_memory` names register buffers that the workspace holds; `prepacked` has the
    prepacked buffers with their offsets behind the packed pointer, None in a kernel without
    constants.
    """

    workspace: WorkspacePlan
    lanes: dict[str, int | None]
    in_memory: set[str]
    prepacked: tuple[tuple[Buffer, int], ...] | None = None


def plan_storage(nest: Nest, prepacked: tuple[tuple[Buffer, int], ...] | None = None) -> Storage:
    """Where every buffer of `nest` lives. ScheduleError: it takes too large a workspace or
    stack."""
    in_memory = around_parallel(nest)
    lanes = register_lanes(nest)
    return Storage(plan_workspace(nest, in_memory), lanes, in_memory, prepacked)


def around_parallel(nest: Nest) -> set[str]:
    """Register buffers with a parallel loop inside: threads cannot share registers."""
    found: set[str] = set()
    for stmt in walk(nest.body):
        if isinstance(stmt, Allocate) and stmt.buffer.scope is BufferScope.REGISTER:
            inner = (s for s in walk(stmt.body) if isinstance(s, For))
            if any(loop.kind is LoopKind.PARALLEL for loop in inner):
                found.add(stmt.buffer.name)
    return found


def register_lanes(nest: Nest) -> dict[str, int | None]:
    """How many elements of each register buffer share a register; None: it stays on the stack.

    A buffer read and written in vectors of one width, at multiples of that width, is a set of
    vector registers; one that no vector loop accesses is a set of scalars. Reads of one lane of
    several registers are transposed by code generation and change nothing. ScheduleError if a
    buffer that must stay on the stack is larger than MAX_STACK_BYTES.
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
    """Each access: register buffer, index, the vector loop around it, and whether it is a read."""
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
