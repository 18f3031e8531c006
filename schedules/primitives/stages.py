"""Primitives that move a stage whose nest is still unscheduled: ComputeAt, ReverseComputeAt and
Inline."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import ZERO, affine, simplify, var
from ..algebra.comparisons import substitute_cond
from ..algebra.conditions import in_bounds
from ..algebra.scalar import Load, Scalar, depth_of, loads
from ..algebra.scalar import substitute as substitute_scalar
from ..algebra.scalar import walk as walk_scalar
from ..errors import require
from ..limits import MAX_INLINED_DEPTH, MAX_INLINED_NODES
from ..nest.editing import before_reader, flattened, map_loads, move_loads, nest_loops, outlived
from ..nest.finding import (
    all_ranges,
    buffers_in,
    names_in,
    perfect_chain,
    ranges_of,
    reads_of,
    shared,
    writes_of,
)
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    leaves,
    transform,
)
from .boxes import BufferBox, TensorRegion, region_of
from .places import LoopPosition, find_loop, open_loop, still_prepacked
from .primitive import LoopMaker, Made, Primitive


@dataclass(frozen=True, slots=True)
class Producer:
    """The unscheduled nest of a stage: serial loops around one leaf that writes `buffer[vars]`."""

    root: For
    spatial: tuple[For, ...]
    reduce: tuple[For, ...]
    leaf: StoreElement | Update


@dataclass(frozen=True, slots=True)
class ComputeAt(LoopMaker):
    """Compute a stage inside a loop of its consumer, restricted to the region needed there
    (`compute_at`).

        for x: T[x] = f(x)              for i:
        for i: ... T[g(i, j)] ...   ->    for x: T[x] = f(base(i) + x)
                                          ... T[g'(j)] ...

    T becomes a private buffer of the size of the region. Legal if T's nest is unscheduled, T is not
    an output, all reads of T are inside `loop`, and the region has a fixed size. The new loops are
    named T.0, T.1, ...; reduction loops keep their names.
    """

    buffer: str
    loop: str
    register: bool = False

    def made(self, nest: Nest) -> Made:
        """Return the nest with the stage moved, and its new loops."""
        producer = _producer(nest, self.buffer, self)
        old = buffers_in(nest)[self.buffer]
        place = open_loop(nest, self.loop, self)
        reads = reads_of(place.loop.body, self.buffer)
        require(bool(reads), self, f"{self.loop!r} does not read {self.buffer!r}")
        alone = len(reads) == len(reads_of(nest.body, self.buffer))
        require(alone, self, f"{self.buffer!r} is also read outside {self.loop!r}")
        inner = all_ranges(place.loop.body)
        region = region_of((r.index for r in reads), inner, place.ranges, self)
        taken = names_in(nest) - {loop.var for loop in producer.spatial}
        box = BufferBox.of(old.name, region.extent, old.dtype, self.register, taken)
        computed = _moved_stage(producer, old, box, region, place)
        body = before_reader(place.loop.body, self.buffer, computed)
        body = move_loads(_without(body, producer), self.buffer, region.local_index)
        inside = Allocate(box.buffer, body)
        gone = replace(nest, body=_without(nest.body, producer))
        moved = outlived(find_loop(gone, self.loop, self).with_body(inside))
        made = dict(zip(box.names, (loop.var for loop in producer.spatial), strict=True))
        return Made(still_prepacked(moved, self), {x.var: made[x.var] for x in box.loops})


def _producer(nest: Nest, buffer: str, source: object) -> Producer:
    """Return the unscheduled stage that computes `buffer`. Raise ScheduleError if there is none."""
    argument = any(buffer == tensor.name for tensor in (*nest.inputs, *nest.outputs))
    require(not argument, source, f"{buffer!r} is an argument of the kernel, not a stage inside")
    known = sorted({leaf.buffer for leaf in leaves(nest.body)})
    exists = buffer in buffers_in(nest)
    require(exists, source, f"there is no stage {buffer!r}; there are {known}")
    writes = writes_of(nest.body, buffer)
    require(bool(writes), source, f"no stage computes {buffer!r}")
    leaf = writes[0]
    roots = [s for s in flattened(nest.body)[1] if isinstance(s, For) and leaf in s.inside.leaves]
    problem = f"the stage of {buffer!r} must be unscheduled"
    require(len(roots) == len(writes) == 1, source, problem)
    chain = perfect_chain(roots[0])
    plain = all(loop.kind is LoopKind.SERIAL for loop in chain) and chain[-1].body == (leaf,)
    spatial = {str(var(loop.var)): loop for loop in chain if not loop.reduce}
    names = [str(i) for i in leaf.index]
    require(plain and sorted(names) == sorted(spatial), source, problem)
    problem = f"elements of {buffer!r} are computed from each other"
    require(all(load.tensor != buffer for load in loads(leaf.value)), source, problem)
    ordered = tuple(spatial[name] for name in names)
    return Producer(roots[0], ordered, tuple(loop for loop in chain if loop.reduce), leaf)


def _moved_stage(
    producer: Producer, old: Buffer, box: BufferBox, region: TensorRegion, place: LoopPosition
) -> tuple[Stmt, ...]:
    """Return loops that compute the region `region` of the stage's buffer `old` in the private
    buffer `box` at `place`."""
    element = region.element(box.position)
    mapping = {loop.var: e for loop, e in zip(producer.spatial, element, strict=True)}
    leaf = producer.leaf
    guards = tuple(substitute_cond(g, mapping) for g in leaf.guards)
    inside = in_bounds(element, old.shape, {**place.ranges, **ranges_of(box.loops)})
    value = substitute_scalar(leaf.value, mapping)
    moved = replace(leaf, index=box.position, value=value, guards=(*guards, *inside))
    return nest_loops((*box.loops, *producer.reduce), (moved,))


@dataclass(frozen=True, slots=True)
class ReverseComputeAt(Primitive):
    """Compute an elementwise stage in the loops of a stage that it reads (`reverse_compute_at`).

        for i: S[i] = f(i)            for i:
        for j: Y[j] = g(S[j])   ->      S[i] = f(i)
                                        Y[i] = g(S[i])

    Legal if both stages are unscheduled, have the same shape, and every read of S by Y is at the
    element that Y computes. The loops of S are kept, also if they run backwards. The new nest is at
    the place of Y or at the place of S: no statement between them may depend on the stage that
    moves.
    """

    buffer: str
    into: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the stage `buffer` after each element of the stage `into`."""
        reader, producer = (self._plain(nest, name) for name in (self.buffer, self.into))
        (own,), chain = writes_of((producer,), self.into), perfect_chain(producer)
        around = perfect_chain(reader)
        leaf = around[-1].body[0]
        assert isinstance(leaf, StoreElement)
        read = [load.index for load in loads(leaf.value) if load.tensor == self.into]
        shapes = {name: buffers_in(nest)[name].shape for name in (self.buffer, self.into)}
        same = shapes[self.buffer] == shapes[self.into]
        require(same, self, f"the two stages have different shapes: {shapes}")
        ranges = ranges_of(around)
        alike = bool(read) and all(
            simplify(a - b, ranges) == ZERO
            for index in read
            for a, b in zip(index, leaf.index, strict=True)
        )
        require(alike, self, f"{self.buffer!r} must read {self.into!r} at its own index only")
        names = [str(i) for i in leaf.index]
        plain = sorted(names) == sorted(loop.var for loop in around)
        require(plain, self, f"the stage of {self.buffer!r} must be unscheduled")
        at = dict(zip(names, own.index, strict=True))
        value = substitute_scalar(leaf.value, at)
        after = StoreElement(self.buffer, own.index, value)
        (fused,) = nest_loops(chain, (own, after))
        body = self._placed(nest.body, producer, reader, fused)
        return still_prepacked(outlived(replace(nest, body=body)), self)

    def _plain(self, nest: Nest, name: str) -> For:
        """Return the outermost loop of the unscheduled stage that computes `name`: serial loops
        around one store to all elements."""
        writes = writes_of(nest.body, name)
        roots = [
            s for s in flattened(nest.body)[1] if isinstance(s, For) and name in s.inside.written
        ]
        problem = f"the stage of {name!r} must be an unscheduled stage that is no reduction"
        require(len(roots) == len(writes) == 1, self, problem)
        chain = perfect_chain(roots[0])
        (leaf,) = writes
        kept = all(x.kind is LoopKind.SERIAL and not x.reduce and not x.bounds for x in chain)
        plain = isinstance(leaf, StoreElement) and not leaf.guards and chain[-1].body == (leaf,)
        require(kept and plain, self, problem)
        shape, once = buffers_in(nest)[name].shape, set[str]()
        for index, extent in zip(leaf.index, shape, strict=True):
            along = [x for x in chain if x.var in index.vars() and x.extent == extent]
            whole = len(along) == 1 and any(
                index == i for i in (var(along[0].var), affine(extent - 1) - var(along[0].var))
            )
            require(whole, self, problem)
            once.add(along[0].var)
        require(len(once) == len(chain), self, problem)
        return roots[0]

    def _placed(
        self, body: tuple[Stmt, ...], producer: For, reader: For, fused: Stmt
    ) -> tuple[Stmt, ...]:
        """Return `body` with `fused` instead of both stages, at the place of one of them."""
        flat = [s for s in flattened(body)[1] if not isinstance(s, PrefetchHint)]
        first, second = (next(n for n, s in enumerate(flat) if s is x) for x in (producer, reader))
        require(first < second, self, f"{self.buffer!r} must follow {self.into!r}")
        between = tuple(flat[first + 1 : second])
        place = next(
            (
                kept
                for moved, kept in ((producer, reader), (reader, producer))
                if next(shared((moved,), between), None) is None
            ),
            None,
        )
        problem = f"a statement between {self.into!r} and {self.buffer!r} depends on both"
        require(place is not None, self, problem)

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is place:
                return (fused,)
            return () if stmt is producer or stmt is reader else None

        return transform(body, change)


@dataclass(frozen=True, slots=True)
class Inline(Primitive):
    """Inline an elementwise stage into all its readers (`compute_inline`).

    Legal if the stage is unscheduled, elementwise and not an output, and no index of its readers
    contains data (conditions on axes would become conditions on data). The resulting expressions
    must not exceed the limits of `limits.py`.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest without the stage."""
        producer = _producer(nest, self.buffer, self)
        value = producer.leaf.value
        plain = isinstance(producer.leaf, StoreElement) and not producer.leaf.guards
        require(plain, self, f"{self.buffer!r} is not computed by one plain expression")
        for reader in leaves(nest.body):
            if not isinstance(reader, PrefetchHint):
                self._require_room(reader.value, value)

        def computed(read: Load) -> Scalar:
            by_data = any(i.has_data for i in read.index)
            require(not by_data, self, f"{self.buffer!r} is read at an index that is data")
            pairs = zip(producer.spatial, read.index, strict=True)
            return substitute_scalar(value, {loop.var: i for loop, i in pairs})

        body = map_loads(_without(nest.body, producer), self.buffer, computed)
        return still_prepacked(outlived(replace(nest, body=body)), self)

    def _require_room(self, reader: Scalar, value: Scalar) -> None:
        """Raise ScheduleError if `reader` with `value` inlined exceeds the limits."""
        uses = sum(ld.tensor == self.buffer for ld in loads(reader))
        if not uses:
            return
        size = sum(1 for _ in walk_scalar(reader)) + uses * sum(1 for _ in walk_scalar(value))
        depth = depth_of(reader) + depth_of(value)
        problem = (
            f"an expression would have {size} operations in {depth} levels, at most"
            f" {MAX_INLINED_NODES} in {MAX_INLINED_DEPTH} are allowed"
        )
        require(size <= MAX_INLINED_NODES and depth <= MAX_INLINED_DEPTH, self, problem)


def _without(stmts: tuple[Stmt, ...], producer: Producer) -> tuple[Stmt, ...]:
    """Return `stmts` without the stage, and without the allocation and the prefetches of its
    buffer."""
    buffer = producer.leaf.buffer

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if stmt is producer.root or (isinstance(stmt, PrefetchHint) and stmt.buffer == buffer):
            return ()
        if isinstance(stmt, Allocate) and stmt.buffer.name == buffer:
            return transform(stmt.body, change)
        return None

    return transform(stmts, change)
