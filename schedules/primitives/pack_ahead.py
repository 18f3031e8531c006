"""PackAhead: what depends on constant inputs alone is made once, before all calls."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import ScheduleError
from ..nest.ahead import ahead_problem
from ..nest.finding import buffers_in
from ..nest.loop_ir import Allocate, Nest, Scope, Stmt, transform
from .primitive import Primitive


@dataclass(frozen=True, slots=True)
class PackAhead(Primitive):
    """Make a private copy of a constant input once, ahead of all calls (`NAME_prepack` in C).

        alloc P        # workspace          alloc P        # packed ahead
        for x: P[x] = W[f(x)]         ->    for x: P[x] = W[f(x)]     once
        for i: ... P[g(i)] ...              for i: ... P[g(i)] ...    in every call

    Legal for a buffer in the workspace that stands outside all loops (CacheRead with loop "") and
    is filled, at the start of its block, from inputs marked constant and from nothing else (it may
    read nothing at all), in a nest with such inputs: without one there is no call ahead. Its
    layout and the loops that fill it can still be changed.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the mark. ScheduleError: inside a loop, or made of what may change."""
        buffers = buffers_in(nest)
        if self.buffer not in buffers:
            raise ScheduleError(self, f"there is no buffer {self.buffer!r}")
        scope = buffers[self.buffer].scope
        if scope is not Scope.WORKSPACE:
            raise ScheduleError(
                self, f"{self.buffer!r} is in {scope.value}; this needs one in the workspace"
            )

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if isinstance(stmt, Allocate) and stmt.buffer.name == self.buffer:
                return (Allocate(replace(stmt.buffer, scope=Scope.AHEAD), stmt.body),)
            return None

        marked = replace(nest, body=transform(nest.body, change))
        problem = ahead_problem(marked)
        if problem is not None:
            raise ScheduleError(self, problem)
        return marked
