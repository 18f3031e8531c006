"""Find the loop that a primitive transforms, check its preconditions, and replace the loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Interval
from ..errors import ScheduleError, require
from ..nest.finding import buffers_in, loops_around, names_in, ranges_of
from ..nest.loop_ir import (
    Buffer,
    For,
    LoopKind,
    Nest,
    RunByInstruction,
    Stmt,
    loop_called,
    loops,
    transform,
)
from ..nest.prepacking import prepack_problem

ROOT = ""
"""Loop name that denotes the whole nest."""


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """A loop of a nest and the enclosing loops, outermost first. If it is the whole nest, the loop
    is named ROOT and has one iteration."""

    nest: Nest
    loop: For
    outer: tuple[For, ...] = ()

    @property
    def ranges(self) -> dict[str, Interval]:
        """The ranges of the loop and of the enclosing loops."""
        return ranges_of((*self.outer, self.loop))

    def with_loop(self, *new: Stmt) -> Nest:
        path = {loop.var for loop in self.outer}

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is self.loop:
                return new
            return (stmt,) if isinstance(stmt, For) and stmt.var not in path else None

        return replace(self.nest, body=transform(self.nest.body, change))

    def with_body(self, *body: Stmt) -> Nest:
        if self.loop.var == ROOT:
            return replace(self.nest, body=body)
        return self.with_loop(replace(self.loop, body=body))

    def marked(self, kind: LoopKind | RunByInstruction) -> Nest:
        return self.with_loop(replace(self.loop, kind=kind))


def find_loop(nest: Nest, name: str, source: object) -> LoopPosition:
    """Return the loop `name`. Raise ScheduleError if it does not exist."""
    loop = loop_called(nest.body, name)
    if loop is None:
        known = ", ".join(loop.var for loop in loops(nest.body))
        raise ScheduleError(source, f"there is no loop {name!r}; the nest has {known}")
    return LoopPosition(nest, loop, loops_around(nest.body, loop))


def require_serial(loop: For, source: object) -> None:
    problem = f"loop {loop.var!r} is {loop.kind.value}; this needs a serial loop"
    require(loop.kind is LoopKind.SERIAL, source, problem)


def serial_loop(nest: Nest, name: str, source: object) -> LoopPosition:
    """Return the loop `name`. Raise ScheduleError if it does not exist or is not serial."""
    place = find_loop(nest, name, source)
    require_serial(place.loop, source)
    return place


def open_loop(nest: Nest, name: str, source: object) -> LoopPosition:
    """Return the loop `name`. Raise ScheduleError if it does not exist, or if it is vectorised: its
    body must then contain leaves only."""
    place = find_loop(nest, name, source)
    problem = f"loop {name!r} is vectorized: nothing can be inserted"
    require(place.loop.kind is not LoopKind.VECTORIZED, source, problem)
    return place


def open_place(nest: Nest, name: str, source: object) -> LoopPosition:
    """Return the loop `name`, or the whole nest if `name` is ROOT. Raise ScheduleError if the loop
    does not exist or is vectorised."""
    return open_loop(nest, name, source) if name else LoopPosition(nest, For(ROOT, 1, nest.body))


def buffer_called(nest: Nest, name: str, source: object) -> Buffer:
    """Return the buffer `name`. Raise ScheduleError if it does not exist."""
    buffers = buffers_in(nest)
    require(name in buffers, source, f"there is no buffer {name!r}")
    return buffers[name]


def require_free(nest: Nest, name: str, source: object) -> None:
    require(name not in names_in(nest), source, f"the name {name!r} is in use")


def still_prepacked(nest: Nest, source: object) -> Nest:
    """Return `nest`. Raise ScheduleError if a prepacked buffer can no longer be prepacked."""
    problem = prepack_problem(nest)
    require(problem is None, source, f"a buffer could no longer be prepacked: {problem}")
    return nest
