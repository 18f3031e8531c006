"""Storage of the buffers of a lowered nest: workspace, packed constants, registers and stack.

The search checks the storage before it proposes a schedule. Code generation uses the same storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ..algebra.affine import Affine
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
"""Size limit in bytes of a register buffer that must be stored on the stack."""

MAX_WORKSPACE_BYTES = 1 << 33
"""Size limit in bytes of the workspace, and of the packed constants. The caller must allocate
both."""


class WorkspaceTooLargeError(ScheduleError):
    """The error of a nest whose workspace exceeds MAX_WORKSPACE_BYTES."""

    def __init__(self, needed_bytes: int) -> None:
        reason = f"needs {needed_bytes} bytes, at most {MAX_WORKSPACE_BYTES} are allowed"
        super().__init__("workspace", reason)
        self.needed_bytes = needed_bytes


@dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """The workspace buffers, as offsets in bytes."""

    shared: dict[str, int]
    """Offset of each buffer that all threads share, relative to the workspace pointer."""
    private: dict[str, int]
    """Offset of each buffer of one thread, relative to the thread's part of the workspace. The part
    starts at shared_bytes + thread * private_bytes."""
    shared_bytes: int
    private_bytes: int

    def total_bytes(self, threads: int) -> int:
        return self.shared_bytes + threads * self.private_bytes


def plan_workspace(nest: Nest, in_memory: set[str]) -> WorkspacePlan:
    """Return the offsets of every workspace buffer; buffers with disjoint lifetimes share bytes.

    The register buffers `in_memory` are placed in the workspace, too. Raise WorkspaceTooLargeError
    if the total exceeds MAX_WORKSPACE_BYTES."""
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
        raise WorkspaceTooLargeError(peak[False] + peak[True])
    return WorkspacePlan(shared, private, peak[False], peak[True])


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """The packed constants, as offsets in bytes."""

    buffers: dict[str, int]
    """Offsets of the prepacked buffers."""
    copies: dict[str, int]
    """Offsets of the constant inputs that a call reads unchanged. They are copied, so that a call
    needs no constant input."""
    buffer_bytes: int
    """Size of the prepacked buffers, which precede the copies."""
    total_bytes: int


def plan_packed(nest: Nest, parts: PrepackParts) -> PackedPlan:
    """Return the offsets of the prepacked buffers, and of copies of the constant inputs that
    `parts.rest` reads. Raise ScheduleError if the total exceeds MAX_WORKSPACE_BYTES."""
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
    """The storage of every buffer of one nest."""

    workspace: WorkspacePlan
    lanes: dict[str, int | None]
    """Number of elements per register of each register buffer, or None if the buffer is on the
    stack."""
    in_memory: set[str]
    """The register buffers that are stored in the workspace."""
    prepacked: tuple[tuple[Buffer, int], ...] | None = None
    """The prepacked buffers with their offsets, or None if the kernel has no constants."""


def plan_storage(nest: Nest, prepacked: tuple[tuple[Buffer, int], ...] | None = None) -> Storage:
    """Return the storage of the buffers of `nest`. Raise ScheduleError if the workspace or a stack
    array is too large."""
    in_memory = around_parallel(nest)
    lanes = register_lanes(nest)
    return Storage(plan_workspace(nest, in_memory), lanes, in_memory, prepacked)


def around_parallel(nest: Nest) -> set[str]:
    """Return the register buffers whose allocation contains a parallel loop. They are stored in
    memory, because threads do not share registers."""
    found: set[str] = set()
    for stmt in walk(nest.body):
        if isinstance(stmt, Allocate) and stmt.buffer.scope is BufferScope.REGISTER:
            inner = (s for s in walk(stmt.body) if isinstance(s, For))
            if any(loop.kind is LoopKind.PARALLEL for loop in inner):
                found.add(stmt.buffer.name)
    return found


def register_lanes(nest: Nest) -> dict[str, int | None]:
    """Return the number of elements per register of each register buffer, or None if it is on the
    stack.

    A buffer that is accessed in vectors of one width, at multiples of the width, is stored in
    vector registers of that width. A buffer that no vector loop accesses is stored in scalar
    registers. Reads at a stride that is a multiple of the width are ignored, because code
    generation transposes them. Other buffers are stored on the stack. Raise ScheduleError if one of
    them is larger than MAX_STACK_BYTES.
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
        rest = offset.minus_var(axis.var)
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
                    f"its vectors are not aligned, and {buffer.bytes} bytes are too many for the"
                    f" stack ({MAX_STACK_BYTES})",
                )
            result[name] = None
        else:
            result[name] = next(iter(widths[name]), 1)
    return result


def _register_accesses(
    stmts: tuple[Stmt, ...], buffers: dict[str, Buffer], axis: For | None
) -> Iterator[tuple[str, tuple[Affine, ...], For | None, bool]]:
    """Yield (buffer, index, enclosing vector loop, whether it is a read) for each access to
    `buffers`."""
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
