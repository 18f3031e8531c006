"""Decisions about storage that are made for a whole nest before any code is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from tilewright.schedules.algebra.affine import Affine, Var
from tilewright.schedules.algebra.scalar import loads
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    leaves,
    walk,
)
from tilewright.schedules.nest.prepacking import PrepackParts

from .offsets import flat_offset

ALIGN_BYTES = 64
MAX_STACK_BYTES = 16384
"""Largest array of a nest that is kept on the stack because it does not fit the register form."""

MAX_WORKSPACE_BYTES = 1 << 33


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
    """Offsets for every workspace buffer; buffers that never live at once share bytes.

    `in_memory` names register buffers that must be kept in the workspace after all.
    ScheduleError if the total is beyond what a kernel may ask for.
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
    """Where what is made of constant inputs lies behind the packed pointer, offsets in bytes.

    `made` are the AHEAD buffers, first in it, `made_bytes` long; `kept` are constant inputs that
    calls read as they are: a copy of each follows, so that a call needs no constant input.
    """

    made: dict[str, int]
    kept: dict[str, int]
    made_bytes: int
    total_bytes: int


def plan_packed(nest: Nest, parts: PrepackParts) -> PackedPlan:
    """Offsets for everything `parts` makes ahead, and for constant inputs its rest reads."""
    read: set[str] = set()
    for leaf in leaves(parts.rest):
        if isinstance(leaf, PrefetchHint):
            read.add(leaf.buffer)
        else:
            read.update(load.tensor for load in loads(leaf.value))
    made: dict[str, int] = {}
    kept: dict[str, int] = {}
    made_bytes = at = 0
    for buffer in parts.buffers:
        made[buffer.name] = at
        made_bytes = at = at + _rounded(buffer.bytes)
    for tensor in nest.inputs:
        if tensor.constant and tensor.name in read:
            kept[tensor.name] = at
            at += _rounded(tensor.bytes)
    if at > MAX_WORKSPACE_BYTES:
        raise ScheduleError(
            "prepacking", f"needs {at} bytes, at most {MAX_WORKSPACE_BYTES} are allowed"
        )
    return PackedPlan(made, kept, made_bytes, at)


def _rounded(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES


@dataclass(frozen=True, slots=True)
class Storage:
    """All decisions for one nest. `lanes` and `in_memory` are about register buffers; `ahead` are
    the AHEAD buffers with their offsets behind the packed pointer, None in a kernel without."""

    workspace: WorkspacePlan
    lanes: dict[str, int | None]
    in_memory: set[str]
    ahead: tuple[tuple[Buffer, int], ...] | None = None


def plan_storage(nest: Nest, ahead: tuple[tuple[Buffer, int], ...] | None = None) -> Storage:
    """Where every buffer of `nest` lives. ScheduleError if it cannot be held."""
    in_memory = around_parallel(nest)
    lanes = register_lanes(nest)
    return Storage(plan_workspace(nest, in_memory), lanes, in_memory, ahead)


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
    """For each register buffer, how many elements share a register; None: keep it in memory.

    A buffer that is read and written in vectors of one width at multiples of that width is a set
    of vector registers; one that never meets a vector loop is a set of scalars. Reads of one lane
    of several registers are transposed (see `transposing.py`) and change nothing.
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
        offset = flat_offset(buffers[name], index)
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
    """Register buffer, index, the vector loop around and whether it is read, of each access."""
    for stmt in stmts:
        match stmt:
            case For():
                inner = stmt if stmt.kind is LoopKind.VECTORIZED else axis
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
