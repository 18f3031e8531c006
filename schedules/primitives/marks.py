"""Primitives that say how a loop runs, Vectorize, Unroll, Parallel, or how an output is written,
Stream. None changes what is done."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import ScheduleError
from ..nest.finding import reads_of
from ..nest.loop_ir import For, LoopKind, Nest, Stmt, walk
from .dependence import check_disjoint, check_vector_lanes
from .places import find_loop, replace_loop, require_serial
from .primitive import Primitive

MAX_LANES = 64
"""Widest vector a loop may become: four registers of the widest machine, in bytes."""

MAX_UNROLLED = 4096
"""Most copies of a statement that unrolling may make; beyond it, compiling takes seconds."""


@dataclass(frozen=True, slots=True)
class Vectorize(Primitive):
    """Run a loop's iterations as the lanes of one vector (`vectorize`).

    Legal for an innermost serial loop of up to 64 iterations whose lanes write different
    elements and read nothing another lane writes, or that reduces all lanes into one element.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the loop marked. ScheduleError: not innermost, too long, lanes meet."""
        loop = find_loop(nest, self.loop, self).loop
        require_serial(loop, self)
        if loop.extent > MAX_LANES:
            raise ScheduleError(
                self, f"a vector has at most {MAX_LANES} lanes, the loop has {loop.extent}"
            )
        check_vector_lanes(loop, self)
        return replace_loop(nest, self.loop, (replace(loop, kind=LoopKind.VECTORIZED),))


@dataclass(frozen=True, slots=True)
class Unroll(Primitive):
    """Write a loop's iterations out one after the other (`unroll`).

    Always legal; refused where the body would be copied more than 4,096 times in all.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the loop marked. ScheduleError: not serial, or too many copies."""
        place = find_loop(nest, self.loop, self)
        require_serial(place.loop, self)
        copies = place.loop.extent * _copies(place.loop.body)
        for outer in place.outer:
            copies *= outer.extent if outer.kind is LoopKind.UNROLLED else 1
        if copies > MAX_UNROLLED:
            raise ScheduleError(
                self, f"unrolling makes {copies} copies; at most {MAX_UNROLLED} are allowed"
            )
        return replace_loop(nest, self.loop, (replace(place.loop, kind=LoopKind.UNROLLED),))


def _copies(body: tuple[Stmt, ...]) -> int:
    """How many statements `body` becomes when its unrolled loops are written out."""
    total = 0
    for stmt in body:
        match stmt:
            case For():
                times = stmt.extent if stmt.kind is LoopKind.UNROLLED else 1
                total += times * _copies(stmt.body)
            case _:
                inner = getattr(stmt, "body", None)
                total += 1 if inner is None else _copies(inner)
    return max(total, 1)


@dataclass(frozen=True, slots=True)
class Parallel(Primitive):
    """Divide a loop's iterations among threads (`parallel`).

    Legal for a serial spatial loop, with no parallel loop around or inside it, whose iterations
    provably write different elements and read nothing another iteration writes.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the loop marked. ScheduleError: nested, a reduction, or not provable."""
        place = find_loop(nest, self.loop, self)
        require_serial(place.loop, self)
        around = (*place.outer, *(s for s in walk(place.loop.body) if isinstance(s, For)))
        for other in around:
            if other.kind is LoopKind.PARALLEL:
                raise ScheduleError(self, f"parallel loops do not nest, and {other.var!r} is one")
        if any(outer.kind is not LoopKind.SERIAL for outer in place.outer):
            raise ScheduleError(self, "a parallel loop may stand in serial loops only")
        check_disjoint(place.loop, self)
        return replace_loop(nest, self.loop, (replace(place.loop, kind=LoopKind.PARALLEL),))


@dataclass(frozen=True, slots=True)
class Stream(Primitive):
    """Write an output past the caches (`store_nontemporal` of other systems).

    A line that is written as a whole need not be fetched first, and does not push out what is
    still of use: a third of the traffic of an addition. It is worth that only for outputs that
    exceed the caches. Legal for outputs that the nest does not read.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the output marked. ScheduleError: no output, read, or marked before."""
        if self.buffer not in {t.name for t in nest.outputs}:
            known = ", ".join(t.name for t in nest.outputs)
            raise ScheduleError(self, f"{self.buffer!r} is no output; there are {known}")
        if self.buffer in nest.streamed:
            raise ScheduleError(self, f"{self.buffer!r} is streamed already")
        if reads_of(nest.body, self.buffer):
            raise ScheduleError(self, f"{self.buffer!r} is read again, from the caches")
        return replace(nest, streamed=(*nest.streamed, self.buffer))
