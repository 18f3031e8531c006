"""Primitives that change which loops there are: Split, Fuse, Reorder, Partition."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Interval, fresh, less, var
from ..errors import ScheduleError
from ..nest.editing import add_guards, divide_out, rename_all, substitute_body
from ..nest.finding import names_in
from ..nest.loop_ir import Allocate, For, LoopKind, Nest, Stmt, walk
from .dependence import check_reorderable
from .places import find_loop, replace_loop, require_serial
from .primitive import LoopMaker, Made, Primitive


@dataclass(frozen=True, slots=True)
class Split(LoopMaker):
    """Divide a loop in two (`split` in Halide and TVM, `divide_loop` in Exo).

        for i in 0..n: S(i)    ->    for io in 0..ceil(n / factor):
                                         for ii in 0..factor:
                                             if io*factor + ii < n: S(io*factor + ii)

    The guard is left out where `factor` divides n. Legal on every serial loop with factor >= 1:
    each iteration still runs once, in the old order. The new loops are called `loop`o and `loop`i.
    """

    loop: str
    factor: int

    def made(self, nest: Nest) -> Made:
        """The nest after the split, and the outer and the inner loop. ScheduleError: no
        such loop, not serial, factor < 1."""
        loop = find_loop(nest, self.loop, self).loop
        require_serial(loop, self)
        if self.factor < 1:
            raise ScheduleError(self, f"factor must be >= 1, got {self.factor}")
        taken = names_in(nest)
        outer, inner = fresh(f"{self.loop}o", taken), fresh(f"{self.loop}i", taken)
        index = var(outer) * self.factor + var(inner)
        body = substitute_body(loop.body, {self.loop: index})
        body = divide_out(
            body,
            {
                outer: Interval(0, -(-loop.extent // self.factor) - 1),
                inner: Interval(0, self.factor - 1),
            },
        )
        if loop.extent % self.factor:
            body = add_guards(body, (less(index, loop.extent),))
        trips = -(-loop.extent // self.factor)
        inner_loop = For(inner, self.factor, body, reduce=loop.reduce)
        outer_loop = For(outer, trips, (inner_loop,), reduce=loop.reduce)
        return Made(
            replace_loop(nest, self.loop, (outer_loop,)), dict.fromkeys((outer, inner), self.loop)
        )


@dataclass(frozen=True, slots=True)
class Fuse(LoopMaker):
    """Make one loop of two that are perfectly nested (`fuse` in Halide and TVM).

        for i in 0..n:           ->    for f in 0..n*m: S(f // m, f % m)
            for j in 0..m: S(i, j)

    Legal for serial loops that are both spatial or both of a reduction: the order of iterations
    is kept. The new loop is called `outer`f.
    """

    outer: str
    inner: str

    def made(self, nest: Nest) -> Made:
        """The nest after fusing, and the one loop. ScheduleError: not perfectly nested, not
        serial, mixed kinds."""
        outer = find_loop(nest, self.outer, self).loop
        inner = find_loop(nest, self.inner, self).loop
        require_serial(outer, self)
        require_serial(inner, self)
        if outer.body != (inner,):
            raise ScheduleError(
                self, f"{self.inner!r} must be the whole body of {self.outer!r}, and is not"
            )
        if outer.reduce != inner.reduce:
            raise ScheduleError(self, "one loop is spatial and the other of a reduction")
        name = fresh(f"{self.outer}f", names_in(nest))
        fused = var(name)
        mapping = {self.outer: fused // inner.extent, self.inner: fused % inner.extent}
        body = substitute_body(inner.body, mapping)
        loop = For(name, outer.extent * inner.extent, body, reduce=outer.reduce)
        return Made(replace_loop(nest, self.outer, (loop,)), {name: self.outer})


@dataclass(frozen=True, slots=True)
class Reorder(Primitive):
    """Put perfectly nested loops into the order given, outermost first (`reorder`).

    The loops must form one chain, each the whole body of the one before (loops of the chain that
    are not named keep their place). Legal where iterations may run in any order: what the body
    writes it does not read, and reductions combine by associative, commutative operations whose
    first update stays first in every order of serial loops.
    """

    order: tuple[str, ...]

    def apply(self, nest: Nest) -> Nest:
        """The nest reordered. ScheduleError: not one chain, not serial, or order matters."""
        if len(set(self.order)) != len(self.order) or not self.order:
            raise ScheduleError(self, f"name each loop once, got {list(self.order)}")
        found = [find_loop(nest, name, self) for name in self.order]
        top = min(found, key=lambda place: len(place.outer)).loop
        chain: list[For] = []
        current: Stmt = top
        missing = set(self.order)
        while isinstance(current, For):
            chain.append(current)
            require_serial(current, self)
            missing.discard(current.var)
            if not missing or len(current.body) != 1:
                break
            current = current.body[0]
        if missing:
            raise ScheduleError(
                self, f"{sorted(missing)} are not perfectly nested within {top.var!r}"
            )
        check_reorderable(chain[-1].body, self)
        by_name = {loop.var: loop for loop in chain}
        wanted = iter(self.order)
        new_order = [by_name[next(wanted)] if each.var in self.order else each for each in chain]
        body = chain[-1].body
        for loop in reversed(new_order):
            body = (replace(loop, body=body),)
        return replace_loop(nest, top.var, body)


@dataclass(frozen=True, slots=True)
class Partition(LoopMaker):
    """Cut a loop's range in two, each part with a body of its own (`peel`, `cut_loop` in Exo).

        for i in 0..n: S(i)    ->    for i in 0..at: S(i)
                                     for i.t in 0..n-at: S(i.t + at)

    Guards that hold in one part go there when the nest is cleaned up, and inner loops shrink to
    what is left. Legal on every loop that is not vectorised or parallel, for 1 <= at < n: the
    iterations and their order stay. Loops and buffers in the second part get `.t` behind their
    names, so that they can be scheduled on their own.
    """

    loop: str
    at: int

    def made(self, nest: Nest) -> Made:
        """The nest after the cut, and the loops of the second part. ScheduleError: no such
        loop, wrong kind, `at` out of range."""
        loop = find_loop(nest, self.loop, self).loop
        if loop.kind in (LoopKind.VECTORIZED, LoopKind.PARALLEL):
            raise ScheduleError(self, f"loop {self.loop!r} is {loop.kind.value}")
        if not 1 <= self.at < loop.extent:
            raise ScheduleError(self, f"at must be 1..{loop.extent - 1}, got {self.at}")
        taken = names_in(nest)
        loop_names: dict[str, str] = {}
        buffer_names: dict[str, str] = {}
        for stmt in walk((loop,)):
            if isinstance(stmt, For):
                loop_names[stmt.var] = fresh(f"{stmt.var}.t", taken)
                taken.add(loop_names[stmt.var])
            elif isinstance(stmt, Allocate):
                buffer_names[stmt.buffer.name] = fresh(f"{stmt.buffer.name}.t", taken)
                taken.add(buffer_names[stmt.buffer.name])
        head = replace(loop, extent=self.at)
        (tail,) = rename_all((loop,), loop_names, buffer_names)
        assert isinstance(tail, For)
        shifted = substitute_body(tail.body, {tail.var: var(tail.var) + self.at})
        tail = replace(tail, extent=loop.extent - self.at, body=shifted)
        cut = replace_loop(nest, self.loop, (head, tail))
        return Made(cut, {new: old for old, new in loop_names.items()})
