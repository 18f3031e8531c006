"""Stagger: the steps of a loop's body, each for an iteration of its own, a few apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from ..algebra.affine import Affine, Cond, affine, fresh, var
from ..errors import ScheduleError
from ..nest.editing import allocated, flattened, rename_all, substitute_body
from ..nest.finding import names_in
from ..nest.loop_ir import Allocate, For, Nest, Stmt, loops, walk
from .merging import accesses, shared
from .places import find_loop, replace_loop, require_serial, still_ahead
from .primitive import LoopMaker, Made


@dataclass(frozen=True, slots=True)
class Stagger(LoopMaker):
    """Software pipelining: cut the body of `loop` before each of the loops `starts`, and run the
    first step of a later iteration together with the last one of an earlier.

        for i in 0..n:               A(0)
          A(i)                ->     B(0); A(1)
          B(i)                       for i in 0..n-2: C(i); B(i + 1); A(i + 2)
          C(i)                       C(n-2); B(n-1)
                                     C(n-1)

    What the body allocates is allocated around all of it: one copy still does, as a step is run
    before the earlier one of the next iteration that writes its data anew. Neighbouring steps keep
    their order. Legal where steps further apart share no data that one of them writes, for more
    iterations than cuts. Loops of the copies get `.t` behind their names.
    """

    loop: str
    starts: tuple[str, ...]

    def made(self, nest: Nest) -> Made:
        """The nest with staggered steps, and the loops of the steps before and behind the rest.
        ScheduleError: not serial, bounded, too few iterations, no such cuts, or steps that are not
        neighbours need each other."""
        place = find_loop(nest, self.loop, self)
        loop = place.loop
        require_serial(loop, self)
        if loop.bounds or any(self.loop in c.index.vars() for c in _inner_bounds(loop)):
            raise ScheduleError(self, f"bounds depend on {self.loop!r}")
        buffers, flat = flattened(loop.body)
        steps = self._steps(flat)
        cuts = len(steps) - 1
        if loop.extent <= cuts:
            raise ScheduleError(self, f"{self.loop!r} must have more than {cuts} iterations")
        self._check_order(steps)
        copies = _Copies(self.loop, names_in(nest))
        body: list[Stmt] = []
        for time in range(cuts):
            for n in range(time, -1, -1):
                body += copies.of(steps[n], time - n)
        latest = [s for n in range(cuts, -1, -1) for s in _shifted(steps[n], self.loop, cuts - n)]
        body.append(replace(loop, extent=loop.extent - cuts, body=tuple(latest)))
        for time in range(loop.extent, loop.extent + cuts):
            for n in range(cuts, time - loop.extent, -1):
                body += copies.of(steps[n], time - n)
        whole = allocated(buffers, tuple(body))
        return Made(still_ahead(replace_loop(nest, self.loop, whole), self), copies.loops)

    def _steps(self, flat: list[Stmt]) -> list[tuple[Stmt, ...]]:
        """The body cut before what holds each of `starts`."""
        places = [0]
        for name in self.starts:
            found = [n for n, s in enumerate(flat) if any(x.var == name for x in loops((s,)))]
            if not found or found[0] <= places[-1]:
                raise ScheduleError(
                    self, f"{name!r} must be in {self.loop!r}, after what the step before it needs"
                )
            places.append(found[0])
        if len(places) == 1:
            raise ScheduleError(self, "there must be at least one cut")
        ends = [*places[1:], len(flat)]
        return [tuple(flat[a:b]) for a, b in zip(places, ends, strict=True)]

    def _check_order(self, steps: list[tuple[Stmt, ...]]) -> None:
        """ScheduleError if two steps that are not neighbours touch the same data: the earlier one
        of the next iteration comes before the later one of this iteration now."""
        for (a, one), (b, other) in combinations(enumerate(steps), 2):
            if b - a < 2:
                continue
            for buffer in shared(accesses(one), accesses(other)):
                raise ScheduleError(
                    self, f"steps {a} and {b} both need {buffer!r}, and one of them writes it"
                )


class _Copies:
    """Copies of steps for one iteration each, with loops and buffers of their own names."""

    def __init__(self, loop: str, taken: set[str]) -> None:
        self._loop = loop
        self._taken = taken
        self.loops: dict[str, str] = {}

    def of(self, stmts: tuple[Stmt, ...], iteration: int) -> tuple[Stmt, ...]:
        loop_names = self._named(s.var for s in walk(stmts) if isinstance(s, For))
        buffer_names = self._named(s.buffer.name for s in walk(stmts) if isinstance(s, Allocate))
        self.loops |= {new: old for old, new in loop_names.items()}
        here = {self._loop: affine(iteration)}
        return substitute_body(rename_all(stmts, loop_names, buffer_names), here)

    def _named(self, names: Iterable[str]) -> dict[str, str]:
        found = {}
        for name in names:
            found[name] = fresh(f"{name}.t", self._taken)
            self._taken.add(found[name])
        return found


def _shifted(stmts: tuple[Stmt, ...], loop: str, by: int) -> tuple[Stmt, ...]:
    later: dict[str, Affine] = {loop: var(loop) + by}
    return substitute_body(stmts, later) if by else stmts


def _inner_bounds(loop: For) -> Iterable[Cond]:
    return (bound for inner in loops(loop.body) for bound in inner.bounds)
