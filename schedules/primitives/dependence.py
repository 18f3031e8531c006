"""Proofs about dependences: may iterations run in another order, at once, or side by side?

What primitives may rely on: a leaf writes each element of a buffer at most once for each setting
of its spatial loops (loops with `reduce` unset), except in buffers private to an inner loop.
Every primitive keeps this, so whether two iterations can meet is a question about indices only.
"""

from __future__ import annotations

from ..algebra.affine import Ranges
from ..algebra.independence import separates, settled
from ..errors import ScheduleError, need
from ..nest.finding import (
    all_ranges,
    loops_around,
    private_buffers,
    ranges_of,
    reads_of,
    write_sites,
)
from ..nest.loop_ir import (
    For,
    LoopKind,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    leaves,
    loops,
)


def _writers(body: tuple[Stmt, ...]) -> list[StoreElement | Update]:
    """The leaves of `body` that write what is not private to it."""
    private = private_buffers(body)
    own = [leaf for leaf in leaves(body) if not isinstance(leaf, PrefetchHint)]
    return [leaf for leaf in own if leaf.buffer not in private]


def check_reorderable(body: tuple[Stmt, ...], asked_by: object) -> None:
    """ScheduleError unless iterations around `body` may run in any order.

    Legal when everything `body` writes outside its private buffers is either stored once an
    element or combined by one reducer, and not read by `body` in another way.
    """
    reducers: dict[str, object] = {}
    for leaf in _writers(body):
        kind = leaf.reducer if isinstance(leaf, Update) else "store"
        alike = reducers.setdefault(leaf.buffer, kind) == kind
        need(alike, asked_by, f"{leaf.buffer!r} is written in two different ways")
        read = reads_of(body, leaf.buffer)
        need(not read, asked_by, f"the body both writes and reads {leaf.buffer!r}")


def check_disjoint(loop: For, asked_by: object, around: Ranges) -> None:
    """ScheduleError unless different iterations of `loop` write different elements and none
    reads what another writes: what running them at once needs. `around` has the loops outside."""
    problem = f"iterations of {loop.var!r} combine into the same elements; RFactor it first"
    need(not loop.reduce, asked_by, problem)
    ranges = all_ranges((loop,))
    private = private_buffers(loop.body)
    for leaf, chain in write_sites((loop,)):
        if leaf.buffer in private:
            continue
        known = (*leaf.guards, *(bound for inner in chain for bound in inner.bounds))
        if loop.extent > 1 and not separates(leaf.index, loop.var, ranges, known, around):
            raise ScheduleError(
                asked_by,
                f"iterations of {loop.var!r} may write the same element of {leaf.buffer!r}"
                f" (index {', '.join(map(str, leaf.index))})",
            )
        every = {**around, **ranges}
        own = settled(leaf.index, every)
        reads = reads_of(loop.body, leaf.buffer)
        alike = all(settled(read.index, every) == own for read in reads)
        problem = f"an iteration of {loop.var!r} may read what another writes to {leaf.buffer!r}"
        need(alike, asked_by, problem)


def check_marks(stmts: tuple[Stmt, ...], asked_by: object) -> None:
    """ScheduleError unless every parallel and every vectorised loop of `stmts` may run so: what
    Parallel and Vectorize prove, of leaves that may have been changed since."""
    for loop in loops(stmts):
        if loop.kind is LoopKind.PARALLEL:
            check_disjoint(loop, asked_by, ranges_of(loops_around(stmts, loop)))
        elif loop.kind is LoopKind.VECTORIZED:
            check_vector_lanes(loop, asked_by, ranges_of(loops_around(stmts, loop)))


def check_vector_lanes(loop: For, asked_by: object, around: Ranges) -> None:
    """ScheduleError unless the iterations of `loop`, inside of those `around`, may run as lanes of
    one vector.

    A reduction loop is legal where every leaf combines all lanes into one element: a horizontal
    reduction. A spatial loop needs lanes that write different elements, and no lane reading what
    another lane writes.
    """
    innermost = all(isinstance(stmt, StoreElement | Update | PrefetchHint) for stmt in loop.body)
    problem = f"loop {loop.var!r} must be innermost, and it contains another loop or buffer"
    need(innermost, asked_by, problem)
    if not loop.reduce:
        check_disjoint(loop, asked_by, around)
        return
    for leaf in leaves(loop.body):
        if not isinstance(leaf, Update) or any(loop.var in i.vars() for i in leaf.index):
            problem = f"{loop.var!r} is a reduction loop whose body is not one reduction"
            raise ScheduleError(asked_by, problem)
        later = all(loop.var not in c.index.vars() for c in leaf.first or ())
        problem = f"the first update of {leaf.buffer!r} would be in one lane; CacheWrite it first"
        need(later, asked_by, problem)
