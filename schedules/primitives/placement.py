"""Primitives that move where a stage is computed: ComputeAt, Inline; and Prefetch, a hint."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Affine, Interval, affine, substitute_cond, var
from ..algebra.scalar import Load, Scalar, depth_of, loads
from ..algebra.scalar import rewrite as rewrite_scalar
from ..algebra.scalar import substitute as substitute_scalar
from ..algebra.scalar import walk as walk_scalar
from ..errors import ScheduleError
from ..limits import MAX_INLINED_DEPTH, MAX_INLINED_NODES
from ..nest.editing import nest_loops
from ..nest.finding import all_ranges, buffers_in, names_in, ranges_of, reads_of, writes_of
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    LoopKind,
    Nest,
    Scope,
    Stmt,
    Store,
    Update,
    leaves,
    transform,
    walk,
)
from ..nest.loop_ir import Prefetch as PrefetchLeaf
from .places import find_loop, require_body, still_ahead
from .region import in_bounds, position_names, position_vars, region_of


@dataclass(frozen=True, slots=True)
class Producer:
    """The untouched nest of a stage: plain loops around one leaf that writes `buffer[vars]`."""

    root: For
    spatial: tuple[For, ...]
    reduce: tuple[For, ...]
    leaf: Store | Update


def find_producer(nest: Nest, buffer: str, asked_by: object) -> Producer:
    """The stage that computes `buffer`; ScheduleError if it was scheduled already."""
    leaves_found = writes_of(nest.body, buffer)
    if not leaves_found:
        raise ScheduleError(asked_by, f"no stage computes {buffer!r}")
    (leaf, *others) = leaves_found
    roots = [s for s in _top_level(nest.body) if isinstance(s, For) and leaf in tuple(walk((s,)))]
    problem = f"{buffer!r} must still be a plain nest of its own, and was scheduled already"
    if others or len(roots) != 1:
        raise ScheduleError(asked_by, problem)
    chain: list[For] = []
    current: Stmt = roots[0]
    while isinstance(current, For):
        chain.append(current)
        if len(current.body) != 1 or current.kind is not LoopKind.SERIAL:
            raise ScheduleError(asked_by, problem)
        current = current.body[0]
    spatial = tuple(loop for loop in chain if not loop.reduce)
    identity = {str(i): loop for i in leaf.index for loop in spatial if i == var(loop.var)}
    if current is not leaf or len(identity) != len(spatial) or len(leaf.index) != len(spatial):
        raise ScheduleError(asked_by, problem)
    ordered = tuple(identity[str(i)] for i in leaf.index)
    return Producer(roots[0], ordered, tuple(each for each in chain if each.reduce), leaf)


def _is_hint(stmt: Stmt, buffer: str) -> bool:
    """Whether `stmt` prefetches `buffer`, which is about to be elsewhere or nowhere."""
    return isinstance(stmt, PrefetchLeaf) and stmt.buffer == buffer


def _top_level(stmts: tuple[Stmt, ...]) -> list[Stmt]:
    found: list[Stmt] = []
    for stmt in stmts:
        found.extend(_top_level(stmt.body) if isinstance(stmt, Allocate) else [stmt])
    return found


@dataclass(frozen=True, slots=True)
class ComputeAt:
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

    def apply(self, nest: Nest) -> Nest:
        """The nest with the stage moved. ScheduleError: scheduled already, read elsewhere, ..."""
        _require_intermediate(nest, self.buffer, self)
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
            if _is_hint(stmt, self.buffer):
                return ()
            if isinstance(stmt, Store | Update):
                value = rewrite_scalar(stmt.value, scalar)
                return (stmt if value is stmt.value else replace(stmt, value=value),)
            return None

        body = _insert_before_reader(place.loop.body, self.buffer, computed)
        inside = Allocate(new, transform(body, redirect))

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is producer.root or _is_hint(stmt, self.buffer):
                return ()
            if isinstance(stmt, Allocate) and stmt.buffer.name == self.buffer:
                return transform(stmt.body, change)
            if isinstance(stmt, For) and stmt.var == self.loop:
                return (replace(stmt, body=(inside,)),)
            return None

        return still_ahead(_outlived(replace(nest, body=transform(nest.body, change))), self)


def _outlived(nest: Nest) -> Nest:
    """`nest` with buffers that a stage took along allocated around everything: the stage was
    moved out of the part in which they existed."""
    lives: dict[Buffer, tuple[int, int]] = {}
    _number_leaves(nest.body, 0, lives)
    if not lives:
        return nest
    used = _places_of_use(nest)
    outside: dict[Buffer, None] = {}
    for buffer, (start, end) in lives.items():
        first, last = used.get(buffer.name, (start, start))
        if first < start or last >= end:
            outside[buffer] = None
    if not outside:
        return nest

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Allocate) and stmt.buffer in outside:
            return transform(stmt.body, change)
        return None

    body = transform(nest.body, change)
    for buffer in reversed(outside):
        body = (Allocate(buffer, body),)
    return replace(nest, body=body)


def _number_leaves(
    stmts: tuple[Stmt, ...], number: int, lives: dict[Buffer, tuple[int, int]]
) -> int:
    """The number of the leaf after `stmts`, whose first one has `number`; `lives` gets from which
    leaf on each buffer exists, and the number of the first leaf after that, outer ones first."""
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            lives[stmt.buffer] = (number, number)
        start = number
        number = (
            _number_leaves(stmt.body, number, lives)
            if isinstance(stmt, For | Allocate)
            else number + 1
        )
        if isinstance(stmt, Allocate):
            lives[stmt.buffer] = (start, number)
    return number


def _places_of_use(nest: Nest) -> dict[str, tuple[int, int]]:
    """Of each buffer, the numbers of the first and the last leaf that reads, writes or hints at
    it; leaves are numbered in the order of the program."""
    found: dict[str, tuple[int, int]] = {}
    for number, leaf in enumerate(leaves(nest.body)):
        names = {leaf.buffer}
        if not isinstance(leaf, PrefetchLeaf):
            names.update(ld.tensor for ld in loads(leaf.value))
        for name in names:
            found[name] = (found.get(name, (number, number))[0], number)
    return found


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
class Inline:
    """Put an elementwise stage into everything that reads it (`compute_inline`).

    Legal where the stage is untouched, no reduction and no output, and where no expression grows
    beyond what `limits` allows.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        """The nest without the stage. ScheduleError: a reduction, an output, scheduled already; a
        reader that would grow too large."""
        _require_intermediate(nest, self.buffer, self)
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
            if stmt is producer.root or _is_hint(stmt, self.buffer):
                return ()
            if isinstance(stmt, Allocate) and stmt.buffer.name == self.buffer:
                return transform(stmt.body, change)
            if isinstance(stmt, Store | Update):
                value = rewrite_scalar(stmt.value, scalar)
                return (stmt if value is stmt.value else replace(stmt, value=value),)
            return None

        return still_ahead(_outlived(replace(nest, body=transform(nest.body, change))), self)

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


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Ask for data some iterations before it is used (`prefetch`).

    At the start of each iteration of `loop`, a hint for the first element of `tensor` that the
    iteration `ahead` later reads. Changes nothing that is computed; legal for every tensor that
    the loop's body reads.
    """

    tensor: str
    loop: str
    ahead: int

    def apply(self, nest: Nest) -> Nest:
        """The nest with the hint. ScheduleError: not read there, or ahead < 1."""
        place = find_loop(nest, self.loop, self)
        require_body(place.loop, self)
        reads = reads_of(place.loop.body, self.tensor)
        if not reads or self.ahead < 1:
            raise ScheduleError(self, f"{self.loop!r} must read {self.tensor!r} and ahead be >= 1")
        inner = all_ranges(place.loop.body)
        mapping: dict[str, Affine] = {name: affine(0) for name in inner}
        mapping[self.loop] = var(self.loop) + self.ahead
        index = tuple(i.substitute(mapping) for i in reads[0].index)
        hint = PrefetchLeaf(self.tensor, index)
        body = _within_allocation(place.loop.body, self.tensor, hint)

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if isinstance(stmt, For) and stmt.var == self.loop:
                return (replace(stmt, body=body),)
            return None

        return replace(nest, body=transform(nest.body, change))


def _within_allocation(
    stmts: tuple[Stmt, ...], buffer: str, hint: PrefetchLeaf
) -> tuple[Stmt, ...]:
    """`hint` before `stmts`, or at the start of the allocation of the buffer it is for."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Allocate) and stmt.buffer.name == buffer:
            return (replace(stmt, body=(hint, *stmt.body)),)
        return None

    inside = transform(stmts, change)
    return (hint, *stmts) if inside is stmts else inside


def _require_intermediate(nest: Nest, buffer: str, asked_by: object) -> None:
    if buffer in {t.name for t in (*nest.inputs, *nest.outputs)}:
        raise ScheduleError(
            asked_by, f"{buffer!r} is an argument of the kernel, not a stage inside"
        )
    if buffer not in buffers_in(nest):
        known = sorted({leaf.buffer for leaf in leaves(nest.body)})
        raise ScheduleError(asked_by, f"there is no stage {buffer!r}; there are {known}")
