"""Primitives that set a property of a loop (Vectorize, Unroll, Parallel) or of a buffer (Stream,
PackAhead), without changing statements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.scalar import loads
from ..errors import require
from ..nest.editing import map_allocation
from ..nest.finding import reads_of
from ..nest.loop_ir import (
    Allocate,
    BufferScope,
    For,
    Leaf,
    LoopKind,
    Nest,
    Stmt,
    leaves,
    loops,
)
from ..nest.prepacking import prepack_problem
from ..nest.scans import recurrence
from .dependence import check_disjoint, check_vector_lanes
from .places import buffer_called, serial_loop, still_prepacked
from .primitive import Primitive

MAX_LANES = 64
"""Maximum number of lanes of a vectorised loop: the number of bytes of the widest register.
Published: 512 bits (Intel, Software Developer's Manual, volume 1)."""

CODE_BYTES = 32 * 1024
"""Size of the L1 instruction cache. Published: 32 KiB, the smallest of current cores, including Zen
1 to 5 and Skylake to Golden Cove (AMD and Intel, optimization guides)."""

INSTRUCTION_BYTES = 8
"""Size of a vector instruction with a memory operand. Published: four bytes of prefix, and one byte
each for opcode, ModR/M, SIB and displacement (Intel, Software Developer's Manual, volume 2,
EVEX)."""

MAX_UNROLLED = CODE_BYTES // INSTRUCTION_BYTES
"""Most copies of a statement by unrolling. A copy has at least one instruction, so more copies
exceed the L1 instruction cache. This is a safety limit for untrusted traces: sketches use less than
a quarter of it (`test_primitives_limits.py`)."""


@dataclass(frozen=True, slots=True)
class Vectorize(Primitive):
    """Execute a loop's iterations as the lanes of one vector (`vectorize`).

    Legal for an innermost serial loop of up to 64 iterations if its lanes write different elements
    and read no element that another lane writes, or if they all combine into one element.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the kind of the loop set."""
        place = serial_loop(nest, self.loop, self)
        extent = place.loop.extent
        problem = f"a vector has at most {MAX_LANES} lanes, the loop has {extent}"
        require(extent <= MAX_LANES, self, problem)
        check_vector_lanes(place.loop, self, place.ranges)
        return place.marked(LoopKind.VECTORIZED)


@dataclass(frozen=True, slots=True)
class Unroll(Primitive):
    """Unroll a loop completely (`unroll`).

    Legal for a serial loop if no statement then has more than `MAX_UNROLLED` copies.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the kind of the loop set."""
        place = serial_loop(nest, self.loop, self)
        copies = place.loop.extent * written_out(place.loop)
        for outer in place.outer:
            copies *= outer.extent if outer.kind is LoopKind.UNROLLED else 1
        problem = f"unrolling makes {copies} copies; at most {MAX_UNROLLED} are allowed"
        require(copies <= MAX_UNROLLED, self, problem)
        return place.marked(LoopKind.UNROLLED)


def written_out(stmt: Stmt) -> int:
    """Return the number of leaves of `stmt` after unrolling."""
    if not isinstance(stmt, For | Allocate):
        return 1
    times = stmt.extent if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED else 1
    return times * sum(map(written_out, stmt.body))


@dataclass(frozen=True, slots=True)
class Parallel(Primitive):
    """Divide a loop's iterations among threads (`parallel`).

    Legal if the loop is serial and spatial, all enclosing loops are serial, and no nested loop is
    parallel. Its iterations must write different elements and read no element that another
    iteration writes.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the kind of the loop set."""
        place = serial_loop(nest, self.loop, self)
        for other in (*place.outer, *loops(place.loop.body)):
            problem = f"parallel loops do not nest, and {other.var!r} is one"
            require(other.kind is not LoopKind.PARALLEL, self, problem)
        plain = all(outer.kind is LoopKind.SERIAL for outer in place.outer)
        require(plain, self, "a parallel loop may be nested in serial loops only")
        check_disjoint(place.loop, self, place.ranges)
        return still_prepacked(place.marked(LoopKind.PARALLEL), self)


@dataclass(frozen=True, slots=True)
class Stream(Primitive):
    """Write an output with non-temporal stores.

    A non-temporal store neither loads the cache line first nor evicts other lines. It is profitable
    for outputs larger than the caches. Legal for outputs that the nest does not read, except to
    compute further elements of the same output (a scan), or where another scan begins.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the output marked."""
        outputs = [tensor.name for tensor in nest.outputs]
        problem = f"{self.buffer!r} is not an output; outputs: {', '.join(outputs)}"
        require(self.buffer in outputs, self, problem)
        require(self.buffer not in nest.streamed, self, f"{self.buffer!r} is streamed already")
        others = (leaf for leaf in leaves(nest.body) if not self._continues(leaf))
        read = reads_of(tuple(others), self.buffer)
        require(not read, self, f"{self.buffer!r} is read by the nest")
        return replace(nest, streamed=(*nest.streamed, self.buffer))

    def _continues(self, leaf: Leaf) -> bool:
        """Return whether `leaf` reads the output at most to continue a scan."""
        scan = recurrence(leaf)
        return leaf.buffer == self.buffer or (
            scan is not None and all(load.tensor != self.buffer for load in loads(scan.value))
        )


@dataclass(frozen=True, slots=True)
class PackAhead(Primitive):
    """Prepacking: make a private copy of a constant input once, in the C function `NAME_prepack`.

        alloc P        # workspace          alloc P        # prepacked
        for x: P[x] = W[f(x)]         ->    for x: P[x] = W[f(x)]     once
        for i: ... P[g(i)] ...              for i: ... P[g(i)] ...    in every call

    Legal for a workspace buffer that is allocated outside all loops (CacheRead with loop ""). The
    buffer must be filled at the start of its block, from constant inputs only (`prepack_problem`).
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the scope of the buffer set."""
        scope = buffer_called(nest, self.buffer, self).scope
        problem = f"{self.buffer!r} is in {scope.value}; this needs one in the workspace"
        require(scope is BufferScope.WORKSPACE, self, problem)

        def mark(made: Allocate) -> tuple[Stmt, ...]:
            return (Allocate(replace(made.buffer, scope=BufferScope.PREPACKED), made.body),)

        marked = replace(nest, body=map_allocation(nest.body, self.buffer, mark))
        reason = prepack_problem(marked)
        require(reason is None, self, str(reason))
        return marked
