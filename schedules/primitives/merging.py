"""Merge: one loop of two that stand one after the other and run over the same range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..algebra.affine import Affine, Interval, Ranges, Var, affine, interval, var
from ..algebra.scalar import loads
from ..errors import ScheduleError
from ..nest.editing import allocated, flattened, substitute_body
from ..nest.finding import all_ranges, private_buffers
from ..nest.loop_ir import Allocate, For, LoopKind, Nest, Prefetch, Stmt, leaves, transform
from .dependence import check_vector_lanes
from .places import find_loop, still_ahead
from .primitive import Primitive

Indices = dict[str, list[tuple[Affine, ...]]]
"""The indices with which each buffer is accessed."""


@dataclass(frozen=True, slots=True)
class Merge(Primitive):
    """Run two loops over the same range as one (`compute_with` in Halide, `fuse` in Exo).

        for i in 0..n: A(i)    ->    for j in 0..n: A(j); B(j)
        for j in 0..n: B(j)

    The loops may be of any kind but parallel, the same for both, and `second` may stand in loops
    of one iteration and have other statements and allocations before it: `first` is moved past
    them, or where it must stay before some of them, these are moved past `second`. Legal where they
    do not depend on each other, and where iterations of the two meet in an element only if they are
    the same one: what B(j) needs of A is then there, and A's later iterations need nothing of B(j).
    The new loop is called `second`, and is a reduction loop if one of the two was.
    """

    first: str
    second: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with one loop. ScheduleError: not one after the other, ranges or kinds differ,
        or iterations would meet."""
        first = find_loop(nest, self.first, self)
        second = find_loop(nest, self.second, self)
        self._check_alike(first.loop, second.loop)
        around = frozenset(loop.var for loop in first.outer)
        problem = f"{self.second!r} must come after {self.first!r}, in the body it stands in"
        deeper = second.outer[len(first.outer) :]
        if first.outer != second.outer[: len(first.outer)] or any(x.extent > 1 for x in deeper):
            raise ScheduleError(self, problem)
        between = _between(nest.body, first.loop, second.loop)
        if between is None:
            raise ScheduleError(self, problem)
        later = self._later(first.loop, between, second.loop, nest.body)
        self._check_meeting(first.loop, second.loop, around)
        moved = substitute_body(first.loop.body, {self.first: var(self.second)})
        body = (*moved, *second.loop.body)
        if any(isinstance(stmt, Allocate) for stmt in moved):
            # Around both: what the loops inside write can then be written in one of them.
            buffers, flat = flattened(body)
            body = allocated(buffers, tuple(flat))
        merged = replace(
            second.loop,
            body=body,
            reduce=first.loop.reduce or second.loop.reduce,
        )
        if merged.kind is LoopKind.VECTORIZED:
            check_vector_lanes(merged, self)

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is first.loop or any(stmt is one for one in later):
                return ()
            return (merged, *later) if stmt is second.loop else None

        return still_ahead(replace(nest, body=transform(nest.body, change)), self)

    def _check_alike(self, first: For, second: For) -> None:
        if first.var == second.var:
            raise ScheduleError(self, "a loop cannot be merged with itself")
        if first.extent != second.extent or first.bounds or second.bounds:
            raise ScheduleError(
                self,
                f"the ranges differ: {first.var!r} has {first.extent} iterations, "
                f"{second.var!r} {second.extent}",
            )
        if first.kind is not second.kind or first.kind is LoopKind.PARALLEL:
            raise ScheduleError(
                self, f"{first.var!r} is {first.kind.value} and {second.var!r} {second.kind.value}"
            )

    def _later(
        self, first: For, between: tuple[Stmt, ...], second: For, body: tuple[Stmt, ...]
    ) -> tuple[Stmt, ...]:
        """What stands between the loops and must come after the merged one, as it needs what
        `first` leaves, or the other way round. ScheduleError if it must come before as well, or
        if there are allocations between, which only `first` can be moved past."""
        later: list[Stmt] = []
        for stmt in between:
            before = _first_shared(accesses((first, *later)), accesses((stmt,)))
            if before is None:
                continue
            after = _first_shared(accesses((stmt,)), accesses((second,)))
            if after is not None or not _stand_together(body, first, second):
                raise ScheduleError(
                    self,
                    f"what stands between the loops needs {before!r} as {first.var!r} leaves it",
                )
            later.append(stmt)
        return tuple(later)

    def _check_meeting(self, first: For, second: For, around: frozenset[str]) -> None:
        """ScheduleError unless different iterations of the two touch different elements."""
        one, other = accesses(first.body), accesses(second.body)
        ranges = {**all_ranges(first.body), **all_ranges(second.body)}
        renamed = {first.var: var(second.var)}
        for buffer in shared(one, other):
            indices = [tuple(i.substitute(renamed) for i in index) for index in one.of(buffer)]
            indices += other.of(buffer)
            if not _apart(indices, second.var, ranges, around):
                raise ScheduleError(
                    self,
                    f"an iteration of {second.var!r} may meet another one of {first.var!r} in "
                    f"{buffer!r}",
                )


@dataclass(frozen=True, slots=True)
class Accesses:
    """What statements read and write, without the buffers they allocate for themselves."""

    reads: Indices
    writes: Indices

    def of(self, buffer: str) -> list[tuple[Affine, ...]]:
        return [*self.reads.get(buffer, []), *self.writes.get(buffer, [])]


def accesses(stmts: tuple[Stmt, ...]) -> Accesses:
    """What `stmts` read and write."""
    private = private_buffers(stmts)
    found = Accesses({}, {})
    for leaf in leaves(stmts):
        if isinstance(leaf, Prefetch):
            continue
        for read in loads(leaf.value):
            if read.tensor not in private:
                found.reads.setdefault(read.tensor, []).append(read.index)
        if leaf.buffer not in private:
            found.writes.setdefault(leaf.buffer, []).append(leaf.index)
    return found


def shared(one: Accesses, other: Accesses) -> Iterator[str]:
    """Buffers that both touch and one of them writes."""
    for buffer in sorted({*one.reads, *one.writes} & {*other.reads, *other.writes}):
        if buffer in one.writes or buffer in other.writes:
            yield buffer


def _first_shared(one: Accesses, other: Accesses) -> str | None:
    return next(iter(shared(one, other)), None)


def _stand_together(stmts: tuple[Stmt, ...], first: For, second: For) -> bool:
    """Whether the two loops are statements of one body, with no allocation begun between."""
    if any(stmt is first for stmt in stmts):
        return any(stmt is second for stmt in stmts)
    parents = (stmt for stmt in stmts if isinstance(stmt, For | Allocate))
    return any(_stand_together(stmt.body, first, second) for stmt in parents)


def _apart(
    indices: list[tuple[Affine, ...]], name: str, ranges: Ranges, around: frozenset[str]
) -> bool:
    """Whether all `indices` lie in a block of elements of their own for each value of `name`.

    The proof: in some dimension all of them are `c * name`, plus the same sum of variables of
    loops `around`, plus something that stays within an interval shorter than c.
    """
    return any(
        _blocks(tuple(index[d] for index in indices), name, ranges, around)
        for d in range(len(indices[0]))
    )


def _blocks(entries: tuple[Affine, ...], name: str, ranges: Ranges, around: frozenset[str]) -> bool:
    if not all(entry.is_linear_in(name) for entry in entries):
        return False
    steps = {entry.coefficient(name) for entry in entries}
    rests = [entry - var(name) * entry.coefficient(name) for entry in entries]
    fixed = {_part(rest, around) for rest in rests}
    if len(steps) != 1 or len(fixed) != 1:
        return False
    bounds = [_bounds(rest - _part(rest, around), ranges) for rest in rests]
    inside = [b for b in bounds if b is not None]
    if len(inside) != len(bounds):
        return False
    return max(b.hi for b in inside) - min(b.lo for b in inside) < abs(steps.pop())


def _part(index: Affine, names: frozenset[str]) -> Affine:
    """The terms of `index` that are plain multiples of variables in `names`."""
    total = affine(0)
    for atom, c in index.terms:
        if isinstance(atom, Var) and atom.name in names:
            total = total + Affine(((atom, c),), 0)
    return total


def _bounds(index: Affine, ranges: Ranges) -> Interval | None:
    """The interval of `index`; None where a variable in it is not one of the loops' own."""
    return interval(index, ranges) if all(name in ranges for name in index.vars()) else None


def _between(stmts: tuple[Stmt, ...], first: For, second: For) -> tuple[Stmt, ...] | None:
    """What runs between the two loops; None unless `second` comes after `first` in the same
    body, within allocations at most."""
    for stmt in stmts:
        if isinstance(stmt, For | Allocate) and stmt is not first:
            found = _between(stmt.body, first, second)
            if found is not None:
                return found
    if not any(stmt is first for stmt in stmts):
        return None
    start = next(n for n, stmt in enumerate(stmts) if stmt is first)
    return _before(stmts[start + 1 :], second)


def _before(stmts: tuple[Stmt, ...], loop: For) -> tuple[Stmt, ...] | None:
    """The statements of `stmts` that run before `loop`, which stands in it or in allocations."""
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
