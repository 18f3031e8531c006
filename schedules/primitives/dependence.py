"""Dependence tests for reordered, parallel and vectorised iterations.

Invariant of all primitives: a leaf writes each element of a buffer in at most one iteration of its
spatial loops (loops with `reduce` unset). Buffers that are private to an inner loop are an
exception. Two iterations therefore conflict only through two different accesses. The tests compare
the indices of such accesses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..algebra.affine import Index, Ranges
from ..algebra.comparisons import Cond
from ..algebra.independence import ElementAccess, meet_only_within, separates, settled
from ..algebra.scalar import Reducer, conditional_loads
from ..errors import ScheduleError, require
from ..nest.finding import all_ranges, loops_around, private_buffers, ranges_of, write_sites
from ..nest.loop_ir import For, LoopKind, PrefetchHint, Stmt, StoreElement, Update, leaves, loops
from ..nest.scans import scan_step


def check_reorderable(
    before: Sequence[For], after: Sequence[For], source: object, around: Ranges
) -> None:
    """Raise ScheduleError if the perfectly nested loops `before` must not be put into the order
    `after`.

    All writes of the body to a buffer must be stores, or all must be updates by the same reducer.
    (Private buffers are an exception.) If the body also has another access to the buffer, the loops
    that carry a dependence between the two accesses must keep their relative order. A loop carries
    the dependence if the distance in that loop is not proved to be zero.
    """
    private = private_buffers(before[-1].body)
    reducers: dict[str, Reducer | None] = {}
    for leaf, _ in write_sites(before[-1].body):
        if leaf.buffer in private:
            continue
        alike = reducers.setdefault(leaf.buffer, _reducer(leaf)) is _reducer(leaf)
        require(alike, source, f"{leaf.buffer!r} is written in two different ways")
    ranges = all_ranges((before[0],))
    place = {loop.var: n for n, loop in enumerate(after)}
    for pair in _dependent_pairs(before[0], {**around, **ranges}):
        if pair.commutes:
            continue
        carrying = [loop.var for loop in before if not pair.is_within(loop.var, ranges, around)]
        kept = carrying == sorted(carrying, key=place.__getitem__)
        problem = f"iterations depend on each other through {pair.buffer!r}, in {carrying}"
        require(kept, source, problem)


@dataclass(frozen=True, slots=True)
class _AccessPair:
    """A write and another access to `buffer`, with simplified indices."""

    buffer: str
    write: ElementAccess
    other: ElementAccess
    reads: bool
    """Whether `other` is a read."""
    commutes: bool = False
    """Whether both accesses are updates by the same reducer."""

    def is_within(self, loop: str, ranges: Ranges, around: Ranges) -> bool:
        """Return whether the two accesses refer to the same element only in iterations with the
        same value of `loop`."""
        return meet_only_within(self.write, self.other, loop, ranges, around)


def _dependent_pairs(loop: For, every: Ranges, *, scans: bool = False) -> Iterator[_AccessPair]:
    """Yield pairs of a write in `loop` and another access to the same buffer. Buffers private to
    the body are skipped. By the invariant of this module, a leaf does not conflict with itself. If
    `scans`, neither does the read of a step of a scan along `loop`, which is innermost."""
    private = private_buffers(loop.body)
    sites = [(leaf, _conditions(leaf, chain)) for leaf, chain in write_sites((loop,))]
    found: dict[_AccessPair, None] = {}
    for n, (leaf, guards) in enumerate(sites):
        if leaf.buffer in private:
            continue
        write = _access(leaf.index, guards, every)
        continued = scans and scan_step(leaf, loop, every) is not None
        for m, (other, conds) in enumerate(sites):
            for load, needed in conditional_loads(other.value):
                if load.tensor == leaf.buffer and not (continued and other is leaf):
                    read = _access(load.index, (*conds, *needed), every)
                    found[_AccessPair(leaf.buffer, write, read, True)] = None
            if m > n and other.buffer == leaf.buffer:
                commutes = _reducer(leaf) is _reducer(other) is not None
                second = _access(other.index, conds, every)
                found[_AccessPair(leaf.buffer, write, second, False, commutes)] = None
    yield from found


def _access(index: Index, guards: tuple[Cond, ...], every: Ranges) -> ElementAccess:
    kept = (type(guard)(*settled((guard.index,), every)) for guard in guards)
    return ElementAccess(settled(index, every), tuple(kept))


def check_disjoint(loop: For, source: object, around: Ranges, *, scans: bool = False) -> None:
    """Raise ScheduleError if iterations of `loop` must not run in parallel.

    They must not if two iterations may write the same element, or if one may read an element that
    another writes. If `scans`, a step of a scan may read the element that the iteration before
    writes. `around` has the ranges of the enclosing loops.
    """
    problem = f"iterations of {loop.var!r} combine into the same elements; RFactor it first"
    require(not loop.reduce, source, problem)
    if loop.extent == 1:
        return
    ranges = all_ranges((loop,))
    private = private_buffers(loop.body)
    for leaf, chain in write_sites((loop,)):
        if leaf.buffer in private:
            continue
        known = _conditions(leaf, chain)
        if not separates(leaf.index, loop.var, ranges, known, around):
            raise ScheduleError(
                source,
                f"iterations of {loop.var!r} may write the same element of {leaf.buffer!r}"
                f" (index {', '.join(map(str, leaf.index))})",
            )
    for pair in _dependent_pairs(loop, {**around, **ranges}, scans=scans):
        verb = "read" if pair.reads else "write"
        problem = f"an iteration of {loop.var!r} may {verb} what another writes to {pair.buffer!r}"
        require(pair.is_within(loop.var, ranges, around), source, problem)


def _reducer(leaf: StoreElement | Update) -> Reducer | None:
    return leaf.reducer if isinstance(leaf, Update) else None


def _conditions(leaf: StoreElement | Update, chain: tuple[For, ...]) -> tuple[Cond, ...]:
    """Return conditions that hold in each execution of `leaf` inside the loops `chain`."""
    return (*leaf.guards, *(bound for loop in chain for bound in loop.bounds))


def check_marks(stmts: tuple[Stmt, ...], source: object) -> None:
    """Raise ScheduleError if a parallel or vectorised loop of `stmts` is not legal. This repeats
    the proofs of Parallel and Vectorize, because later steps may have changed the leaves."""
    for loop in loops(stmts):
        if loop.kind is LoopKind.PARALLEL:
            check_disjoint(loop, source, ranges_of(loops_around(stmts, loop)))
        elif loop.kind is LoopKind.VECTORIZED:
            check_vector_lanes(loop, source, ranges_of(loops_around(stmts, loop)))


def check_vector_lanes(loop: For, source: object, around: Ranges) -> None:
    """Raise ScheduleError if the iterations of `loop` must not run as lanes of one vector.

    A reduction loop is legal if every leaf combines all lanes into one element (a horizontal
    reduction). A spatial loop is legal if its lanes write different elements, and no lane reads an
    element that another lane writes, or if its body is one step of a scan. `around` has the ranges
    of the enclosing loops."""
    innermost = all(isinstance(stmt, StoreElement | Update | PrefetchHint) for stmt in loop.body)
    problem = f"loop {loop.var!r} must be innermost, and it contains another loop or buffer"
    require(innermost, source, problem)
    if not loop.reduce:
        check_disjoint(loop, source, around, scans=True)
        return
    for leaf in leaves(loop.body):
        if not isinstance(leaf, Update) or any(loop.var in i.vars() for i in leaf.index):
            problem = f"{loop.var!r} is a reduction loop whose body is not one reduction"
            raise ScheduleError(source, problem)
        later = all(loop.var not in c.index.vars() for c in leaf.first or ())
        problem = f"the first update of {leaf.buffer!r} would be in one lane; CacheWrite it first"
        require(later, source, problem)
    for pair in _dependent_pairs(loop, {**around, **all_ranges((loop,))}):
        problem = f"{pair.buffer!r} is accessed in another way while {loop.var!r} reduces into it"
        require(pair.commutes, source, problem)
