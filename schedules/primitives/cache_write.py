"""CacheWrite: a private place for what a loop's body writes; accumulators."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import (
    Affine,
    Cond,
    Eq0,
    fresh,
    substitute_cond,
)
from ..algebra.scalar import Const, Load
from ..errors import ScheduleError
from ..nest.editing import nest_loops, rename_all
from ..nest.finding import (
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
    Leaf,
    LoopKind,
    Nest,
    Scope,
    Stmt,
    Store,
    Update,
    transform,
)
from .places import (
    place_of,
    replace_body,
    still_ahead,
)
from .region import region_of


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """Collect what a part of a loop's body writes to a buffer in a private one, and write it back
    once, right behind that part: register accumulators (`cache_write` in TVM, `stage_mem` with
    accumulation in Exo).

        for i:                          for i:
          for k: for j:           ->      for j: W[j] = identity
            C[i, j] += v                  for k: for j: W[j] += v
                                          for j: C[i, j] = W[j]   (+= where k goes on outside)

    The loops of the first and last part are copies of the body's spatial loops, called after
    them with `.init` and `.out`, and keep their marks. Guards on spatial loops move to the last
    part and to the reads that need them. Legal where the body writes the buffer in one place.
    """

    buffer: str
    loop: str
    name: str
    register: bool = True

    def apply(self, nest: Nest) -> Nest:
        """The nest with the cache. ScheduleError: not written once, also read, no fixed size."""
        place = place_of(nest, self.loop, self)
        body = place.loop.body
        buffers = buffers_in(nest)
        if self.buffer not in buffers:
            raise ScheduleError(self, f"there is no buffer {self.buffer!r}")
        target = buffers[self.buffer]
        taken = names_in(nest)
        if self.name in taken:
            raise ScheduleError(self, f"the name {self.name!r} is in use")
        writes = writes_of(body, self.buffer)
        if len(writes) != 1:
            raise ScheduleError(
                self,
                f"{self.loop or 'the nest'!r} must write {self.buffer!r} in one place,"
                f" found {len(writes)}",
            )
        part = _part_with(body, writes[0])
        if reads_of((part,), self.buffer) or self.buffer in private_buffers((part,)):
            raise ScheduleError(self, f"what writes {self.buffer!r} reads or makes it as well")
        leaf = writes[0]
        chain = chain_to((part,), leaf)
        assert chain is not None
        if any(loop.kind is LoopKind.PARALLEL for loop in chain):
            raise ScheduleError(self, "a parallel loop is inside; cache within it")
        outer = ranges_of((*place.outer, place.loop))
        spatial = tuple(loop for loop in chain if not loop.reduce)
        for loop in chain:  # merged with that of a reduction, which has no part behind it
            if loop.reduce and any(loop.var in i.vars() for i in leaf.index):
                problem = f"{loop.var!r} is of a reduction and moves what is written"
                raise ScheduleError(self, problem)
        region = region_of((leaf.index,), ranges_of(spatial), outer, self)
        scope = Scope.REGISTER if self.register else Scope.WORKSPACE
        cache = Buffer(self.name, region.extent, target.dtype, scope)
        inner_reduce = {loop.var for loop in chain if loop.reduce}
        guards = tuple(g for g in leaf.guards if not g.index.vars() & inner_reduce)
        local = region.local_index(leaf.index)
        new_leaf: Leaf = replace(leaf, buffer=self.name, index=local)
        if isinstance(new_leaf, Update):
            new_leaf = replace(new_leaf, first=None)
        computed = transform((part,), lambda s: (new_leaf,) if s is leaf else None)
        parts: list[Stmt] = []
        if isinstance(leaf, Update):
            identity = Const(leaf.reducer.identity(target.dtype), target.dtype)
            init: tuple[Stmt, ...] = (Store(self.name, local, identity, guards),)
            parts += _copied_loops(spatial, init, "init", taken)
        parts += computed
        load = Load(self.name, local, target.dtype)
        back = _write_back(leaf, load, inner_reduce, guards)
        parts += _copied_loops(spatial, (back,), "out", taken)
        cached = Allocate(cache, tuple(parts))
        new_body = transform(body, lambda s: (cached,) if s is part else None)
        return still_ahead(replace_body(nest, self.loop, new_body), self)


def _part_with(stmts: tuple[Stmt, ...], leaf: Leaf) -> Stmt:
    """The statement of a loop's body that holds `leaf`, looking through allocations."""
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            if chain_to(stmt.body, leaf) is not None:
                return _part_with(stmt.body, leaf)
        elif stmt is leaf or (isinstance(stmt, For) and chain_to(stmt.body, leaf) is not None):
            return stmt
    raise AssertionError("the leaf is in the body")


def _write_back(
    leaf: Store | Update, load: Load, inner_reduce: set[str], guards: tuple[Cond, ...]
) -> Leaf:
    if isinstance(leaf, Store):
        return Store(leaf.buffer, leaf.index, load, guards)
    if leaf.first is None:
        return Update(leaf.buffer, leaf.index, load, leaf.reducer, None, guards)
    at_start: dict[str, Affine] = {name: Affine((), 0) for name in inner_reduce}
    first = tuple(
        c for c in (substitute_cond(c, at_start) for c in leaf.first) if c != Eq0(Affine((), 0))
    )
    if not first:
        return Store(leaf.buffer, leaf.index, load, guards)
    return Update(leaf.buffer, leaf.index, load, leaf.reducer, first, guards)


def _copied_loops(
    spatial: tuple[For, ...], leaf: tuple[Stmt, ...], suffix: str, taken: set[str]
) -> tuple[Stmt, ...]:
    names: dict[str, str] = {}
    for loop in spatial:
        names[loop.var] = fresh(f"{loop.var}.{suffix}", taken)
        taken.add(names[loop.var])
    return rename_all(nest_loops(spatial, leaf), names, {})
