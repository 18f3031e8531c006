"""Primitives for private buffers: CacheRead, BlockRead, CacheWrite and TransformLayout.

CacheRead and BlockRead fill a buffer before it is read. CacheWrite accumulates in a buffer and
writes it back. TransformLayout changes the layout of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..algebra.affine import Affine, Index, simplify
from ..algebra.comparisons import Cond
from ..algebra.conditions import in_bounds, normal_cond
from ..algebra.independence import settled
from ..algebra.neutral import identity_of
from ..algebra.scalar import All, Const, Load, Scalar, Select, loads
from ..errors import require
from ..limits import factor_bound
from ..nest.coverage import is_written_whole
from ..nest.editing import first_without, map_values, move_loads, nest_loops, renamed_copy, replaced
from ..nest.finding import (
    all_ranges,
    buffers_in,
    chain_to,
    names_in,
    private_buffers,
    ranges_of,
    reads_of,
    writes_of,
)
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    Leaf,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    leaves,
    transform,
)
from .boxes import BufferBox, region_of
from .places import (
    ROOT,
    LoopPosition,
    buffer_called,
    find_loop,
    open_loop,
    open_place,
    require_free,
    still_prepacked,
)
from .primitive import LoopMaker, Made, Primitive, SerialisedForm, Walk


@dataclass(frozen=True, slots=True)
class _CopyPrimitive(LoopMaker):
    """The base of CacheRead and BlockRead. At the start of the body of `loop`, they fill the
    private buffer `name` from `tensor`, and they redirect reads to the buffer. Elements outside the
    tensor are zero."""

    tensor: str
    loop: str
    name: str

    WALK = Walk.FILL

    def _inside(self, place: LoopPosition, along: str) -> None:
        around = find_loop(place.nest, along, self).outer
        inside = self.loop == ROOT or place.loop in around
        require(inside, self, f"{along!r} is not inside {self.loop!r}")

    def _readable(
        self, place: LoopPosition, takes: Callable[[Index], bool], words: str
    ) -> tuple[Buffer, list[Load]]:
        """Return the buffer to copy, and the reads of it at `place` whose index satisfies `takes`.
        `words` describes these reads in errors."""
        nest, body, tensor = place.nest, place.loop.body, self.tensor
        source = buffer_called(nest, tensor, self)
        require_free(nest, self.name, self)
        reads = [r for r in reads_of(body, tensor) if takes(r.index)]
        require(
            bool(reads), self, f"{place.loop.var or 'the nest'!r} does not read {tensor!r}{words}"
        )
        kept = not writes_of(body, tensor) and tensor not in private_buffers(body)
        require(kept, self, f"the body writes {tensor!r}")
        whole = is_written_whole(nest, source)
        require(whole, self, f"parts of {tensor!r} may never be written")
        return source, reads

    def _filled(
        self,
        place: LoopPosition,
        box: BufferBox,
        element: Index,
        redirect: Callable[[Scalar], Scalar | None],
    ) -> Made:
        """Return the nest in which each position of `box` is filled with `element` of the tensor.
        `redirect` rewrites the reads in the body at `place`."""
        source = buffer_called(place.nest, self.tensor, self)
        value: Scalar = Load(source.name, element, source.dtype)
        conds = in_bounds(element, source.shape, {**place.ranges, **ranges_of(box.loops)})
        if conds:
            value = Select(All(conds), value, Const(0, source.dtype))
        fill = nest_loops(box.loops, (StoreElement(self.name, box.position, value),))
        body = (*fill, *map_values(place.loop.body, redirect))
        copied = still_prepacked(place.with_body(Allocate(box.buffer, body)), self)
        return Made(copied, {loop.var: self.name for loop in box.loops})


@dataclass(frozen=True, slots=True)
class CacheRead(_CopyPrimitive):
    """Copy the region that a loop's body reads into a private buffer (`cache_read` in TVM,
    `stage_mem` in Exo). With TransformLayout, this is packing.

        for i: ... B[f(i, j)] ...    ->    for i: { for x: P[x] = B[base(i) + x];  ... P[g(j)] ... }

    If `along` names an inner loop, only reads whose index depends on that loop are redirected, for
    example one of the two reads of A in a matrix times its own transpose:

        for k: for j: C[j] += A[i, k] * A[j, k]    ->    ... C[j] += A[i, k] * P[k, j]

    Elements of the region outside the tensor are zero in the copy, so conditions that only restrict
    reads to the tensor are removed (a padded copy). If `loop` is "", the copy is made for the whole
    nest. The buffer is named `name`, its loops `name`.0, `name`.1, ... Legal if the region has a
    fixed size and the body does not write the tensor.
    """

    register: bool = False
    along: str = ""

    SPELLINGS = (
        SerialisedForm("CacheRead", ("tensor", "loop", "name", "register")),
        SerialisedForm("CacheReadAlong", ("tensor", "loop", "name", "along")),
    )

    def made(self, nest: Nest) -> Made:
        """Return the nest with the copy, and the loops that fill it."""
        place = open_place(nest, self.loop, self)
        if self.along:
            self._inside(place, self.along)

        def takes(index: Index) -> bool:
            return not self.along or _moves(index, self.along)

        words = f" along {self.along!r}" if self.along else ""
        source, reads = self._readable(place, takes, words)
        inner = all_ranges(place.loop.body)
        region = region_of((r.index for r in reads), inner, place.ranges, self)
        box = BufferBox.of(self.name, region.extent, source.dtype, self.register, names_in(nest))
        ranges = {**place.ranges, **inner}

        def redirect(node: Scalar) -> Scalar | None:
            match node:
                case Select(All(conds), Load(tensor, index, dtype), Const() as other) if (
                    other.is_plus_zero and tensor == source.name and takes(index)
                ):
                    # The substitution of strided indices introduces common factors.
                    inside = {normal_cond(c) for c in in_bounds(index, source.shape, ranges)}
                    kept = tuple(c for c in conds if normal_cond(c) not in inside)
                    load = Load(self.name, region.local_index(index), dtype)
                    return Select(All(kept), load, node.on_false) if kept else load
                case Load(tensor, index, dtype) if tensor == source.name and takes(index):
                    return Load(self.name, region.local_index(index), dtype)
                case _:
                    return None

        return self._filled(place, box, region.element(box.position), redirect)


@dataclass(frozen=True, slots=True)
class BlockRead(_CopyPrimitive):
    """Load the elements that one read needs in a loop's body into registers.

    The read is selected by `along`: its last non-unit dimension depends on that loop. The buffer
    has one element for each iteration of the inner loops on which the index of the read depends,
    with loop `along` as its last dimension. With `along` i:

        for i: for j: Y[i, j] = X[i, j] + X[j, i]    ->    ... Y[i, j] = X[i, j] + B[j, i]

    Unlike in CacheRead, the elements need not form a rectangular region: an index may divide a sum
    of inner and outer loops. Elements outside the tensor are zero in the copy. Legal if all
    selected reads are equal, their index has no data, and the body does not write the tensor.
    """

    along: str

    def made(self, nest: Nest) -> Made:
        """Return the nest with the copy, and the loops that fill it."""
        place = open_loop(nest, self.loop, self)
        self._inside(place, self.along)
        buffer = buffers_in(nest).get(self.tensor)
        long = [d for d, extent in enumerate(buffer.shape) if extent > 1] if buffer else []

        def takes(index: Index) -> bool:
            return bool(long) and self.along in index[long[-1]].vars()

        words = f" with {self.along!r} in its last dimension"
        source, reads = self._readable(place, takes, words)
        old = reads[0]
        ranges = {**place.ranges, **all_ranges(place.loop.body)}
        same = {r for r in reads if settled(r.index, ranges) == settled(old.index, ranges)}
        require(same >= set(reads), self, f"several reads of {self.tensor!r}{words}")
        by_data = any(i.has_data for i in old.index)
        require(not by_data, self, f"{self.tensor!r} is read at an index that is data")
        around = self._moving(place.loop.body, old)
        extent = tuple(loop.extent for loop in around)
        box = BufferBox.of(self.name, extent, source.dtype, True, names_in(nest))
        at = {loop.var: x for loop, x in zip(around, box.position, strict=True)}
        element = tuple(i.substitute(at) for i in old.index)
        new = Load(self.name, box.index(tuple(loop.var for loop in around)), source.dtype)
        return self._filled(place, box, element, lambda n: new if n in same else None)

    def _moving(self, body: tuple[Stmt, ...], read: Load) -> tuple[For, ...]:
        """Return the loops around `read` on which its index depends, `along` last."""
        own = (leaf for leaf in leaves(body) if not isinstance(leaf, PrefetchHint))
        leaf = next(leaf for leaf in own if read in loads(leaf.value))
        moving = [loop for loop in chain_to(body, leaf) if _moves(read.index, loop.var)]
        return tuple(sorted(moving, key=lambda loop: loop.var == self.along))


def _moves(index: Index, loop: str) -> bool:
    return any(loop in i.vars() for i in index)


@dataclass(frozen=True, slots=True)
class CacheWrite(LoopMaker):
    """Accumulate in a private buffer (register accumulators), and write it back once (`cache_write`
    in TVM, `stage_mem` with accumulation in Exo).

        for i:                          for i:
          for k: for j:           ->      for j: W[j] = identity
            C[i, j] += v                  for k: for j: W[j] += v
                                          for j: C[i, j] = W[j]   (+= if an outer loop also reduces)

    The loops that initialise and write back are copies of the body's spatial loops, with `.init`
    and `.out` appended to their names. Guards on spatial loops are copied to both. Legal if exactly
    one statement of the body writes the buffer, none reads it, and the region has a fixed size.
    """

    buffer: str
    loop: str
    name: str
    register: bool = True

    WALK = Walk.ENDS

    def made(self, nest: Nest) -> Made:
        """Return the nest with the buffer, and the loops that initialise it and write it back."""
        place = open_place(nest, self.loop, self)
        dtype = buffer_called(nest, self.buffer, self).dtype
        part, leaf, chain = self._written(place)
        spatial = tuple(loop for loop in chain if not loop.reduce)
        reduced = {loop.var for loop in chain if loop.reduce}
        region = region_of((leaf.index,), ranges_of(spatial), place.ranges, self)
        scope = BufferScope.REGISTER if self.register else BufferScope.WORKSPACE
        cache = Buffer(self.name, region.extent, dtype, scope)
        guards = tuple(g for g in leaf.guards if not g.index.vars() & reduced)
        local = region.local_index(leaf.index)
        parts: tuple[Stmt, ...] = ()
        made: dict[str, str] = {}
        taken = names_in(nest)
        inside: Leaf = replace(leaf, buffer=self.name, index=local)
        if isinstance(inside, Update):
            inside = replace(inside, first=None)
            identity = identity_of(inside.reducer, inside.value)
            begin = nest_loops(spatial, (StoreElement(self.name, local, identity, guards),))
            parts, made = renamed_copy(begin, ".init", taken)
        parts += replaced((part,), leaf, (inside,))
        back = _write_back(leaf, Load(self.name, local, dtype), reduced, guards)
        end, ending = renamed_copy(nest_loops(spatial, (back,)), ".out", taken)
        cached = Allocate(cache, (*parts, *end))
        written = place.with_body(*replaced(place.loop.body, part, (cached,)))
        return Made(still_prepacked(written, self), made | ending)

    def _written(self, place: LoopPosition) -> tuple[Stmt, StoreElement | Update, tuple[For, ...]]:
        """Return three results: the statement of the body that contains the write, the leaf that
        writes, and the loops of the statement that enclose the leaf."""
        require_free(place.nest, self.name, self)
        writes = writes_of(place.loop.body, self.buffer)
        where = f"{self.loop or 'the nest'!r} must write {self.buffer!r} in one place"
        require(len(writes) == 1, self, f"{where}, found {len(writes)}")
        leaf = writes[0]
        chain = chain_to(place.loop.body, leaf)
        part = chain[0] if chain else leaf
        own = reads_of((part,), self.buffer) or self.buffer in private_buffers((part,))
        require(
            not own, self, f"the statement that writes {self.buffer!r} also reads or allocates it"
        )
        serial = all(loop.kind is not LoopKind.PARALLEL for loop in chain)
        require(serial, self, "a parallel loop is inside; cache within it")
        for loop in chain:  # it may be a spatial loop merged with a reduction loop
            problem = f"reduction loop {loop.var!r} indexes the written element"
            require(not (loop.reduce and _moves(leaf.index, loop.var)), self, problem)
        return part, leaf, chain


def _write_back(
    leaf: StoreElement | Update, load: Load, reduced: set[str], guards: tuple[Cond, ...]
) -> Leaf:
    """Return the leaf that writes a result back after the reduction loops `reduced`. `leaf`
    computes the result in the private buffer, and `load` reads it there."""
    first = leaf.first if isinstance(leaf, Update) else ()
    if first is not None:
        first = first_without(first, reduced)
    if not isinstance(leaf, Update) or first == ():
        return StoreElement(leaf.buffer, leaf.index, load, guards)
    return replace(leaf, value=load, first=first, guards=guards)


@dataclass(frozen=True, slots=True)
class TransformLayout(Primitive):
    """Change the layout of a private buffer (`transform_layout` in TVM).

    Each entry of `dims` is (dimension, part). Part 0 is the whole dimension. Otherwise the
    dimension is divided by `split[dimension]`, part 1 is the quotient, and part 2 is the remainder.
    A packed panel of width nr is `split={1: nr}, dims=((1, 1), (0, 0), (1, 2))`. Legal for
    allocated buffers, if every part is listed exactly once.
    """

    buffer: str
    split: tuple[tuple[int, int], ...]
    dims: tuple[tuple[int, int], ...]

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the new layout."""
        buffer = buffer_called(nest, self.buffer, self)
        own = buffer.scope is not BufferScope.ARGUMENT
        require(own, self, f"{self.buffer!r} is an argument, so its layout is fixed")
        factors = dict(self.split)
        parts = {d: (1, 2) if d in factors else (0,) for d in range(len(buffer.shape))}
        wanted = sorted((d, part) for d, own in parts.items() for part in own)
        require(sorted(self.dims) == wanted, self, f"dims must be a permutation of {wanted}")
        for d, factor in factors.items():
            most = factor_bound(buffer.shape[d]) if d < len(buffer.shape) else 0
            require(1 <= factor <= most, self, f"dimension {d} may be divided by 1..{most}")
        ranges = all_ranges(nest.body)

        shape = tuple(_extent(buffer.shape[d], part, factors.get(d, 1)) for d, part in self.dims)

        def index(old: Index) -> Index:
            found = (_part(old[d], part, factors.get(d, 1)) for d, part in self.dims)
            return tuple(simplify(i, ranges) for i in found)

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if isinstance(stmt, Allocate) and stmt.buffer.name == self.buffer:
                new = replace(stmt.buffer, shape=shape)
                return (Allocate(new, transform(stmt.body, change)),)
            if (
                isinstance(stmt, StoreElement | Update | PrefetchHint)
                and stmt.buffer == self.buffer
            ):
                return (replace(stmt, index=index(stmt.index)),)
            return None

        return replace(nest, body=move_loads(transform(nest.body, change), self.buffer, index))


def _part(index: Affine, part: int, factor: int) -> Affine:
    if part == 0:
        return index
    return index // factor if part == 1 else index % factor


def _extent(whole: int, part: int, factor: int) -> int:
    return (whole, -(-whole // factor), factor)[part]
