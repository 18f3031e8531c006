"""CacheRead: a private copy of what a loop's body reads; packing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from ..algebra.affine import (
    Affine,
    Interval,
    at_least,
    less,
    var,
)
from ..algebra.conditions import normal_cond
from ..algebra.scalar import All, Const, Load, Scalar, Select
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import ScheduleError
from ..nest.editing import nest_loops
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
    For,
    Nest,
    Scope,
    Stmt,
    Store,
    Update,
    transform,
)
from .places import (
    ROOT,
    Place,
    find_loop,
    place_of,
    replace_body,
    still_ahead,
)
from .primitive import LoopMaker, Made, Spelling
from .region import Region, in_bounds, loops_of, position_names, position_vars, region_of

Index: TypeAlias = tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Some of several reads of a tensor: those whose index `takes` accepts, said as `words`."""

    takes: Callable[[Index], bool]
    words: str


ALL_READS = Chosen(lambda index: True, "")


@dataclass(frozen=True, slots=True)
class CacheRead(LoopMaker):
    """Copy what a loop's body reads of a tensor into a private buffer first (`cache_read` in TVM,
    `stage_mem` in Exo); packing, when the layout is then chosen with TransformLayout.

        for i: ... B[f(i, j)] ...    ->    for i: { for x: P[x] = B[base(i) + x];  ... P[g(j)] ... }

    With `along`, a loop inside, only reads whose index moves with that loop; the others stay. A
    matrix times its own transpose reads one tensor as rows and as columns:

        for k: for j: C[j] += A[i, k] * A[j, k]    ->    ... C[j] += A[i, k] * P[k, j]

    Elements of the region outside the tensor are zero in the copy, so reads that were guarded
    only by being inside the tensor lose their condition: a padded copy. Legal where the region
    has a fixed size and the body does not write the tensor. `loop` "" copies for the whole nest.
    The buffer is called `name`, its loops `name`.0, `name`.1, ...
    """

    tensor: str
    loop: str
    name: str
    register: bool = False
    along: str = ""

    SPELLINGS = (
        Spelling("CacheRead", ("tensor", "loop", "name", "register")),
        Spelling("CacheReadAlong", ("tensor", "loop", "name", "along")),
    )

    def made(self, nest: Nest) -> Made:
        """The nest with the copy, and the loops that fill it. ScheduleError: nothing read, or
        nothing that moves with `along`; written inside, no fixed size."""
        place = place_of(nest, self.loop, self)
        chosen = self._chosen(nest, place)
        body = place.loop.body
        source, reads = readable(nest, self, self.tensor, place, self.name, chosen)
        outer, inner = ranges_of((*place.outer, place.loop)), all_ranges(body)
        region = region_of((r.index for r in reads), inner, outer, self)
        scope = Scope.REGISTER if self.register else Scope.WORKSPACE
        copy = Buffer(self.name, region.extent, source.dtype, scope)
        names = position_names(copy.name, region.extent, names_in(nest))
        element = region.element(position_vars(names, region.extent))
        filled = copying(source, copy, names, element, outer)
        redirected = _redirect_reads(body, source, copy, region, {**outer, **inner}, chosen)
        copied = (Allocate(copy, (*filled, *redirected)),)
        new = still_ahead(replace_body(nest, self.loop, copied), self)
        return Made(new, dict.fromkeys(loops_of(names, region.extent), self.name))

    def _chosen(self, nest: Nest, place: Place) -> Chosen:
        if not self.along:
            return ALL_READS
        inside = find_loop(nest, self.along, self)
        if self.loop != ROOT and place.loop not in inside.outer:
            raise ScheduleError(self, f"{self.along!r} is not inside {self.loop!r}")
        return Chosen(lambda index: _moves(index, self.along), f" along {self.along!r}")


def readable(
    nest: Nest, step: object, tensor: str, place: Place, name: str, chosen: Chosen
) -> tuple[Buffer, list[Load]]:
    """The buffer of `tensor` and the `chosen` reads of it at `place`, which may come from a copy
    `name`. ScheduleError: no such buffer or reads, the name taken, or written inside."""
    body = place.loop.body
    buffers = buffers_in(nest)
    if tensor not in buffers:
        raise ScheduleError(step, f"there is no buffer {tensor!r}")
    source = buffers[tensor]
    if name in names_in(nest):
        raise ScheduleError(step, f"the name {name!r} is in use")
    reads = [r for r in reads_of(body, tensor) if chosen.takes(r.index)]
    if not reads:
        where = f"{place.loop.var or 'the nest'!r} does not read {tensor!r}"
        raise ScheduleError(step, where + chosen.words)
    if writes_of(body, tensor) or tensor in private_buffers(body):
        raise ScheduleError(step, f"the body writes {tensor!r}")
    writes = writes_of(nest.body, tensor)
    enough = not writes or _elements_written(nest, writes) >= source.elements
    if not enough or not all(_writes_all(w, source) for w in writes):
        raise ScheduleError(step, f"parts of {tensor!r} may never be written")
    return source, reads


def _moves(index: Index, along: str) -> bool:
    return any(along in i.vars() for i in index)


def _writes_all(write: Store | Update, buffer: Buffer) -> bool:
    """Whether guards of `write` keep nothing but elements outside the buffer from being written."""
    inside = {
        cond
        for i, extent in zip(write.index, buffer.shape, strict=True)
        for cond in (at_least(i, 0), less(i, extent))
    }
    return inside.issuperset(write.guards)


def _elements_written(nest: Nest, writes: list[Store | Update]) -> int:
    """How many elements `writes` can give a value at the most: a layout in parts that do not
    divide has more. Copies of a write for other iterations (Stagger) write the same ones."""
    found: dict[tuple[object, ...], int] = {}
    for write in writes:
        chain = chain_to(nest.body, write)
        assert chain is not None
        names = {name for i in write.index for name in i.vars()}
        moving = [loop for loop in chain if loop.var in names]
        renamed = {loop.var: var(f"#{n}") for n, loop in enumerate(moving)}
        extents = tuple(loop.extent for loop in moving)
        found[extents, tuple(i.substitute(renamed) for i in write.index)] = prod(extents)
    return sum(found.values())


def copying(
    source: Buffer,
    copy: Buffer,
    names: tuple[str, ...],
    element: Index,
    outer: dict[str, Interval],
) -> tuple[Stmt, ...]:
    """Loops `names` that fill `copy`, each place with `element` of `source`, or with zero where
    that is outside. `outer` are the ranges of the loops around."""
    x = position_vars(names, copy.shape)
    inner = {name: Interval(0, e - 1) for name, e in zip(names, copy.shape, strict=True)}
    value: Scalar = Load(source.name, element, source.dtype)
    conds = in_bounds(element, source.shape, {**outer, **inner})
    if conds:
        value = Select(All(conds), value, Const(0, source.dtype))
    chain = tuple(For(n, e, ()) for n, e in zip(names, copy.shape, strict=True) if e > 1)
    return nest_loops(chain, (Store(copy.name, x, value),))


def _redirect_reads(
    body: tuple[Stmt, ...],
    source: Buffer,
    copy: Buffer,
    region: Region,
    ranges: dict[str, Interval],
    chosen: Chosen,
) -> tuple[Stmt, ...]:
    """`body` with the `chosen` reads from the copy; conditions that only kept those inside the
    source are dropped."""

    def scalar(node: Scalar) -> Scalar | None:
        match node:
            case Load(tensor, index) if tensor != source.name or not chosen.takes(index):
                return None
            case Select(All(conds), Load(tensor, index, dtype), Const() as other) if (
                other.is_plus_zero and tensor == source.name and chosen.takes(index)
            ):
                # Guards are written without common factors; strided taps bring some back.
                inside = {normal_cond(c) for c in in_bounds(index, source.shape, ranges)}
                kept = tuple(c for c in conds if normal_cond(c) not in inside)
                load = Load(copy.name, region.local_index(index), dtype)
                return Select(All(kept), load, node.on_false) if kept else load
            case Load(_, index, dtype):
                return Load(copy.name, region.local_index(index), dtype)
            case _:
                return None

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Store | Update):
            value = rewrite_scalar(stmt.value, scalar)
            return (stmt if value is stmt.value else replace(stmt, value=value),)
        return None

    return transform(body, change)
