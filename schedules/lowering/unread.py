"""Skip reductions into private buffers in iterations that use none of their elements.

    for t: alloc acc
      for k: for i: acc[i] += A[k,i+6*t]
      for i: C[i+6*t] = acc[i] if i+6*t <= n else 0

    ->  for t: alloc acc
          for k while 6*t <= n: for i: acc[i] += A[k,i+6*t]
          for i: C[i+6*t] = acc[i] if i+6*t <= n else 0

If a condition chooses between the elements of a buffer and another value, and fails for all
elements that are read while the buffer exists, its updates have no effect. The buffer keeps the
values with which it was initialised. An example are the tiles of a product above the diagonal, of
which only the lower triangle is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..algebra.affine import Ranges
from ..algebra.comparisons import Cond, prove
from ..algebra.conditions import easiest
from ..algebra.scalar import conditional_loads
from ..nest.finding import ranges_of, write_sites
from ..nest.loop_ir import Allocate, For, Stmt, Update, transform


def skip_unread(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `stmts` with guards on the updates of private buffers that are read under
    conditions."""
    uses = _Uses(dict(_scopes(stmts, ())))
    if not any(uses.conditions(name) for name in uses.scopes):
        return stmts

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Update) or stmt.first is not None:
            return None  # the initialisation of a buffer stays
        new = tuple(c for c in uses.conditions(stmt.buffer) if c not in stmt.guards)
        return (replace(stmt, guards=(*stmt.guards, *new)),) if new else None

    return transform(stmts, change)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The statements in which a private buffer exists, and the loops around them."""

    body: tuple[Stmt, ...]
    around: tuple[For, ...]


def _scopes(stmts: tuple[Stmt, ...], around: tuple[For, ...]) -> Iterator[tuple[str, _Scope]]:
    for stmt in stmts:
        if isinstance(stmt, For):
            yield from _scopes(stmt.body, (*around, stmt))
        elif isinstance(stmt, Allocate):
            yield stmt.buffer.name, _Scope(stmt.body, around)
            yield from _scopes(stmt.body, around)


@dataclass(frozen=True, slots=True)
class _Uses:
    """The conditions under which private buffers are used."""

    scopes: dict[str, _Scope]
    found: dict[str, tuple[Cond, ...]] = field(default_factory=dict)

    def conditions(self, buffer: str) -> tuple[Cond, ...]:
        """Return conditions on the loops around the allocation of `buffer`. If one of them fails,
        no element of `buffer` affects a result. There are none for other buffers."""
        scope = self.scopes.get(buffer)
        if scope is None:
            return ()
        if buffer not in self.found:
            self.found[buffer] = ()  # buffers that depend on each other have none
            self.found[buffer] = self._conditions(buffer, scope)
        return self.found[buffer]

    def _conditions(self, buffer: str, scope: _Scope) -> tuple[Cond, ...]:
        outer = {loop.var for loop in scope.around}
        common: dict[Cond, None] | None = None
        for leaf, chain in write_sites(scope.body):
            inside = ranges_of(chain)
            for load, conds in conditional_loads(leaf.value, leaf.guards):
                if load.tensor != buffer:
                    continue
                every = () if leaf.buffer == buffer else (*conds, *self.conditions(leaf.buffer))
                own = dict.fromkeys(_of_some(every, inside, outer))
                common = own if common is None else {c: None for c in common if c in own}
        ranges = ranges_of(scope.around)
        return tuple(cond for cond in common or () if prove(cond, ranges) is not True)


def _of_some(conds: tuple[Cond, ...], inside: Ranges, outer: set[str]) -> Iterator[Cond]:
    """Yield conditions on the loops `outer` without which no iteration of the loops `inside`
    satisfies `conds`."""
    for cond in conds:
        found = easiest(cond, inside)
        if found.index.vars() <= outer:
            yield found
