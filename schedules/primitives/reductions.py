"""Primitives for reductions: RFactor, Solve, SkipZeros and SkipBlocks.

RFactor computes partial results. Solve eliminates a loop whose variable is determined by an
equation. SkipZeros skips updates in the padding. SkipBlocks skips iterations that contain only
updates by zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Affine, Interval, affine, var
from ..algebra.comparisons import Cond, Eq0, prove, substitute_cond
from ..algebra.conditions import easiest, normal_cond, tidy
from ..algebra.congruence import collected, congruence_of, solved
from ..algebra.neutral import assuming, neutral_conditions, only_where, where_fails, with_instead
from ..algebra.scalar import Load, index_conds, map_index, vars_of
from ..errors import ScheduleError, require
from ..nest.editing import (
    first_without,
    map_writes,
    nest_loops,
    renamed_copy,
    replaced,
    substitute_body,
)
from ..nest.finding import buffers_in, names_in, perfect_chain, ranges_of, writes_of
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    Stmt,
    StoreElement,
    Update,
    loops,
)
from .places import buffer_called, find_loop, require_free, serial_loop, still_prepacked
from .primitive import LoopMaker, Made, Primitive, SerialisedForm


def _one_reduction(loop: For, source: object) -> tuple[tuple[For, ...], Update]:
    """Return `loop` with the loops perfectly nested in it, and the single update inside them. Raise
    ScheduleError if there is no such update."""
    chain = perfect_chain(loop)
    leaf, *others = chain[-1].body
    if others or not isinstance(leaf, Update):
        raise ScheduleError(source, f"loop {loop.var!r} must contain a single reduction")
    return chain, leaf


@dataclass(frozen=True, slots=True)
class RFactor(LoopMaker):
    """Factor a reduction over one of its loops (`rfactor` in Halide and TVM).

        for i: for ko: for ki:         for i: for ko: for ki: P[i, ki] += v
          C[i] += v              ->    for i': for ki': C[i'] += P[i', ki']

    The loop becomes spatial in the first nest, so that it can be vectorised, unrolled or
    parallelised; ComputeAt then reduces the size of P. Legal if the loops of the reduction and of
    C's elements are perfectly nested and only its reduction loops were changed, by Split. P is
    named `name`; `.rf`, and a number if needed, is appended to the loop names of the second nest.
    """

    loop: str
    name: str

    def made(self, nest: Nest) -> Made:
        """Return the nest with the two parts, and the loops of the second part."""
        place = find_loop(nest, self.loop, self)
        reduces = place.loop.reduce and place.loop.kind is LoopKind.SERIAL
        require(reduces, self, f"{self.loop!r} must be a serial loop of a reduction")
        require_free(nest, self.name, self)
        outer, root = [*place.outer], place.loop
        while outer and outer[-1].body == (root,):
            root = outer.pop()
        chain, leaf = _one_reduction(root, self)
        problem = f"{leaf.buffer!r} is also combined over loops around {root.var!r}"
        conds = {name for cond in leaf.first or () for name in cond.index.vars()}
        require(not any(x.reduce or x.var in conds for x in outer), self, problem)
        lanes = any(loop.kind is LoopKind.VECTORIZED for loop in chain)
        require(not lanes, self, "factor the reduction first, then vectorize")
        target = buffers_in(nest)[leaf.buffer]
        once = len(writes_of(nest.body, leaf.buffer)) == 1
        require(once, self, f"{leaf.buffer!r} is written in more than one place")
        spatial = tuple(loop for loop in chain if not loop.reduce)
        plain = [loop.var for loop in spatial] == [str(i) for i in leaf.index]
        require(plain, self, "split and reorder the spatial loops after RFactor")
        if leaf.first is None:
            raise ScheduleError(self, f"{leaf.buffer!r} was initialised elsewhere")
        shape = (*target.shape, place.loop.extent)
        partial = Buffer(self.name, shape, target.dtype, BufferScope.WORKSPACE)
        index = (*leaf.index, var(self.loop))
        first = first_without(leaf.first, (self.loop,))
        # If a reduction loop has a guard, some partial results may have no update (5 elements in a
        # loop of 8). The guard therefore becomes a condition of the value.
        reduced = {loop.var for loop in chain if loop.reduce}
        guards = tuple(g for g in leaf.guards if not g.index.vars() & reduced)
        inner = tuple(g for g in leaf.guards if g not in guards)
        value = only_where(inner, leaf.value, leaf.reducer)
        partly = replace(
            leaf, buffer=self.name, index=index, value=value, first=first, guards=guards
        )
        rest = tuple(loop for loop in chain if loop.reduce and loop is not place.loop)
        factored = replace(place.loop, reduce=False)
        read = Load(self.name, index, target.dtype)
        merged = replace(leaf, value=read, first=(Eq0(var(self.loop)),), guards=guards)
        around = (*spatial, replace(place.loop, body=()))
        second, made = renamed_copy(nest_loops(around, (merged,)), ".rf", names_in(nest))
        both = (*nest_loops((*spatial, factored, *rest), (partly,)), *second)
        body = replaced(nest.body, root, (Allocate(partial, both),))
        return Made(still_prepacked(replace(nest, body=body), self), made)


@dataclass(frozen=True, slots=True)
class Solve(Primitive):
    """Replace a reduction loop by the only value that an equation allows (equality elimination).

        for r in 0..2:                                           ->    C[x] += A[x//2] * B[x%2]
            C[x] += (A[(x - r)//2] if (x - r)%2 == 0 else 0) * B[r]

    In a transposed convolution of stride 2, for example, each output sums only the taps for which
    `(x - r)%2` is 0. Legal for a serial reduction loop around one reduction. Every term must be
    guarded by an equation `.. + c*r + .. == 0`, or by a congruence `(.. + c*r + ..) % n == 0`. In a
    congruence, c must be coprime to n, and the loop must have at most n iterations. If the guard is
    false, the term must be the reduction's identity or, in a sum, a product with zero. Such a
    product is omitted even if its other factor is infinite or NaN. If the solution may be outside
    the loop's range, a condition excludes it.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest without the loop."""
        place = serial_loop(nest, self.loop, self)
        require(place.loop.reduce, self, f"loop {self.loop!r} is not a reduction loop")
        chain, leaf = _one_reduction(place.loop, self)
        every = (*place.outer, *chain)
        ranges = ranges_of(every)
        cond, value, needed = self._solution(leaf, ranges)

        def moved(index: Affine) -> Affine:
            return collected(index.substitute({self.loop: value}))

        # Conditions can replace the equation in the select if its other branch does not depend on
        # the loop.
        instead: tuple[Cond, ...] = ()
        if self.loop not in vars_of(where_fails(leaf.value, cond)):
            instead, needed = needed, ()
        body = map_index(with_instead(leaf.value, cond, instead), moved)
        speaking = tuple(g for g in leaf.guards if self.loop in g.index.vars())
        kept = tuple(g for g in leaf.guards if g not in speaking)
        changed = (normal_cond(type(g)(moved(g.index))) for g in speaking)
        reduced = {each.var: affine(0) for each in every if each.reduce}
        decided: list[Cond] = []
        for guard in (*needed, *changed):
            if leaf.first is None or prove(substitute_cond(guard, reduced), ranges):
                kept = (*kept, guard)
            else:  # elements without any term must still be initialised
                decided.append(guard)
        body = only_where(tuple(decided), body, leaf.reducer)
        first = leaf.first
        if first is not None:  # in the first update, all other reduction loops are at zero
            first = tuple(map(normal_cond, first_without(first, (self.loop,))))
        new = replace(leaf, value=tidy(body, ranges), guards=kept, first=first)
        inside = nest_loops(chain[1:], (new,))
        return place.with_loop(*substitute_body(inside, {}, known=ranges))

    def _solution(
        self, leaf: Update, ranges: dict[str, Interval]
    ) -> tuple[Cond, Affine, tuple[Cond, ...]]:
        """Return three results: the condition that determines the loop's value, this value, and the
        conditions under which the value is in the loop's range."""
        for cond in dict.fromkeys(index_conds(leaf.value)):
            congruence = congruence_of(cond)
            if congruence is None or self.loop not in congruence.index.vars():
                continue
            solution = solved(congruence, self.loop, ranges)
            if solution is not None and cond in neutral_conditions(leaf.value, leaf.reducer):
                return cond, *solution
        raise ScheduleError(self, f"no equation that guards every term determines {self.loop!r}")


@dataclass(frozen=True, slots=True)
class SkipZeros(Primitive):
    """Convert the conditions of padding in a reduction to guards of its updates.

        W[i] += (X[i + r - 1] if 1 <= i + r <= N else 0) * F[r]
                ->    if 1 <= i + r <= N: W[i] += X[i + r - 1] * F[r]

    If `loop` is set, only conditions that depend on the loops that enclose `loop` become guards.
    With `loop` s:

        for r: for s: W[i] += (X[r, i + s] if r >= 1 and i + s >= 1 else 0) * F[r, s]
                ->    for r: if r >= 1: for s: W[i] += (the same select) * F[r, s]

    The select remains, so that CacheRead can make a padded copy of the tile's rows.

    A guard on outer loops is tested in these loops, and a guard that Partition makes constant has
    no cost. Legal if every update of `buffer` combines with an existing value, as after CacheWrite.
    The other branch of the select must be neutral: zero as a factor of a summand, or the
    reduction's identity as the whole value. Products of a padding zero with an infinity or NaN are
    skipped too.
    """

    buffer: str
    loop: str = ""

    SPELLINGS = (
        SerialisedForm("SkipZeros", ("buffer",)),
        SerialisedForm("SkipZerosAround", ("buffer", "loop")),
    )

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the guards. Raise ScheduleError if none is added."""
        _require_begun(nest, self.buffer, self)
        inside, decided = nest.body, None
        nothing = f"no update of {self.buffer!r} has padding to skip"
        if self.loop:
            place = find_loop(nest, self.loop, self)
            inside = place.loop.body
            once = [loop for loop in loops(inside) if loop.extent == 1]
            decided = {loop.var for loop in (*place.outer, *once)}
            nothing = f"no condition of padding depends only on loops around {self.loop!r}"
        new = {old: self._guarded(old, decided) for old in _updates(inside, self.buffer)}
        require(any(update != old for old, update in new.items()), self, nothing)
        return _with_updates(nest, new)

    def _guarded(self, update: Update, decided: set[str] | None) -> Update:
        """Return `update` guarded by its conditions of padding. If `decided` is given, only
        conditions that depend on no other loops become guards, and the selects remain."""
        conds = neutral_conditions(update.value, update.reducer)
        value = update.value
        if decided is None:
            value = assuming(value, conds)
        else:
            conds = tuple(cond for cond in conds if cond.index.vars() <= decided)
        return _also_guarded(replace(update, value=value), conds)


@dataclass(frozen=True, slots=True)
class SkipBlocks(Primitive):
    """Skip the iterations of a loop in which every update adds zero.

        for k: for i: acc[i] += (A[i + 6*t, k] if k <= i + 6*t else 0) * B[k]
                ->    for k: if k <= 5 + 6*t: for i: acc[i] += (the same select) * B[k]

    A condition becomes a guard with the values of the loops inside `loop` that satisfy it most
    easily. All updates of an iteration have this guard, so it is tested once per iteration, or it
    ends `loop` early. The select remains for iterations in which the condition holds for some
    updates only. This separates empty tiles from others, as in tiled loops over a triangle.

    Legal if every update of `buffer` combines with an existing value, as after CacheWrite. The
    conditions are those of SkipZeros, and must be linear in the loops inside `loop`. Products of a
    zero chosen by a condition with an infinity or NaN may be skipped, as in SkipZeros.
    """

    buffer: str
    loop: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the guards. Raise ScheduleError if none is added."""
        _require_begun(nest, self.buffer, self)
        place = find_loop(nest, self.loop, self)
        ranges = ranges_of(loops(nest.body))
        inside = {loop.var: ranges[loop.var] for loop in loops(place.loop.body)}
        new = {
            update: _also_guarded(update, self._of_blocks(update, inside, ranges))
            for update in _updates(place.loop.body, self.buffer)
        }
        nothing = f"no iteration of {self.loop!r} has only zeros to add to {self.buffer!r}"
        require(any(update != old for old, update in new.items()), self, nothing)
        return _with_updates(nest, new)

    def _of_blocks(
        self, update: Update, inside: dict[str, Interval], ranges: dict[str, Interval]
    ) -> tuple[Cond, ...]:
        """Return the conditions under which an iteration of the loop may change a sum."""
        found = (easiest(cond, inside) for cond in neutral_conditions(update.value, update.reducer))
        return tuple(
            cond
            for cond in found
            if self.loop in cond.index.vars()
            and not cond.index.vars() & inside.keys()
            and prove(cond, ranges) is not True
        )


def _updates(body: tuple[Stmt, ...], buffer: str) -> list[Update]:
    return [leaf for leaf in writes_of(body, buffer) if isinstance(leaf, Update)]


def _require_begun(nest: Nest, buffer: str, source: object) -> None:
    """Raise ScheduleError if no update writes `buffer`, or if an update initialises it."""
    buffer_called(nest, buffer, source)
    updates = _updates(nest.body, buffer)
    require(bool(updates), source, f"no update writes {buffer!r}")
    begun = all(update.first is None for update in updates)
    require(begun, source, f"an update initialises {buffer!r}; CacheWrite it first")


def _also_guarded(update: Update, conds: tuple[Cond, ...]) -> Update:
    new = (cond for cond in dict.fromkeys(conds) if cond not in update.guards)
    return replace(update, guards=(*update.guards, *new))


def _with_updates(nest: Nest, new: dict[Update, Update]) -> Nest:
    """Return `nest` with the updates that are keys of `new` replaced."""

    def changed(leaf: StoreElement | Update) -> StoreElement | Update:
        return new.get(leaf, leaf) if isinstance(leaf, Update) else leaf

    return replace(nest, body=map_writes(nest.body, changed))
