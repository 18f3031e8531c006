"""Primitives that overlap iterations: Merge (loop fusion) and Stagger (software pipelining)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, product

from ..algebra.affine import Ranges, affine, var
from ..algebra.independence import ElementAccess, meet_only_within
from ..errors import require
from ..nest.editing import allocated, flattened, renamed_copy, substitute_body
from ..nest.finding import accesses_within, all_ranges, names_in, ranges_of, shared
from ..nest.loop_ir import (
    Allocate,
    For,
    LoopKind,
    Nest,
    Stmt,
    loops,
    loops_named,
    transform,
    walk,
)
from .dependence import check_vector_lanes
from .places import LoopPosition, find_loop, serial_loop, still_prepacked
from .primitive import LoopMaker, Made, Primitive, Walk


@dataclass(frozen=True, slots=True)
class Merge(Primitive):
    """Loop fusion: run two loops over the same range as one (`compute_with` in Halide).

        for i in 0..n: A(i)    ->    for j in 0..n: A(j); B(j)
        for j in 0..n: B(j)

    Statements between the loops run before the new loop, or after it if they depend on `first`. The
    new loop is named `second`. It is a reduction loop if one of the two was.

    Legal if both loops have the same kind, which is not parallel, and if `second` follows `first`
    in the same body. Both may be inside allocations of that body, and `second` inside unit-extent
    loops of it. An allocation that ends between the loops is moved around both.
    Statements whose order changes must be independent. Iteration i of one loop and iteration j of
    the other may access a common element only for i == j.
    """

    first: str
    second: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the fused loop."""
        nest = self._with_common_allocations(nest)
        first = find_loop(nest, self.first, self)
        second = find_loop(nest, self.second, self)
        self._check_alike(first.loop, second.loop)
        later = self._later(first, second)
        self._check_meeting(first.loop, second.loop, ranges_of(second.outer))
        moved = substitute_body(first.loop.body, {self.first: var(self.second)})
        body = (*moved, *second.loop.body)
        if any(isinstance(stmt, Allocate) for stmt in moved):
            # Allocate the buffers around both bodies, so that inner loops can be merged next.
            buffers, flat = flattened(body)
            body = allocated(buffers, tuple(flat))
        reduce = first.loop.reduce or second.loop.reduce
        merged = replace(second.loop, body=body, reduce=reduce)
        if merged.kind is LoopKind.VECTORIZED:
            check_vector_lanes(merged, self, second.ranges)

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is first.loop or any(stmt is one for one in later):
                return ()
            return (merged, *later) if stmt is second.loop else None

        return still_prepacked(replace(nest, body=transform(nest.body, change)), self)

    def _with_common_allocations(self, nest: Nest) -> Nest:
        """Return the nest in which no allocation of the body that contains both loops ends between
        them."""
        first, second = (find_loop(nest, name, self) for name in (self.first, self.second))
        around = second.outer[: len(first.outer)]
        if first.outer != around or _before(_behind(first), second.loop) is not None:
            return nest
        body = around[-1].body if around else nest.body
        buffers, flat = flattened(body)
        opened = allocated(buffers, tuple(flat))
        if not around:
            return replace(nest, body=opened)
        return replace(first, loop=around[-1], outer=around[:-1]).with_body(*opened)

    def _check_alike(self, first: For, second: For) -> None:
        require(first.var != second.var, self, "a loop cannot be merged with itself")
        sizes = f"{first.var!r} has {first.extent} iterations, {second.var!r} {second.extent}"
        alike = first.extent == second.extent and not first.bounds and not second.bounds
        require(alike, self, f"the ranges differ: {sizes}")
        kinds = f"{first.var!r} is {first.kind.value} and {second.var!r} {second.kind.value}"
        same = first.kind is second.kind and first.kind is not LoopKind.PARALLEL
        require(same, self, kinds)

    def _later(self, first: LoopPosition, second: LoopPosition) -> tuple[Stmt, ...]:
        """Return the statements between the loops that depend on `first` and therefore must follow
        the fused loop. Raise ScheduleError if `second` depends on one of them."""
        depth = len(first.outer)
        inside = first.outer == second.outer[:depth]
        inside = inside and all(loop.extent == 1 for loop in second.outer[depth:])
        behind = _behind(first)
        between = _before(behind, second.loop) if inside else None
        problem = f"{self.second!r} must follow {self.first!r} in the same body"
        require(between is not None, self, problem)
        later: list[Stmt] = []
        for stmt in between or ():
            before = next(shared((first.loop, *later), (stmt,)), None)
            if before is None:
                continue
            after = next(shared((stmt,), (second.loop,)), None)
            problem = f"a statement between the loops needs {before!r}, which {self.first!r} writes"
            require(after is None and second.loop in behind, self, problem)
            later.append(stmt)
        return tuple(later)

    def _check_meeting(self, first: For, second: For, around: Ranges) -> None:
        """Raise ScheduleError if different iterations of the two loops access a common element."""
        one, other = accesses_within(first.body), accesses_within(second.body)
        ranges = {**all_ranges(first.body), **all_ranges((second,))}
        renamed = {first.var: var(second.var)}
        for buffer in shared(first.body, second.body):
            mine = {(tuple(i.substitute(renamed) for i in x), writes) for x, writes in one[buffer]}
            for (a, a_writes), (b, b_writes) in product(mine, set(other[buffer])):
                accesses = ElementAccess(a), ElementAccess(b)
                within = not (a_writes or b_writes)
                within = within or meet_only_within(*accesses, second.var, ranges, around)
                meeting = f"an iteration of {second.var!r} may meet another one of {first.var!r}"
                require(within, self, f"{meeting} in {buffer!r}")


def _behind(first: LoopPosition) -> tuple[Stmt, ...]:
    """Return the statements after a loop in its body, or in its allocation."""
    body = first.nest.body
    blocks = [body, *(s.body for s in walk(body) if isinstance(s, For | Allocate))]
    own = next(block for block in blocks if first.loop in block)
    return own[own.index(first.loop) + 1 :]


def _before(stmts: tuple[Stmt, ...], loop: For) -> tuple[Stmt, ...] | None:
    """Return the statements of `stmts` that run before `loop`, which may be inside allocations and
    unit-extent loops. Return None if `loop` is not in `stmts`."""
    passed: list[Stmt] = []
    for stmt in stmts:
        if stmt is loop:
            return tuple(passed)
        if isinstance(stmt, Allocate) or (isinstance(stmt, For) and stmt.extent == 1):
            inside = _before(stmt.body, loop)
            if inside is not None:
                return (*passed, *inside)
        passed.append(stmt)
    return None


MAX_CUTS = 16
"""Most points at which the body of a pipelined loop is split. Each one adds a copy of the body
before and after the loop. Sketches use two."""


@dataclass(frozen=True, slots=True)
class Stagger(LoopMaker):
    """Software pipelining: overlap the steps of different iterations of `loop`.

    The body is split into steps before each of the loops `starts`. The first step of an iteration
    runs together with later steps of earlier iterations.

        for i in 0..n:               A(0)
          A(i)                ->     B(0); A(1)
          B(i)                       for i in 0..n-2: C(i); B(i + 1); A(i + 2)
          C(i)                       C(n-2); B(n-1)
                                     C(n-1)

    Allocations of the body move outside the loop. A step runs before the preceding step of the next
    iteration overwrites its data, so one copy of each buffer suffices. Legal if steps that are not
    adjacent share no data that one of them writes. The loop must be serial, have no bounds, and
    have more iterations than split points. `.t` is appended to the names of loops in the copies.
    """

    loop: str
    starts: tuple[str, ...]

    WALK = Walk.REST

    def made(self, nest: Nest) -> Made:
        """Return the pipelined nest, and the loops of its prologue and epilogue."""
        place = serial_loop(nest, self.loop, self)
        loop = place.loop
        bounds = [bound for inner in loops(loop.body) for bound in inner.bounds]
        free = not loop.bounds and all(self.loop not in c.index.vars() for c in bounds)
        require(free, self, f"bounds depend on {self.loop!r}")
        buffers, flat = flattened(loop.body)
        steps = self._steps(flat)
        cuts, count = len(steps) - 1, loop.extent
        require(cuts <= MAX_CUTS, self, f"at most {MAX_CUTS} starts are allowed, found {cuts}")
        require(count > cuts, self, f"{self.loop!r} must have more than {cuts} iterations")
        self._check_order(steps)
        taken, made = names_in(nest), dict[str, str]()

        def together(time: int) -> list[Stmt]:
            found: list[Stmt] = []
            for n in range(cuts, -1, -1):
                if 0 <= time - n < count:
                    copy, names = renamed_copy(steps[n], ".t", taken)
                    made.update(names)
                    found += substitute_body(copy, {self.loop: affine(time - n)})
            return found

        start = [stmt for time in range(cuts) for stmt in together(time)]
        inside = [
            stmt
            for n in range(cuts, -1, -1)
            for stmt in substitute_body(steps[n], {self.loop: var(self.loop) + (cuts - n)})
        ]
        steady = replace(loop, extent=count - cuts, body=tuple(inside))
        end = [stmt for time in range(count, count + cuts) for stmt in together(time)]
        whole = allocated(buffers, (*start, steady, *end))
        return Made(still_prepacked(place.with_loop(*whole), self), made)

    def _steps(self, flat: list[Stmt]) -> list[tuple[Stmt, ...]]:
        places = [0]
        for name in self.starts:
            found = [n for n, stmt in enumerate(flat) if name in loops_named((stmt,))]
            problem = f"{name!r} must be in {self.loop!r}, after the start of the preceding step"
            require(bool(found) and found[0] > places[-1], self, problem)
            places.append(found[0])
        require(len(places) > 1, self, "starts must name at least one loop")
        ends = [*places[1:], len(flat)]
        return [tuple(flat[a:b]) for a, b in zip(places, ends, strict=True)]

    def _check_order(self, steps: list[tuple[Stmt, ...]]) -> None:
        """Raise ScheduleError if two steps that are not adjacent share data that one of them
        writes. The earlier step of the next iteration now runs before the later step of this
        iteration."""
        for (a, one), (b, other) in combinations(enumerate(steps), 2):
            buffer = next(shared(one, other), None) if b - a > 1 else None
            problem = f"steps {a} and {b} both need {buffer!r}, and one of them writes it"
            require(buffer is None, self, problem)
