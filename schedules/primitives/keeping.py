"""The primitive KeepElements: elements that a loop's body computes step by step stay in a private
buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..algebra.affine import Index, Ranges, simplify
from ..algebra.comparisons import prove
from ..algebra.scalar import Load, Scalar, conditional_loads
from ..errors import ScheduleError, require
from ..nest.coverage import is_written_whole
from ..nest.editing import map_allocation, map_loads, map_writes, nest_loops, renamed_copy
from ..nest.finding import (
    accesses_of,
    all_ranges,
    chain_to,
    names_in,
    private_buffers,
    reads_of,
    writes_of,
)
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    Leaf,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    leaves,
    loops,
)
from .boxes import region_of
from .dependence import check_marks
from .places import buffer_called, open_loop, require_free, still_prepacked
from .primitive import LoopMaker, Made, Walk


@dataclass(frozen=True, slots=True)
class KeepElements(LoopMaker):
    """Keep the elements that the body of `loop` writes and reads again in a private buffer (scalar
    replacement), and write them back at the end of the body.

        for i:                                for i:
          M[i] = f(i)                           P[0] = f(i)
          for k: M[i] = g(M[i], k)       ->     for k: P[0] = g(P[0], k)
                                                M[i] = P[0]

    M is no longer stored if it is not an output and nothing else reads it. The loops that write
    back are copies of the loops of the first write, with `.out` appended to their names. Legal if
    the elements are a region of a fixed size, and the first statement of the body that accesses M
    writes each of them before it reads it.
    """

    buffer: str
    loop: str
    name: str
    register: bool = True

    WALK = Walk.ENDS

    def made(self, nest: Nest) -> Made:
        """Return the nest with the private buffer, and the loops that write it back."""
        place = open_loop(nest, self.loop, self)
        old = buffer_called(nest, self.buffer, self)
        require_free(nest, self.name, self)
        body = place.loop.body
        known = self.buffer not in private_buffers(body)
        require(known, self, f"{self.buffer!r} is allocated in {self.loop!r}")
        serial = all(loop.kind is not LoopKind.PARALLEL for loop in loops(body))
        require(serial, self, "a parallel loop is inside; keep the elements within it")
        writes = writes_of(body, self.buffer)
        require(bool(writes), self, f"{self.loop!r} does not write {self.buffer!r}")
        inner = all_ranges(body)
        indices = [*(w.index for w in writes), *(r.index for r in reads_of(body, self.buffer))]
        region = region_of(indices, inner, place.ranges, self).within(old.shape)
        scope = BufferScope.REGISTER if self.register else BufferScope.WORKSPACE
        kept = Buffer(self.name, region.extent, old.dtype, scope)
        ranges = {**place.ranges, **inner}

        def local(index: Index) -> Index:
            return tuple(simplify(i, ranges) for i in region.local_index(index))

        outside = {name for index in indices for i in local(index) for name in i.vars()} - {*inner}
        problem = f"the place of an element of {self.buffer!r} depends on {sorted(outside)}"
        require(not outside, self, problem)
        moved = self._moved(body, local)
        first = self._first(body, ranges)
        (head,) = self._moved((first[0],), local)
        around = (*place.outer, place.loop)
        alone = replace(nest, body=nest_loops(around, (Allocate(kept, (head,)),)))
        whole = is_written_whole(alone, kept)
        problem = f"the first write of {self.buffer!r} in {self.loop!r} leaves elements out"
        require(whole, self, problem)
        chain = chain_to((first[0],), first[1])
        spatial = tuple(x for x in chain if any(x.var in i.vars() for i in first[1].index))
        load = Load(self.name, local(first[1].index), old.dtype)
        back = nest_loops(spatial, (replace(first[1], value=load),))
        end, ending = renamed_copy(back, ".out", names_in(nest))
        changed = place.with_body(Allocate(kept, moved))
        if old.scope is BufferScope.ARGUMENT or self._is_used(changed):
            changed = place.with_body(Allocate(kept, (*moved, *end)))
        else:
            body = map_allocation(changed.body, self.buffer, lambda made: made.body)
            changed, ending = replace(changed, body=body), {}
        check_marks(changed.body, self)
        return Made(still_prepacked(changed, self), ending)

    def _moved(self, body: tuple[Stmt, ...], local: Callable[[Index], Index]) -> tuple[Stmt, ...]:
        """Return `body` with the private buffer in place of the elements. `local` returns the index
        in it."""

        def read(load: Load) -> Scalar:
            return Load(self.name, local(load.index), load.dtype)

        def written(leaf: StoreElement | Update) -> StoreElement | Update:
            if leaf.buffer != self.buffer:
                return leaf
            return replace(leaf, buffer=self.name, index=local(leaf.index))

        return map_writes(map_loads(body, self.buffer, read), written)

    def _first(self, body: tuple[Stmt, ...], ranges: Ranges) -> tuple[Stmt, StoreElement]:
        """Return the first statement of `body` that accesses the buffer, and the first leaf in it
        that does so, a store. Others in the statement access the same element just after it. Reads
        under conditions that never hold do not count."""
        problem = f"the first access to {self.buffer!r} in {self.loop!r} is not one store of it"
        for stmt in _statements(body):
            found = [leaf for leaf in leaves((stmt,)) if self._accesses(leaf, ranges)]
            if not found:
                continue
            (leaf, *others) = found
            chain = chain_to((stmt,), leaf)
            same = all(
                chain_to((stmt,), other) == chain
                and all(i == leaf.index for name, i in accesses_of(other) if name == self.buffer)
                for other in others
            )
            require(same and leaf.buffer == self.buffer, self, problem)
            require(not any(loop.bounds for loop in loops((stmt,))), self, problem)
            if not isinstance(leaf, StoreElement) or self._reads(leaf, ranges):
                raise ScheduleError(self, problem)
            return stmt, leaf
        raise AssertionError("the body writes the buffer")

    def _accesses(self, leaf: Leaf, ranges: Ranges) -> bool:
        if isinstance(leaf, PrefetchHint):
            return False
        return leaf.buffer == self.buffer or self._reads(leaf, ranges)

    def _reads(self, leaf: StoreElement | Update, ranges: Ranges) -> bool:
        return any(
            load.tensor == self.buffer and not any(prove(c, ranges) is False for c in conds)
            for load, conds in conditional_loads(leaf.value)
        )

    def _is_used(self, nest: Nest) -> bool:
        uses = (name for leaf in leaves(nest.body) for name, _ in accesses_of(leaf))
        return any(name == self.buffer for name in uses)


def _statements(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield the statements of a body in order, those in allocations one by one."""
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            yield from _statements(stmt.body)
        else:
            yield stmt
