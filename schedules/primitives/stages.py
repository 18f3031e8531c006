"""Primitives that move a stage whose nest is still unscheduled: ComputeAt and Inline."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import substitute_cond, var
from ..algebra.conditions import in_bounds
from ..algebra.scalar import Load, Scalar, depth_of, loads
from ..algebra.scalar import substitute as substitute_scalar
from ..algebra.scalar import walk as walk_scalar
from ..errors import require
from ..limits import MAX_INLINED_DEPTH, MAX_INLINED_NODES
from ..nest.editing import (
    before_reader,
    flattened,
    map_loads,
    move_loads,
    nest_loops,
    outlived,
)
from ..nest.finding import (
    all_ranges,
    buffers_in,
    names_in,
    perfect_chain,
    ranges_of,
    reads_of,
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
class Inline(Primitive):
    """Inline an elementwise stage into all its readers (`compute_inline`).

    Legal if the stage is unscheduled, elementwise and not an output. The resulting expressions must
    not exceed the limits of `limits.py`.
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
