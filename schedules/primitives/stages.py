"""Stages that are still plain nests of their own: found, moved away, and what is left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import var
from ..algebra.scalar import loads
from ..errors import ScheduleError
from ..nest.finding import buffers_in, writes_of
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    LoopKind,
    Nest,
    Stmt,
    Store,
    Update,
    leaves,
    transform,
    walk,
)
from ..nest.loop_ir import Prefetch as PrefetchLeaf


@dataclass(frozen=True, slots=True)
class Producer:
    """The untouched nest of a stage: plain loops around one leaf that writes `buffer[vars]`."""

    root: For
    spatial: tuple[For, ...]
    reduce: tuple[For, ...]
    leaf: Store | Update


def find_producer(nest: Nest, buffer: str, asked_by: object) -> Producer:
    """The stage that computes `buffer`; ScheduleError if it was scheduled already."""
    leaves_found = writes_of(nest.body, buffer)
    if not leaves_found:
        raise ScheduleError(asked_by, f"no stage computes {buffer!r}")
    (leaf, *others) = leaves_found
    roots = [s for s in _top_level(nest.body) if isinstance(s, For) and leaf in tuple(walk((s,)))]
    problem = f"{buffer!r} must still be a plain nest of its own, and was scheduled already"
    if others or len(roots) != 1:
        raise ScheduleError(asked_by, problem)
    chain: list[For] = []
    current: Stmt = roots[0]
    while isinstance(current, For):
        chain.append(current)
        if len(current.body) != 1 or current.kind is not LoopKind.SERIAL:
            raise ScheduleError(asked_by, problem)
        current = current.body[0]
    spatial = tuple(loop for loop in chain if not loop.reduce)
    identity = {str(i): loop for i in leaf.index for loop in spatial if i == var(loop.var)}
    if current is not leaf or len(identity) != len(spatial) or len(leaf.index) != len(spatial):
        raise ScheduleError(asked_by, problem)
    ordered = tuple(identity[str(i)] for i in leaf.index)
    return Producer(roots[0], ordered, tuple(each for each in chain if each.reduce), leaf)


def is_hint(stmt: Stmt, buffer: str) -> bool:
    """Whether `stmt` prefetches `buffer`, which is about to be elsewhere or nowhere."""
    return isinstance(stmt, PrefetchLeaf) and stmt.buffer == buffer


def _top_level(stmts: tuple[Stmt, ...]) -> list[Stmt]:
    found: list[Stmt] = []
    for stmt in stmts:
        found.extend(_top_level(stmt.body) if isinstance(stmt, Allocate) else [stmt])
    return found


def outlived(nest: Nest) -> Nest:
    """`nest` with buffers that a stage took along allocated around everything: the stage was
    moved out of the part in which they existed."""
    lives: dict[Buffer, tuple[int, int]] = {}
    _number_leaves(nest.body, 0, lives)
    if not lives:
        return nest
    used = _places_of_use(nest)
    outside: dict[Buffer, None] = {}
    for buffer, (start, end) in lives.items():
        first, last = used.get(buffer.name, (start, start))
        if first < start or last >= end:
            outside[buffer] = None
    if not outside:
        return nest

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Allocate) and stmt.buffer in outside:
            return transform(stmt.body, change)
        return None

    body = transform(nest.body, change)
    for buffer in reversed(outside):
        body = (Allocate(buffer, body),)
    return replace(nest, body=body)


def _number_leaves(
    stmts: tuple[Stmt, ...], number: int, lives: dict[Buffer, tuple[int, int]]
) -> int:
    """The number of the leaf after `stmts`, whose first one has `number`; `lives` gets from which
    leaf on each buffer exists, and the number of the first leaf after that, outer ones first."""
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            lives[stmt.buffer] = (number, number)
        start = number
        number = (
            _number_leaves(stmt.body, number, lives)
            if isinstance(stmt, For | Allocate)
            else number + 1
        )
        if isinstance(stmt, Allocate):
            lives[stmt.buffer] = (start, number)
    return number


def _places_of_use(nest: Nest) -> dict[str, tuple[int, int]]:
    """Of each buffer, the numbers of the first and the last leaf that reads, writes or hints at
    it; leaves are numbered in the order of the program."""
    found: dict[str, tuple[int, int]] = {}
    for number, leaf in enumerate(leaves(nest.body)):
        names = {leaf.buffer}
        if not isinstance(leaf, PrefetchLeaf):
            names.update(ld.tensor for ld in loads(leaf.value))
        for name in names:
            found[name] = (found.get(name, (number, number))[0], number)
    return found


def require_intermediate(nest: Nest, buffer: str, asked_by: object) -> None:
    if buffer in {t.name for t in (*nest.inputs, *nest.outputs)}:
        raise ScheduleError(
            asked_by, f"{buffer!r} is an argument of the kernel, not a stage inside"
        )
    if buffer not in buffers_in(nest):
        known = sorted({leaf.buffer for leaf in leaves(nest.body)})
        raise ScheduleError(asked_by, f"there is no stage {buffer!r}; there are {known}")
