"""Primitives for scans: ScanBlocks and CarryScan.

ScanBlocks computes blocks of a scan independently of each other. CarryScan keeps the last elements
of a scan in a small buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import ZERO, Affine, Index, Interval, affine, simplify, var
from ..algebra.comparisons import Cond, Eq0, Ge0, prove, substitute_cond
from ..algebra.conditions import tidy
from ..algebra.neutral import identity_of, only_where
from ..algebra.scalar import All, Binary, Load, Select, loads, substitute
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import ScheduleError, require
from ..nest.editing import map_allocation, nest_loops, renamed_copy
from ..nest.finding import buffers_in, names_in, perfect_chain, ranges_of, reads_of, writes_of
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    Stmt,
    StoreElement,
    Update,
)
from ..nest.scans import Recurrence, recurrence
from .dependence import check_marks
from .marks import MAX_LANES
from .places import require_free, serial_loop, still_prepacked
from .primitive import LoopMaker, Made, Primitive

MAX_WIDTH = MAX_LANES
"""Most elements of a scan that CarryScan keeps: those of the widest vector."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """A scan in perfectly nested loops, of which the first iterates over blocks of the scan and
    `inner` over the elements of a block."""

    chain: tuple[For, ...]
    leaf: StoreElement
    scan: Recurrence
    inner: For

    @property
    def others(self) -> tuple[For, ...]:
        """The loops between or inside the two, which iterate over other scans."""
        return tuple(loop for loop in self.chain[1:] if loop is not self.inner)


def _steps(loop: For, around: dict[str, Interval], source: object) -> _Steps:
    """Return `loop` as a loop over blocks of a scan. Raise ScheduleError if it is none."""
    chain = perfect_chain(loop)
    leaf, *others = chain[-1].body
    found = recurrence(leaf) if isinstance(leaf, StoreElement) else None
    if found is None or not isinstance(leaf, StoreElement):
        raise ScheduleError(source, f"loop {loop.var!r} must contain a single scan")
    serial = all(x.kind is LoopKind.SERIAL and not x.bounds for x in chain)
    require(serial, source, f"the loops in {loop.var!r} must be serial")
    written = {leaf.buffer, *(x.buffer for x in others if isinstance(x, StoreElement | Update))}
    alone = not any(load.tensor in written for load in loads(found.value))
    require(alone, source, f"the values of {leaf.buffer!r} depend on what {loop.var!r} writes")
    ranges = {**around, **ranges_of(chain)}
    dim, sign = _direction(leaf, found, ranges, source)
    problem = f"{loop.var!r} must contain one loop over consecutive elements of the scan"
    place = leaf.index[dim] * sign
    inner = next((x for x in chain[1:] if place.coefficient(x.var) == 1), None)
    if inner is None or place.coefficient(loop.var) != inner.extent:
        raise ScheduleError(source, problem)
    along = {loop.var, inner.var}
    own = all(place.is_linear_in(name) for name in along) and not place.vars() & (
        {x.var for x in chain} - along
    )
    elsewhere = any(i.vars() & along for d, i in enumerate(leaf.index) if d != dim)
    require(own and not elsewhere, source, problem)
    # Every element but the first continues the one before.
    later = (
        {**ranges, inner.var: Interval(1, max(inner.extent - 1, 1))},
        {**ranges, loop.var: Interval(1, max(loop.extent - 1, 1))},
    )
    goes_on = all(prove(cond, known) for cond in found.conds for known in later)
    require(goes_on, source, f"a scan may begin inside {loop.var!r}")
    return _Steps(chain, leaf, found, inner)


def _direction(
    leaf: StoreElement, scan: Recurrence, ranges: dict[str, Interval], source: object
) -> tuple[int, int]:
    """Return the dimension along which `leaf` scans, and 1 or, from the end, -1."""
    step = [simplify(a - b, ranges) for a, b in zip(leaf.index, scan.before.index, strict=True)]
    moving = [dim for dim, i in enumerate(step) if i != ZERO]
    problem = f"{leaf.buffer!r} must be computed from the neighbour along one dimension"
    require(len(moving) == 1, source, problem)
    (dim,) = moving
    require(step[dim] in (affine(1), affine(-1)), source, problem)
    return dim, step[dim].const


@dataclass(frozen=True, slots=True)
class ScanBlocks(LoopMaker):
    """Compute the blocks of a scan independently: reduce, then scan.

        for b: for i: S[n*b + i] = op(S[n*b + i - 1] if n*b + i >= 1 else 0, v)

            for b in 0..B-1: for i: T[b] += v                          the total of each block
        ->  for b: C[b] = op(C[b - 1], T[b - 1]) if b >= 1 else 0      the element before it
            for b: for i: S[n*b + i] = op(S[n*b + i - 1] if i >= 1 else C[b], v)

    The first and the last loop over `b` may then be parallel. Every value is computed twice, except
    those of the last block. The loop must be the outer one of two loops over consecutive elements,
    as Split makes them; loops over other scans may be between and inside them, and T and C then
    have an element for each of these scans. Other statements after the scan are kept. T is named
    `totals` and C `carries`; `.t` and `.c` are appended to the names of the loops that compute
    them.
    """

    loop: str
    totals: str
    carries: str

    def made(self, nest: Nest) -> Made:
        """Return the nest with the three parts, and the loops of the first two."""
        place = serial_loop(nest, self.loop, self)
        for name in (self.totals, self.carries):
            require_free(nest, name, self)
        require(self.totals != self.carries, self, "the two buffers need different names")
        require(place.loop.extent > 1, self, f"{self.loop!r} has a single iteration")
        found = _steps(place.loop, ranges_of(place.outer), self)
        dtype = buffers_in(nest)[found.leaf.buffer].dtype
        others = tuple(loop.extent for loop in found.others)
        shapes = {
            self.totals: (place.loop.extent - 1, *others),
            self.carries: (place.loop.extent, *others),
        }
        ranges = ranges_of((*place.outer, *found.chain))
        taken, names = names_in(nest), dict[str, str]()
        body = list[Stmt]()
        for suffix, part in (
            (".t", self._totals(found, ranges)),
            (".c", self._carries(found, ranges)),
        ):
            copy, new = renamed_copy(part, suffix, taken)
            names |= new
            body += copy
        body += self._blocks(found)
        whole = tuple(body)
        for name, shape in shapes.items():
            whole = (Allocate(Buffer(name, shape, dtype, BufferScope.WORKSPACE), whole),)
        return Made(still_prepacked(place.with_loop(*whole), self), names)

    def _index(self, found: _Steps, block: Affine) -> tuple[Affine, ...]:
        return (block, *(var(loop.var) for loop in found.others))

    def _guards(self, found: _Steps) -> tuple[tuple[Cond, ...], tuple[Cond, ...]]:
        """Return the guards of the scan that exclude other scans, and those that exclude its own
        elements."""
        along = {self.loop, found.inner.var}
        own = tuple(g for g in found.leaf.guards if g.index.vars() & along)
        return tuple(g for g in found.leaf.guards if g not in own), own

    def _totals(self, found: _Steps, ranges: dict[str, Interval]) -> tuple[For, ...]:
        extent = found.chain[0].extent - 1
        ranges = {**ranges, self.loop: Interval(0, extent - 1)}
        guards, own = self._guards(found)
        own = tuple(g for g in own if not prove(g, ranges))
        reducer, first = found.scan.reducer, (Eq0(var(found.inner.var)),)
        value = only_where(own, found.scan.value, reducer)
        index = self._index(found, var(self.loop))
        leaf = Update(self.totals, index, value, reducer, first, guards)
        block = replace(found.chain[0], extent=extent)
        inner = (replace(x, reduce=x is found.inner) for x in found.chain[1:])
        (loop,) = nest_loops((block, *inner), (leaf,))
        assert isinstance(loop, For)
        return (loop,)

    def _carries(self, found: _Steps, ranges: dict[str, Interval]) -> tuple[For, ...]:
        scan, before = found.scan, self._index(found, var(self.loop) - 1)
        start = substitute(scan.previous, {self.loop: ZERO, found.inner.var: ZERO})
        start = tidy(start, {name: r for name, r in ranges.items() if name != self.loop})
        dtype = start.dtype
        is_later = All((Ge0(var(self.loop) - 1),))
        carry, total = (Load(name, before, dtype) for name in (self.carries, self.totals))
        nothing = identity_of(scan.reducer, start)
        # The form of a recurrence shows that `start` is where a scan begins (see Stream).
        value = Binary(scan.op, Select(is_later, carry, start), Select(is_later, total, nothing))
        guards, _ = self._guards(found)
        leaf = StoreElement(self.carries, self._index(found, var(self.loop)), value, guards)
        (loop,) = nest_loops((found.chain[0], *found.others), (leaf,))
        assert isinstance(loop, For)
        return (loop,)

    def _blocks(self, found: _Steps) -> tuple[For, ...]:
        scan, chain = found.scan, found.chain
        carry = Load(self.carries, self._index(found, var(self.loop)), scan.before.dtype)
        is_later = All((Ge0(var(found.inner.var) - 1),))
        previous = Select(is_later, scan.before, carry)
        leaf = replace(found.leaf, value=Binary(scan.op, previous, scan.value))
        _, *others = chain[-1].body
        (loop,) = nest_loops(chain, (leaf, *others))
        assert isinstance(loop, For)
        return (loop,)


@dataclass(frozen=True, slots=True)
class CarryScan(Primitive):
    """Keep the last `width` elements of a scan in a small buffer around `loop` (storage folding).

        for k:
          S[k] = op(S[k - 1] if k >= 1 else 0, v)
          Y[k] = f(S[k])

            for k:
        ->    P[k % w] = op(P[(k - 1) % w] if k >= 1 else 0, v)
              S[k] = P[k % w]
              Y[k] = f(P[k % w])

    S is no longer stored if it is not an output and no other statement reads it. Legal if `loop`
    contains whole scans, in perfectly nested loops that iterate over consecutive elements in order.
    P is named `name`, and has separate elements for the scans that these loops interleave.
    """

    buffer: str
    loop: str
    name: str
    width: int
    register: bool = False

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the private buffer."""
        require(1 <= self.width <= MAX_WIDTH, self, f"the width must be 1 to {MAX_WIDTH}")
        place = serial_loop(nest, self.loop, self)
        require_free(nest, self.name, self)
        chain = perfect_chain(place.loop)
        leaf, *others = chain[-1].body
        scan = recurrence(leaf) if isinstance(leaf, StoreElement) else None
        if scan is None or not isinstance(leaf, StoreElement) or leaf.buffer != self.buffer:
            raise ScheduleError(self, f"{self.loop!r} must contain the scan {self.buffer!r} only")
        once = len(writes_of(nest.body, self.buffer)) == 1
        require(once, self, f"{self.buffer!r} is partitioned")
        require(not any(loop.bounds for loop in chain), self, "loops must not have bounds yet")
        ranges = {**place.ranges, **ranges_of(chain)}
        number, other = self._number(chain, leaf, *_direction(leaf, scan, ranges, self))
        at_start = {loop.var: ZERO for loop in chain if loop.var in number.vars()}
        begins = any(prove(substitute_cond(c, at_start), ranges) is False for c in scan.conds)
        require(begins, self, f"a scan may begin outside {self.loop!r}")
        old = buffers_in(nest)[self.buffer]
        scope = BufferScope.REGISTER if self.register else BufferScope.WORKSPACE
        shape = (*(loop.extent for loop in other), self.width)
        buffer = Buffer(self.name, shape, old.dtype, scope)
        index, before = (
            (*(var(loop.var) for loop in other), at % self.width) for at in (number, number - 1)
        )
        carried = self._carried(leaf, scan, index, before)
        kept = Load(self.name, index, old.dtype)
        body = (carried, *(self._from_buffer(each, leaf, kept) for each in others))
        new = place.with_loop(Allocate(buffer, nest_loops(chain, body)))
        if old.scope is BufferScope.ARGUMENT or reads_of(new.body, self.buffer):
            body = (carried, replace(leaf, value=kept), *body[1:])
            new = place.with_loop(Allocate(buffer, nest_loops(chain, body)))
        else:
            new = replace(new, body=map_allocation(new.body, self.buffer, lambda made: made.body))
        check_marks(new.body, self)
        return still_prepacked(new, self)

    def _carried(
        self, leaf: StoreElement, scan: Recurrence, index: Index, before: Index
    ) -> StoreElement:
        """Return the step of the scan in the private buffer."""
        last = Load(self.name, before, scan.before.dtype)
        value = rewrite_scalar(leaf.value, lambda node: last if node == scan.before else None)
        return StoreElement(self.name, index, value, leaf.guards)

    def _from_buffer(self, reader: Stmt, leaf: StoreElement, kept: Load) -> Stmt:
        """Return a statement after the step `leaf` that reads the private buffer instead, if it is
        executed under the guards of the scan only."""
        if not isinstance(reader, StoreElement) or not set(leaf.guards) <= set(reader.guards):
            return reader
        own = Load(self.buffer, leaf.index, kept.dtype)
        value = rewrite_scalar(reader.value, lambda node: kept if node == own else None)
        return replace(reader, value=value)

    def _number(
        self, chain: tuple[For, ...], leaf: StoreElement, dim: int, sign: int
    ) -> tuple[Affine, list[For]]:
        """Return the number of the element among those of a scan, and the loops between or inside
        the loops of the scan."""
        place = leaf.index[dim] * sign
        along = [loop for loop in chain if loop.var in place.vars()]
        number, size = ZERO, 1
        for loop in reversed(along):
            step = place.coefficient(loop.var) if place.is_linear_in(loop.var) else 0
            consecutive = step == size or loop.extent == 1
            require(consecutive, self, f"{loop.var!r} does not iterate over consecutive elements")
            number, size = number + var(loop.var) * size, size * loop.extent
        require(bool(along), self, f"{self.loop!r} has no loop along the scan")
        elsewhere = {x.var for x in along} & {
            name for d, i in enumerate(leaf.index) if d != dim for name in i.vars()
        }
        require(not elsewhere, self, f"loops {sorted(elsewhere)} are also along another dimension")
        first = chain.index(along[0])
        return number, [loop for loop in chain[first:] if loop not in along]
