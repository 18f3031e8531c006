"""RFactor: make a reduction loop spatial by keeping one partial result for each iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Eq0, fresh, var
from ..algebra.scalar import All, Const, Load, Select
from ..errors import ScheduleError
from ..nest.editing import nest_loops, rename_all
from ..nest.finding import buffers_in, chain_to, names_in, writes_of
from ..nest.loop_ir import Allocate, Buffer, For, LoopKind, Nest, Scope, Stmt, Update, transform
from .places import find_loop, still_ahead
from .primitive import LoopMaker, Made


@dataclass(frozen=True, slots=True)
class RFactor(LoopMaker):
    """Factor a reduction over one of its loops (`rfactor` in Halide and TVM).

        for i: for ko: for ki:         for i: for ko: for ki: P[i, ki] += v
          C[i] += v              ->    for i': for ki': C[i'] += P[i', ki']

    The loop becomes spatial in the first nest, so that it can be vectorised, unrolled or run in
    parallel; ComputeAt then keeps P small. Legal where C's nest is perfectly nested and still
    untouched but for splits of reduction loops. P is called `name`; the loops of the second nest
    get `.rf` behind their names, with a number where that was done before.
    """

    loop: str
    name: str

    def made(self, nest: Nest) -> Made:
        """The two nests, and the loops of the second. ScheduleError: not a reduction loop,
        not a plain nest, name taken."""
        place = find_loop(nest, self.loop, self)
        if not place.loop.reduce or place.loop.kind is not LoopKind.SERIAL:
            raise ScheduleError(self, f"{self.loop!r} must be a serial loop of a reduction")
        taken = names_in(nest)
        if self.name in taken:
            raise ScheduleError(self, f"the name {self.name!r} is in use")
        root = (*place.outer, place.loop)[0]
        leaf, chain = _plain_reduction(root, self)
        if any(loop.kind is LoopKind.VECTORIZED for loop in chain):
            raise ScheduleError(self, "factor the reduction first, then vectorize")
        target = buffers_in(nest)[leaf.buffer]
        if len(writes_of(nest.body, leaf.buffer)) != 1:
            raise ScheduleError(self, f"{leaf.buffer!r} is written in more than one place")
        if tuple(each.var for each in chain if not each.reduce) != tuple(map(str, leaf.index)):
            raise ScheduleError(self, "split and reorder the spatial loops after RFactor")
        if leaf.first is None:
            raise ScheduleError(self, f"{leaf.buffer!r} was initialised elsewhere")
        extent = place.loop.extent
        partial = Buffer(self.name, (*target.shape, extent), target.dtype, Scope.WORKSPACE)
        zero = {self.loop: var(self.loop) * 0}
        first = tuple(Eq0(c.index.substitute(zero)) for c in leaf.first)
        first = tuple(c for c in first if not c.index.is_const)
        index = (*leaf.index, var(self.loop))
        new_leaf = replace(leaf, buffer=self.name, index=index, first=first)
        rest = tuple(each for each in chain if each.reduce and each.var != self.loop)
        spatial = tuple(each for each in chain if not each.reduce)
        factored = replace(place.loop, reduce=False)
        first_nest = nest_loops((*spatial, factored, *rest), (_total(new_leaf),))
        merged = Update(
            leaf.buffer,
            leaf.index,
            Load(self.name, index, target.dtype),
            leaf.reducer,
            (Eq0(var(self.loop)),),
        )
        second = nest_loops((*spatial, replace(place.loop, body=())), (merged,))
        names = {each.var: fresh(f"{each.var}.rf", taken) for each in (*spatial, place.loop)}
        second = rename_all(second, names, {})

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if stmt is root:
                return (Allocate(partial, (*first_nest, *second)),)
            return None

        factored_nest = replace(nest, body=transform(nest.body, change))
        return Made(still_ahead(factored_nest, self), {new: old for old, new in names.items()})


def _total(leaf: Update) -> Update:
    """`leaf`, made to update every partial result at least once.

    A guard may leave some partial results without any update (5 elements over a loop of 8). The
    guard then becomes a choice inside the value, whose other side is the identity.
    """
    if not leaf.guards:
        return leaf
    identity = Const(leaf.reducer.identity(leaf.value.dtype), leaf.value.dtype)
    return replace(leaf, value=Select(All(leaf.guards), leaf.value, identity), guards=())


def _plain_reduction(root: For, asked_by: object) -> tuple[Update, tuple[For, ...]]:
    current: Stmt = root
    while isinstance(current, For):
        if len(current.body) != 1:
            raise ScheduleError(asked_by, "the nest must be perfectly nested")
        current = current.body[0]
    if not isinstance(current, Update):
        raise ScheduleError(asked_by, "the nest must hold one reduction and nothing else")
    chain = chain_to((root,), current)
    assert chain is not None
    return current, chain
