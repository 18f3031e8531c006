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
    Place,
    place_of,
    replace_body,
    still_ahead,
)
from .primitive import LoopMaker, Made
from .region import region_of


@dataclass(frozen=True, slots=True)
class CacheWrite(LoopMaker):
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

    def made(self, nest: Nest) -> Made:
        """The nest with the cache; the loops that begin it, if any do, and those that write it
        back. ScheduleError: not written once, also read, no fixed size."""
        place = place_of(nest, self.loop, self)
        part, leaf, chain = self._written(nest, place)
        target, taken = buffers_in(nest)[self.buffer], names_in(nest)
        spatial = tuple(loop for loop in chain if not loop.reduce)
        outer = ranges_of((*place.outer, place.loop))
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
        begin: dict[str, str] = {}
        if isinstance(leaf, Update):
            identity = Const(leaf.reducer.identity(target.dtype), target.dtype)
            begin = _copies_of(spatial, "init", taken)
            init = Store(self.name, local, identity, guards)
            parts += rename_all(nest_loops(spatial, (init,)), begin, {})
        parts += computed
        load = Load(self.name, local, target.dtype)
        back = _write_back(leaf, load, inner_reduce, guards)
        end = _copies_of(spatial, "out", taken)
        parts += rename_all(nest_loops(spatial, (back,)), end, {})
        cached = Allocate(cache, tuple(parts))
        new_body = transform(place.loop.body, lambda s: (cached,) if s is part else None)
        written = still_ahead(replace_body(nest, self.loop, new_body), self)
        return Made(written, {new: old for copies in (begin, end) for old, new in copies.items()})

    def _written(self, nest: Nest, place: Place) -> tuple[Stmt, Store | Update, tuple[For, ...]]:
        """The part of the body that writes the buffer, the leaf that does, and the loops of that
        part around it. ScheduleError where they may not have a private buffer."""
        if self.buffer not in buffers_in(nest):
            raise ScheduleError(self, f"there is no buffer {self.buffer!r}")
        if self.name in names_in(nest):
            raise ScheduleError(self, f"the name {self.name!r} is in use")
        writes = writes_of(place.loop.body, self.buffer)
        if len(writes) != 1:
            raise ScheduleError(
                self,
                f"{self.loop or 'the nest'!r} must write {self.buffer!r} in one place,"
                f" found {len(writes)}",
            )
        leaf = writes[0]
        part = _part_with(place.loop.body, leaf)
        if reads_of((part,), self.buffer) or self.buffer in private_buffers((part,)):
            raise ScheduleError(self, f"what writes {self.buffer!r} reads or makes it as well")
        chain = chain_to((part,), leaf)
        assert chain is not None
        if any(loop.kind is LoopKind.PARALLEL for loop in chain):
            raise ScheduleError(self, "a parallel loop is inside; cache within it")
        for loop in chain:  # merged with that of a reduction, which has no part behind it
            if loop.reduce and any(loop.var in i.vars() for i in leaf.index):
                problem = f"{loop.var!r} is of a reduction and moves what is written"
                raise ScheduleError(self, problem)
        return part, leaf, chain


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


def _copies_of(spatial: tuple[For, ...], suffix: str, taken: set[str]) -> dict[str, str]:
    """What copies of these loops are called; `taken` gets the names."""
    names: dict[str, str] = {}
    for loop in spatial:
        names[loop.var] = fresh(f"{loop.var}.{suffix}", taken)
        taken.add(names[loop.var])
    return names
