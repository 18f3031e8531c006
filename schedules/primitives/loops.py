"""Primitives that change the set, order or length of loops: Split, Fuse, Reorder, Partition,
Extend."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Interval, fresh, var
from ..algebra.comparisons import less
from ..errors import require
from ..limits import MAX_LOOP_EXTENT, factor_bound
from ..nest.editing import add_guards, nest_loops, renamed_copy, substitute_body
from ..nest.finding import names_in, perfect_chain, ranges_of
from ..nest.loop_ir import For, LoopKind, Nest
from .dependence import check_reorderable
from .places import find_loop, require_serial, serial_loop
from .primitive import LoopMaker, Made, Primitive, Walk


@dataclass(frozen=True, slots=True)
class Split(LoopMaker):
    """Split a loop into two nested loops (`split` in Halide and TVM, `divide_loop` in Exo).

        for i in 0..n: S(i)    ->    for io in 0..ceil(n / factor):
                                         for ii in 0..factor:
                                             if io*factor + ii < n: S(io*factor + ii)

    The guard is omitted if `factor` divides n. The new loops are named `loop`o and `loop`i. Legal
    for a serial loop and a factor from 1 to `limits.factor_bound(n)`.
    """

    loop: str
    factor: int

    def made(self, nest: Nest) -> Made:
        """Return the nest after the split, and the outer and the inner loop."""
        place = serial_loop(nest, self.loop, self)
        loop, factor = place.loop, self.factor
        most = factor_bound(loop.extent)
        require(1 <= factor <= most, self, f"factor must be 1..{most}, the loop has {loop.extent}")
        taken, trips = names_in(nest), -(-loop.extent // factor)
        outer, inner = fresh(f"{self.loop}o", taken), fresh(f"{self.loop}i", taken)
        index = var(outer) * factor + var(inner)
        known = {outer: Interval(0, trips - 1), inner: Interval(0, factor - 1)}
        body = substitute_body(loop.body, {self.loop: index}, known)
        if loop.extent % factor:
            body = add_guards(body, (less(index, loop.extent),))
        inside = For(inner, factor, body, reduce=loop.reduce)
        split = place.with_loop(For(outer, trips, (inside,), reduce=loop.reduce))
        return Made(split, dict.fromkeys((outer, inner), self.loop))


@dataclass(frozen=True, slots=True)
class Fuse(LoopMaker):
    """Fuse two perfectly nested loops into one (`fuse` in Halide and TVM).

        for i in 0..n:           ->    for f in 0..n*m: S(f // m, f % m)
            for j in 0..m: S(i, j)

    Legal for serial loops that are both spatial or both reduction loops, and if the fused loop has
    at most `limits.MAX_LOOP_EXTENT` iterations. The new loop is named `outer`f.
    """

    outer: str
    inner: str

    WALK = Walk.FUSED

    def made(self, nest: Nest) -> Made:
        """Return the nest after fusing, and the fused loop."""
        place = find_loop(nest, self.outer, self)
        outer, inner = place.loop, find_loop(nest, self.inner, self).loop
        require_serial(outer, self)
        require_serial(inner, self)
        problem = f"{self.inner!r} must be the whole body of {self.outer!r}"
        require(outer.body == (inner,), self, problem)
        same = outer.reduce == inner.reduce
        require(same, self, "one loop is spatial, the other a reduction loop")
        extent = inner.extent
        problem = f"the fused loop would have more than {MAX_LOOP_EXTENT} iterations"
        require(outer.extent * extent <= MAX_LOOP_EXTENT, self, problem)
        name = fresh(f"{self.outer}f", names_in(nest))
        fused = var(name)
        mapping = {self.outer: fused // extent, self.inner: fused % extent}
        body = substitute_body(inner.body, mapping)
        loop = For(name, outer.extent * extent, body, reduce=outer.reduce)
        return Made(place.with_loop(loop), {name: self.outer})


@dataclass(frozen=True, slots=True)
class Reorder(Primitive):
    """Put perfectly nested loops into the given order, outermost first (`reorder`).

    Other loops between them keep their positions. Legal for serial loops if the loops that carry a
    dependence between two accesses in the body keep their relative order (`check_reorderable`).
    Reductions are associative and commutative, so they may be reordered.
    """

    order: tuple[str, ...]

    def apply(self, nest: Nest) -> Nest:
        """Return the reordered nest."""
        once = self.order and len(set(self.order)) == len(self.order)
        require(bool(once), self, f"name each loop once, got {list(self.order)}")
        found = [find_loop(nest, name, self) for name in self.order]
        top = min(found, key=lambda place: len(place.outer))
        chain: list[For] = []
        missing = set(self.order)
        for loop in perfect_chain(top.loop):
            require_serial(loop, self)
            chain.append(loop)
            missing.discard(loop.var)
            if not missing:
                break
        problem = f"{sorted(missing)} are not perfectly nested within {top.loop.var!r}"
        require(not missing, self, problem)
        wanted = iter([place.loop for place in found])
        new_order = tuple(next(wanted) if x.var in self.order else x for x in chain)
        check_reorderable(chain, new_order, self, ranges_of(top.outer))
        return top.with_loop(*nest_loops(new_order, chain[-1].body))


@dataclass(frozen=True, slots=True)
class Partition(LoopMaker):
    """Split a loop's range into two loops with separate bodies (peeling; `cut_loop` in Exo).

        for i in 0..n: S(i)    ->    for i in 0..at: S(i)
                                     for i.t in 0..n-at: S(i.t + at)

    `.t` is appended to the names of loops and buffers in the second part, so that it can be
    scheduled separately. Legal for a loop that is neither vectorised nor parallel, and 1 <= at < n.
    """

    loop: str
    at: int

    WALK = Walk.REST

    def made(self, nest: Nest) -> Made:
        """Return the nest after the split, and the loops of the second part."""
        place = find_loop(nest, self.loop, self)
        loop = place.loop
        together = loop.kind in (LoopKind.VECTORIZED, LoopKind.PARALLEL)
        require(not together, self, f"loop {self.loop!r} is {loop.kind.value}")
        require(1 <= self.at < loop.extent, self, f"at must be 1..{loop.extent - 1}")
        (tail,), made = renamed_copy((loop,), ".t", names_in(nest))
        assert isinstance(tail, For)
        shifted = substitute_body(tail.body, {tail.var: var(tail.var) + self.at})
        tail = replace(tail, extent=loop.extent - self.at, body=shifted)
        return Made(place.with_loop(replace(loop, extent=self.at), tail), made)


@dataclass(frozen=True, slots=True)
class Extend(Primitive):
    """Add iterations that do nothing to a loop, so that it can be merged with a longer one.

        for i in 0..n: S(i)    ->    for i in 0..extent: if i < n: S(i)

    Legal for a serial loop of n iterations and an extent from n to `limits.factor_bound(n)`.
    """

    loop: str
    extent: int

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the longer loop."""
        place = serial_loop(nest, self.loop, self)
        loop, most = place.loop, factor_bound(place.loop.extent)
        problem = f"extent must be {loop.extent}..{most}"
        require(loop.extent <= self.extent <= most, self, problem)
        body = add_guards(loop.body, (less(var(loop.var), loop.extent),))
        return place.with_loop(replace(loop, extent=self.extent, body=body))
