"""ComputeAt and Inline: where a stage is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Affine, Interval, substitute_cond
from ..algebra.scalar import Load, Scalar, depth_of, loads
from ..algebra.scalar import rewrite as rewrite_scalar
from ..algebra.scalar import substitute as substitute_scalar
from ..algebra.scalar import walk as walk_scalar
from ..errors import ScheduleError
from ..limits import MAX_INLINED_DEPTH, MAX_INLINED_NODES
from ..nest.editing import nest_loops
from ..nest.finding import all_ranges, buffers_in, names_in, ranges_of, reads_of
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    Nest,
    Scope,
    Stmt,
    Store,
    Update,
    leaves,
    transform,
)
from .places import find_loop, require_body, still_ahead
from .primitive import LoopMaker, Made, Primitive
from .region import in_bounds, loops_of, position_names, position_vars, region_of
from .stages import Producer, find_producer, is_hint, outlived, require_intermediate


@dataclass(frozen=True, slots=True)
class ComputeAt(LoopMaker):
    """Compute a stage inside a loop of what uses it, only the part needed there (`compute_at`).

        for x: T[x] = f(x)              for i:
        for i: ... T[g(i, j)] ...   ->    for x: T[x] = f(base(i) + x)
                                          ... T[g'(j)] ...

    T becomes a private buffer the size of the part. Legal where T's nest is still untouched, T
    is no output, everything that reads T is inside `loop`, and the part has a fixed size.
    Its new loops are called T.0, T.1, ...; reduction loops keep their names.
    """

    buffer: str
    loop: str
    register: bool = False

    def made(self, nest: Nest) -> Made:
        """The nest with the stage moved, and its new loops. ScheduleError: scheduled
        already, read elsewhere, ..."""
        require_intermediate(nest, self.buffer, self)
        producer = find_producer(nest, self.buffer, self)
        old = buffers_in(nest)[self.buffer]
        place = find_loop(nest, self.loop, self)
        require_body(place.loop, self)
        reads = reads_of(place.loop.body, self.buffer)
        if not reads:
            raise ScheduleError(self, f"{self.loop!r} does not read {self.buffer!r}")
        if len(reads) != len(reads_of(nest.body, self.buffer)):
            raise ScheduleError(self, f"{self.buffer!r} is also read outside {self.loop!r}")
        outer = ranges_of((*place.outer, place.loop))
        region = region_of((r.index for r in reads), all_ranges(place.loop.body), outer, self)
        scope = Scope.REGISTER if self.register else Scope.WORKSPACE
        new = Buffer(old.name, region.extent, old.dtype, scope)
        taken = names_in(nest) - {loop.var for loop in producer.spatial}
        names = position_names(old.name, region.extent, taken)
        x = position_vars(names, region.extent)
        element = region.element(x)
        ranges = {**outer, **region.bounds(names)}
        computed = _moved_stage(producer, x, element, old.shape, names, region.extent, ranges)

        def scalar(node: Scalar) -> Scalar | None:
            if isinstance(node, Load) and node.tensor == self.buffer:
                return replace(node, index=region.local_index(node.index))
            return None

        def redirect(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if is_hint(stmt, self.buffer):
                return ()
            if isinstance(stmt, Store | Update):
                value = rewrite_scalar(stmt.value, scalar)
                return (stmt if value is stmt.value else replace(stmt, value=value),)
            return None

        body = _insert_before_reader(place.loop.body, self.buffer, computed)
        inside = Allocate(new, transform(body, redirect))

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is producer.root or is_hint(stmt, self.buffer):
                return ()
            if isinstance(stmt, Allocate) and stmt.buffer.name == self.buffer:
                return transform(stmt.body, change)
            if isinstance(stmt, For) and stmt.var == self.loop:
                return (replace(stmt, body=(inside,)),)
            return None

        moved = outlived(replace(nest, body=transform(nest.body, change)))
        made = dict(zip(names, (loop.var for loop in producer.spatial), strict=True))
        return Made(still_ahead(moved, self), {n: made[n] for n in loops_of(names, region.extent)})


def _moved_stage(
    producer: Producer,
    x: tuple[Affine, ...],
    element: tuple[Affine, ...],
    shape: tuple[int, ...],
    names: tuple[str, ...],
    extent: tuple[int, ...],
    ranges: dict[str, Interval],
) -> tuple[Stmt, ...]:
    mapping = {loop.var: e for loop, e in zip(producer.spatial, element, strict=True)}
    leaf = producer.leaf
    guards = tuple(substitute_cond(g, mapping) for g in leaf.guards)
    guards = (*guards, *in_bounds(element, shape, ranges))
    value = substitute_scalar(leaf.value, mapping)
    moved = replace(leaf, index=x, value=value, guards=guards)
    spatial = tuple(For(n, e, ()) for n, e in zip(names, extent, strict=True) if e > 1)
    return nest_loops((*spatial, *producer.reduce), (moved,))


def _insert_before_reader(
    stmts: tuple[Stmt, ...], buffer: str, new: tuple[Stmt, ...]
) -> tuple[Stmt, ...]:
    """`stmts` with `new` before the first statement that reads `buffer`."""
    for n, stmt in enumerate(stmts):
        if reads_of((stmt,), buffer):
            if isinstance(stmt, Allocate):
                inner = replace(stmt, body=_insert_before_reader(stmt.body, buffer, new))
                return (*stmts[:n], inner, *stmts[n + 1 :])
            return (*stmts[:n], *new, *stmts[n:])
    raise AssertionError(f"nothing reads {buffer}")


@dataclass(frozen=True, slots=True)
class Inline(Primitive):
    """Put an elementwise stage into everything that reads it (`compute_inline`).

    Legal where the stage is untouched, no reduction and no output, and where no expression grows
    beyond what `limits` allows.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """The nest without the stage. ScheduleError: a reduction, an output, scheduled already; a
        reader that would grow too large."""
        require_intermediate(nest, self.buffer, self)
        producer = find_producer(nest, self.buffer, self)
        leaf = producer.leaf
        if isinstance(leaf, Update) or leaf.guards:
            raise ScheduleError(self, f"{self.buffer!r} is not computed by one plain expression")
        for reader in leaves(nest.body):
            if isinstance(reader, Store | Update):
                self._require_room(reader.value, leaf.value)

        def scalar(node: Scalar) -> Scalar | None:
            if isinstance(node, Load) and node.tensor == self.buffer:
                mapping = {
                    loop.var: i for loop, i in zip(producer.spatial, node.index, strict=True)
                }
                return substitute_scalar(leaf.value, mapping)
            return None

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is producer.root or is_hint(stmt, self.buffer):
                return ()
            if isinstance(stmt, Allocate) and stmt.buffer.name == self.buffer:
                return transform(stmt.body, change)
            if isinstance(stmt, Store | Update):
                value = rewrite_scalar(stmt.value, scalar)
                return (stmt if value is stmt.value else replace(stmt, value=value),)
            return None

        return still_ahead(outlived(replace(nest, body=transform(nest.body, change))), self)

    def _require_room(self, reader: Scalar, value: Scalar) -> None:
        """ScheduleError if `reader` were too large with `value` for every read of the stage."""
        uses = sum(ld.tensor == self.buffer for ld in loads(reader))
        if not uses:
            return
        size = sum(1 for _ in walk_scalar(reader)) + uses * sum(1 for _ in walk_scalar(value))
        depth = depth_of(reader) + depth_of(value)
        if size > MAX_INLINED_NODES or depth > MAX_INLINED_DEPTH:
            raise ScheduleError(
                self,
                f"an expression would have {size} operations in {depth} levels, at most"
                f" {MAX_INLINED_NODES} in {MAX_INLINED_DEPTH} are allowed",
            )
