"""Primitives that set how a loop is executed (Vectorize, Unroll, Parallel) or how a buffer is
stored (Stream, PackAhead). None changes the statements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import require
from ..nest.editing import map_allocation
from ..nest.finding import reads_of
from ..nest.loop_ir import Allocate, BufferScope, For, LoopKind, Nest, Stmt, loops
from ..nest.prepacking import prepack_problem
from .dependence import check_disjoint, check_vector_lanes
from .places import buffer_called, serial_loop, still_prepacked
from .primitive import Primitive

MAX_LANES = 64
"""Widest vector a loop may become: as many lanes as the widest register has bytes. Published: 512
bits (Intel, Software Developer's Manual, volume 1)."""

CODE_BYTES = 32 * 1024
"""Size of the L1 instruction cache. Published: 32 KiB, the smallest of current cores, Zen 1 to 5
and Skylake to Golden Cove among them (AMD and Intel, optimization guides)."""

INSTRUCTION_BYTES = 8
"""Size of a vector instruction with a memory operand. Published: four bytes of prefix, one each of
opcode, ModR/M, SIB and displacement (Intel, Software Developer's Manual, volume 2, EVEX)."""

MAX_UNROLLED = CODE_BYTES // INSTRUCTION_BYTES
"""Most copies of a statement that unrolling may make. A copy is at least one instruction, so more
copies exceed the L1 instruction cache. A safety limit for untrusted traces: sketches stay below a
quarter of it (`test_primitives_limits.py`)."""


@dataclass(frozen=True, slots=True)
class Vectorize(Primitive):
    """Execute a loop's iterations as the lanes of one vector (`vectorize`).

    Legal for an innermost serial loop of up to 64 iterations whose lanes write different elements
    and read nothing that another lane writes, or combine into one element.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the loop marked. ScheduleError: not innermost, too long, or lanes depend on
        each other."""
        place = serial_loop(nest, self.loop, self)
        extent = place.loop.extent
        problem = f"a vector has at most {MAX_LANES} lanes, the loop has {extent}"
        require(extent <= MAX_LANES, self, problem)
        check_vector_lanes(place.loop, self, place.ranges)
        return place.marked(LoopKind.VECTORIZED)


@dataclass(frozen=True, slots=True)
class Unroll(Primitive):
    """Unroll a loop completely (`unroll`).

    Always legal; refused where the body would be copied more than `MAX_UNROLLED` times in all.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the loop marked. ScheduleError: not serial, or too many copies."""
        place = serial_loop(nest, self.loop, self)
        copies = place.loop.extent * written_out(place.loop)
        for outer in place.outer:
            copies *= outer.extent if outer.kind is LoopKind.UNROLLED else 1
        problem = f"unrolling makes {copies} copies; at most {MAX_UNROLLED} are allowed"
        require(copies <= MAX_UNROLLED, self, problem)
        return place.marked(LoopKind.UNROLLED)


def written_out(stmt: Stmt) -> int:
    """The number of leaves of `stmt` after unrolling."""
    if not isinstance(stmt, For | Allocate):
        return 1
    times = stmt.extent if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED else 1
    return times * sum(map(written_out, stmt.body))


@dataclass(frozen=True, slots=True)
class Parallel(Primitive):
    """Divide a loop's iterations among threads (`parallel`).

    Legal for a serial spatial loop, with no parallel loop around or inside it, whose iterations
    provably write different elements and read nothing another iteration writes.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the loop marked. ScheduleError: nested in a parallel loop, a reduction, not
        proved independent, or in conflict with prepacking."""
        place = serial_loop(nest, self.loop, self)
        for other in (*place.outer, *loops(place.loop.body)):
            problem = f"parallel loops do not nest, and {other.var!r} is one"
            require(other.kind is not LoopKind.PARALLEL, self, problem)
        plain = all(outer.kind is LoopKind.SERIAL for outer in place.outer)
        require(plain, self, "a parallel loop may stand in serial loops only")
        check_disjoint(place.loop, self, place.ranges)
        return still_prepacked(place.marked(LoopKind.PARALLEL), self)


@dataclass(frozen=True, slots=True)
class Stream(Primitive):
    """Write an output with non-temporal stores (`store_nontemporal` in other systems).

    A non-temporal store neither loads the cache line first nor evicts other lines, which saves a
    third of the traffic of an addition. It pays for outputs larger than the caches. Legal for
    outputs that the nest does not read.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the output marked. ScheduleError: no output, read by the nest, or marked
        already."""
        outputs = [tensor.name for tensor in nest.outputs]
        problem = f"{self.buffer!r} is no output; there are {', '.join(outputs)}"
        require(self.buffer in outputs, self, problem)
        require(self.buffer not in nest.streamed, self, f"{self.buffer!r} is streamed already")
        read = reads_of(nest.body, self.buffer)
        require(not read, self, f"{self.buffer!r} is read again, from the caches")
        return replace(nest, streamed=(*nest.streamed, self.buffer))


@dataclass(frozen=True, slots=True)
class PackAhead(Primitive):
    """Prepacking: make a private copy of a constant input once, before all calls (`NAME_prepack` in
    C).

        alloc P        # workspace          alloc P        # prepacked
        for x: P[x] = W[f(x)]         ->    for x: P[x] = W[f(x)]     once
        for i: ... P[g(i)] ...              for i: ... P[g(i)] ...    in every call

    Legal for a workspace buffer that is allocated outside of all loops (CacheRead with loop "") and
    filled at the start of its block from inputs marked constant only, in a nest with such inputs.
    Its layout and the loops that fill it may still be changed.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the mark. ScheduleError: inside a loop, or filled from inputs that are not
        constant."""
        scope = buffer_called(nest, self.buffer, self).scope
        problem = f"{self.buffer!r} is in {scope.value}; this needs one in the workspace"
        require(scope is BufferScope.WORKSPACE, self, problem)

        def mark(made: Allocate) -> tuple[Stmt, ...]:
            return (Allocate(replace(made.buffer, scope=BufferScope.PREPACKED), made.body),)

        marked = replace(nest, body=map_allocation(nest.body, self.buffer, mark))
        reason = prepack_problem(marked)
        require(reason is None, self, str(reason))
        return marked
