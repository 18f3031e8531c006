"""The loop a primitive is about: found, held to what the step needs, and replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import ScheduleError
from ..nest.ahead import ahead_problem
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    LoopKind,
    Nest,
    Stmt,
    loops,
    with_body,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A loop and what stands around it, outermost first."""

    loop: For
    outer: tuple[For, ...]
    allocated: tuple[Buffer, ...]


def find_loop(nest: Nest, name: str, asked_by: object) -> Place:
    """The loop called `name`; ScheduleError naming the loops there are if it is not one."""

    def search(
        stmts: tuple[Stmt, ...], outer: tuple[For, ...], allocated: tuple[Buffer, ...]
    ) -> Place | None:
        for stmt in stmts:
            found = None
            if isinstance(stmt, For):
                if not outer and name not in stmt.inside.loop_names:
                    continue
                if stmt.var == name:
                    return Place(stmt, outer, allocated)
                found = search(stmt.body, (*outer, stmt), allocated)
            elif isinstance(stmt, Allocate):
                found = search(stmt.body, outer, (*allocated, stmt.buffer))
            if found is not None:
                return found
        return None

    place = search(nest.body, (), ())
    if place is None:
        known = ", ".join(loop.var for loop in loops(nest.body))
        raise ScheduleError(asked_by, f"there is no loop {name!r}; the nest has {known}")
    return place


def require_serial(loop: For, asked_by: object) -> None:
    if loop.kind is not LoopKind.SERIAL:
        raise ScheduleError(
            asked_by, f"loop {loop.var!r} is {loop.kind.value}; this needs a serial loop"
        )


def require_body(loop: For, asked_by: object) -> None:
    """ScheduleError if `loop` is vectorised: its body holds leaves and nothing else."""
    if loop.kind is LoopKind.VECTORIZED:
        raise ScheduleError(asked_by, f"loop {loop.var!r} is vectorized: nothing goes inside it")


def replace_loop(nest: Nest, name: str, new: tuple[Stmt, ...]) -> Nest:
    """`nest` with the loop called `name` replaced by `new`."""

    def inside(stmts: tuple[Stmt, ...], outermost: bool) -> tuple[Stmt, ...]:
        for n, stmt in enumerate(stmts):
            if isinstance(stmt, For):
                if outermost and name not in stmt.inside.loop_names:
                    continue
                if stmt.var == name:
                    return (*stmts[:n], *new, *stmts[n + 1 :])
                body = inside(stmt.body, False)
            elif isinstance(stmt, Allocate):
                body = inside(stmt.body, outermost)
            else:
                continue
            if body is not stmt.body:
                return (*stmts[:n], with_body(stmt, body), *stmts[n + 1 :])
        return stmts

    return Nest(nest.inputs, nest.outputs, inside(nest.body, True), nest.streamed)


def still_ahead(nest: Nest, asked_by: object) -> Nest:
    """`nest`; ScheduleError if something it makes ahead of calls cannot be any more."""
    problem = ahead_problem(nest)
    if problem is not None:
        raise ScheduleError(asked_by, f"what is packed ahead must stay so: {problem}")
    return nest


ROOT = ""
"""As a loop name: the whole nest."""


def place_of(nest: Nest, loop: str, asked_by: object) -> Place:
    """The loop called `loop`, or the whole nest; ScheduleError if nothing can stand inside it."""
    if loop == ROOT:
        return Place(For("", 1, nest.body), (), ())
    place = find_loop(nest, loop, asked_by)
    require_body(place.loop, asked_by)
    return place


def replace_body(nest: Nest, loop: str, body: tuple[Stmt, ...]) -> Nest:
    """`nest` with the body of the loop called `loop`, or of the whole, replaced by `body`."""
    if loop == ROOT:
        return replace(nest, body=body)
    old = find_loop(nest, loop, None).loop
    return replace_loop(nest, loop, (replace(old, body=body),))
